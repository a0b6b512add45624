"""Statuses as exceptions, and exceptions of callbacks as statuses.

An exception inside a callback cannot cross C. It is kept, the callback answers KVG_EIO (where it answers anything), and the call that it happened
in raises it on the way back, with kvgrid's own Error as its context. Where that call makes an object, and succeeded, the next call raises it: what
was made is not lost."""
import sys
import threading

from . import _abi
from ._load import lib

NAMES = {value: name for name, value in _abi.CONSTANTS.items()
         if name in ("KVG_OK",) or (name.startswith("KVG_E") and "_" not in name[4:])}


class Error(Exception):
    """A call that failed: the message is kvg_last_error(), `status` the code, `outcome` what a step ended in (None elsewhere)."""
    status = None
    outcome = None

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status

    def __reduce__(self):
        return type(self), (self.status, str(self))


def _subclass(name, status, *bases):
    made = type(name, (Error,) + bases, {"__doc__": status, "__module__": "kvgrid"})
    BY_STATUS[_abi.CONSTANTS["KVG_" + status]] = made
    return made


BY_STATUS = {}
Invalid = _subclass("Invalid", "EINVAL", ValueError)
Geometry = _subclass("Geometry", "EGEOM", ValueError)
Overflow = _subclass("Overflow", "EOVERFLOW", OverflowError)
NoMemory = _subclass("NoMemory", "ENOMEM", MemoryError)
Capacity = _subclass("Capacity", "ECAPACITY")
Busy = _subclass("Busy", "EBUSY")
Stale = _subclass("Stale", "ESTALE")
Lapped = _subclass("Lapped", "ELAPPED")
NoFit = _subclass("NoFit", "ENOFIT")
Disagree = _subclass("Disagree", "ELAYOUT")
Tainted = _subclass("Tainted", "ETAINTED")
Refused = _subclass("Refused", "EREFUSED")
InDoubt = _subclass("InDoubt", "EINDOUBT")
PeerLost = _subclass("PeerLost", "EPEER")
DeviceError = _subclass("DeviceError", "EDEVICE")
InputOutput = _subclass("InputOutput", "EIO")
Malformed = _subclass("Malformed", "EFORMAT")
NotSupported = _subclass("NotSupported", "ENOTSUP")

EIO = _abi.CONSTANTS["KVG_EIO"]
_kept = {}  # thread -> exceptions of its callbacks, in order


def keep(exception):
    """For callbacks: raised by the call that is under way on this thread."""
    _kept.setdefault(threading.get_ident(), []).append(exception)


def error(status, outcome=None):
    made = BY_STATUS.get(status, Error)(status, lib.kvg_last_error().decode("utf-8", "replace"))
    made.outcome = outcome
    return made


def _raise_kept(status, outcome):
    kept = _kept.pop(threading.get_ident(), None)
    if not kept:
        return
    first = kept[0]
    for other in kept[1:]:
        sys.unraisablehook(_Unraisable(other))
    if status:
        first.__context__ = error(status, outcome)
    raise first


class _Unraisable:
    """What sys.unraisablehook is given for a second exception of one call."""

    def __init__(self, exception):
        self.exc_type, self.exc_value, self.exc_traceback = type(exception), exception, exception.__traceback__
        self.err_msg, self.object = "a further exception in a callback of kvgrid", None


def check(status, outcome=None):
    """Raises what `status` says, and what callbacks raised."""
    if _kept:
        _raise_kept(status, outcome)
    if status:
        raise error(status, outcome)


def check_made(status):
    """For calls that make an object: a callback's exception waits for the next call if this one succeeded."""
    if status:
        check(status)
