"""Grid and Setup: the ranks that hold one model's state together (grid.h)."""
import ctypes

from . import _abi
from ._call import initial
from ._comm import Bootstrap
from ._data import set_field
from ._errors import check, check_made, keep
from ._handle import Handle
from ._load import lib

_ON_LOST = dict(_abi.KvgGridOptions._fields_)["on_lost"]
_GRID = ctypes.POINTER(_abi.KvgGrid)


class Setup(Handle):
    """A set-up operation under way, for those who drive several ranks from one thread. test() until it is True, or wait(); then `result`.
    Closing what it is about gives it up."""

    def __init__(self, pointer, owner, finish=None, needs=()):
        self._take(pointer, owner)
        self._finish, self._needs, self._ended = finish, needs, False
        self.result = None

    def _end(self):
        self.result = self._finish() if self._finish is not None else None
        self._finish, self._ended = None, True

    def test(self):
        """One turn: True when it ended well. What it failed with is raised. Never blocks."""
        if self._ended:
            return True
        done = ctypes.c_int(0)
        status = lib.kvg_setup_test(self._as_parameter_, ctypes.byref(done))
        if not done.value:
            return False
        self.close()
        check(status)
        self._end()
        return True

    def wait(self):
        """Turns until it ends; the result."""
        if not self._ended:
            self._as_parameter_  # a closed one is refused
            check(lib.kvg_setup_wait(self._give()))
            self._end()
        return self.result

    def close(self):
        """Frees it; one that has not ended leaves the grid in doubt."""
        if self._handle is not None:
            lib.kvg_setup_free(self._give())


def start(call, about, *arguments, finish=None, needs=()):
    """about: a Grid, a Placement or a Sequence."""
    pointer = ctypes.POINTER(_abi.KvgSetup)()
    check(call(about, *arguments, ctypes.byref(pointer)))
    return Setup(pointer, getattr(about, "placement", about), finish, needs)


def _options(on_lost, fields):
    options = initial("KVG_GRID_OPTIONS_INIT")()
    for name, value in fields.items():
        if name in ("policy", "comm", "liveness"):
            value = ctypes.pointer(value) if value is not None else None
        elif name not in ("tp", "pp", "max_in_flight"):
            raise TypeError("KvgGridOptions has no field %s" % name)
        set_field(options, name, value)
    if on_lost is not None:
        def call(_user, rank, why):
            try:
                on_lost(rank, why.decode("utf-8", "replace"))
            except BaseException as exception:
                keep(exception)
        options.on_lost = _ON_LOST(call)
    return options


class Grid(Handle):
    """This rank's end of a grid. Reach: setup.

    bootstrap   None: one rank alone
    on_lost     on_lost(rank, why), once for each rank found lost; what it raises, the call that found it raises
    options     the fields of KvgGridOptions: tp, pp, policy, comm, liveness, max_in_flight"""

    def __init__(self, bootstrap=None, on_lost=None, **options):
        bootstrap = Bootstrap() if bootstrap is None else bootstrap
        handle = _GRID()
        made = _options(on_lost, options)
        check_made(lib.kvg_grid_create(bootstrap, made, ctypes.byref(handle)))
        self._take(handle)._needs = (bootstrap, made)  # callbacks stay alive as long as the grid

    def _about(self):
        return ": rank %d of %d, tp %d x pp %d, epoch %d" % (self.rank, self.ranks, self.tp, self.pp, self.epoch)

    @property
    def rank(self):
        return lib.kvg_grid_rank(self)

    @property
    def ranks(self):
        return lib.kvg_grid_ranks(self)

    @property
    def tp(self):
        return lib.kvg_grid_tp(self)

    @property
    def pp(self):
        return lib.kvg_grid_pp(self)

    @property
    def stage(self):
        return lib.kvg_grid_stage(self)

    @property
    def tp_rank(self):
        return lib.kvg_grid_tp_rank(self)

    @property
    def epoch(self):
        return lib.kvg_grid_epoch(self)

    def progress(self):
        """Receives what has arrived, gives a sign of life, notices losses. Never blocks. Reach: local."""
        check(lib.kvg_grid_progress(self))

    def state(self):
        """Raises PeerLost, InDoubt or Disagree unless the grid can step. Reach: local."""
        check(lib.kvg_grid_state(self))

    def settle(self, survivors):
        """After InDoubt or PeerLost: the survivors bring each other to one state. Reach: setup."""
        survivors = list(survivors)
        check(lib.kvg_grid_settle(self, (ctypes.c_int * len(survivors))(*survivors), len(survivors)))

    def settle_start(self, survivors):
        survivors = list(survivors)
        return start(lib.kvg_grid_settle_start, self, (ctypes.c_int * len(survivors))(*survivors), len(survivors), needs=(self,))

    def place(self, config, **options):
        """A Placement of `config`: see it. Reach: setup."""
        from ._placement import Placement
        return Placement(self, config, **options)

    def place_start(self, config, **options):
        from ._placement import place_start
        return place_start(self, config, **options)

    def close(self):
        """Closes its placements too; BufferError while views of their memory are alive. Waits for nobody. Reach: local."""
        if self._handle is not None:
            self._close_made()
            lib.kvg_grid_destroy(self._give())


def grid_create_inproc(hub, on_lost=None, **options):
    """All ranks of an Inproc hub at once, as a list of Grids that one thread drives: set-up by the _start forms."""
    handles = (_GRID * hub.ranks)()
    made = _options(on_lost, options)
    check_made(lib.kvg_grid_create_inproc(hub, hub.ranks, made, handles))
    grids = []
    for rank in range(hub.ranks):
        grid = Grid.__new__(Grid)
        grid._take(handles[rank], hub)._needs = (hub, made, handles)
        grids.append(grid)
    return grids
