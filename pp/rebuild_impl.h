/* Rebuild, inside: what its sources share. Private.
 *
 *   rebuild.c        the operation, stage by stage, and the survivors' calls
 *   rebuild_join.c   a newcomer's calls, and the placements it makes
 *   rebuild_hello.c  what each rank says of itself
 *   rebuild_heard.c  whether that can be, and whether all say the same
 *   rebuild_shares.c chunks that forks hold together
 *   rebuild_plan.c   what becomes of each sequence: pure, the same on every rank
 *   rebuild_carry.c  rows that go to newcomers, piece by piece
 *   rebuild_shard.c  who holds which head of which layer: pure
 *
 * Nothing that counts has changed on a survivor before all have voted for it; publishing cannot fail. */
#ifndef KVG_REBUILD_IMPL_H
#define KVG_REBUILD_IMPL_H

#include <kvgrid/rebuild.h>

#include "pp/handshake.h"
#include "pp/place.h"
#include "pp/voted.h"
#include "runtime/state/cache_carry.h"

/* ---- shards */

typedef struct KvLostShard {
    int      lost; /* 0: every shard has a holder */
    uint32_t layer, head;
    int      rank; /* who had it */
} KvLostShard;

/* The first head of the placement's layers that no rank in `holder` [ranks] has. */
KvLostShard kvg_shard_lost(const KvgPlacement *placement, const uint8_t *holder);
/* The lowest rank in `holder` that has the same share of layer `il` as `rank`; -1: none has. Layers without state of their own: -1, too. */
int kvg_shard_donor(const KvgPlacement *placement, const uint8_t *holder, int rank, uint32_t il);
/* The same for the slot image: all recurrent layers of the stage at once, and index rings. */
int kvg_shard_image_donor(const KvgPlacement *placement, const uint8_t *holder, int rank);
/* The layer keeps rows or columns of its own. */
int kvg_shard_keeps(const KvgPlacement *placement, uint32_t il);

/* ---- what crosses the wire: a RebuildHello, then of each placement (oldest first) a RebuildPlace and its state_bytes [ranks], then of each sequence
 * (by placement and id) a RebuildSequence and the bytes that this rank would send of it to each lost place [newcomers], in rank order; then KvCarryShares,
 * by sequence, class and entry */

typedef struct RebuildHello {
    uint64_t status; /* what this rank's own checks said; then nothing follows, and nothing else is valid */
    uint64_t joins;  /* 1: a newcomer */
    KvHello  hello;
    uint64_t survivors; /* a digest of the list; of a newcomer 0 */
    uint64_t epoch, running, changes, begun, max_step_sequences, placed;
    uint64_t placements, sequences, shares;
} RebuildHello;

typedef struct RebuildPlace {
    PlaceHello place;
    uint64_t   number, asleep, class_count;
    uint64_t   units[KVG_CLASSES_MAX], units_max[KVG_CLASSES_MAX], held[KVG_CLASSES_MAX]; /* held: by sequences, shared ones once */
} RebuildPlace;

typedef struct RebuildSequence {
    uint64_t     placement, id; /* its placement: how manieth */
    uint64_t     tainted;
    KvCarryPlace place;
} RebuildSequence;

/* Where they stand in one rank's words. */
typedef struct RebuildAccount {
    const RebuildHello *hello;
    const uint8_t      *places, *sequences;
    size_t              place_bytes, sequence_bytes;
    uint64_t            sequence_count, share_count;
    const KvCarryShare *shares;
} RebuildAccount;

/* ---- the operation */

typedef enum RebuildStage { REBUILD_SETTLE = 0, REBUILD_SAY, REBUILD_PREPARE, REBUILD_COPY, REBUILD_CAST, REBUILD_PUBLISH } RebuildStage;

typedef struct RebuildEntry { /* one sequence */
    const RebuildSequence *said; /* by the first survivor that has it */
    uint64_t               index; /* there; where survivors agree, on all of them */
    uint64_t               rows; /* that every survivor has committed */
    int                    everywhere; /* every survivor has it open */
    KvgLoss                loss;
    KvLostShard            shard;
    KvgSequence           *sequence; /* this rank's; NULL: it has none */
} RebuildEntry;

typedef struct RebuildState {
    Voted             voted; /* first; its placement stays NULL */
    RebuildStage      stage;
    int               joins;     /* this rank is a newcomer */
    int               prepared, counted; /* stages that run again do these once */
    uint8_t          *survivor;  /* [ranks] */
    int               survivors, newcomers;
    uint64_t          survivors_digest;
    KvgSetup         *settle;
    KvComm            comm;      /* what the grid had, until it has settled over what is to be; ops NULL: none, or closed */
    KvLiveness        liveness;
    uint8_t          *lost_told; /* [ranks] there */
    KvgRebuildReport **target;   /* NULL: no report is wanted, or it has been given */
    RebuildEntry     *entries;   /* [entry_count] */
    uint32_t          entry_count;
    void            **said;      /* [ranks] copies of the hellos: the gather's go with the next */
    size_t           *said_bytes;
    uint64_t          running_after;
    KvgRebuildReport *report;    /* made before the vote, so that publishing cannot fail */
    int               apart;     /* survivors have made different posted calls */
    /* a newcomer's */
    KvgJoin          *joins_list;
    uint32_t          join_count;
    KvgPlacement    **made;      /* [join_count] */
    KvgGrid         **grid_target;
    int               delivered;
    /* copying */
    int               to;        /* the newcomer that is being sent to; ranks: all have what they need */
    uint32_t          entry;
    uint64_t          piece;     /* of this entry to this newcomer: how manieth */
    int               receiving; /* a piece of entry `entry` is in the gather */
    KvCarryWalk      *walks;     /* [ranks] of the current entry: a sender uses its own place, a receiver its senders' */
    uint8_t          *mine;      /* [ranks][n_layer + n_mtp] which layers each sends */
    uint8_t          *receiver;  /* [ranks] */
    uint8_t          *buffer;    /* [KVG_CARRY_PIECE] of a sender */
    KvgStatus         copied;    /* the first thing that went wrong here; told by the vote at the end */
    char              copied_why[256];
} RebuildState;

#define KVG_CARRY_PIECE ((uint64_t)4 << 20)

/* rebuild_hello.c */
/* Sends what this rank says. A rank that cannot say it for want of memory says that. */
KvgStatus kvg_rebuild_say(KvgSetup *setup, KvgStatus local);
/* The bytes that follow from a hello's counts: of all, which are no more than `most`; UINT64_MAX: they are more. */
uint64_t  kvg_rebuild_account_bytes(const RebuildHello *hello, int ranks, int newcomers, uint64_t most);
void      kvg_rebuild_account(const void *said, int ranks, int newcomers, RebuildAccount *account);
/* What `rank` has said. */
void      kvg_rebuild_account_of(const KvgSetup *setup, int rank, RebuildAccount *account);
static inline const RebuildSequence *kvg_rebuild_sequence_in(const RebuildAccount *account, uint64_t i)
{
    return (const RebuildSequence *)(const void *)(account->sequences + i * account->sequence_bytes);
}
static inline const RebuildPlace *kvg_rebuild_place_in(const RebuildAccount *account, uint64_t i)
{
    return (const RebuildPlace *)(const void *)(account->places + i * account->place_bytes);
}
/* By placement, then by id. */
int       kvg_rebuild_compare(const RebuildSequence *a, const RebuildSequence *b);
const RebuildHello    *kvg_rebuild_hello(const RebuildState *state, int rank);
const RebuildPlace    *kvg_rebuild_place(const RebuildState *state, int ranks, int rank, uint64_t i);
const uint64_t        *kvg_rebuild_state_bytes(const RebuildState *state, int ranks, int rank, uint64_t i);
const RebuildSequence *kvg_rebuild_sequence(const RebuildState *state, int ranks, int rank, uint64_t i);
/* Bytes that `rank` sends of its i-th sequence to the newcomer `to`. */
uint64_t kvg_rebuild_stream(const RebuildState *state, int ranks, int rank, uint64_t i, int to);
/* This rank's placements, oldest first. */
KvgPlacement *kvg_rebuild_placement(const KvgSetup *setup, uint64_t i);

/* rebuild_heard.c */
/* Keeps what all have said and compares: EREFUSED, ELAYOUT by name, EFORMAT what cannot be. */
KvgStatus kvg_rebuild_heard(KvgSetup *setup);
int       kvg_rebuild_first_survivor(const RebuildState *state);

/* rebuild_shares.c */
/* Of this rank's sequences, by placement and id. ENOMEM; freed by kvg_free. */
KvgStatus kvg_rebuild_find_shares(const KvgSequence *const *sequences, uint64_t count, KvCarryShare **shares, uint64_t *share_count);
const KvCarryShare *kvg_rebuild_shares_of(const RebuildAccount *account, uint64_t i, uint64_t *count);
/* What is carried of the i-th sequence; the part points into the account. */
void      kvg_rebuild_part(const RebuildAccount *account, uint64_t i, KvCarryPart *part);
/* 1: they are in order, within what their sequences hold and have committed, and each chunk has one owner. Of classes no placement is looked at. */
int       kvg_rebuild_shares_stand(const RebuildAccount *account);
/* 1: as many units as sequences [first, end) hold are held. The shares stand. */
int       kvg_rebuild_units_stand(const RebuildAccount *account, const RebuildPlace *place, uint64_t first, uint64_t end);

/* rebuild_plan.c */
/* What is done about each sequence: entries. ENOMEM. */
KvgStatus kvg_rebuild_plan(KvgSetup *setup);
/* EGEOM where nobody joins and a shard is lost. */
KvgStatus kvg_rebuild_check_shards(const KvgSetup *setup);
/* ENOMEM. */
KvgStatus kvg_rebuild_report(const KvgSetup *setup, KvgRebuildReport **report);
/* Makes it so on a survivor. */
void      kvg_rebuild_apply(KvgSetup *setup);

/* rebuild_join.c */
/* A newcomer makes the placements that it was told of; then, once it is known what becomes of them, opens every sequence. */
KvgStatus kvg_rebuild_make(KvgSetup *setup);
KvgStatus kvg_rebuild_open(KvgSetup *setup);
void      kvg_rebuild_unmake(KvgSetup *setup);
void      kvg_rebuild_deliver(KvgSetup *setup);

/* rebuild.c */
KvgStatus kvg_rebuild_setup(KvgGrid *grid, const char *what, KvgSetup **setup);
/* Closes what is there: each may be NULL, or without operations. */
void      kvg_rebuild_close(const KvComm *comm, const KvLiveness *liveness);
/* The first all-gather of survivors and newcomers. Its own status, or EREFUSED naming the rank that could not. */
KvgStatus kvg_rebuild_knock(const KvgBootstrap *bootstrap, KvgStatus local, const KvgPolicy *policy);

/* rebuild_carry.c */
/* Marks the layers that `rank` sends to the newcomer `to`: mine [layers]; 1 through *image if the slot image, too. */
void      kvg_rebuild_sends(const KvgSetup *setup, const KvgPlacement *placement, int rank, int to, uint8_t *mine, int *image);
KvgStatus kvg_rebuild_carry_prepare(KvgSetup *setup);
/* 1 while pieces are left. */
int       kvg_rebuild_carry_left(KvgSetup *setup);
/* Stores what has come, sends the next piece. */
KvgStatus kvg_rebuild_carry(KvgSetup *setup);
void      kvg_rebuild_carry_drop(KvgSetup *setup);

#endif
