"""Batch, Step, Outcome and Graph: step.h and run.h."""
import ctypes
from ctypes import byref

from . import _abi
from ._call import initial, sized
from ._data import numbers, whole
from ._errors import check, check_made, error
from ._handle import Handle
from ._load import lib
from ._placement import rows_in
from ._views import LatentView, PlaneView, RecurrentView, words_of

_STEP = ctypes.POINTER(_abi.KvgStep)
_OUTCOME_BYTES = ctypes.sizeof(_abi.KvgOutcome)
_KINDS = {_abi.CONSTANTS["KVG_OUTCOME_" + name.upper()]: name for name in ("published", "refused", "disagree", "unaccepted", "tainted", "settled_back")}
_begin, _post, _wait, _test, _rows, _write_kv = (lib.kvg_step_begin, lib.kvg_step_post, lib.kvg_step_wait, lib.kvg_step_test, lib.kvg_step_rows,
                                                 lib.kvg_write_kv)


class Outcome:
    """What a step ended in: the fields of KvgOutcome, `kind` as a word, `accepted` and `replay` as lists by place."""
    __slots__ = ("step", "kind", "status", "rank", "rank_b", "reason", "field", "accepted", "replay")

    def __init__(self, struct, slots):
        self.step, self.kind, self.status = struct.step, _KINDS[struct.kind], struct.status
        self.rank, self.rank_b, self.reason = struct.rank, struct.rank_b, struct.reason
        self.field = struct.field.decode() if struct.field else ""
        self.accepted = struct.accepted[:slots] if struct.accepted else [0] * slots
        self.replay = struct.replay[:slots] if struct.replay else [0] * slots

    def __repr__(self):
        return "<Outcome of step %d: %s, accepted %r>" % (self.step, self.kind, self.accepted)


class Batch(Handle):
    """`slots` fixed places for sequences."""

    def __init__(self, placement, slots):
        handle = ctypes.POINTER(_abi.KvgBatch)()
        check_made(lib.kvg_batch_create(placement, whole(slots, 32, "slots"), byref(handle)))
        self._take(handle, placement)
        self.placement, self.slots_count = placement, slots
        self._in = initial("KVG_ROWS_INIT")()
        self._shapes, self._views = {}, {}  # layer -> (heads, head_dim_k, head_dim_v), PlaneView: constant for the batch's life
        self._step = None

    def set(self, slot, sequence):
        """Puts a Sequence into a place; None empties it. Reach: posted."""
        check(lib.kvg_batch_set(self, whole(slot, 32, "slot"), sequence))

    @property
    def slots(self):
        """[slots] the sequences' slots in tables and lengths, -1 for empty places: an int32 Buffer at a constant address."""
        return words_of(lib.kvg_batch_slots(self), self.slots_count, self.placement._owner)

    def plane_view(self, il):
        """Where layer `il`'s rows are: a PlaneView."""
        view = self._views.get(il)
        if view is None:
            view = self._views[il] = self.placement._see(lib.kvg_plane_view(self, il), PlaneView, lambda: self.placement._units(il))
        return view

    def latent_view(self, il):
        return self.placement._see(lib.kvg_latent_view(self, il), LatentView, lambda: self.placement._units(il))

    def recurrent_view(self, il):
        return self.placement._see(lib.kvg_recurrent_view(self, il), RecurrentView)

    def step_begin(self, rows):
        """Plans a Step of rows[slot] rows for each place. Reach: posted. Who is left out: Step.refusal."""
        handle = _STEP()
        status = _begin(self._as_parameter_, numbers(ctypes.c_uint32, rows, self.slots_count, "rows"), byref(handle))
        if status:
            check(status)
        self._step = Step(handle, [self])
        return self._step

    def _shape(self, il):
        shape = self._shapes.get(il)
        if shape is None:
            view = self.plane_view(il)
            shape = self._shapes[il] = (view.heads, view.k.head_dim, view.v.head_dim)
        return shape

    def _tokens(self, first_token):
        """How many tokens the current pass reads of arrays that stand packed; None where that is not known."""
        return self._step._tokens_of(self) if self._step is not None and first_token is None else None

    def write_kv(self, il, k, v, dtype=None, first_token=None, stream=None):
        """Encodes the current pass's rows of layer `il`: k and v [tokens][heads of this rank][head_dim] in the device's memory, read in place (in
        stream order). float32, float16 or bfloat16 (uint16 in NumPy); `dtype` is needed for bare addresses. Reach: local."""
        heads, dim_k, dim_v = self._shape(il)
        made = rows_in(k, v, dtype, heads, dim_k, dim_v, self.placement.cuda, self._tokens(first_token), self._in)
        if first_token is not None:
            made.first_token = numbers(ctypes.c_uint32, first_token, self.slots_count, "first_token")
        status = _write_kv(self._as_parameter_, il, made, stream)
        made.keep = None
        if status:
            check(status)

    def write_latent(self, il, latent, index=None, dtype=None, first_token=None, key=None, stream=None):
        """Rows of a latent layer, [tokens][width], and what its indexer gets, [tokens][index_width]. key(layer, pool_index, rows, key): pooled
        indexers; rows [pool][index_width] and key [key_width] are ctypes arrays of floats over C's memory, for that call alone. Reach: local."""
        from ._latent import latent_rows
        made, finish = latent_rows(self, il, latent, index, dtype, first_token, key)
        status = lib.kvg_write_latent(self, il, made, stream)
        finish()
        check(status)

    def recurrent_update(self, il, fill, decay=1.0, stream=None):
        """The reference update of a recurrent layer: fill(il, slot, row, x, u) fills two ctypes arrays of floats for one row. Reach: local."""
        from ._latent import recurrent_rows
        made = recurrent_rows(self, il, fill, decay)
        check(lib.kvg_recurrent_update(self, il, made, stream))

    def capture_begin(self, stream, rows=None, accept=0):
        """Starts capturing this batch's step on a CUDA stream (run.h); `accept`: kvgrid.ACCEPT_ALL, _DEVICE or _OTHERS."""
        made = initial("KVG_CAPTURE_INIT")(accept=accept)
        if rows is not None:
            made.rows_per_slot = numbers(ctypes.c_uint32, rows, self.slots_count, "rows")
        check(lib.kvg_batch_capture_begin(self, made, stream))

    def capture_end(self):
        """Adds the vote, ends the capture: a Graph."""
        handle = ctypes.POINTER(_abi.KvgGraph)()
        check(lib.kvg_batch_capture_end(self, byref(handle)))
        return Graph(handle, self)

    def run_arrays(self):
        """A C KvgRunArrays: device memory by place of the batch."""
        made = sized(_abi.KvgRunArrays)
        check(lib.kvg_run_arrays(self, made))
        return made

    def close(self):
        if self._handle is not None:
            self._close_made()
            lib.kvg_batch_destroy(self._give())


def step_begin_joint(batches, rows):
    """A Step over several batches, rows[i][slot] rows each: one vote commits all."""
    batches = list(batches)
    arrays = [numbers(ctypes.c_uint32, of, batch.slots_count, "rows") for batch, of in zip(batches, rows)]
    pointer = ctypes.POINTER(ctypes.c_uint32)
    handle = _STEP()
    check(lib.kvg_step_begin_joint((ctypes.POINTER(_abi.KvgBatch) * len(batches))(*[batch._as_parameter_ for batch in batches]),
                                   (pointer * len(batches))(*[ctypes.cast(array, pointer) for array in arrays]), len(batches), byref(handle)))
    step = Step(handle, batches)
    for batch in batches:
        batch._step = step
    return step


class Step:
    """begin -> write, attend (-> extend -> write, attend ..) -> post -> test or wait. Every begun step is posted exactly once."""

    def __init__(self, handle, batches):
        self._handle, self._grid, self.batches = handle, batches[0].placement.grid, batches
        self.slots_count = sum(batch.slots_count for batch in batches)
        self._planned = self._tokens = None

    @property
    def _as_parameter_(self):
        if self._grid._handle is None:
            raise ValueError("the grid of this step is closed")
        return self._handle

    def extend(self, rows):
        """Another pass of the same step."""
        self._planned = self._tokens = None
        check(lib.kvg_step_extend(self, numbers(ctypes.c_uint32, rows, self.slots_count, "rows")))

    @property
    def rows(self):
        """[slots] rows granted in the current pass, a list."""
        if self._planned is None:
            self._planned = _rows(self._as_parameter_)[:self.slots_count]
        return self._planned

    def _tokens_of(self, batch):
        if len(self.batches) == 1:
            if self._tokens is None:
                self._tokens = sum(self.rows)
            return self._tokens
        first = 0
        for other in self.batches:
            if other is batch:
                return sum(self.rows[first:first + batch.slots_count])
            first += other.slots_count
        return None

    @property
    def first_rows(self):
        """[slots] absolute row of the first of them."""
        return lib.kvg_step_first_rows(self)[:self.slots_count]

    def refusal(self, slot):
        """None if the place takes part in the current pass (or asked for nothing), else the Error that left it out: returned, not raised."""
        status = lib.kvg_step_refusal(self, slot)
        return error(status) if status else None

    def local(self):
        """None, or the Error that this rank alone met while the step was planned: it will vote no, and kernels must write nothing."""
        status = lib.kvg_step_local(self)
        return error(status) if status else None

    def post(self, accepted=None, accept_all=False, user_digest=0, refuse=0):
        """Sends this rank's record and returns at once. accepted: rows to keep by place; accept_all: every staged row is kept; neither: taken from
        the record. refuse: a status, this rank's own "no". Reach: posted."""
        made = _abi.KvgCommit(_COMMIT_BYTES, numbers(ctypes.c_uint32, accepted, self.slots_count, "accepted"), int(accept_all), user_digest, refuse)
        status = _post(self._as_parameter_, made)
        if status:
            check(status)
        for batch in self.batches:
            batch._step = None

    def _outcome(self, struct):
        return Outcome(struct, self.slots_count) if struct.step else None

    def test(self):
        """The Outcome if the step is decided here, else None. Never blocks. Raises as wait()."""
        done, made = ctypes.c_int(), _abi.KvgOutcome()
        status = _test(self._as_parameter_, byref(done), made)
        if not done.value and not status:
            check(0)
            return None
        outcome = self._outcome(made)
        check(status, outcome)
        return outcome

    def wait(self):
        """The Outcome once it is published. Raises Refused, Disagree, Invalid (nobody accepted) or Tainted, all with `.outcome`, once it is rolled
        back, and InDoubt at the deadline. Other Python threads run meanwhile; signals are seen when it returns."""
        made = _abi.KvgOutcome()
        status = _wait(self._as_parameter_, made)
        outcome = self._outcome(made)
        check(status, outcome)
        return outcome

    @property
    def number(self):
        return lib.kvg_step_number(self)


_COMMIT_BYTES = ctypes.sizeof(_abi.KvgCommit)


class Graph(Handle):
    """A captured step that is replayed with no host work but the launch (run.h)."""

    def __init__(self, handle, batch):
        self._take(handle, batch).batch = batch

    def run_begin(self, steps, rows=None, stream=None):
        check(lib.kvg_run_begin(self, steps, numbers(ctypes.c_uint32, rows, self.batch.slots_count, "rows"), stream))

    def refusal(self, slot):
        status = lib.kvg_run_refusal(self, slot)
        return error(status) if status else None

    def launch(self, stream=None):
        check(lib.kvg_graph_launch(self, stream))

    def run_test(self):
        """(published steps, stopped)."""
        published, stopped = ctypes.c_uint64(), ctypes.c_int()
        check(lib.kvg_run_test(self, byref(published), byref(stopped)))
        return published.value, bool(stopped.value)

    def _result(self, call, *arguments):
        made = sized(_abi.KvgRunResult)
        status = call(self, *arguments, made)
        outcome = Outcome(made.outcome, self.batch.slots_count) if made.outcome.step else None
        check(status, outcome)
        return made

    def run_end(self, stream=None):
        """A C KvgRunResult; raises what ended the run early, with `.outcome`."""
        return self._result(lib.kvg_run_end, stream)

    def run_result(self):
        return self._result(lib.kvg_run_result)

    def close(self):
        if self._handle is not None:
            lib.kvg_graph_free(self._give())
