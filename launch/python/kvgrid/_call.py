"""Every function of the public headers under its own name: kvgrid.format_name(kvgrid.BF16), kvgrid.cache_bytes_per_token(config, bytes).

Those that answer a KvgStatus raise instead, except the few whose answer is a question's (`grid_state`, `step_refusal`, ...: see the classes).
Structures are given by reference where C takes a pointer."""
import ctypes

from . import _abi
from ._data import set_field
from ._errors import check
from ._load import lib


def function(name):
    """kvg_NAME as a Python function, or AttributeError."""
    raw = getattr(lib, "kvg_" + name)
    if "kvg_" + name not in _abi.FALLIBLE:
        if raw.restype is ctypes.c_char_p:
            return lambda *arguments: raw(*arguments).decode()
        return raw

    def call(*arguments):
        check(raw(*arguments))
    call.__name__ = call.__qualname__ = name
    call.__doc__ = "kvg_%s, raising what it answers" % name
    return call


def initial(name):
    """The structure that C's KVG_NAME_INIT makes; fields may be given by name."""
    struct, values = _abi.INITIALS[name]
    made_of = _abi.STRUCTS[struct]

    def make(**fields):
        made = made_of(size=ctypes.sizeof(made_of), **values)
        for field, value in fields.items():
            if not hasattr(made_of, field):
                raise TypeError("%s has no field %s" % (struct, field))
            set_field(made, field, value)
        return made
    make.__name__ = make.__qualname__ = name[len("KVG_"):]
    make.__doc__ = "%s as %s makes it" % (struct, name)
    return make


def sized(struct):
    """A structure whose first field the caller sets to its size."""
    return struct(size=ctypes.sizeof(struct))
