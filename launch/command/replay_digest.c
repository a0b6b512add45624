/* Replay's digests. */
#include "launch/command/replay_digest.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

enum { GROUP_MAX = 32, GROUP_BYTES = 1 << 20 };

/* One sequence of one rank, followed by leaves_max leaves. */
typedef struct ReplayLeaves {
    uint64_t index, len;
    int32_t  status; /* of reading the leaves */
    uint32_t count;
} ReplayLeaves;
_Static_assert(sizeof(ReplayLeaves) % sizeof(uint64_t) == 0, "leaves follow it, aligned");

static size_t entry_bytes(const ReplayDigests *digests)
{
    return sizeof(ReplayLeaves) + (size_t)digests->leaves_max * sizeof(KvLeaf);
}

/* The most leaves that any rank has of one sequence. */
static KvgStatus agree_leaves_max(const ReplayLaunch *launch, uint32_t leaves, uint32_t *leaves_max)
{
    const KvgBootstrap *bootstrap = &launch->bootstrap;
    uint32_t *all = NULL;
    KVG_TRY(KVG_NEW((size_t)bootstrap->ranks, "the ranks' leaf counts", &all));
    KvgStatus status = bootstrap->allgather(bootstrap->user, &leaves, all, sizeof leaves, launch->timeout_ms);
    if (status == KVG_OK) {
        *leaves_max = 0;
        for (int rank = 0; rank < bootstrap->ranks; rank++) {
            *leaves_max = all[rank] > *leaves_max ? all[rank] : *leaves_max;
        }
    }
    kvg_free(all);
    return status;
}

KvgStatus kvg_replay_digests_create(const ReplayLaunch *launch, uint64_t count, uint32_t leaves, ReplayDigests *digests)
{
    ReplayDigests made = { .launch = launch, .count = count };
    void         *memory = NULL;
    KvgStatus     status = KVG_OK;
    const size_t  ranks = (size_t)launch->bootstrap.ranks;
    KVG_TRY(agree_leaves_max(launch, leaves, &made.leaves_max));
    made.group = (uint32_t)kvg_max_u64(1, kvg_min_u64(GROUP_MAX, GROUP_BYTES / entry_bytes(&made)));
    made.group_bytes = made.group * entry_bytes(&made);
    KVG_TRY_GOTO(KVG_NEW(count, "the requests' digests", &made.sequences), err_free);
    KVG_TRY_GOTO(KVG_NEW(count, "the refused requests", &made.refused), err_free);
    KVG_TRY_GOTO(kvg_calloc(1, made.group_bytes, "this rank's leaves", &memory), err_free);
    made.mine = memory;
    KVG_TRY_GOTO(kvg_calloc(ranks, made.group_bytes, "all ranks' leaves", &memory), err_free);
    made.all = memory;
    if (launch->bootstrap.rank == 0) {
        KVG_TRY_GOTO(KVG_NEW(ranks * made.leaves_max, "one sequence's leaves", &made.merged), err_free);
    }
    *digests = made;
    return KVG_OK;
err_free:
    kvg_replay_digests_free(&made);
    return status;
}

void kvg_replay_digests_free(ReplayDigests *digests)
{
    kvg_free(digests->sequences);
    kvg_free(digests->refused);
    kvg_free(digests->mine);
    kvg_free(digests->all);
    kvg_free(digests->merged);
    *digests = (ReplayDigests){ 0 };
}

void kvg_replay_digests_refuse(ReplayDigests *digests, uint64_t index)
{
    KVG_ASSERT(index < digests->count);
    digests->refused[index] = 1;
}

KvgStatus kvg_replay_digests_add(ReplayDigests *digests, uint64_t index, uint64_t len, const KvgSequence *sequence)
{
    KVG_ASSERT(index < digests->count);
    KVG_ASSERT(digests->held < digests->group);
    uint8_t     *at = digests->mine + digests->held * entry_bytes(digests);
    ReplayLeaves head = { .index = index, .len = len };
    size_t       count = 0;
    /* A failure travels with the leaves, so that every rank comes to the gather and hears of it. */
    head.status = kvg_sequence_leaves(sequence, (KvLeaf *)(void *)(at + sizeof head), digests->leaves_max, &count);
    if (head.status == KVG_OK && count > digests->leaves_max) {
        head.status = kvg_fail(KVG_ELAYOUT, "a sequence has %zu leaves on this rank where its view shows %u", count, digests->leaves_max);
    }
    head.count = head.status == KVG_OK ? (uint32_t)count : 0;
    memcpy(at, &head, sizeof head);
    digests->held++;
    return digests->held == digests->group ? kvg_replay_digests_flush(digests) : KVG_OK;
}

/* Copies of a head that part leave a digest all the same: of every leaf, the copies included, which no sound run can have. */
static void digest_differing(ReplayDigests *digests, uint64_t index, size_t count)
{
    if (digests->differing++ == 0) {
        snprintf(digests->first, sizeof digests->first, "request %llu: %s", (unsigned long long)index, kvg_last_error());
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(digests->merged, count * sizeof(KvLeaf)));
    memcpy(digests->sequences[index].bytes, canonical.digest, sizeof canonical.digest);
}

/* Brings the `at`th held sequence together from all ranks. */
static KvgStatus combine(ReplayDigests *digests, uint32_t at)
{
    const KvgBootstrap *bootstrap = &digests->launch->bootstrap;
    ReplayLeaves        first = { 0 };
    size_t              count = 0;
    for (int rank = 0; rank < bootstrap->ranks; rank++) {
        const uint8_t *from = digests->all + (size_t)rank * digests->group_bytes + at * entry_bytes(digests);
        ReplayLeaves   head;
        memcpy(&head, from, sizeof head);
        first = rank == 0 ? head : first;
        if (head.status != KVG_OK) {
            return kvg_fail((KvgStatus)head.status, "rank %d could not read the rows of request %llu for its digest (%s)", rank,
                            (unsigned long long)head.index, kvg_status_name((KvgStatus)head.status));
        }
        if (head.index != first.index || head.len != first.len) {
            return kvg_fail(KVG_ELAYOUT, "rank %d closed request %llu where rank 0 closed %llu", rank, (unsigned long long)head.index,
                            (unsigned long long)first.index);
        }
        if (digests->merged != NULL) {
            memcpy(digests->merged + count, from + sizeof head, head.count * sizeof(KvLeaf));
        }
        count += head.count;
    }
    if (digests->merged == NULL) {
        return KVG_OK;
    }
    KvgStatus status = kvg_digest_combine(digests->merged, count, first.len, &digests->sequences[first.index]);
    if (status == KVG_ELAYOUT) {
        digest_differing(digests, first.index, count);
        status = KVG_OK;
    }
    return status;
}

KvgStatus kvg_replay_digests_flush(ReplayDigests *digests)
{
    const KvgBootstrap *bootstrap = &digests->launch->bootstrap;
    if (digests->held == 0) {
        return KVG_OK;
    }
    KVG_TRY(bootstrap->allgather(bootstrap->user, digests->mine, digests->all, digests->group_bytes, digests->launch->timeout_ms));
    for (uint32_t at = 0; at < digests->held; at++) {
        KVG_TRY(combine(digests, at));
    }
    digests->held = 0;
    return KVG_OK;
}

KvgStatus kvg_replay_digest_of(const KvDigest *sequences, const uint8_t *refused, uint64_t count, KvDigest *final)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) {
        return kvg_fail(KVG_ENOMEM, "no memory for the digest's state: close other programs");
    }
    XXH3_128bits_reset(state);
    for (uint64_t index = 0; index < count; index++) {
        if (!refused[index]) {
            XXH3_128bits_update(state, sequences[index].bytes, sizeof sequences[index].bytes);
            continue;
        }
        uint8_t little[8];
        for (int byte = 0; byte < 8; byte++) {
            little[byte] = (uint8_t)(index >> (8 * byte));
        }
        XXH3_128bits_update(state, little, sizeof little);
        XXH3_128bits_update(state, "refused", sizeof "refused" - 1);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(final->bytes, canonical.digest, sizeof canonical.digest);
    XXH3_freeState(state);
    return KVG_OK;
}

KvgStatus kvg_replay_digests_final(const ReplayDigests *digests, KvDigest *final)
{
    KVG_ASSERT(digests->held == 0);
    return kvg_replay_digest_of(digests->sequences, digests->refused, digests->count, final);
}
