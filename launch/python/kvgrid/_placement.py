"""ModelConfig, Device, Placement, Sequence, Snapshot: model.h, dev.h, placement.h, sequence.h."""
import ctypes
import os
import weakref
from ctypes import byref

from . import _abi
from ._buffer import HOST, Buffer, Owner
from ._call import initial, sized
from ._data import data, format_code, numbers, set_field, tokens_of, whole
from ._errors import NotSupported, check, check_made
from ._grid import start
from ._handle import Handle
from ._load import lib
from ._views import PlaneView

_SEQUENCE = ctypes.POINTER(_abi.KvgSequence)
_PLACEMENT = ctypes.POINTER(_abi.KvgPlacement)
_ROWLESS = 0xFFFFFFFF  # class_of_layer of a layer without rows


def _path_bytes(path):
    """As C takes it: to its first NUL, so none is allowed."""
    made = os.fsencode(path)
    if b"\0" in made:
        raise ValueError("a path with a NUL in it: %r" % (path,))
    return made


class ModelConfig(Handle):
    """A model's config and plan: from a path, or from `json` text or `gguf` bytes. `struct` is the C ModelConfig."""

    def __init__(self, path=None, json=None, gguf=None, name="config"):
        if sum(given is not None for given in (path, json, gguf)) != 1:
            raise TypeError("a ModelConfig is made of one of path, json and gguf")
        self.struct = _abi.ModelConfig()
        self._take(ctypes.pointer(self.struct))
        if json is not None:
            text = json.encode() if isinstance(json, str) else json
            check_made(lib.kvg_model_config_parse_json(text, len(text), name.encode(), self.struct))
        elif gguf is not None:
            check_made(lib.kvg_model_config_parse_gguf(gguf, len(gguf), name.encode(), self.struct))
        else:
            check_made(lib.kvg_model_config_load(_path_bytes(path), self.struct))

    def _about(self):
        return " %s: %d layers" % (self.name, self.n_layer)

    @property
    def name(self):
        return self.struct.name.decode()

    @property
    def n_layer(self):
        return self.struct.plan.n_layer

    @property
    def n_mtp(self):
        return self.struct.plan.n_mtp

    @property
    def layers(self):
        """Copies of the StatePlans, the trunk's and then the MTP blocks'."""
        plan = self.struct.plan
        return [_abi.StatePlan.from_buffer_copy(plan.layers[il]) for il in range(plan.n_layer + plan.n_mtp)]

    def bytes_per_token(self):
        made = ctypes.c_uint64()
        check(lib.kvg_cache_bytes_per_token(self, byref(made)))
        return made.value

    def close(self):
        if self._give() is not None:
            lib.kvg_model_config_free(self.struct)


class Device(Handle):
    """A KvDev: kvgrid.dev_host() or kvgrid.dev_cuda(ordinal). Outlives the placements on it: close() raises BufferError while there are any."""

    def __init__(self, struct, kind):
        self._take(ctypes.pointer(struct))
        self.struct, self.kind, self._placements = struct, kind, weakref.WeakSet()

    def _about(self):
        return ": host memory" if self.kind == HOST else ": GPU %d" % self.kind[1]

    def synchronize(self, stream=None):
        """Waits for the stream; None: for everything given to the device so far."""
        struct = self._as_parameter_.contents
        check(struct.ops.contents.synchronize(struct.self, stream))

    def taken_bytes(self):
        struct = self._as_parameter_.contents
        return struct.ops.contents.taken_bytes(struct.self)

    def close(self):
        if self._handle is None:
            return
        if self._placements:
            raise BufferError("%d placements stand on this device: close them first" % len(self._placements))
        lib.kvg_dev_close(self._give())


def dev_host():
    """Host memory."""
    struct = _abi.KvDev()
    check_made(lib.kvg_dev_host(struct))
    return Device(struct, HOST)


def dev_cuda(device=0, **options):
    """A GPU; options are the fields of KvgCudaOptions. NotSupported where this library has no CUDA in it or the machine no GPU."""
    if not lib.has("kvg_dev_cuda"):
        raise NotSupported(_abi.CONSTANTS["KVG_ENOTSUP"], "%s was built without CUDA: libkvgrid_gpu.so is the library with it" % lib.path)
    struct = _abi.KvDev()
    check_made(lib.kvg_dev_cuda(initial("KVG_CUDA_OPTIONS_INIT")(device=device, **options), struct))
    return Device(struct, (2, device))


_FORMATS = ("format_k", "format_v", "format_latent")
_LAYOUTS = {"pool": _abi.CONSTANTS["KVG_LAYOUT_POOL"], "flat": _abi.CONSTANTS["KVG_LAYOUT_FLAT"]}


def _place_options(grid, config, device, fields):
    counts = {"layer_bytes": (ctypes.c_uint64, config.n_layer + config.n_mtp, "layers"), "fence": (ctypes.c_uint32, grid.pp + 1, "ends of stages")}
    options = initial("KVG_PLACE_OPTIONS_INIT")()
    for name, value in fields.items():
        if name in _FORMATS:
            value = format_code(value)
        elif name == "layout":
            value = _LAYOUTS.get(value, value)
        elif name in counts:
            kind, count, what = counts[name]
            value = numbers(kind, value, count, name, what)
        elif not hasattr(_abi.KvgPlaceOptions, name) or name in ("size", "device"):
            raise TypeError("KvgPlaceOptions has no field %s" % name)
        set_field(options, name, value)
    if device is not None:
        options.device = device._as_parameter_
    return options


def place_start(grid, config, device=None, **options):
    """kvg_place_start: a Setup whose result is the Placement."""
    handle, made = _PLACEMENT(), _place_options(grid, config, device, options)
    placement = Placement.__new__(Placement)
    if device is not None:
        device._placements.add(placement)  # from here on: what is started uses it
    return start(lib.kvg_place_start, grid, config.struct, made, byref(handle), finish=lambda: placement._lay(handle, grid, device),
                 needs=(grid, config, made, handle))


class Placement(Handle):
    """A model laid over a grid. Reach: setup.

    config     a ModelConfig; may be closed afterwards
    device     None: host memory of the placement's own
    options    the fields of KvgPlaceOptions: memory_bytes, max_sequences, format_k="bf16", layout="flat", ctx, fence, ..."""

    def __init__(self, grid, config, device=None, **options):
        handle = _PLACEMENT()
        check_made(lib.kvg_place(grid, config.struct, _place_options(grid, config, device, options), byref(handle)))
        self._lay(handle, grid, device)

    def _lay(self, handle, grid, device):
        self._take(handle, grid)
        self.grid, self.device, self._views = grid, device, {}
        self._owner = Owner(HOST if device is None else device.kind, None if device is None else device.synchronize)
        self.cuda = self._owner.device != HOST
        if device is not None:
            device._placements.add(self)
        return self

    def _about(self):
        return ": layers %d to %d, %d sequences" % (self.layers.start, self.layers.stop - 1, self.plan.slots)

    @property
    def plan(self):
        """The agreed numbers: a C KvGridPlan."""
        return lib.kvg_placement_plan(self).contents

    @property
    def layers(self):
        """This rank's layers, as a range."""
        lo, hi = ctypes.c_uint32(), ctypes.c_uint32()
        lib.kvg_placement_layers(self, byref(lo), byref(hi))
        return range(lo.value, hi.value)

    def _units(self, il):
        """How many chunks the pool of a layer's class has, asked anew each time."""
        plan = self.plan
        place = plan.class_of_layer[il]
        return plan.classes[place].units if place != _ROWLESS else 0

    def view(self, il):
        """Where layer `il`'s rows are on this rank: a PlaneView."""
        view = self._views.get(il)
        if view is None:
            view = self._views[il] = self._see(lib.kvg_placement_view(self, il), PlaneView, lambda: self._units(il))
        return view

    def _see(self, pointer, made_of, *more):
        if not pointer:
            check(_abi.CONSTANTS["KVG_EINVAL"])
        struct = type(pointer.contents).from_buffer_copy(pointer.contents)  # constant while the placement lives, and may be looked at later
        return made_of(struct, self._owner, self.plan.slots, *more)

    def flush(self, stream=None):
        check(lib.kvg_placement_flush(self, stream))

    def ledger(self):
        made = _abi.KvgLedger()
        made.size = ctypes.sizeof(made)
        lib.kvg_placement_ledger(self, made)
        return made

    def resize(self, memory_bytes):
        check(lib.kvg_placement_resize(self, whole(memory_bytes, 64, "memory_bytes")))

    def resize_start(self, memory_bytes):
        return start(lib.kvg_placement_resize_start, self, whole(memory_bytes, 64, "memory_bytes"), needs=(self,))

    def prepare(self, memory_bytes):
        check(lib.kvg_placement_prepare(self, whole(memory_bytes, 64, "memory_bytes")))

    def sleep(self):
        """Gives the memory back on every rank, keeping its addresses. Views stay, and what they show must not be touched until wake()."""
        check(lib.kvg_placement_sleep(self))

    def wake(self):
        check(lib.kvg_placement_wake(self))

    @property
    def asleep(self):
        return bool(lib.kvg_placement_asleep(self))

    def stats(self):
        """Counters of this rank and its bytes: a C KvgStats."""
        made = sized(_abi.KvgStats)
        check(lib.kvg_stats(self, made))
        return made

    def layer_counts(self, il):
        made = _abi.KvEncodeCounts()
        check(lib.kvg_layer_counts(self, il, made))
        return made

    def sequence_open(self, id, rows=0):
        """An empty Sequence. Reach: posted."""
        handle = _SEQUENCE()
        check_made(lib.kvg_sequence_open(self, whole(id, 64, "id"), whole(rows, 64, "rows"), byref(handle)))
        return Sequence(handle, self)

    def batch_create(self, slots):
        from ._step import Batch
        return Batch(self, slots)

    def close(self):
        """Closes batches, sequences and snapshots too, and gives back all memory. BufferError while views of it are alive. Reach: local."""
        if self._handle is None:
            return
        if self._owner.alive():
            raise BufferError("%d views of this placement's memory are alive: delete them, and the arrays and tensors made of them, first" %
                              self._owner.alive())
        self._close_made()
        self._owner.closed = True
        if self.device is not None:
            self.device._placements.discard(self)
        lib.kvg_placement_destroy(self._give())


class Sequence(Handle):
    """One sequence. All but info, read, row, snapshot, taint, fill_kv and what is said to be local are posted calls: every rank makes them in one order."""

    def __init__(self, handle, placement):
        self._take(handle, placement).placement = placement

    def _about(self):
        info = self.info()
        return " %d: %d rows of %d booked" % (info.id, info.rows, info.rows_booked)

    def book(self, rows):
        check(lib.kvg_sequence_book(self, whole(rows, 64, "rows")))

    def rewind(self, rows):
        check(lib.kvg_sequence_rewind(self, whole(rows, 64, "rows")))

    def trim(self):
        check(lib.kvg_sequence_trim(self))

    def fork(self, rows, id):
        """A second Sequence with the first `rows` committed rows."""
        handle = _SEQUENCE()
        check_made(lib.kvg_sequence_fork(self, whole(rows, 64, "rows"), whole(id, 64, "id"), byref(handle)))
        return Sequence(handle, self.placement)

    def snapshot(self):
        return Snapshot(self)

    def can_rollback(self, snapshot, accept=0):
        return bool(lib.kvg_sequence_can_rollback(self, snapshot, accept))

    def rollback(self, snapshot, accept=0):
        check(lib.kvg_sequence_rollback(self, snapshot, accept))

    def restore(self, rows, first_row=0):
        check(lib.kvg_sequence_restore(self, rows, first_row))

    def fill_kv(self, il, row, rows, k, v, dtype=None, stream=None):
        """Encodes rows [row, row+rows) of layer `il` into a fresh sequence's booked room: [rows][heads][dim]. Reach: local."""
        view = self.placement.view(il)
        made = rows_in(k, v, dtype, view.heads, view.k.head_dim, view.v.head_dim, self.placement.cuda, rows)
        check(lib.kvg_sequence_fill_kv(self, il, row, rows, made, stream))

    def taint(self):
        check(lib.kvg_sequence_taint(self))

    def park_logits(self, logits):
        """Keeps a copy of a row of f32 logits; None forgets them."""
        if logits is None:
            return check(lib.kvg_sequence_park_logits(self, None, 0))
        array = (ctypes.c_float * len(logits))(*logits)
        check(lib.kvg_sequence_park_logits(self, array, len(logits)))

    def parked_logits(self):
        """A copy of the parked row as a list, or None."""
        count = ctypes.c_uint32()
        pointer = lib.kvg_sequence_parked_logits(self, byref(count))
        return pointer[:count.value] if pointer else None

    def info(self):
        """A C KvgSequenceInfo. Reach: local."""
        made = _abi.KvgSequenceInfo()
        made.size = _INFO_BYTES
        status = _sequence_info(self._as_parameter_, made)
        if status:
            check(status)
        return made

    def read(self, il, plane, row, rows):
        """Decoded rows [row, row+rows) of plane kvgrid.PLANE_K or _V, f32 [rows][heads][dim], a ctypes array of its own (numpy.asarray takes it)."""
        view = self.placement.view(il)
        dim = view.v.head_dim if plane == _abi.CONSTANTS["KVG_PLANE_V"] else view.k.head_dim
        target = (ctypes.c_float * dim * view.heads * rows)()
        check(lib.kvg_sequence_read(self, il, plane, row, rows, ctypes.cast(target, ctypes.POINTER(ctypes.c_float))))
        return target

    def row(self, il, plane, head, row):
        """The stored bytes of one row of one head, in place: a Buffer [elements] or, in fp8 and block formats, [head_bytes]. Host memory."""
        view = self.placement.view(il)
        of = view.v if plane == _abi.CONSTANTS["KVG_PLANE_V"] else view.k
        address = lib.kvg_sequence_row(self, il, plane, head, row)
        if not address:
            check(_abi.CONSTANTS["KVG_EINVAL"])
        return Buffer(ctypes.cast(address, ctypes.c_void_p).value, (of.elements,), (1,), of.kind, self.placement._owner)

    def digest(self):
        """The digest of the committed rows, as 32 hex digits, the same on every rank. Reach: setup."""
        made = _abi.KvDigest()
        check(lib.kvg_sequence_digest(self, made))
        return digest_hex(made)

    def digest_start(self):
        made = _abi.KvDigest()
        return start(lib.kvg_sequence_digest_start, self, made, finish=lambda: digest_hex(made), needs=(self, made))

    def close(self, stream=None):
        """Closes it, in any state. Reach: posted. A Sequence that is merely forgotten stays open, until its placement closes."""
        if self._handle is not None:
            check(lib.kvg_sequence_close(self._give(), stream))

    def _close_by_owner(self):
        self._give()  # kvg_placement_destroy closes it: no posted call


class Snapshot(Handle):
    """Lengths and state of a sequence to go back to: Sequence.rollback."""

    def __init__(self, sequence):
        handle = ctypes.POINTER(_abi.KvgSnapshot)()
        check_made(lib.kvg_sequence_snapshot(sequence, byref(handle)))
        self._take(handle, sequence.placement).sequence = sequence

    def refresh(self):
        """kvg_sequence_snapshot_into: no allocation."""
        check(lib.kvg_sequence_snapshot_into(self.sequence, self))

    def close(self):
        if self._handle is not None:
            lib.kvg_snapshot_free(self._give())


def digest_hex(digest):
    text = ctypes.create_string_buffer(33)
    lib.kvg_digest_hex(digest, text)
    return text.value.decode()


def rows_in(k, v, dtype, heads, dim_k, dim_v, cuda, tokens, made=None):
    """A KvgRows over k and v, after a look at their shapes; `tokens` of them are read (None: not known here)."""
    made = initial("KVG_ROWS_INIT")() if made is None else made
    of_k, of_v = data(k), data(v)
    if dtype is None:
        if of_k.format is None or of_k.format != of_v.format:
            raise TypeError("k and v must be of one element type, and addresses need dtype=")
        dtype = of_k.format
    count_k, made.token_stride_k, made.head_stride_k = tokens_of(of_k, "k", heads, dim_k, cuda)
    count_v, made.token_stride_v, made.head_stride_v = tokens_of(of_v, "v", heads, dim_v, cuda)
    for name, count in (("k", count_k), ("v", count_v)):
        if count is not None and tokens is not None and count < tokens:
            raise ValueError("%s has %d tokens, and %d are written" % (name, count, tokens))
    made.k, made.v, made.dtype = of_k.address, of_v.address, format_code(dtype)
    made.first_token = None
    made.keep = (of_k, of_v)
    return made


_INFO_BYTES = ctypes.sizeof(_abi.KvgSequenceInfo)
_sequence_info = lib.kvg_sequence_info
