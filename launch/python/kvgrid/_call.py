"""Every function of the public headers under its own name: kvgrid.format_name(kvgrid.BF16), kvgrid.cache_bytes_per_token(config).

Those that answer a KvgStatus raise instead, except the few whose answer is a question's (`grid_state`, `step_refusal`, ...: see the classes).
Structures are given by reference where C takes a pointer, and a str where C takes text. What C writes through its last arguments is returned where
they are left out: a number, a structure, or a tuple of several."""
import ctypes

from . import _abi
from ._data import set_field
from ._errors import check
from ._load import lib


# How many of the last arguments are one value each that C writes. Which of its pointers are that, and no arrays, only the headers' words say.
RESULTS = dict.fromkeys((
    "format_parse", "format_row_bytes", "policy_default", "policy_from_env", "knob_get", "sizing_default",
    "cache_bytes_per_token", "cache_bytes_per_token_for_layers", "cache_bytes_per_token_for_plan", "latent_kv_bytes_per_token_for_plan",
    "cache_ring_bytes_per_token", "cache_ring_bytes_per_token_for_layers", "cache_ring_bytes_per_token_for_plan", "cache_ring_row_cap",
    "cache_ring_row_cap_for_plan", "plan_bytes_per_token", "plan_latent_bytes_per_token", "plan_ring_bytes_per_token", "plan_ring_row_cap",
    "plan_fixed_bytes", "plan_pool_key_bytes", "kv_ring_append_plan", "index_ring_round", "index_ring_take", "tp_kv_begin", "tp_kv_prepare_append",
    "tp_kv_commit_target", "tp_kv_prepare_grow", "vote_accepted_pack", "vote_accepted_unpack", "head_shard", "tp_kv_rank_allocation_shape",
    "tp_kv_shape_allocation_bytes", "resident_tp_kv_begin", "resident_tp_kv_prepare_append", "resident_tp_kv_commit_target",
    "resident_tp_kv_prepare_grow", "resident_tp_kv_allocation_bytes", "digest_combine", "grid_plan", "ledger_init", "ledger_from_json",
    "placement_ledger", "layer_counts", "sequence_info", "sequence_digest", "stats", "stats_quick", "accounts_ledger", "accounts_info",
    "accounts_booked_bytes", "accounts_snapshot"), 1)
RESULTS.update(dict.fromkeys((
    "kv_cache_formats", "kv_blk_bytes", "layer_formats", "kv_ring_physical_range", "tp_kv_peek_append_ring", "tp_kv_physical_range",
    "resident_tp_kv_peek_append_ring", "resident_tp_kv_physical_range", "resident_tp_kv_grow_layer_bytes", "placement_layers"), 2))
RESULTS["kv_ring_restore_plan"] = 3


def _result(pointer):
    """What a pointer of C's points to, to be written."""
    made = pointer._type_()
    if isinstance(made, ctypes.Structure) and made._fields_[0][0] == "size":
        made.size = ctypes.sizeof(made)
    return made


def _text(argument):
    return argument.encode() if isinstance(argument, str) else argument


def function(name):
    """kvg_NAME as a Python function, or AttributeError."""
    raw = getattr(lib, "kvg_" + name)
    results, fallible, says_text = RESULTS.get(name, 0), "kvg_" + name in _abi.FALLIBLE, raw.restype is ctypes.c_char_p
    takes_text = ctypes.c_char_p in raw.argtypes
    if not (results or fallible or says_text or takes_text):
        return raw

    def call(*arguments):
        made = ()
        if results and len(arguments) == len(raw.argtypes) - results:
            made = tuple(_result(kind) for kind in raw.argtypes[-results:])
        if takes_text:
            arguments = map(_text, arguments)
        answer = raw(*arguments, *map(ctypes.byref, made))
        if fallible:
            check(answer)
            answer = None
        if made:
            values = tuple(one if isinstance(one, ctypes.Structure) else one.value for one in made)
            return values if results > 1 else values[0]
        return answer.decode() if says_text and answer is not None else answer
    call.__name__ = call.__qualname__ = name
    call.__doc__ = "kvg_%s%s%s" % (name, ", raising what it answers" if fallible else "",
                                   "; of its last arguments %d may be left out, and what C writes there is returned" % results if results else "")
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
