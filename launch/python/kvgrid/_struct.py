"""Structures of C that can be looked at: KvgSequenceInfo(rows=10, rows_booked=64, ...)."""
import ctypes

_SHOWN = 8  # elements of an array


def _words(value):
    if isinstance(value, bytes):
        return repr(value.decode("utf-8", "replace"))
    if isinstance(value, ctypes.Array):
        items = [_words(item) for item in value[:_SHOWN]]
        return "[%s%s]" % (", ".join(items), ", ..." if len(value) > _SHOWN else "")
    if isinstance(value, (ctypes._Pointer, ctypes._CFuncPtr)):
        return type(value).__name__ if value else "NULL"
    return repr(value)


def _shown(self):
    fields = [name for name, *_ in getattr(self, "_fields_", ()) if name != "size"]
    return "%s(%s)" % (type(self).__name__, ", ".join("%s=%s" % (name, _words(getattr(self, name))) for name in fields))


class Structure(ctypes.Structure):
    __repr__ = _shown


class Union(ctypes.Union):
    __repr__ = _shown
