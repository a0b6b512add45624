"""DLPack by ctypes: capsules over memory that kvgrid owns, old ("dltensor") and versioned ("dltensor_versioned", 1.0).

A capsule is either consumed, and then the consumer calls the tensor's deleter when it is done with the memory, or it is not, and then its
destructor calls it. Until the deleter runs, the table below holds the structures and the Buffer they describe."""
import ctypes

CPU, CUDA = 1, 2                        # DLDeviceType
INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4   # DLDataTypeCode


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


_held = {}  # address of the managed tensor -> what it needs alive


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address, held=_held):
    held.pop(address, None)


_python = ctypes.PyDLL(None)  # as ctypes.pythonapi, with types of arguments that nobody else sets
_new = _python.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = _python.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
_NAMES = (b"dltensor", b"dltensor_versioned")  # a consumer renames the capsule


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule, names=_NAMES, is_valid=_is_valid, pointer=_pointer, held=_held):
    for name in names:
        if is_valid(capsule, name):
            held.pop(pointer(capsule, name), None)


# Consumers may call them as late as the interpreter's end, after this module's names are gone.
for _kept in (_delete, _drop):
    _python.Py_IncRef(ctypes.py_object(_kept))
_DELETE = ctypes.cast(_delete, ctypes.c_void_p).value
_DROP = ctypes.cast(_drop, ctypes.c_void_p).value


def capsule(buffer, versioned):
    """A capsule over `buffer`: address, shape, strides (elements), code, bits, device."""
    count = len(buffer.shape)
    numbers = (ctypes.c_int64 * (2 * count))(*buffer.shape, *buffer.strides)
    first = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
    second = ctypes.cast(ctypes.byref(numbers, 8 * count), ctypes.POINTER(ctypes.c_int64))
    kind = buffer.kind
    tensor = DLTensor(buffer.address, buffer.device[0], buffer.device[1], count, kind.code, kind.bits, 1, first, second, 0)
    if versioned:
        managed = DLManagedTensorVersioned(1, 0, None, _DELETE, 0, tensor)
    else:
        managed = DLManagedTensor(tensor, None, _DELETE)
    address = ctypes.addressof(managed)
    _held[address] = (managed, numbers, buffer)
    return _new(address, _NAMES[1 if versioned else 0], _DROP)


def export(buffer, stream, max_version, dl_device, copy):
    """__dlpack__ of the array API."""
    if dl_device is not None and tuple(dl_device) != tuple(buffer.device):
        raise BufferError("the memory is on device %r, not %r: kvgrid's views are not copied" % (tuple(buffer.device), tuple(dl_device)))
    if copy:
        raise BufferError("kvgrid's views are not copied: copy the tensor that they become")
    if stream is not None and buffer.device[0] == CPU:
        raise BufferError("memory of the host has no stream; stream must be None")
    if buffer.device[0] != CPU and stream != -1:
        buffer.synchronize()  # what was given to the device is done, whichever stream the consumer uses
    return capsule(buffer, max_version is not None and tuple(max_version) >= (1, 0))


def held():
    """How many tensors consumers hold; for tests."""
    return len(_held)
