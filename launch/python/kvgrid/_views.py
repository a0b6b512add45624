"""Views: where rows are, as Buffers (view.h, latent.h, recurrent.h). Addresses are constant for the life of the placement."""
import ctypes

from . import _abi
from ._buffer import F32, I32, U8, Buffer, of_format

CHUNK_ROWS = _abi.CONSTANTS["KVG_CHUNK_ROWS"]


class _Fields:
    """The fields of a C structure as attributes."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._struct, name)


def _words(pointer, shape, strides, owner):
    """int32 words of tables and lengths; lengths are below 2^31."""
    return Buffer(ctypes.cast(pointer, ctypes.c_void_p).value, shape, strides, I32, owner)


def words_of(pointer, count, owner):
    return _words(pointer, (count,), (1,), owner)


class Plane(_Fields):
    """One plane of one layer on this rank: the fields of KvPlane, and its memory.

    Elements of f32, f16 and bf16 planes are themselves; a head of a row in fp8 or a block format is `head_bytes` bytes of u8."""

    def __init__(self, struct, view, heads, per_chunk, owner, units):
        self._struct, self._view, self._heads, self._per_chunk, self._owner, self._units = struct, view, heads, per_chunk, owner, units
        self.kind = of_format(struct.format)
        self.elements = struct.head_dim if self.kind is not U8 else struct.head_bytes
        self._size = self.kind.bits // 8

    def _address(self):
        return ctypes.cast(self._struct.base, ctypes.c_void_p).value

    def _buffer(self, address, *dimensions):
        """dimensions: (count, stride in bytes), the last of single elements."""
        shape = [count for count, _ in dimensions] + [self.elements]
        strides = [stride // self._size for _, stride in dimensions] + [1]
        return Buffer(address, shape, strides, self.kind, self._owner)

    @property
    def chunks(self):
        """Pools: the whole plane, [chunk][head][row in the chunk][element]. Row r of slot s is [table[s][r // 64], head, r % 64]; pooled keys
        of an indexer have 64 / pool rows a chunk. As many chunks as the pool has now: a resize changes their number, not where they are."""
        if self._per_chunk == 0:
            raise ValueError("flat planes have no chunks: slot()")
        plane = self._struct
        return self._buffer(self._address(), (self._units(), plane.chunk_bytes), (self._heads, plane.head_stride), (self._per_chunk, plane.row_stride))

    def slot(self, slot, rows):
        """Flat planes: `rows` physical rows of a slot, [row][head][element]; absolute row r is at (r - base_row[slot]) mod ring_rows.
        No more rows than the sequence has booked have memory behind them."""
        if self._per_chunk != 0:
            raise ValueError("pools have no planes of one slot: chunks, or runs()")
        plane = self._struct
        self._view._check_slot(slot)
        if not 0 <= rows <= self._view.ring_rows:
            raise ValueError("%d rows of a slot: its plane has %d" % (rows, self._view.ring_rows))
        return self._buffer(self._address() + slot * plane.slot_bytes, (rows, plane.row_stride), (self._heads, plane.head_stride))

    def runs(self, slot, row, past):
        """Absolute rows [row, past) of a slot as (first row, Buffer [head][row][element]) of each stretch without a break. Tables in host memory."""
        while row < past:
            address, count = self._run(slot, row, past)
            yield row, self._buffer(address, (self._heads, self._struct.head_stride), (count, self._struct.row_stride))
            row += count

    def _run(self, slot, row, past):
        view, plane = self._view._struct, self._struct
        self._owner.check()
        self._view._host_tables()
        self._view._check_slot(slot)
        if row < 0:
            raise ValueError("row %d: rows count from 0" % row)
        if self._per_chunk == 0:
            base_row = view.base_row[slot]
            physical = (row - base_row) % view.ring_rows
            if row < base_row:
                raise ValueError("row %d of slot %d is no longer held: the first is %d" % (row, slot, base_row))
            return self._address() + slot * plane.slot_bytes + physical * plane.row_stride, min(past - row, view.ring_rows - physical)
        entry, within = divmod(row, self._per_chunk)
        chunk = view.table[slot * view.table_stride + entry] if entry < view.table_stride else -1
        if chunk < 0:
            raise ValueError("row %d of slot %d is not held on this rank" % (row, slot))
        return self._address() + chunk * plane.chunk_bytes + within * plane.row_stride, min(past - row, self._per_chunk - within)


class _View(_Fields):
    def __init__(self, struct, owner, slots, units):
        self._struct, self._owner, self._slots, self._units = struct, owner, slots, units

    def _check_slot(self, slot):
        if not 0 <= slot < self._slots:
            raise ValueError("slot %d: this placement has %d" % (slot, self._slots))

    def _host_tables(self):
        if self._owner.device[0] != 1:
            raise ValueError("tables are in memory of a GPU: index view.k.chunks by view.table there, or read by Sequence.read")

    @property
    def table(self):
        """[slots][table_stride] chunk ids, -1 where none is held; None for flat planes."""
        view = self._struct
        return _words(view.table, (self._slots, view.table_stride), (view.table_stride, 1), self._owner) if view.table else None

    @property
    def len(self):
        """[slots] committed rows, as they are now; int32, like all words of a view."""
        return _words(self._struct.len, (self._slots,), (1,), self._owner)

    @property
    def len_staged(self):
        """[slots] rows that this step's own attention may read."""
        return _words(self._struct.len_staged, (self._slots,), (1,), self._owner)


class PlaneView(_View):
    """Where layer `il`'s rows are: the fields of KvPlaneView; `k` and `v` are Planes; table, len, len_staged and base_row are Buffers."""

    def __init__(self, struct, owner, slots, units):
        super().__init__(struct, owner, slots, units)
        self.k, self.v = (Plane(plane, self, struct.heads, struct.rows_per_chunk, owner, units) for plane in (struct.k, struct.v))

    @property
    def base_row(self):
        """[slots] the first absolute row that this layer's class still holds."""
        return _words(self._struct.base_row, (self._slots,), (1,), self._owner)


class LatentView(_View):
    """Where a latent layer's rows, keys and index rows are: the fields of KvLatentView; latent, keys and index are Planes of one head."""

    def __init__(self, struct, owner, slots, units):
        super().__init__(struct, owner, slots, units)
        per_chunk = struct.rows_per_chunk
        pooled = per_chunk // struct.pool if struct.pool else per_chunk
        self.latent = Plane(struct.latent, self, 1, per_chunk, owner, units)
        self.keys = Plane(struct.keys, self, 1, pooled, owner, units) if struct.key_width else None
        self.index = Plane(struct.index, self, 1, per_chunk, owner, units) if struct.pool and struct.ring_rows == 0 else None

    @property
    def ring(self):
        """[slots][ring_rows][index row's bytes]: absolute row r is at r mod ring_rows. None where there is no ring."""
        view = self._struct
        if not view.ring_rows:
            return None
        address = ctypes.cast(view.ring, ctypes.c_void_p).value
        kind = of_format(view.index.format)
        size = kind.bits // 8
        return Buffer(address, (self._slots, view.ring_rows, view.index_width), (view.ring_slot_bytes // size, view.index_row_bytes // size, 1), kind,
                      self._owner)

    @property
    def pools_ready(self):
        """[slots] committed pools."""
        return _words(self._struct.pools_ready, (self._slots,), (1,), self._owner)


class RecurrentView(_Fields):
    """A recurrent layer's state: the fields of KvRecurrentView; conv and state are f32 Buffers [slots][columns][elements]."""

    def __init__(self, struct, owner, slots):
        self._struct, self._owner, self._slots = struct, owner, slots

    def _columns(self, pointer, elements, slot_stride):
        view = self._struct
        return Buffer(ctypes.cast(pointer, ctypes.c_void_p).value, (self._slots, view.columns, elements), (slot_stride, elements, 1), F32, self._owner)

    @property
    def conv(self):
        return self._columns(self._struct.conv, self._struct.conv_elements, self._struct.conv_slot_stride)

    @property
    def state(self):
        return self._columns(self._struct.state, self._struct.state_elements, self._struct.state_slot_stride)

    @property
    def read(self):
        return _words(self._struct.read, (self._slots,), (1,), self._owner)

    @property
    def write(self):
        return _words(self._struct.write, (self._slots,), (1,), self._owner)

    @property
    def each(self):
        return _words(self._struct.each, (self._slots,), (1,), self._owner)
