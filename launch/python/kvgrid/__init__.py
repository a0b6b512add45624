"""kvgrid from Python: ctypes over the public C API, with its names less the prefix, errors as exceptions, and rows seen in place.

    classes          Grid, Placement, Sequence, Batch, Step, ... are thin: the C calls as methods, close() and `with`
    kvgrid.NAME      kvg_NAME with C's arguments, raising what it answers and returning what it writes through the last ones, where they are left
                     out: kvgrid.format_parse("bf16"); kvgrid.BF16, kvgrid.CHUNK_ROWS, ...: KVG_ constants;
                     kvgrid.GRID_OPTIONS_INIT(tp=2): C's _INIT; structures by their C names: kvgrid.KvgRows, kvgrid.KvDigest, ...
    kvgrid.lib       the raw functions, kvgrid.lib.kvg_grid_rank(grid)
    kvgrid.Error     .status, the sentence of kvg_last_error(); a subclass for each status: Refused, NoMemory, PeerLost, ...

Every call gives the interpreter lock up while it is in C, so other threads run while one waits; callbacks take it back. As in C, one thread at a
time uses a grid and what belongs to it. Shapes, order and errors are those that the headers state."""
from . import _abi, _call
from ._buffer import Buffer
from ._comm import Bootstrap, Inproc, log_set, rendezvous_create, shm_bootstrap_create, shm_memory
from ._errors import (BY_STATUS, Busy, Capacity, DeviceError, Disagree, Error, Geometry, InDoubt, InputOutput, Invalid, Lapped, Malformed, NoFit,
                      NoMemory, NotSupported, Overflow, PeerLost, Refused, Stale, Tainted)
from ._grid import Grid, Setup, grid_create_inproc
from ._load import lib
from ._placement import Device, ModelConfig, Placement, Sequence, Snapshot, dev_cuda, dev_host, digest_hex
from ._step import Batch, Graph, Outcome, Step, step_begin_joint
from ._views import LatentView, Plane, PlaneView, RecurrentView

__version__ = _abi.VERSION

for _name, _value in _abi.CONSTANTS.items():
    globals()[_name[len("KVG_"):]] = _value
for _name in _abi.INITIALS:
    globals()[_name[len("KVG_"):]] = _call.initial(_name)
for _name, _value in _abi.TYPES.items():
    globals().setdefault(_name, _value)  # ModelConfig is the class; its C structure is ModelConfig.struct
del _name, _value


def version():
    """The version of the library that was loaded, "0.1.0"."""
    return lib.kvg_version(None, None, None).decode()


def knobs():
    """{name: KvgKnob} of every knob: its value now, where that came from, what it means."""
    knob_get = _call.function("knob_get")
    return {knob.name.decode(): knob for knob in map(knob_get, range(lib.kvg_knob_count()))}


def last_error():
    """This thread's latest failure as one sentence."""
    return lib.kvg_last_error().decode("utf-8", "replace")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    made = globals()[name] = _call.function(name)
    return made


def __dir__():
    return sorted(set(globals()) | {name[len("kvg_"):] for name in _abi.FUNCTIONS})
