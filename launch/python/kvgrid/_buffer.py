"""Buffer: a piece of memory that kvgrid owns, seen in place. Nothing is copied, and what is written through it is written there.

    buffer.memory                a memoryview, host memory with no gaps (Python 3.12: memoryview(buffer) as well, but for f16); buffer.array: a ctypes array
    numpy.asarray(buffer)        host memory, strided; bf16 and f8 come as unsigned integers, which NumPy has no other names for
    torch.from_dlpack(buffer)    DLPack, host and CUDA memory; bf16 is bf16. jax, cupy and numpy.from_dlpack likewise

The owner stays open as long as a Buffer or an array made of one lives: its close() raises BufferError until then."""
import ctypes
import weakref
from collections import namedtuple

from . import _abi, _dlpack

Kind = namedtuple("Kind", "name code bits ctype typestr format")  # format: struct's, native
F32 = Kind("f32", _dlpack.FLOAT, 32, ctypes.c_float, "<f4", "f")
F16 = Kind("f16", _dlpack.FLOAT, 16, ctypes.c_uint16, "<f2", "H")
BF16 = Kind("bf16", _dlpack.BFLOAT, 16, ctypes.c_uint16, "<u2", "H")
U8 = Kind("u8", _dlpack.UINT, 8, ctypes.c_uint8, "|u1", "B")
U16 = Kind("u16", _dlpack.UINT, 16, ctypes.c_uint16, "<u2", "H")
U32 = Kind("u32", _dlpack.UINT, 32, ctypes.c_uint32, "<u4", "I")
I32 = Kind("i32", _dlpack.INT, 32, ctypes.c_int32, "<i4", "i")
U64 = Kind("u64", _dlpack.UINT, 64, ctypes.c_uint64, "<u8", "Q")

_FORMATS = {_abi.CONSTANTS["KVG_F32"]: F32, _abi.CONSTANTS["KVG_F16"]: F16, _abi.CONSTANTS["KVG_BF16"]: BF16}
HOST = (_dlpack.CPU, 0)


def of_format(code):
    """How elements of a KvFormat are seen: plain ones as themselves, fp8 and block formats as bytes."""
    return _FORMATS.get(code, U8)


class Owner:
    """What memory belongs to: counts the Buffers over it."""

    def __init__(self, device=HOST, synchronize=None):
        self.device, self.synchronize, self.closed = device, synchronize, False
        self._buffers = weakref.WeakSet()

    def check(self):
        if self.closed:
            raise ValueError("the placement that this memory was of is closed")

    def alive(self):
        return len(self._buffers)


class Buffer:
    """shape and strides in elements; `kind.name` is f32, f16, bf16, u8, u16, u32, i32 or u64; device as DLPack counts (1 host, 2 CUDA; number)."""
    __slots__ = ("address", "shape", "strides", "kind", "device", "owner", "__weakref__")

    def __init__(self, address, shape, strides, kind, owner):
        owner.check()
        self.address, self.shape, self.strides, self.kind, self.owner = address, tuple(shape), tuple(strides), kind, owner
        self.device = owner.device
        owner._buffers.add(self)

    def __reduce__(self):
        """copy and pickle: a copy would not count among those that keep the owner open."""
        raise TypeError("a Buffer is memory that is seen in place: copy what is in it, numpy.array(buffer)")

    def __repr__(self):
        return "<kvgrid.Buffer %s%r at 0x%x on %s>" % (self.kind.name, list(self.shape), self.address or 0,
                                                       "the host" if self.device[0] == _dlpack.CPU else "cuda:%d" % self.device[1])

    def _host_only(self, what):
        if self.device[0] != _dlpack.CPU:
            raise BufferError("%s is for host memory, and this is on cuda:%d: torch.from_dlpack(buffer)" % (what, self.device[1]))

    @property
    def bits(self):
        """The same memory as unsigned integers of the element's width: for NumPy, which knows no bf16."""
        kind = {8: U8, 16: U16, 32: U32, 64: U64}[self.kind.bits]
        return Buffer(self.address, self.shape, self.strides, kind, self.owner)

    @property
    def contiguous(self):
        step = 1
        for count, stride in zip(reversed(self.shape), reversed(self.strides)):
            if count != 1 and stride != step:
                return False
            step *= count
        return True

    @property
    def array(self):
        """A ctypes array over the memory, of as many dimensions: an exporter of Python's buffer protocol. BufferError where there are gaps."""
        self._host_only("the buffer protocol")
        if not self.contiguous:
            raise BufferError("strides %r of shape %r leave gaps, which ctypes arrays cannot: numpy.asarray(buffer)" % (self.strides, self.shape))
        kind = self.kind.ctype
        for count in reversed(self.shape):
            kind = kind * count
        made = kind.from_address(self.address)
        made.buffer = self  # keeps the owner open
        return made

    @property
    def memory(self):
        """A memoryview of as many dimensions in a native format, whose items can be read and set; it keeps the owner open. Conditions as `array`."""
        return memoryview(self.array).cast("B").cast(self.kind.format, self.shape)

    def __buffer__(self, flags):  # Python 3.12 and later
        if self.kind is F16:  # ctypes and memoryview have words for it alone; NumPy asks here first, and then finds float16 below
            raise BufferError("f16 as 16-bit words: buffer.memory; as numbers: numpy.asarray(buffer)")
        return self.memory

    @property
    def __array_interface__(self):
        if self.device[0] != _dlpack.CPU:
            raise AttributeError("the memory is on cuda:%d: torch.from_dlpack(buffer)" % self.device[1])
        size = self.kind.bits // 8
        return {"version": 3, "shape": self.shape, "typestr": self.kind.typestr, "data": (self.address, False),
                "strides": tuple(stride * size for stride in self.strides)}

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return _dlpack.export(self, stream, max_version, dl_device, copy)

    def synchronize(self):
        """Waits for all that was given to the device."""
        if self.owner.synchronize is not None:
            self.owner.synchronize()
