/* Device vote, the host's side: sizes, control and outcome words, peeked slots; and the host twins, which are the reference. */
#include <kvgrid/device_vote.h>

#include <string.h>

#include "runtime/base/memory.h"
#include "runtime/dev/device_vote_entry.h"
#include "runtime/rules/ring_inline.h"

_Static_assert(sizeof(KvVoteControl) == 16 && sizeof(KvVoteWords) == 96, "device and host read the same words");
_Static_assert(offsetof(KvVoteWords, running) == 40, "what decide moves stands before what the host sets");

typedef struct Unit {
    uint32_t word[KVG_VOTE_UNIT_WORDS], tag;
} Unit;

/* ---- sizes */

uint32_t kvg_vote_keep(uint64_t window)
{
    uint64_t keep = kvg_monus_u64(window, 1) + KVG_SWA_REWIND_SLACK_ROWS;
    return window == 0 ? 0 : (uint32_t)kvg_min_u64(keep, UINT32_MAX);
}

uint32_t kvg_vote_slots(uint32_t window_steps)
{
    uint32_t slots = 2;
    while (slots < 2 * (uint64_t)window_steps && slots < 1u << 30) slots *= 2;
    return slots;
}

size_t kvg_vote_slot_bytes(const KvVoteBoard *board)
{
    return (size_t)board->ranks * kvg_vote_units(board->sequences_max) * sizeof(Unit);
}

size_t kvg_vote_board_bytes(const KvVoteBoard *board)
{
    return board->slots * kvg_vote_slot_bytes(board);
}

size_t kvg_vote_ahead_bytes(uint32_t entries)
{
    const KvVoteAhead at = { 0 }; /* for sizes alone */
    const size_t      whole = (size_t)kvg_vote_warps(entries) * KVG_VOTE_WARP;

    return sizeof *at.head + whole * (sizeof *at.term + 2 * sizeof **at.span + sizeof *at.slot) + 2 * kvg_vote_units(entries) * sizeof **at.image;
}

/* ---- the control block: words that a device reads, each written at once */

static void put(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void kvg_vote_allow(KvVoteControl *control, uint64_t timeout_us)
{
    uint32_t moves = (uint32_t)control->deadline + 1;
    put(&control->deadline, kvg_min_u64(timeout_us, UINT32_MAX) << 32 | moves);
}

void kvg_vote_forward(KvVoteControl *control)
{
    kvg_vote_allow(control, control->deadline >> 32);
}

void kvg_vote_stop(KvVoteControl *control, int stop)
{
    put(&control->stop, stop != 0);
}

/* ---- the outcome word */

KvVoteWord kvg_vote_word(uint64_t word, uint64_t since)
{
    const uint32_t kind = word >> 28 & 7, rank = word >> 50 & 0x7f;
    KvVoteWord     read = { .kind = KVG_VOTE_WORD_NONE };

    if (kind == 0) {
        return read;
    }
    read.step = since + ((word - since) & 0xfffffffu);
    if (kind >= KVG_VOTE_WORD_KIND_INDOUBT) {
        read.kind = kind == KVG_VOTE_WORD_KIND_INDOUBT ? KVG_VOTE_WORD_INDOUBT : KVG_VOTE_WORD_STOPPED;
        read.missing = rank;
        return read;
    }
    read.kind = KVG_VOTE_WORD_DECIDED;
    read.outcome = (KvVoteOutcome){ .kind = (uint8_t)(kind - 1), .field = word >> 31 & 7, .status = (int16_t)(uint16_t)(word >> 34),
                                    .rank = (uint16_t)rank, .rank_b = (uint16_t)(word >> 57) };
    return read;
}

/* ---- peeked slots */

int kvg_vote_unpack(const KvVoteBoard *board, const void *units, uint64_t step, uint32_t epoch, uint32_t rank, KvVoteRecord *record)
{
    const uint32_t count = kvg_vote_units(board->sequences_max), awaited = kvg_vote_tag(step, epoch);
    const Unit    *unit = (const Unit *)units + (size_t)rank * count;
    const size_t   bytes = kvg_vote_record_bytes(board->sequences_max);

    for (uint32_t u = 0; u < count; u++) {
        if (!kvg_vote_tag_fits(unit[u].tag, awaited)) {
            return 0;
        }
    }
    for (size_t at = 0; record != NULL && at < bytes; at += sizeof unit->word) {
        memcpy((uint8_t *)record + at, unit++->word, kvg_min_u64(sizeof unit->word, bytes - at));
    }
    return 1;
}

int kvg_vote_present(const KvVoteBoard *board, const void *units, uint64_t step, uint32_t epoch)
{
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        if (!kvg_vote_unpack(board, units, step, epoch, rank, NULL)) {
            return 0;
        }
    }
    return 1;
}

/* ---- host twins */

/* This rank's "no": what the words say, else EINVAL where a count cannot be. */
static int32_t own_status(const KvVoteArrays *arrays)
{
    const KvVoteWords *words = arrays->words;

    for (uint32_t e = 0; e < words->count && words->status == 0; e++) {
        KvVoteEntry entry = kvg_vote_entry(arrays, e);
        if (entry.slot >= 0 && kvg_vote_says_bad(&entry, words->accepts)) {
            return KVG_EINVAL;
        }
    }
    return words->status;
}

void kvg_vote_form_ref(const KvVoteBoard *board, const KvVoteArrays *arrays, KvVoteRecord *record)
{
    const KvVoteWords *words = arrays->words;
    KvVoteSums         sums = { words->running, 0, words->layout };
    int32_t            status = own_status(arrays);

    memset(record, 0, kvg_vote_record_bytes(board->sequences_max));
    for (uint32_t e = 0; e < words->count; e++) {
        KvVoteEntry entry = kvg_vote_entry(arrays, e);
        if (entry.slot < 0) {
            continue;
        }
        uint16_t stored = kvg_vote_says(&entry, words->accepts);
        kvg_vote_add_terms(arrays, e, &entry, stored, &sums);
        record->accepted_rows[e] = status == KVG_ETAINTED ? arrays->accepted != NULL && entry.accepted != 0 : stored;
    }
    record->step = words->step;
    record->epoch = words->epoch;
    record->status = (int16_t)status;
    record->rank = (uint16_t)board->rank;
    record->targets = kvg_digest_seal(sums.targets);
    record->accepted = status == 0 && words->accepts != 0 ? kvg_digest_seal(sums.accepted) : 0;
    record->layout = kvg_digest_seal(sums.layout);
    record->user = words->user;
    record->decided = words->decided;
    record->count = words->count;
}

KvgStatus kvg_vote_post_ref(const KvVoteBoard *board, const KvVoteArrays *arrays)
{
    const uint32_t units = kvg_vote_units(board->sequences_max);
    const uint64_t offset = kvg_vote_slot_offset(board, arrays->words->step) + (uint64_t)board->rank * units * sizeof(Unit);
    const uint32_t tag = kvg_vote_tag(arrays->words->step, arrays->words->epoch);
    Unit          *own = (Unit *)(void *)(board->base + board->rank * board->stride + offset);
    const size_t   bytes = kvg_vote_record_bytes(board->sequences_max);
    void          *record = NULL;

    if (arrays->words->stop != 0) {
        return KVG_OK;
    }
    KVG_TRY(kvg_calloc(1, bytes, "a vote record", &record));
    kvg_vote_form_ref(board, arrays, record);
    for (uint32_t u = 0; u < units; u++) {
        const size_t at = u * sizeof own->word;
        own[u] = (Unit){ .tag = tag };
        memcpy(own[u].word, (const uint8_t *)record + at, kvg_min_u64(sizeof own->word, kvg_monus_u64(bytes, at)));
    }
    for (uint32_t to = 0; to < board->ranks; to++) {
        if (to != board->rank) {
            memcpy(board->base + to * board->stride + offset, own, units * sizeof(Unit));
        }
    }
    arrays->words->posted = arrays->words->step;
    kvg_free(record);
    return KVG_OK;
}

static void stage_nothing(const KvVoteArrays *arrays)
{
    if (arrays->rows != NULL) {
        memset(arrays->rows, 0, arrays->entries * sizeof *arrays->rows);
    }
}

static void publish_ref(const KvVoteArrays *arrays, const KvVoteRecord *const records[])
{
    KvVoteWords *words = arrays->words;
    int          owes = 0;

    while ((*records)->accepted == 0) {
        records++;
    }
    stage_nothing(arrays);
    for (uint32_t e = 0; e < words->count; e++) {
        KvVoteEntry entry = kvg_vote_entry(arrays, e);
        uint32_t    next_rows = kvg_vote_next_rows(arrays, words->posted, words->last, e);
        owes |= kvg_vote_publish_entry(arrays, e, &entry, (*records)->accepted_rows[e], next_rows);
        if (arrays->rows != NULL && entry.slot >= 0) {
            arrays->rows[e] = next_rows;
        }
    }
    words->stop = kvg_vote_stop_after(words->posted, words->last, owes);
    if (words->stop != KVG_VOTE_RUNS) {
        stage_nothing(arrays);
    }
    words->decided = words->posted;
    words->step = words->posted + words->advance;
    words->ahead = 0;
}

static void decided_ref(const KvVoteBoard *board, const KvVoteArrays *arrays, const KvVoteRecord *const records[])
{
    KvVoteOutcome outcome;

    kvg_vote_decide(records, board->ranks, board->tp, &outcome);
    *arrays->outcome = kvg_vote_word_decided(arrays->words->posted, outcome);
    if (outcome.kind == KVG_VOTE_PUBLISH) {
        publish_ref(arrays, records);
    } else {
        stage_nothing(arrays);
        arrays->words->stop = KVG_VOTE_STOP_OUTCOME;
    }
    arrays->words->posted = 0;
}

static void missing_ref(const KvVoteArrays *arrays, uint32_t rank)
{
    *arrays->outcome = kvg_vote_word_missing(arrays->words->posted, 0, rank);
    stage_nothing(arrays);
    arrays->words->stop = KVG_VOTE_STOP_OUTCOME;
}

KvgStatus kvg_vote_decide_ref(const KvVoteBoard *board, const KvVoteArrays *arrays)
{
    const size_t        stride = (kvg_vote_record_bytes(board->sequences_max) + 7) / 8 * 8;
    const KvVoteWords  *words = arrays->words;
    const uint8_t      *units = board->base + board->rank * board->stride + kvg_vote_slot_offset(board, words->posted);
    const KvVoteRecord *records[KVG_VOTE_DEVICE_RANKS_MAX];
    void               *memory = NULL;
    uint32_t            here = 0;

    if (words->stop != 0 || words->posted == 0) {
        return KVG_OK;
    }
    KVG_TRY(kvg_calloc(board->ranks, stride, "vote records", &memory));
    for (; here < board->ranks; here++) {
        KvVoteRecord *record = (KvVoteRecord *)((uint8_t *)memory + here * stride);
        if (!kvg_vote_unpack(board, units, words->posted, words->epoch, here, record)) {
            break;
        }
        records[here] = record;
    }
    if (here == board->ranks) {
        decided_ref(board, arrays, records);
    } else {
        missing_ref(arrays, here);
    }
    kvg_free(memory);
    return KVG_OK;
}
