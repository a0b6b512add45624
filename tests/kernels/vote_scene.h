/* A fleet of ranks that vote: every rank's arrays in an arena of its own, every rank's block of the board, and steps drawn from a seed, some
 * of them at fault. All of it stands in host memory and is driven by the host twins; the device's tests take the same arenas and must end with the
 * same bytes. */
#ifndef KVG_VOTE_SCENE_H
#define KVG_VOTE_SCENE_H

#include <stdlib.h>
#include <string.h>

#include <kvgrid/device_vote.h>

#include "runtime/base/mix.h"

enum { SCENE_SPARE_SLOTS = 5, SCENE_CLASSES = 2 }; /* slots of the store that are in no step */

typedef struct Scene {
    uint32_t ranks, tp, entries, slots; /* slots: 2W */
    uint32_t columns;                   /* 0: none */
    uint32_t rows_most;                 /* rows of a step and sequence */
    uint32_t fault_every;               /* about one step in so many is at fault; 0: none */
    uint32_t one_epoch;                 /* 1: no rank is ever an epoch ahead. On a device that rank waits to its deadline, and its other batches with it */
    uint32_t last_every;                /* every so many steps one is the last of a run; 0: none */
    uint32_t unready;                   /* 1: on a device nothing is formed ahead */
    uint32_t all;                       /* 1: whoever passes counts says that all are accepted */
    uint64_t seed;
} Scene;

/* What differs from step to step, laid out as in the arena. */
typedef struct SceneParts {
    size_t words, slots, ids, generations, accepted, next_rows, taken, rows, first_row, len, len_staged, read, write, each, base_row, outcome, bytes;
} SceneParts;

static inline uint32_t scene_store_slots(const Scene *scene)
{
    return scene->entries + SCENE_SPARE_SLOTS;
}

static inline SceneParts scene_parts(const Scene *scene)
{
    const size_t e = scene->entries, s = scene_store_slots(scene);
    SceneParts   at = { .words = 0 };

    at.ids = sizeof(KvVoteWords);
    at.generations = at.ids + 8 * e;
    at.outcome = at.generations + 8 * e;
    at.slots = at.outcome + 8;
    at.accepted = at.slots + 4 * e;
    at.next_rows = at.accepted + 4 * e;
    at.taken = at.next_rows + 4 * e;
    at.rows = at.taken + 4 * e;
    at.first_row = at.rows + 4 * e;
    at.len = at.first_row + 4 * e;
    at.len_staged = at.len + 4 * s;
    at.read = at.len_staged + 4 * s;
    at.write = at.read + 4 * s;
    at.each = at.write + 4 * s;
    at.base_row = at.each + 4 * s;
    at.bytes = (at.base_row + SCENE_CLASSES * 4 * s + 63) / 64 * 64;
    return at;
}

/* The arrays over an arena that begins at `arena`, wherever that is. */
static inline KvVoteArrays scene_arrays(const Scene *scene, uint8_t *arena)
{
    const SceneParts at = scene_parts(scene);
    KvVoteArrays     arrays = { .entries = scene->entries, .classes = SCENE_CLASSES, .columns = scene->columns };

    arrays.words = (KvVoteWords *)(arena + at.words);
    arrays.slots = (const int32_t *)(arena + at.slots);
    arrays.ids = (const uint64_t *)(arena + at.ids);
    arrays.generations = (const uint64_t *)(arena + at.generations);
    arrays.accepted = (const uint32_t *)(arena + at.accepted);
    arrays.next_rows = (const uint32_t *)(arena + at.next_rows);
    arrays.taken = (uint32_t *)(arena + at.taken);
    arrays.rows = (uint32_t *)(arena + at.rows);
    arrays.first_row = (uint32_t *)(arena + at.first_row);
    arrays.len = (uint32_t *)(arena + at.len);
    arrays.len_staged = (uint32_t *)(arena + at.len_staged);
    arrays.read = (int32_t *)(arena + at.read);
    arrays.write = (int32_t *)(arena + at.write);
    arrays.each = (int32_t *)(arena + at.each);
    arrays.class_at[0] = (KvVoteClass){ (uint32_t *)(arena + at.base_row), kvg_vote_keep(100) };
    arrays.class_at[1] = (KvVoteClass){ (uint32_t *)(arena + at.base_row) + scene_store_slots(scene), 0 };
    arrays.outcome = (uint64_t *)(arena + at.outcome);
    return arrays;
}

static inline uint64_t scene_draw(const Scene *scene, uint64_t step, uint64_t what, uint64_t index)
{
    return kvg_mix_term(index, what, step, scene->seed);
}

/* The arena before the first step; the same on every rank but for layout. */
static inline void scene_fill(const Scene *scene, uint32_t rank, uint8_t *arena)
{
    KvVoteArrays arrays = scene_arrays(scene, arena);
    int32_t     *slots = (int32_t *)(arena + scene_parts(scene).slots);

    memset(arena, 0, scene_parts(scene).bytes);
    *arrays.words = (KvVoteWords){ .step = 1, .advance = 1, .running = 77, .layout = 500 + rank / scene->tp, .epoch = 3, .count = scene->entries,
                                   .accepts = 1 };
    for (uint32_t e = 0; e < scene->entries; e++) {
        slots[e] = (int32_t)((e * 7 + 3) % scene_store_slots(scene)); /* 7 divides none of the sizes that are used */
        ((uint64_t *)(arena + scene_parts(scene).ids))[e] = scene_draw(scene, 0, 1, e);
        ((uint64_t *)(arena + scene_parts(scene).generations))[e] = scene_draw(scene, 0, 2, e) >> 32;
    }
    for (uint32_t s = 0; s < scene_store_slots(scene); s++) {
        arrays.len[s] = (uint32_t)(scene_draw(scene, 0, 3, s) % 2000);
        arrays.len_staged[s] = arrays.len[s] + 1 + (uint32_t)(scene_draw(scene, 0, 4, s) % scene->rows_most);
        arrays.each[s] = arrays.len_staged[s] - arrays.len[s] < scene->columns;
        arrays.write[s] = scene->columns != 0;
    }
}

typedef enum SceneFault {
    FAULT_NONE = 0,
    FAULT_STATUS,
    FAULT_TAINT,
    FAULT_COUNT, /* more accepted than staged */
    FAULT_TARGETS,
    FAULT_ACCEPTED,
    FAULT_LAYOUT,
    FAULT_USER,
    FAULT_EPOCH,
    FAULT_UNACCEPTED,
    FAULT_KINDS
} SceneFault;

static inline SceneFault scene_fault(const Scene *scene, uint64_t step)
{
    uint64_t draw = scene_draw(scene, step, 10, 0);

    if (scene->fault_every == 0 || draw % scene->fault_every != 0) return FAULT_NONE;
    SceneFault fault = (SceneFault)(1 + (draw >> 32) % (FAULT_KINDS - 1));
    return fault == FAULT_EPOCH && scene->one_epoch ? FAULT_STATUS : fault;
}

/* What the host, the engine and the model bring to a step: the words from `running` on, accepted counts, the next step's rows. */
static inline void scene_step_input(const Scene *scene, uint32_t rank, uint64_t step, uint8_t *arena)
{
    KvVoteArrays arrays = scene_arrays(scene, arena);
    uint32_t    *accepted = (uint32_t *)(arena + scene_parts(scene).accepted), *next_rows = (uint32_t *)(arena + scene_parts(scene).next_rows);
    SceneFault   fault = scene_fault(scene, step);
    int          at_fault = rank == scene_draw(scene, step, 11, 0) % scene->ranks;
    KvVoteWords *words = arrays.words;

    for (uint32_t e = 0; e < scene->entries; e++) {
        uint32_t slot = (uint32_t)arrays.slots[e], staged = arrays.len_staged[slot] - arrays.len[slot];
        uint64_t draw = scene_draw(scene, step, 12, e);
        accepted[e] = draw % 4 != 0 ? staged : (uint32_t)((draw >> 8) % (staged + 1));
        if (arrays.columns != 0 && !arrays.each[slot] && draw % 64 != 0) accepted[e] = staged; /* else it stays behind, now and then */
        next_rows[e] = 1 + (uint32_t)((draw >> 24) % (draw >> 56 == 0 ? scene->rows_most : (scene->rows_most + 1) / 2));
    }
    words->running = 77 + step / 16 + (at_fault && fault == FAULT_TARGETS);
    words->layout = 500 + rank / scene->tp + (at_fault && fault == FAULT_LAYOUT);
    words->user = rank % 2 != 0 && step % 3 == 0 ? 0 : scene_draw(scene, step, 13, 0) | 1;
    if (at_fault && fault == FAULT_USER) words->user ^= 2;
    words->last = scene->last_every != 0 && step % scene->last_every == 0 ? step : 0;
    words->epoch = 3 + (at_fault && fault == FAULT_EPOCH);
    words->status = !at_fault ? 0 : fault == FAULT_STATUS ? KVG_ECAPACITY : fault == FAULT_TAINT ? KVG_ETAINTED : 0;
    words->accepts = fault != FAULT_UNACCEPTED && (step % 2 == 0 || rank / scene->tp == scene->ranks / scene->tp - 1);
    if (words->accepts != 0 && scene->all) words->accepts = KVG_VOTE_ACCEPTS_ALL;
    if (at_fault && fault == FAULT_COUNT && scene->entries != 0) accepted[scene->entries - 1] += scene->rows_most + 1;
    if (at_fault && fault == FAULT_ACCEPTED && scene->entries != 0) accepted[0] = accepted[0] == 0; /* legal, and not what the others say */
    if (at_fault && (fault == FAULT_ACCEPTED || fault == FAULT_COUNT)) words->accepts = 1;
}

/* What a host does with a step that was not published, or that left state behind: it looks, clears, and goes on to the next number. */
static inline void scene_acknowledge(uint8_t *arena)
{
    KvVoteWords *words = (KvVoteWords *)arena;

    if (words->stop == KVG_VOTE_STOP_OUTCOME) words->step += words->advance;
    words->stop = 0;
    words->posted = 0;
}

/* ---- all ranks in host memory */

typedef struct Fleet {
    Scene         scene;
    KvVoteControl control;
    size_t        block_bytes, arena_bytes;
    uint8_t      *blocks;                           /* [ranks][block_bytes] */
    uint8_t      *arena[KVG_VOTE_DEVICE_RANKS_MAX]; /* [arena_bytes] each */
} Fleet;

static inline KvVoteBoard fleet_board(Fleet *fleet, uint32_t rank)
{
    return (KvVoteBoard){ fleet->blocks, fleet->block_bytes, rank, fleet->scene.ranks, fleet->scene.tp, fleet->scene.slots, fleet->scene.entries,
                          &fleet->control };
}

static inline void fleet_open(Fleet *fleet, const Scene *scene)
{
    memset(fleet, 0, sizeof *fleet);
    fleet->scene = *scene;
    KvVoteBoard board = fleet_board(fleet, 0);
    fleet->block_bytes = kvg_vote_board_bytes(&board);
    fleet->arena_bytes = scene_parts(scene).bytes;
    fleet->blocks = (uint8_t *)calloc(scene->ranks, fleet->block_bytes);
    for (uint32_t rank = 0; rank < scene->ranks; rank++) {
        fleet->arena[rank] = (uint8_t *)calloc(1, fleet->arena_bytes);
        if (fleet->blocks == NULL || fleet->arena[rank] == NULL) abort();
        scene_fill(scene, rank, fleet->arena[rank]);
    }
}

static inline void fleet_close(Fleet *fleet)
{
    for (uint32_t rank = 0; rank < fleet->scene.ranks; rank++) free(fleet->arena[rank]);
    free(fleet->blocks);
}

/* Every rank takes its input for `step` and posts, unless it was stopped. */
static inline void fleet_post(Fleet *fleet, uint64_t step)
{
    for (uint32_t rank = 0; rank < fleet->scene.ranks; rank++) {
        KvVoteBoard  board = fleet_board(fleet, rank);
        KvVoteArrays arrays = scene_arrays(&fleet->scene, fleet->arena[rank]);
        scene_step_input(&fleet->scene, rank, step, fleet->arena[rank]);
        if (kvg_vote_post_ref(&board, &arrays) != KVG_OK) abort();
    }
}

static inline void fleet_decide(Fleet *fleet)
{
    for (uint32_t rank = 0; rank < fleet->scene.ranks; rank++) {
        KvVoteBoard  board = fleet_board(fleet, rank);
        KvVoteArrays arrays = scene_arrays(&fleet->scene, fleet->arena[rank]);
        if (kvg_vote_decide_ref(&board, &arrays) != KVG_OK) abort();
    }
}

static inline void fleet_step(Fleet *fleet, uint64_t step)
{
    fleet_post(fleet, step);
    fleet_decide(fleet);
}

static inline const KvVoteWords *fleet_words(const Fleet *fleet, uint32_t rank)
{
    return (const KvVoteWords *)fleet->arena[rank];
}

#endif
