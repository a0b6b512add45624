"""What a caller hands in to be read: where it is, its element type, shape and strides, whichever library made it."""
import array
import ctypes

from . import _abi, _dlpack
from ._buffer import Buffer
from ._errors import check
from ._load import lib

F32, F16, BF16 = (_abi.CONSTANTS["KVG_" + name] for name in ("F32", "F16", "BF16"))
FORMATS = {name[4:].lower(): _abi.CONSTANTS[name] for name in ("KVG_POLICY", "KVG_F32", "KVG_F16", "KVG_BF16", "KVG_Q8_0", "KVG_Q5_1", "KVG_Q4_0",
                                                               "KVG_FP8")}
_TORCH = {"torch.float32": F32, "torch.float16": F16, "torch.bfloat16": BF16}
_TYPESTR = {"<f4": F32, "<f2": F16, "<u2": BF16}
_BUFFER = {"f": F32, "e": F16, "H": BF16, "<f": F32, "<e": F16, "<H": BF16}
_KINDS = {"f32": F32, "f16": F16, "bf16": BF16, "u16": BF16}


def format_code(word):
    """A KvFormat by its name or number."""
    if not isinstance(word, str):
        return int(word)
    code = FORMATS.get(word.lower())
    if code is None:  # C's own exception and sentence; a NUL would hide the rest of the word from it
        check(lib.kvg_format_parse(word.replace("\0", "\\0").encode("utf-8", "replace"), ctypes.byref(ctypes.c_int())))
        raise AssertionError("C has a format %s that this module lacks" % word)
    return code


class Data:
    """address, format (None: an address alone), shape and strides in elements (None: packed), cuda, and what keeps it alive."""
    __slots__ = ("address", "format", "shape", "strides", "cuda", "keep")

    def __init__(self, address, format, shape, strides, cuda, keep):
        self.address, self.format, self.shape, self.strides, self.cuda, self.keep = address, format, shape, strides, cuda, keep


def _of_interface(interface, cuda, keep):
    typestr = interface["typestr"]
    if typestr not in _TYPESTR:
        raise TypeError("elements of type %s: give float32, float16, or bf16 as uint16" % typestr)
    strides = interface.get("strides")
    if strides is not None:
        size = int(typestr[2:])
        strides = tuple([stride // size for stride in strides])
    return Data(interface["data"][0], _TYPESTR[typestr], interface["shape"], strides, cuda, keep)


def _of_memory(thing):
    view = memoryview(thing)
    if view.format not in _BUFFER:
        raise TypeError("elements of type %r: give float32, float16, or bf16 as uint16 ('f', 'e', 'H')" % view.format)
    if view.readonly:
        raise TypeError("a read-only buffer has no address for C: give one that can be written, or an array of NumPy")
    first = ctypes.c_char.from_buffer(view)
    strides = None if view.c_contiguous else tuple(stride // view.itemsize for stride in view.strides)
    return Data(ctypes.addressof(first), _BUFFER[view.format], view.shape, strides, False, (view, first))


def _of_address(thing):
    return Data(int(thing), None, None, None, None, None)


def _of_torch(thing):
    name = str(thing.dtype)
    if name not in _TORCH:
        raise TypeError("elements of type %s: give float32, float16 or bfloat16" % name)
    return Data(thing.data_ptr(), _TORCH[name], tuple(thing.shape), tuple(thing.stride()), thing.device.type == "cuda", thing)


def _of_buffer(thing):
    if thing.kind.name not in _KINDS:
        raise TypeError("elements of type %s: give f32, f16 or bf16" % thing.kind.name)
    return Data(thing.address, _KINDS[thing.kind.name], thing.shape, thing.strides, thing.device[0] == _dlpack.CUDA, thing)


def _of_cupy(thing):
    return _of_interface(thing.__cuda_array_interface__, True, thing)


def _of_numpy(thing):
    return _of_interface(thing.__array_interface__, False, thing)


_readers = {}  # type -> one of the above


def _reader(thing):
    if isinstance(thing, int):
        return _of_address
    if isinstance(thing, Buffer):
        return _of_buffer
    for name, reader in (("data_ptr", _of_torch), ("__cuda_array_interface__", _of_cupy), ("__array_interface__", _of_numpy)):
        if hasattr(thing, name):
            return reader
    return _of_memory


def data(thing):
    """Of an address, a tensor of PyTorch, an array of NumPy or CuPy, a Buffer, or anything with Python's buffer protocol."""
    reader = _readers.get(type(thing))
    if reader is None:
        reader = _readers[type(thing)] = _reader(thing)
    return reader(thing)


def tokens_of(made, name, heads, dim, cuda):
    """(tokens, token_stride, head_stride) of [tokens][heads][dim] or [tokens][heads*dim]; (None, 0, 0) for an address alone."""
    if made.shape is None:
        return None, 0, 0
    if made.cuda != cuda:
        raise ValueError("%s is in memory of %s, and the placement's device is %s" % (name, "a GPU" if made.cuda else "the host", "a GPU" if cuda else "the host"))
    shape, strides = made.shape, made.strides
    if shape[1:] == (heads, dim):
        if strides is None:
            return shape[0], 0, 0
        if strides[2] == 1 or dim == 1:
            return shape[0], strides[0], strides[1]
    elif shape[1:] == (heads * dim,):
        if strides is None:
            return shape[0], 0, 0
        if strides[1] == 1:
            return shape[0], strides[0], dim
    raise ValueError("%s has shape %r and strides %r: this layer takes [tokens][%d heads][%d], the last dimension without gaps" % (
        name, tuple(shape), strides, heads, dim))


_CODES = {ctypes.c_uint32: "I", ctypes.c_uint64: "Q"}


def numbers(kind, values, count, name, places="places"):
    """A ctypes array of `count` whole numbers, or None. ctypes alone would cut a number that does not fit to its low bits."""
    if values is None:
        return None
    values = list(values)
    if len(values) != count:
        raise ValueError("%s has %d values for %d %s" % (name, len(values), count, places))
    try:
        return (kind * count).from_buffer(array.array(_CODES[kind], values)) if count else (kind * 0)()
    except OverflowError:
        raise OverflowError("%s %r: each is from 0 to %d" % (name, values, (1 << 8 * ctypes.sizeof(kind)) - 1)) from None


def whole(value, bits, name):
    """`value`, if it is a whole number of so many bits without a sign: what ctypes would cut is refused."""
    if isinstance(value, int) and not 0 <= value < 1 << bits:
        raise OverflowError("%s is %d: it goes from 0 to %d" % (name, value, (1 << bits) - 1))
    return value


def set_field(struct, name, value):
    """struct.name = value, if it is there afterwards."""
    setattr(struct, name, value)
    if isinstance(value, int) and isinstance(getattr(struct, name), int) and getattr(struct, name) != value:
        raise OverflowError("%s is %d, which its field of %s does not hold" % (name, value, type(struct).__name__))
