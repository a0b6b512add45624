"""Finds libkvgrid, refuses another version than this module's, and binds functions at their first use."""
import ctypes
import glob
import os
import shlex

from . import _abi

HERE = os.path.dirname(os.path.abspath(__file__))


def _below(folder, names):
    """Libraries of these names in `folder`, in the order of names."""
    return [path for name in names for path in sorted(glob.glob(os.path.join(glob.escape(folder), name)))]


def _candidates():
    """KVGRID_LIBRARY alone if it is set; else beside the installed prefix, the build tree, the loader. One with CUDA in it comes first."""
    told = os.environ.get("KVGRID_LIBRARY")
    if told:
        return [os.path.join(told, "libkvgrid.so") if os.path.isdir(told) else told]
    names = ["libkvgrid_gpu.so." + _abi.VERSION, "libkvgrid.so." + _abi.VERSION]
    found = []
    parts = HERE.split(os.sep)
    if parts[-3:-1] == ["python3", "dist-packages"]:  # PREFIX/lib/python3/dist-packages/kvgrid
        library = os.sep.join(parts[:-3])
        for folder in (library, os.path.join(library, "*-linux-gnu*"), library + "64"):
            found += [path for match in sorted(glob.glob(folder)) for path in _below(match, names)]
    if _source():
        found += _below(os.path.join(_source(), "build"), names)
    major = _abi.VERSION.split(".")[0]
    return sorted(found, key=lambda path: "_gpu" not in path) + ["libkvgrid_gpu.so." + major, "libkvgrid.so." + major]


def _source():
    """The source tree that this module is in, or None."""
    parts = HERE.split(os.sep)
    return os.sep.join(parts[:-3]) if parts[-3:] == ["launch", "python", "kvgrid"] else None


def _build():
    """What builds the library, to be typed here; in kvgrid's sources where this module is not in them."""
    source = os.path.relpath(_source() or ".")
    build = os.path.normpath(os.path.join(source, "build"))
    return "cmake -S %s -B %s && cmake --build %s" % tuple(map(shlex.quote, (source, build, build)))


def _open(path):
    # CDLL, not PyDLL: every call gives the GIL up, and callbacks take it back.
    library = ctypes.CDLL(path)
    library.kvg_version.restype = ctypes.c_char_p
    version = library.kvg_version(None, None, None).decode()
    if version != _abi.VERSION:
        raise ImportError("%s is kvgrid %s, and this Python module is of %s: KVGRID_LIBRARY names another, or install the module that came with it"
                          % (path, version, _abi.VERSION))
    return library


def _find():
    tried = []
    for path in _candidates():
        try:
            return path, _open(path)
        except OSError as error:
            tried.append("%s (%s)" % (path, error))
        except AttributeError:
            tried.append("%s (no kvg_version in it)" % path)
    raise ImportError("no libkvgrid was found: KVGRID_LIBRARY=FILE says where it is. Tried: %s; build it: %s" % ("; ".join(tried), _build()))


class Library:
    """`lib.kvg_grid_rank(...)`: the C functions as they are, with their types, and no status is looked at."""

    def __init__(self):
        self.path, self._library = _find()

    def __getattr__(self, name):
        if name not in _abi.FUNCTIONS:
            raise AttributeError("%s is no function of kvgrid's public headers" % name)
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise AttributeError("%s is not in %s: it is in a library that was built with CUDA" % (name, self.path)) from None
        result, arguments = _abi.FUNCTIONS[name]
        function.restype = result
        function.argtypes = arguments
        setattr(self, name, function)
        return function

    def has(self, name):
        return hasattr(self._library, name)

    def __dir__(self):
        return sorted(_abi.FUNCTIONS)


lib = Library()
