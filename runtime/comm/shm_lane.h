/* Lanes: byte rings in shared memory, each with one writer and one reader. Private.
 *
 *   head   bytes ever written, stored by the writer when a piece is whole      so a reader never sees a torn one, however the writer dies
 *   tail   bytes ever read, stored by the reader
 * A frame (a record or a message) is cut into pieces of at most a quarter of the lane. A piece lies in one stretch, so that a reader gets it in place;
 * where it does not fit before the end of the lane, a piece of padding fills that. */
#ifndef KVG_SHM_LANE_H
#define KVG_SHM_LANE_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define SHM_LINE 64

typedef struct ShmLane { /* shared */
    _Alignas(2 * SHM_LINE) _Atomic uint64_t head; /* each on lines of its own: the prefetcher fetches pairs */
    _Alignas(2 * SHM_LINE) _Atomic uint64_t tail;
} ShmLane;

enum { PIECE_PADDING = 1, PIECE_FIRST = 2, PIECE_LAST = 4 };

typedef struct ShmPiece { /* shared, before its bytes */
    uint32_t bytes;
    uint32_t flags;
    uint64_t whole; /* bytes of the frame */
} ShmPiece;
_Static_assert(sizeof(ShmPiece) == 16, "pieces are laid out in multiples of their header");

/* One end's view. */
typedef struct ShmEnd {
    ShmLane *lane;
    uint8_t *bytes; /* [size], a power of two */
    uint64_t size;
    uint64_t mine;  /* the writer's head or the reader's tail: nobody else writes it */
    uint64_t seen;  /* the other's, when last looked at */
} ShmEnd;

static inline uint64_t kvg_piece_most(const ShmEnd *end)
{
    return end->size / 4 - sizeof(ShmPiece);
}

static inline uint64_t kvg_piece_room(uint64_t bytes)
{
    return sizeof(ShmPiece) + (bytes + sizeof(ShmPiece) - 1) / sizeof(ShmPiece) * sizeof(ShmPiece);
}

/* Room for one piece now, with the padding before it. The reader's tail is looked at only where the last look does not suffice. */
static inline int kvg_lane_has_room(ShmEnd *out, uint64_t bytes, uint64_t *padding)
{
    uint64_t need = kvg_piece_room(bytes), to_end = out->size - (out->mine & (out->size - 1));

    *padding = need > to_end ? to_end : 0;
    need += *padding;
    if (out->mine + need - out->seen > out->size) {
        out->seen = atomic_load_explicit(&out->lane->tail, memory_order_acquire);
    }
    return out->mine + need - out->seen <= out->size;
}

static inline void kvg_lane_put_piece(ShmEnd *out, uint64_t padding, ShmPiece piece, const void *bytes)
{
    if (padding > 0) {
        ShmPiece filler = { .bytes = (uint32_t)(padding - sizeof(ShmPiece)), .flags = PIECE_PADDING };

        memcpy(out->bytes + (out->mine & (out->size - 1)), &filler, sizeof filler);
        out->mine += padding;
    }
    uint8_t *place = out->bytes + (out->mine & (out->size - 1));

    memcpy(place, &piece, sizeof piece);
    if (piece.bytes > 0) {
        memcpy(place + sizeof piece, bytes, piece.bytes);
    }
    out->mine += kvg_piece_room(piece.bytes);
    atomic_store_explicit(&out->lane->head, out->mine, memory_order_release);
}

/* Writes on with a frame of which *done bytes are written; 1 when all are. A frame of no bytes is one piece. */
static inline int kvg_lane_write(ShmEnd *out, const void *bytes, uint64_t whole, uint64_t *done, int *begun)
{
    while (!*begun || *done < whole) {
        uint64_t left = whole - *done, most = kvg_piece_most(out), padding;
        ShmPiece piece = { .bytes = (uint32_t)(left < most ? left : most), .whole = whole };

        if (!kvg_lane_has_room(out, piece.bytes, &padding)) {
            return 0;
        }
        piece.flags = (*begun ? 0u : PIECE_FIRST) | (piece.bytes == left ? PIECE_LAST : 0u);
        kvg_lane_put_piece(out, padding, piece, (const uint8_t *)bytes + *done);
        *done += piece.bytes;
        *begun = 1;
    }
    return 1;
}

typedef enum LaneSight { LANE_EMPTY = 0, LANE_PIECE, LANE_TORN } LaneSight;

/* The next piece, in place; padding is passed over. LANE_TORN: these bytes are none that kvg_lane_write makes. */
static inline LaneSight kvg_lane_look(ShmEnd *in, ShmPiece *piece, const void **bytes)
{
    for (;;) {
        if (in->seen == in->mine) {
            in->seen = atomic_load_explicit(&in->lane->head, memory_order_acquire);
        }
        uint64_t here = in->seen - in->mine, to_end = in->size - (in->mine & (in->size - 1));

        if (here == 0) {
            return LANE_EMPTY;
        }
        const uint8_t *place = in->bytes + (in->mine & (in->size - 1));

        memcpy(piece, place, sizeof *piece);
        if (here > in->size || kvg_piece_room(piece->bytes) > here || kvg_piece_room(piece->bytes) > to_end) {
            return LANE_TORN;
        }
        if (piece->flags != PIECE_PADDING) {
            *bytes = place + sizeof *piece;
            return LANE_PIECE;
        }
        in->mine += kvg_piece_room(piece->bytes);
    }
}

/* Passes over the piece that kvg_lane_look gave: its place is the writer's again. */
static inline void kvg_lane_pass(ShmEnd *in, const ShmPiece *piece)
{
    in->mine += kvg_piece_room(piece->bytes);
    atomic_store_explicit(&in->lane->tail, in->mine, memory_order_release);
}

#endif
