/** Batches and steps: the collective commit (S7). A step stages rows of one or more sequences on every rank and ends in one vote over the
 * whole grid: all layers on all stages commit together.
 *
 *   begin -> write, attend (-> extend -> write, attend ...) -> post -> test or wait
 *
 * Every begun step posts exactly one record. At most W steps are undecided, over disjoint sequences.
 * `slot` in calls, and [slots] in arrays, count the places of a batch here. A view's tables and lengths go by another number, the sequence's own slot:
 * kvg_batch_slots(batch)[place]. */
#ifndef KVG_STEP_H
#define KVG_STEP_H

#include <kvgrid/latent.h>
#include <kvgrid/recurrent.h>
#include <kvgrid/sequence.h>

KVG_BEGIN_DECLS

typedef struct KvgBatch KvgBatch;
typedef struct KvgStep  KvgStep;

/** A batch: `slots` fixed places for sequences, with arrays at fixed addresses. 1 <= slots <= max_step_sequences. Reach: local. */
KVG_API KvgStatus kvg_batch_create(KvgPlacement *placement, uint32_t slots, KvgBatch **batch);
/** Legal in any state: a step of it that is begun can still be posted, and nothing more is written in it. NULL is allowed. */
KVG_API void kvg_batch_destroy(KvgBatch *batch);
/** Puts a sequence into a place; NULL empties it. EBUSY while a step of this batch is begun and unposted. Reach: posted (the same on every rank). */
KVG_API KvgStatus kvg_batch_set(KvgBatch *batch, uint32_t slot, KvgSequence *sequence);
/** [slots] the sequences' slots in tables and lengths, -1 for empty places; device memory, constant address. */
KVG_API const int32_t *kvg_batch_slots(const KvgBatch *batch);
/** Where layer `il`'s rows are; constant for the batch's life. NULL (last error set) if the layer is not on this rank, or is latent, recurrent, or
 *  without state. Reach: local. */
KVG_API const KvPlaneView *kvg_plane_view(const KvgBatch *batch, uint32_t il);

/** The same for a latent and for a recurrent layer. */
KVG_API const KvLatentView    *kvg_latent_view(const KvgBatch *batch, uint32_t il);
KVG_API const KvRecurrentView *kvg_recurrent_view(const KvgBatch *batch, uint32_t il);

/** Plans a step of rows_per_slot[slot] rows for each place (0: not part of it; host memory, read before the call returns). Reach: posted.
 *  First decides every step up to m-W and the last step of each sequence it names, within the deadline. A sequence that cannot take part is left
 *  out, with the same code on every rank, and the step goes on with the rest: kvg_step_refusal. ECAPACITY pool or context, ENOFIT more than
 *  prefill_chunk_max rows of a windowed class, ETAINTED, EBUSY named twice or begun and unposted.
 *  A sequence that owes a replay (KvgOutcome.replay): the first `replay` rows of its next step are the accepted tokens again, at their old positions; they
 *  count in rows_per_slot, not in what is staged and accepted. Fewer rows than that is EINVAL, exactly that many stages nothing new.
 *  A failure of this rank alone (ENOMEM) is posted as its "no".
 *  The call itself fails, and no step is begun, with EINVAL, EBUSY (a step of this batch, or step m-W, is unposted here), EINDOUBT, EPEER, ELAYOUT. */
KVG_API KvgStatus kvg_step_begin(KvgBatch *batch, const uint32_t *rows_per_slot, KvgStep **step);
/** The same over several batches, of one placement or of two that share the grid (a target and a draft model): one vote commits all. Places of the
 *  batches stand one after the other in everything by place: rows of kvg_step_extend, kvg_step_rows, accepted, outcomes. At most 4 batches. */
KVG_API KvgStatus kvg_step_begin_joint(KvgBatch *const *batches, const uint32_t *const *rows_per_slot, uint32_t count, KvgStep **step);
/** Another pass of the same step: stages rows_per_slot more rows. Refusals per sequence as begin; a sequence refused here keeps its earlier rows. */
KVG_API KvgStatus kvg_step_extend(KvgStep *step, const uint32_t *rows_per_slot);
/** [slots] rows granted in the current pass; 0 where refused or not part of it. Host memory, valid until post. */
KVG_API const uint32_t *kvg_step_rows(const KvgStep *step);
/** [slots] absolute row (token position) of the first of them: committed rows less what is owed as a replay, in a step's first pass. Likewise. */
KVG_API const uint64_t *kvg_step_first_rows(const KvgStep *step);
/** KVG_OK if the place takes part in the current pass (or asked for nothing). */
KVG_API KvgStatus kvg_step_refusal(const KvgStep *step, uint32_t slot);

/** KVG_OK, or what this rank alone failed with while the step was planned (memory, device): it will vote no, writes do nothing, and an engine's own
 *  kernels must write nothing through views either. */
KVG_API KvgStatus kvg_step_local(const KvgStep *step);

/** Elements of the current pass, [tokens][heads of this rank][head_dim]; tokens of the places in ascending order, kvg_step_rows(step)[slot] each. */
typedef struct KvgRows {
    size_t          size;    /* set by KVG_ROWS_INIT */
    const void     *k, *v;   /* device memory; read in stream order */
    KvFormat        dtype;   /* KVG_F32, KVG_F16 or KVG_BF16 */
    int64_t         token_stride_k, token_stride_v; /* elements; 0: heads * head_dim */
    int64_t         head_stride_k, head_stride_v;   /* elements; 0: head_dim */
    const uint32_t *first_token; /* [slots] index of each place's first token in k and v; NULL: packed */
} KvgRows;
#define KVG_ROWS_INIT { sizeof(KvgRows), NULL, NULL, KVG_F32, 0, 0, 0, 0, NULL }

/** Encodes the current pass's rows of layer `il` into its planes, for all sequences of the batch. Reach: local.
 *  EINVAL the layer is not here, or shares another's planes and writes nothing; ESTALE no step of this batch is begun and unposted. */
KVG_API KvgStatus kvg_write_kv(KvgBatch *batch, uint32_t il, const KvgRows *rows, KvgStream stream);

/** Rows of a latent layer in the current pass: [tokens][width], and what its indexer gets, [tokens][index_width]. Tokens as in KvgRows. */
typedef struct KvgLatentRows {
    size_t          size;   /* set by KVG_LATENT_ROWS_INIT */
    const void     *latent; /* device memory */
    const void     *index;  /* per token: keys; pooled: state rows; NULL for a layer without an indexer */
    KvFormat        dtype;  /* KVG_F32, KVG_F16 or KVG_BF16 */
    int64_t         token_stride_latent, token_stride_index; /* elements; 0: packed */
    const uint32_t *first_token;
    KvPoolKeyFn     key;    /* pooled indexers: builds a key from a whole pool's rows as stored; they come to the host for it */
    void           *user;   /* of key */
} KvgLatentRows;
#define KVG_LATENT_ROWS_INIT { sizeof(KvgLatentRows), NULL, NULL, KVG_F32, 0, 0, NULL, NULL, NULL }

/** Writes the current pass of latent layer `il`: rows, keys, index rows, for all sequences of the batch, any number of rows. Reach: local.
 *  EINVAL the layer is not here, or what its indexer needs is missing; ESTALE no step of this batch is begun and unposted. */
KVG_API KvgStatus kvg_write_latent(KvgBatch *batch, uint32_t il, const KvgLatentRows *rows, KvgStream stream);

/** What kvg_recurrent_update asks for one row: x [conv_channels] and u [state_elements] of this rank. `slot` is the batch's place, `row` the absolute row. */
typedef void (*KvgRecurrentFillFn)(void *user, uint32_t il, uint32_t slot, uint64_t row, float *x, float *u);

typedef struct KvgRecurrentRows {
    size_t             size;    /* set by KVG_RECURRENT_ROWS_INIT */
    KvgRecurrentFillFn fill;
    void              *user;
    float              decay;
    float             *scratch; /* [conv_channels + state_elements] host memory, the caller's; not asked for on another device than the host's */
} KvgRecurrentRows;
#define KVG_RECURRENT_ROWS_INIT { sizeof(KvgRecurrentRows), NULL, NULL, 1.0f, NULL }

/** Applies kvg_recurrent_token to every row of the current pass, from and into the columns that the view names: the reference for an engine's own kernel,
 *  which reads kvg_recurrent_view instead; on another device than the host's rows are made on the host and sent, many at once. Errors as kvg_write_latent. Reach: local. */
KVG_API KvgStatus kvg_recurrent_update(KvgBatch *batch, uint32_t il, const KvgRecurrentRows *rows, KvgStream stream);

typedef struct KvgCommit {
    size_t          size;        /* set by KVG_COMMIT_INIT */
    const uint32_t *accepted;    /* [slots] rows to keep of those staged; ranks that know (the last stage) pass them; NULL: taken from the record */
    int             accept_all;  /* 1: this rank knows that every staged row is kept; `accepted` is then NULL */
    uint64_t        user_digest; /* 0: none; else compared over the ranks that pass one, e.g. a hash of token ids */
    KvgStatus       refuse;      /* KVG_OK, or the engine's own "no" */
} KvgCommit;
#define KVG_COMMIT_INIT { sizeof(KvgCommit), NULL, 0, 0, KVG_OK }

/** Sends this rank's record and returns at once. EINVAL for accepted counts above what is staged (nothing was posted; call again). Where the transport has no
 *  memory for the record, test, wait and progress send it later; EIO: it could not take the record; the step counts as posted and will be in doubt. Reach: posted. */
KVG_API KvgStatus kvg_step_post(KvgStep *step, const KvgCommit *commit);

typedef enum KvgOutcomeKind {
    KVG_OUTCOME_PUBLISHED = 0, KVG_OUTCOME_REFUSED = 1, KVG_OUTCOME_DISAGREE = 2, KVG_OUTCOME_UNACCEPTED = 3, KVG_OUTCOME_TAINTED = 4,
    KVG_OUTCOME_SETTLED_BACK = 5 /* undecided when the grid settled: rolled back */
} KvgOutcomeKind;

typedef struct KvgOutcome {
    size_t          size;     /* sizeof(KvgOutcome) as the library was built: set by it */
    uint64_t        step;
    KvgOutcomeKind  kind;
    KvgStatus       status;   /* KVG_OK, EREFUSED, ELAYOUT, EINVAL, ETAINTED */
    int             rank, rank_b; /* who refused; or the two that disagree; -1 */
    KvgStatus       reason;   /* the refusing rank's code */
    const char     *field;    /* "targets", ...: what they disagree about; "" otherwise */
    const uint32_t *accepted; /* [slots] rows kept; 0 everywhere unless published */
    const uint32_t *replay;   /* [slots] rows owed again at the head of the next step (recurrent layers, pooled indexers) */
} KvgOutcome; /* arrays belong to the step: valid until W more steps have been begun */

/** *done = 1 when the step is decided here; then `outcome` (may be NULL) is filled and the return value is its status. Never blocks. */
KVG_API KvgStatus kvg_step_test(KvgStep *step, int *done, KvgOutcome *outcome);
/** Until it is decided or in doubt: EINDOUBT when a rank's record is missing and that rank is lost, or has been silent for KVGRID_TIMEOUT_MS.
 *  In doubt a rank keeps old and staged state; all but kvg_grid_settle and close answer EPEER. */
KVG_API KvgStatus kvg_step_wait(KvgStep *step, KvgOutcome *outcome);
/** The step's number, from 1. */
KVG_API uint64_t kvg_step_number(const KvgStep *step);

KVG_END_DECLS
#endif
