/* Replay's scripted faults. */
#include "launch/command/replay_fault.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/command/replay_schedule.h"
#include "launch/command/replay_sight.h"
#include "runtime/base/error.h"
#include "runtime/base/mix.h"

typedef struct FaultWord {
    const char     *name, *before, *after; /* of its number */
    ReplayFaultKind kind;
} FaultWord;

static const FaultWord fault_words[] = {
    { "flip", "step", "", REPLAY_FAULT_FLIP }, { "refuse", "step", "", REPLAY_FAULT_REFUSE }, { "oom", "grow", "", REPLAY_FAULT_OOM },
    { "kill", "", "s", REPLAY_FAULT_KILL },    { "exit", "", "s", REPLAY_FAULT_EXIT },        { "stall", "", "s", REPLAY_FAULT_STALL },
};

int kvg_replay_fault_is_timed(const ReplayFault *fault)
{
    return fault->kind == REPLAY_FAULT_KILL || fault->kind == REPLAY_FAULT_EXIT || fault->kind == REPLAY_FAULT_STALL;
}

/* Seconds with at most three decimals, as milliseconds; where they end, or NULL. */
static const char *parse_seconds(const char *text, uint64_t *ms)
{
    char whole[10], decimals[4] = "";
    int  end = 0, more = 0;
    if (sscanf(text, "%9[0-9]%n", whole, &end) != 1) {
        return NULL;
    }
    if (text[end] == '.' && sscanf(text + end + 1, "%3[0-9]%n", decimals, &more) != 1) {
        return NULL;
    }
    *ms = strtoull(whole, NULL, 10) * 1000;
    for (int i = 0, weight = 100; decimals[i] != '\0'; i++, weight /= 10) {
        *ms += (uint64_t)(decimals[i] - '0') * (uint64_t)weight;
    }
    return text + end + (more > 0 ? 1 + more : 0);
}

static const char *parse_count(const char *text, uint64_t *count)
{
    char digits[19]; /* a set of digits, since %u would take a sign */
    int  end = 0;
    if (sscanf(text, "%18[0-9]%n", digits, &end) != 1) {
        return NULL;
    }
    *count = strtoull(digits, NULL, 10);
    return *count >= 1 ? text + end : NULL;
}

KvgStatus kvg_replay_fault_parse(const char *text, ReplayFault *fault)
{
    char name[8], rank_digits[10];
    int  end = 0;
    if (sscanf(text, "%7[a-z]:%9[0-9]@%n", name, rank_digits, &end) == 2 && end > 0) {
        for (size_t i = 0; i < sizeof fault_words / sizeof *fault_words; i++) {
            const FaultWord *word = &fault_words[i];
            const size_t     before = strlen(word->before);
            ReplayFault      read = { word->kind, (uint32_t)strtoul(rank_digits, NULL, 10), 0 };
            if (strcmp(name, word->name) != 0 || strncmp(text + end, word->before, before) != 0) {
                continue;
            }
            const char *rest = kvg_replay_fault_is_timed(&read) ? parse_seconds(text + end, &read.step) : parse_count(text + end + before, &read.step);
            if (rest != NULL && strcmp(rest, word->after) == 0) {
                *fault = read;
                return KVG_OK;
            }
        }
    }
    return kvg_fail(KVG_EINVAL, "--fault \"%s\" is not understood: give flip:RANK@stepN, refuse:RANK@stepN, oom:RANK@growN (counted from 1), kill:RANK@Ts, "
                                "exit:RANK@Ts or stall:RANK@Ts (seconds, as 2.5s)", text);
}

const char *kvg_replay_fault_words(const ReplayFault *fault, char text[REPLAY_FAULT_WORDS])
{
    static const char *const meant[] = {
        [REPLAY_FAULT_FLIP] = "one stored bit of that rank is another, and so is the digest; --verify finds it",
        [REPLAY_FAULT_REFUSE] = "that rank voted no; the step was rolled back on every rank and made again",
        [REPLAY_FAULT_OOM] = "that rank had no memory to grow; the step was rolled back on every rank and made again",
    };
    text[0] = '\0';
    for (size_t i = 0; i < sizeof fault_words / sizeof *fault_words; i++) {
        const FaultWord *word = &fault_words[i];
        if (word->kind == fault->kind && !kvg_replay_fault_is_timed(fault)) {
            snprintf(text, REPLAY_FAULT_WORDS, "%s:%u@%s%" PRIu64 " struck: %s", word->name, fault->rank, word->before, fault->step, meant[word->kind]);
        }
    }
    return text;
}

void kvg_replay_fault_strike(const ReplayFault *fault, uint64_t stall_ms)
{
    struct timespec rest = { (time_t)(stall_ms / 1000), (long)(stall_ms % 1000) * 1000000 };
    KVG_ASSERT(kvg_replay_fault_is_timed(fault));
    if (fault->kind == REPLAY_FAULT_KILL) {
        raise(SIGKILL);
    }
    if (fault->kind == REPLAY_FAULT_EXIT) {
        _exit(REPLAY_EXIT_OF_FAULT);
    }
    while (nanosleep(&rest, &rest) != 0) {
    }
}

typedef struct Victim {
    const ReplayMaker *maker;
    ReplaySight       *sight;
    const ReplayLayer *layer; /* as seen */
    uint64_t           request, standing, total;
    uint32_t           slot;
    uint64_t           draw;
} Victim;

static int flip_bit(const Victim *victim, void *stored, size_t count)
{
    uint64_t bit = (victim->draw >> 32) % (count * 8);
    return kvg_replay_sight_flip(victim->sight, (uint8_t *)stored + bit / 8, bit % 8) == KVG_OK;
}

/* The last row of a plane that a check will look at, of those that stand by now and are not written again; UINT64_MAX if there is none. */
static uint64_t sampled_row(const Victim *victim, uint32_t plane)
{
    const ReplayLayer *layer = victim->layer;
    const uint64_t     pool = layer->latent != NULL ? layer->latent->pool : 0;
    uint64_t           rows[REPLAY_SAMPLES_MAX];
    if (plane == KVG_PLANE_INDEX_ROWS) { /* gone as soon as their pool has its key */
        return victim->standing == victim->total && victim->total % pool != 0 ? victim->total - 1 : UINT64_MAX;
    }
    const int pooled = plane == KVG_PLANE_KEYS && pool != 0;
    size_t count = kvg_replay_sample_rows(victim->maker->seed, victim->request, kvg_replay_first_row(layer, victim->total), victim->total, rows);
    while (count > 0) {
        uint64_t row = rows[--count], end = pooled ? (row / pool + 1) * pool : row + 1;
        if (end <= victim->standing) {
            return pooled ? row / pool : row;
        }
    }
    return UINT64_MAX;
}

static int flip_row(const Victim *victim)
{
    uint32_t planes[REPLAY_ROW_PLANES_MAX];
    uint32_t count = kvg_replay_row_planes(victim->layer, planes);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t plane = planes[(victim->draw + i) % count];
        uint64_t row = sampled_row(victim, plane);
        if (row != UINT64_MAX) {
            ReplayShape shape = kvg_replay_shape(victim->layer, plane);
            uint32_t    head = (uint32_t)((victim->draw >> 8) % shape.heads);
            return flip_bit(victim, kvg_replay_stored(victim->layer, plane, victim->slot, head, row), shape.bytes);
        }
    }
    return 0;
}

/* State is written again by every token, until the last one. */
static int flip_state(const Victim *victim)
{
    const KvRecurrentView *view = victim->layer->recurrent;
    for (uint32_t i = 0; i < view->part_count && victim->standing == victim->total; i++) {
        uint32_t          part = (uint32_t)((victim->draw + i) % view->part_count);
        ReplayStateSample sample = kvg_replay_sample_state(victim->maker, victim->layer, part, victim->request);
        size_t            elements = 0;
        float            *stored = kvg_replay_stored_state(view, part, &sample, victim->slot, &elements);
        if (elements > 0) {
            return flip_bit(victim, stored, elements * sizeof *stored);
        }
    }
    return 0;
}

int kvg_replay_flip(const ReplayPlanes *planes, ReplaySight *sight, const ReplayMaker *maker, uint64_t request, uint32_t slot,
                    uint64_t standing, uint64_t total)
{
    uint64_t draw = kvg_mix_term(request, standing, total, maker->seed);
    if (kvg_replay_sight_refresh(sight) != KVG_OK) {
        return 0;
    }
    for (uint32_t i = 0; i < planes->count; i++) {
        Victim victim = { maker, sight, NULL, request, standing, total, slot, draw };
        if (kvg_replay_sight_layer(sight, &planes->layers[(draw + i) % planes->count], slot, &victim.layer) != KVG_OK) {
            return 0;
        }
        if (victim.layer->recurrent != NULL ? flip_state(&victim) : flip_row(&victim)) {
            return 1;
        }
    }
    return 0;
}
