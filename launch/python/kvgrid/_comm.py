"""How processes meet: bootstraps from a Python all-gather, over TCP, over shared memory, within one process; and the log."""
import ctypes

from . import _abi
from ._call import initial
from ._errors import EIO, Error, check, check_made, keep
from ._handle import Handle
from ._load import lib

_ALLGATHER = dict(_abi.KvgBootstrap._fields_)["allgather"]
_EINDOUBT, _EPEER = _abi.CONSTANTS["KVG_EINDOUBT"], _abi.CONSTANTS["KVG_EPEER"]


def _status_of(exception):
    if isinstance(exception, Error):
        return exception.status
    if isinstance(exception, TimeoutError):
        return _EINDOUBT
    return _EPEER if isinstance(exception, ConnectionError) else EIO


def _gather_by(allgather, ranks):
    """A KvgBootstrap.allgather that calls allgather(mine, timeout_ms) -> the bytes of each rank, in rank order."""
    def call(_user, mine, everything, size, timeout_ms):
        try:
            parts = [bytes(part) for part in allgather(ctypes.string_at(mine, size), timeout_ms)]
            if len(parts) != ranks or any(len(part) != size for part in parts):
                raise ValueError("the all-gather gave %d parts of %s bytes, for %d ranks of %d bytes" % (
                    len(parts), sorted({len(part) for part in parts}), ranks, size))
            ctypes.memmove(everything, b"".join(parts), ranks * size)
            return 0
        except BaseException as exception:
            keep(exception)
            return _status_of(exception)
    return _ALLGATHER(call)


class Bootstrap:
    """Rank, ranks and an all-gather.

    allgather(mine, timeout_ms) is given bytes and returns a sequence of `ranks` bytes objects, as mpi4py's comm.allgather does. It may raise:
    TimeoutError counts as EINDOUBT, ConnectionError as EPEER, anything else as EIO; the call that asked raises it again. None: one rank alone."""

    def __init__(self, rank=0, ranks=1, allgather=None):
        self.struct = initial("KVG_BOOTSTRAP_INIT")(rank=rank, ranks=ranks)
        self._destroy, self._closed = None, False
        if allgather is not None:
            self.struct.allgather = _gather_by(allgather, ranks)

    @classmethod
    def _made(cls, struct, destroy):
        made = cls.__new__(cls)
        made.struct, made._destroy, made._closed = struct, destroy, False
        return made

    @property
    def _as_parameter_(self):
        if self._closed:
            raise ValueError("this Bootstrap is closed")
        return ctypes.byref(self.struct)

    @property
    def rank(self):
        return self.struct.rank

    @property
    def ranks(self):
        return self.struct.ranks

    def allgather(self, mine, timeout_ms=30000):
        """An all-gather of the caller's own: the bytes of every rank, in rank order."""
        mine = bytes(mine)
        self._as_parameter_  # a closed one would be one rank alone
        if not self.struct.allgather:
            return [mine]
        everything = ctypes.create_string_buffer(max(1, self.ranks * len(mine)))
        check(self.struct.allgather(self.struct.user, mine, ctypes.addressof(everything), len(mine), timeout_ms))
        return [everything.raw[rank * len(mine):(rank + 1) * len(mine)] for rank in range(self.ranks)]

    def close(self):
        """Grids that were made over it live on."""
        destroy, self._destroy, self._closed = self._destroy, None, True
        if destroy is not None:
            destroy(self.struct)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def rendezvous_create(address=None, secret=None, rank=0, ranks=1, timeout_ms=0, listen_fd=-1):
    """A Bootstrap over TCP: rank 0 listens at host:port (or on the socket `listen_fd`), the others come. See rendezvous.h."""
    def encode(text):
        return text.encode() if isinstance(text, str) else text
    options = initial("KVG_RENDEZVOUS_OPTIONS_INIT")(address=encode(address), secret=encode(secret), rank=rank, ranks=ranks, timeout_ms=timeout_ms,
                                                     listen_fd=listen_fd)
    struct = _abi.KvgBootstrap()
    check_made(lib.kvg_rendezvous_create(options, struct))
    return Bootstrap._made(struct, lib.kvg_rendezvous_destroy)


def shm_memory(ranks):
    """The file descriptor of a bootstrap's shared memory, to be taken before workers are forked; the caller's to close."""
    fd = ctypes.c_int(-1)
    check(lib.kvg_shm_memory(ranks, ctypes.byref(fd)))
    return fd.value


def shm_bootstrap_create(name=None, fd=-1, rank=0, ranks=1, timeout_ms=0):
    """A Bootstrap over shared memory of one host: by the `fd` of shm_memory, or by a `name` at which rank 0 waits. See shm.h."""
    options = initial("KVG_SHM_OPTIONS_INIT")(name=name.encode() if isinstance(name, str) else name, fd=fd, rank=rank, ranks=ranks,
                                              timeout_ms=timeout_ms)
    struct = _abi.KvgBootstrap()
    check_made(lib.kvg_shm_bootstrap_create(options, struct))
    return Bootstrap._made(struct, lib.kvg_shm_bootstrap_destroy)


class Inproc(Handle):
    """A hub of ranks within this process, which one thread drives: kvgrid.grid_create_inproc(hub, ...). Closing it closes its grids."""

    def __init__(self, ranks):
        handle = ctypes.POINTER(_abi.KvInproc)()
        check_made(lib.kvg_inproc_create(ranks, ctypes.byref(handle)))
        self._take(handle).ranks = ranks

    def _of(self, rank):
        if not 0 <= rank < self.ranks:
            raise ValueError("rank %d of a hub of %d" % (rank, self.ranks))
        return rank

    def kill(self, rank):
        lib.kvg_inproc_kill(self, self._of(rank))

    def freeze(self, rank, frozen=True):
        lib.kvg_inproc_freeze(self, self._of(rank), int(frozen))

    def close(self):
        if self._handle is not None:
            self._close_made()
            lib.kvg_inproc_destroy(self._give())


_log = None  # the callback that C holds


def log_set(function):
    """function(level, sentence) receives what the library has to say; None, the default: nobody does."""
    global _log
    if function is not None and not callable(function):
        raise TypeError("log_set takes a function of (level, sentence), or None")
    if function is None:
        lib.kvg_log_set(_abi.KvgLogFn(), None)
        _log = None
        return

    def call(_user, level, sentence):
        try:
            function(level, sentence.decode("utf-8", "replace"))
        except BaseException as exception:
            keep(exception)
    made = _abi.KvgLogFn(call)
    lib.kvg_log_set(made, None)
    _log = made
