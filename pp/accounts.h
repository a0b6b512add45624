/** Accounts: the ledger with every open sequence in it, for a scheduler that is no rank (S9).
 *
 *   rank 0      kvg_placement_to_json -> a file, a socket, ...
 *   scheduler   kvg_accounts_from_json; then each call that it has the workers make, made here too, in the same order
 *
 * What the workers answer to a call is what its namesake answers here: the same code decides, over the same agreed numbers. So a scheduler knows
 * beforehand whether a sequence is admitted, what a step books and refuses, how long each sequence is and what is free, without asking a rank.
 * A step's end cannot be known beforehand: the scheduler is told by a rank and passes the KvgOutcome on (kvg_accounts_decide).
 * No call looks at a clock, a file, the environment or another object: each is a function of the accounts and its arguments.
 *
 * The accounts are those of a placement in which nothing is open yet. They do not follow captured runs, kvg_grid_settle and kvg_grid_rebuild: load
 * them anew after these. Reach: local. Threads: one at a time per object, any thread. Memory: taken when they are loaded (and by nothing else). */
#ifndef KVG_ACCOUNTS_H
#define KVG_ACCOUNTS_H

#include <kvgrid/ledger.h>
#include <kvgrid/placement.h>
#include <kvgrid/sequence.h>
#include <kvgrid/step.h>

KVG_BEGIN_DECLS

typedef struct KvgAccounts KvgAccounts;

/** What a placement has agreed on, as one JSON object, ASCII: classes and their units, slots, limits of a step, and each rank's bytes. Nothing of
 *  its sequences. The same text on every rank.
 *   text   [room] the caller's, or NULL with room 0; at most `room` bytes are written, with a final 0, and none if they do not suffice
 *   bytes  how many the whole text takes, its final 0 included
 *  ECAPACITY: *bytes are needed, and nothing was written. Reach: local. */
KVG_API KvgStatus kvg_placement_to_json(const KvgPlacement *placement, char *text, size_t room, size_t *bytes);

typedef struct KvgAccountsOptions {
    size_t   size;             /* set by KVG_ACCOUNTS_OPTIONS_INIT */
    uint64_t memory_max_bytes; /* host memory that the accounts may take, by what the text says of slots and units; 0: 256 MiB */
} KvgAccountsOptions;
#define KVG_ACCOUNTS_OPTIONS_INIT { sizeof(KvgAccountsOptions), 0 }

/** Loads them from what kvg_placement_to_json wrote: `bytes` of text, at most 16 MiB, a final 0 not counted. options: NULL for the defaults.
 *  ENOTSUP another version of the text; EFORMAT a member that is missing, unknown, twice there, of the wrong type, out of its range, or at odds with
 *  another one, by name; ECAPACITY more memory than memory_max_bytes, saying how much; ENOMEM. */
KVG_API KvgStatus kvg_accounts_from_json(const char *text, size_t bytes, const KvgAccountsOptions *options, KvgAccounts **accounts);
/** The text again: equal to what was loaded, byte for byte. As kvg_placement_to_json. */
KVG_API KvgStatus kvg_accounts_to_json(const KvgAccounts *accounts, char *text, size_t room, size_t *bytes);
/** After kvg_placement_resize: the new text, of the same placement with other units. EFORMAT naming what else differs; EBUSY a step is undecided, or units
 *  that would go are in use; EINVAL past what the placement reserved. Nothing has changed then. */
KVG_API KvgStatus kvg_accounts_resize(KvgAccounts *accounts, const char *text, size_t bytes);
KVG_API void      kvg_accounts_destroy(KvgAccounts *accounts);

/** The counts alone, as kvg_placement_ledger gives them on a rank: a value to try admissions on (ledger.h). */
KVG_API void kvg_accounts_ledger(const KvgAccounts *accounts, KvgLedger *ledger);
/** As kvg_sequence_info on a rank; in_step 2: in a step whose end has not been told. `info->size` is set by the caller. ESTALE no such sequence. */
KVG_API KvgStatus kvg_accounts_info(const KvgAccounts *accounts, uint64_t id, KvgSequenceInfo *info);
/** Bytes booked on a rank: KvgStats.booked_bytes there. EINVAL. */
KVG_API KvgStatus kvg_accounts_booked_bytes(const KvgAccounts *accounts, uint32_t rank, uint64_t *bytes);

/* Posted calls, answered as by their namesakes of sequence.h, which say what each means. Sequences are named by their ids: ESTALE, none of that id is
 * open. EBUSY also: the sequence is in a step whose end has not been told (a rank would wait for it here). A refused call changes nothing. */
KVG_API KvgStatus kvg_accounts_open(KvgAccounts *accounts, uint64_t id, uint64_t rows);
KVG_API KvgStatus kvg_accounts_close(KvgAccounts *accounts, uint64_t id); /* legal inside a step */
KVG_API KvgStatus kvg_accounts_book(KvgAccounts *accounts, uint64_t id, uint64_t rows);
KVG_API KvgStatus kvg_accounts_rewind(KvgAccounts *accounts, uint64_t id, uint64_t rows);
KVG_API KvgStatus kvg_accounts_trim(KvgAccounts *accounts, uint64_t id);
KVG_API KvgStatus kvg_accounts_fork(KvgAccounts *accounts, uint64_t id, uint64_t rows, uint64_t fork_id);
KVG_API KvgStatus kvg_accounts_restore(KvgAccounts *accounts, uint64_t id, uint64_t rows, uint64_t first_row);

/** What kvg_sequence_snapshot remembers, as a value: no other call needs to know of it. */
typedef struct KvgAccountsMark {
    uint64_t id, serial, rows, cuts;
} KvgAccountsMark;
KVG_API KvgStatus kvg_accounts_snapshot(const KvgAccounts *accounts, uint64_t id, KvgAccountsMark *mark);
KVG_API KvgStatus kvg_accounts_rollback(KvgAccounts *accounts, const KvgAccountsMark *mark, uint64_t accept);

/** A rank has reported the sequence as tainted (KvgSequenceInfo.tainted there). */
KVG_API KvgStatus kvg_accounts_taint(KvgAccounts *accounts, uint64_t id);

/** A step is begun on every rank (kvg_step_begin): the places of its batch in order.
 *   ids, rows  [count] rows 0: the place takes no part, and its id is not looked at; count 0: a step of another placement of the grid
 *   refused    [count] filled: KVG_OK, or the code of kvg_step_refusal, the same on every rank
 *   step       the step's number here, from 1
 *  EBUSY the end of a step max_in_flight before it has not been told, or of the last step of a sequence named; ESTALE no such sequence;
 *  EINVAL more places than max_step_sequences. Nothing has changed then. */
KVG_API KvgStatus kvg_accounts_begin(KvgAccounts *accounts, const uint64_t *ids, const uint32_t *rows, uint32_t count, KvgStatus *refused,
                                     uint64_t *step);
/** One more pass of the step (kvg_step_extend). refused [count] as above. ESTALE the step has ended. */
KVG_API KvgStatus kvg_accounts_extend(KvgAccounts *accounts, uint64_t step, const uint32_t *rows, KvgStatus *refused);
/** How it ended, as a rank's kvg_step_test or kvg_step_wait says (`step` and the ranks in it are not looked at): published with the rows accepted at
 *  each place, or taken back. Sequences closed meanwhile are passed over. replay [count] or NULL: as KvgOutcome.replay.
 *  ESTALE it has ended; EINVAL counts above what was staged. */
KVG_API KvgStatus kvg_accounts_decide(KvgAccounts *accounts, uint64_t step, const KvgOutcome *outcome, uint32_t *replay);

KVG_END_DECLS
#endif
