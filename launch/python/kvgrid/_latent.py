"""Rows of latent and recurrent layers, whose C calls ask back: Batch.write_latent, Batch.recurrent_update."""
import ctypes

from . import _abi
from ._call import initial
from ._data import data, format_code, numbers, tokens_of
from ._errors import keep
from ._load import lib

_FILL = _abi.KvgRecurrentFillFn
_KEY = _abi.KvPoolKeyFn


def _floats(pointer, *shape):
    kind = ctypes.c_float
    for count in reversed(shape):
        kind = kind * count
    return kind.from_address(ctypes.cast(pointer, ctypes.c_void_p).value)


def _one_plane(thing, name, width, cuda, tokens):
    of = data(thing)
    count, token_stride, _ = tokens_of(of, name, 1, width, cuda)
    if count is not None and tokens is not None and count < tokens:
        raise ValueError("%s has %d tokens, and %d are written" % (name, count, tokens))
    return of, token_stride


def latent_rows(batch, il, latent, index, dtype, first_token, key):
    """(KvgLatentRows, what to call afterwards)."""
    view = batch.latent_view(il)
    cuda, tokens = batch.placement.cuda, batch._tokens(first_token)
    made = initial("KVG_LATENT_ROWS_INIT")()
    of, made.token_stride_latent = _one_plane(latent, "latent", view.width, cuda, tokens)
    made.latent = of.address
    kept = [of]
    if index is not None:
        of_index, made.token_stride_index = _one_plane(index, "index", view.index_width, cuda, tokens)
        made.index = of_index.address
        kept.append(of_index)
        if dtype is None and of_index.format != of.format:
            raise TypeError("latent and index must be of one element type, and addresses need dtype=")
    if dtype is None and of.format is None:
        raise TypeError("an address alone needs dtype=")
    made.dtype = format_code(of.format if dtype is None else dtype)
    if first_token is not None:
        made.first_token = numbers(ctypes.c_uint32, first_token, batch.slots_count, "first_token")
    if key is not None:
        def call(_user, layer, pool_index, rows, target):
            try:
                key(layer, pool_index, _floats(rows, view.pool, view.index_width), _floats(target, view.key_width))
            except BaseException as exception:
                keep(exception)
        made.key = _KEY(call)
    return made, kept.clear


def recurrent_rows(batch, il, fill, decay):
    pointer = lib.kvg_recurrent_view(batch, il)
    if not pointer:
        raise ValueError(lib.kvg_last_error().decode())
    channels, elements = pointer.contents.conv_channels, pointer.contents.state_elements

    def call(_user, layer, slot, row, x, u):
        try:
            fill(layer, slot, row, _floats(x, channels), _floats(u, elements))
        except BaseException as exception:
            keep(exception)
    made = initial("KVG_RECURRENT_ROWS_INIT")(decay=decay)
    made.fill = _FILL(call)
    made.scratch = (ctypes.c_float * max(1, channels + elements))()
    return made
