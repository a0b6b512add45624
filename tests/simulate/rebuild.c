/* Rebuild: survivors of a loss, or of posted calls that went apart, go on by the production call: alone where that is possible, or with newcomers on a hub of their
 * own. More may be lost on the way, memory may fail, messages may be late: then the survivors settle and try again. What the report says is compared with a rule
 * of this file's own (who had a copy of which layer), and what it says is there with the reference. */
#include "tests/simulate/sim.h"

#include <string.h>

enum { ATTEMPTS = 30, ATTEMPTS_FAULTY = 5 };

typedef struct Rebuilding {
    uint64_t          members; /* mask: who survives */
    int               joins;   /* newcomers take all other places */
    KvComm            comm[SIM_RANKS];
    KvLiveness        liveness[SIM_RANKS];
    Rank              fresh[SIM_RANKS];
    KvgJoin           join[SIM_RANKS];
    KvgPlaceOptions   options[SIM_RANKS];
    KvgSetup         *setup[SIM_RANKS];
    int               started[SIM_RANKS], done[SIM_RANKS];
    KvgStatus         each[SIM_RANKS];
    uint64_t          began_ns[SIM_RANKS];
    KvgRebuildReport *report[SIM_RANKS];
    uint64_t          id[SIM_RANKS][SIM_SEQS]; /* of the survivors' sequences before; 0: none */
    uint64_t          made_by;                 /* mask: who has published it */
    Reference         before;                  /* and what it was before that, should all of them die before they tell it */
    uint64_t          ranks_before;
    int               apart_before;
    KvgSequence      *handle[SIM_RANKS][SIM_SEQS];
} Rebuilding;

static uint64_t every_place(const World *w)
{
    return w->ranks == 64 ? UINT64_MAX : (1ull << w->ranks) - 1;
}

static int survives(const Rebuilding *b, int r)
{
    return b->members >> r & 1;
}

static int takes_part(const Rebuilding *b, int r)
{
    return survives(b, r) || b->joins;
}

static Rank *rank_of(World *w, Rebuilding *b, int r)
{
    return survives(b, r) ? &w->rank[r] : &b->fresh[r];
}

/* ---- what must be lost: said as plainly as possible */

static int has_copy(const World *w, uint64_t members, int r, uint32_t il)
{
    const StatePlan *layer = &w->config.plan.layers[il];
    int              tp = (int)w->tp, first = r - r % tp;

    for (int other = first; other < first + tp; other++) {
        int heads = layer->kind == KVG_STATE_LATENT ? 1 : layer->kind == KVG_STATE_RECURRENT ? tp : (int)layer->u.kv.kv_heads; /* of KDA and GDN as many as ranks */
        if (members >> other & 1 && heads < tp && (other - first) / (tp / heads) == (r - first) / (tp / heads)) return 1;
    }
    return 0;
}

static int layer_is_lost(const World *w, uint64_t members, int r, uint32_t il)
{
    KvStateKind kind = w->config.plan.layers[il].kind;

    return !(members >> r & 1) && kind != KVG_STATE_NONE && kind != KVG_STATE_SHARED && !has_copy(w, members, r, il);
}

static int something_is_lost(const World *w, uint64_t members)
{
    const KvgPlacement *placement = w->rank[__builtin_ctzll(members)].placement;

    for (int r = 0; r < w->ranks; r++) {
        for (uint32_t il = placement->plan.ranks[r].lo; il < placement->plan.ranks[r].hi; il++) {
            if (layer_is_lost(w, members, r, il)) return 1;
        }
    }
    return 0;
}

/* ---- one attempt */

static void begin(World *w, Rebuilding *b, const Attempt *attempt, int joins)
{
    KvInproc *hub = NULL;

    memset(b, 0, sizeof *b);
    b->joins = joins;
    for (int i = 0; i < attempt->count; i++) b->members |= 1ull << attempt->list[i];
    for (int r = 0; r < w->ranks; r++) {
        for (int i = 0; survives(b, r) && i < SIM_SEQS; i++) b->id[r][i] = w->rank[r].seq[i] != NULL ? w->rank[r].seq[i]->id : 0;
    }
    if (!joins) {
        return;
    }
    SIM_CHECK(w, kvg_inproc_create(w->ranks, &hub) == KVG_OK, "%s", kvg_last_error());
    world_add_hub(w, hub);
    for (int r = 0; r < w->ranks; r++) SIM_CHECK(w, kvg_inproc_attach(hub, r, &b->comm[r], &b->liveness[r]) == KVG_OK, "%s", kvg_last_error());
}

static void close_ends(Rebuilding *b, int r)
{
    if (b->joins) {
        b->comm[r].ops->close(b->comm[r].self);
        b->liveness[r].ops->close(b->liveness[r].self);
    }
}

static KvgStatus start_survivor(World *w, Rebuilding *b, const Attempt *attempt, int r)
{
    KvgRebuildOptions options = KVG_REBUILD_OPTIONS_INIT;

    if (b->joins) {
        options.comm = &b->comm[r];
        options.liveness = &b->liveness[r];
    }
    return kvg_grid_rebuild_start(w->rank[r].grid, attempt->list, attempt->count, &options, &b->report[r], &b->setup[r]);
}

static KvgStatus start_newcomer(World *w, Rebuilding *b, int r)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    Rank          *rank = &b->fresh[r];

    SIM_CHECK(w, kvg_dev_host(&rank->device) == KVG_OK, "%s", kvg_last_error());
    b->options[r] = w->place_options;
    b->options[r].memory_bytes = chance(&w->draws, 2) ? 0 : 1ull << 40;
    b->options[r].device = &rank->device;
    b->join[r] = (KvgJoin){ &w->config, &b->options[r], NULL };
    options.tp = w->tp;
    options.pp = w->pp;
    options.policy = &w->policy;
    options.max_in_flight = w->window_steps;
    options.comm = &b->comm[r];
    options.liveness = &b->liveness[r];
    return kvg_grid_join_start(r, w->ranks, &options, &b->join[r], 1, &rank->grid, &b->report[r], &b->setup[r]);
}

static int plant_oom(World *w, uint32_t one_in)
{
    int oom = w->faulty && w->faults.oom != 0 && chance(&w->draws, one_in * (uint32_t)w->ranks);

    if (oom) kvg_fault_arm(draw(&w->draws, 40));
    return oom;
}

static void start_rank(World *w, Rebuilding *b, const Attempt *attempt, int r)
{
    int oom;

    b->started[r] = 1;
    b->began_ns[r] = kvg_inproc_now_ns(w->hub);
    oom = survives(b, r) ? plant_oom(w, 10) : 0;
    b->each[r] = survives(b, r) ? start_survivor(w, b, attempt, r) : start_newcomer(w, b, r);
    if (oom) oom = kvg_fault_disarm();
    SIM_CHECK(w, b->each[r] == KVG_OK || (oom && b->each[r] == KVG_ENOMEM), "rank %d cannot rebuild: %s", r, kvg_last_error());
    b->done[r] = b->each[r] != KVG_OK;
    if (b->done[r]) {
        close_ends(b, r); /* still the caller's */
    }
}

static void turn_rank(World *w, Rebuilding *b, int r)
{
    int oom = plant_oom(w, 60);

    b->each[r] = kvg_setup_test(b->setup[r], &b->done[r]);
    if (oom && kvg_fault_disarm()) w->rank[r].keeps_more = 1;
    SIM_CHECK(w, kvg_inproc_now_ns(w->hub) - b->began_ns[r] <= 12 * SIM_DEADLINE_NS, "rebuilding on rank %d takes %llu ms", r,
              (unsigned long long)((kvg_inproc_now_ns(w->hub) - b->began_ns[r]) / SIM_MS));
}

static void kill_one(World *w, Rebuilding *b)
{
    int r = draw_rank(w, b->joins ? every_place(w) : b->members);

    fault_kill(w, r);
    b->fresh[r].dead = 1;
}

static int turn_all(World *w, Rebuilding *b, const Attempt *attempt)
{
    int left = 0, start = (int)draw(&w->draws, (uint32_t)w->ranks);

    for (int n = 0; n < w->ranks; n++) {
        int r = (start + n) % w->ranks;
        if (!takes_part(b, r) || rank_of(w, b, r)->dead) {
            continue;
        }
        if (b->started[r] && !b->done[r]) {
            turn_rank(w, b, r);
        } else if (!b->started[r] && chance(&w->draws, 3)) {
            start_rank(w, b, attempt, r);
        }
        left += !b->done[r];
    }
    return left;
}

/* All start, not at one moment, and are turned until each has ended. Any of them may die meanwhile. */
static void run(World *w, Rebuilding *b, const Attempt *attempt)
{
    int left = 1;

    for (uint64_t round = 0; left > 0; round++) {
        SIM_CHECK(w, round < 100000, "rebuilding does not end");
        left = turn_all(w, b, attempt);
        if (w->faulty && w->faults.kill != 0 && left > 1 && chance(&w->draws, 200)) {
            kill_one(w, b);
        }
        if (w->tear_rank >= 0 && w->tear_left <= 0) {
            b->fresh[w->tear_rank].dead = 1;
            fault_kill(w, w->tear_rank);
        }
        world_advance(w, round < 100 ? SIM_MS / 5 : 10 * SIM_MS);
    }
    for (int r = 0; r < w->ranks; r++) {
        if (takes_part(b, r) && !b->started[r]) {
            close_ends(b, r);
        }
        kvg_setup_free(b->setup[r]); /* of a rank that died in the middle, too */
    }
}

static int ended_well(World *w, Rebuilding *b, int r)
{
    return takes_part(b, r) && !rank_of(w, b, r)->dead && b->started[r] && b->each[r] == KVG_OK;
}

static int all_ended_with(World *w, Rebuilding *b, KvgStatus status)
{
    for (int r = 0; r < w->ranks; r++) {
        if (takes_part(b, r) && (rank_of(w, b, r)->dead || b->each[r] != status)) return 0;
    }
    return 1;
}

/* ---- what the report says */

static const KvgRebuiltSequence *said_of(const KvgRebuildReport *report, uint64_t id)
{
    for (uint32_t n = 0; n < report->count; n++) {
        if (report->sequences[n].id == id) return &report->sequences[n];
    }
    return NULL;
}

static void compare_reports(World *w, int r, const KvgRebuildReport *report, const KvgRebuildReport *first)
{
    SIM_CHECK(w, report->count == first->count && report->kept == first->kept && report->joined == first->joined && report->epoch == first->epoch,
              "rank %d reports %u sequences (%u kept) in epoch %u, the first rank %u (%u kept) in %u", r, report->count, report->kept, report->epoch, first->count,
              first->kept, first->epoch);
    for (uint32_t n = 0; n < first->count; n++) {
        const KvgRebuiltSequence *a = &report->sequences[n], *b = &first->sequences[n];
        SIM_CHECK(w, a->id == b->id && a->rows == b->rows && a->rows_held == b->rows_held && a->loss == b->loss && a->lost_layer == b->lost_layer &&
                  a->lost_rank == b->lost_rank && (a->sequence == NULL) == (b->sequence == NULL),
                  "rank %d reports %llu of %llu rows of sequence %llu (loss %d), the first rank %llu of %llu (loss %d)", r, (unsigned long long)a->rows_held,
                  (unsigned long long)a->rows, (unsigned long long)a->id, a->loss, (unsigned long long)b->rows_held, (unsigned long long)b->rows, b->loss);
    }
}

/* The reference knows what was held: the report says no more and no less. */
static void check_said(World *w, const Rebuilding *b, const RefSeq *seq, const KvgRebuiltSequence *said, int lost)
{
    KvgLoss loss = seq->tainted ? KVG_LOSS_TAINTED : lost && seq->len > 0 ? KVG_LOSS_SHARD : KVG_LOSS_NONE;

    SIM_CHECK(w, said->sequence != NULL, "sequence %llu was closed by a rebuild", (unsigned long long)seq->id);
    SIM_CHECK(w, said->rows == seq->len, "a rebuild reports %llu rows of sequence %llu, which had %llu", (unsigned long long)said->rows,
              (unsigned long long)seq->id, (unsigned long long)seq->len);
    SIM_CHECK(w, said->loss == loss, "a rebuild %s newcomers reports loss %d of sequence %llu (%llu rows, on rank %d layer %u), not %d", b->joins ? "with" : "without",
              said->loss, (unsigned long long)seq->id, (unsigned long long)seq->len, said->lost_rank, said->lost_layer, loss);
    SIM_CHECK(w, said->rows_held == (loss == KVG_LOSS_NONE ? seq->len : 0), "a rebuild reports that %llu rows of sequence %llu are there, with loss %d",
              (unsigned long long)said->rows_held, (unsigned long long)seq->id, said->loss);
    SIM_CHECK(w, loss != KVG_LOSS_SHARD || layer_is_lost(w, b->members, said->lost_rank, said->lost_layer), "a rebuild names layer %u of rank %d as lost, which has a copy",
              said->lost_layer, said->lost_rank);
}

static void check_report(World *w, const Rebuilding *b, const KvgRebuildReport *report)
{
    uint32_t open = 0;
    int      lost = something_is_lost(w, b->members);

    for (uint32_t i = 0; !w->apart && i < SIM_SEQS; i++) {
        const RefSeq             *seq = &w->front.seq[i];
        const KvgRebuiltSequence *said = seq->open ? said_of(report, seq->id) : NULL;
        SIM_CHECK(w, !seq->open || said != NULL, "sequence %llu stands in no report of a rebuild", (unsigned long long)seq->id);
        if (said != NULL) check_said(w, b, seq, said, lost);
        open += (uint32_t)seq->open;
    }
    SIM_CHECK(w, w->apart || report->count == open, "a rebuild reports %u sequences, and %u are open", report->count, open);
    for (uint32_t n = 0; w->apart && n < report->count; n++) {
        SIM_CHECK(w, report->sequences[n].rows_held == 0 && (report->sequences[n].loss == KVG_LOSS_CALLS || report->sequences[n].loss == KVG_LOSS_TAINTED),
                  "posted calls went apart, and a rebuild says that %llu rows of sequence %llu are there", (unsigned long long)report->sequences[n].rows_held,
                  (unsigned long long)report->sequences[n].id);
    }
}

/* ---- going on */

/* The sequence of place i after calls that went apart: open where every survivor has the same one there. */
static void reference_apart(World *w, const Rebuilding *b, const KvgRebuildReport *report, uint32_t i)
{
    RefSeq                   *seq = &w->front.seq[i];
    uint64_t                  id = b->id[__builtin_ctzll(b->members)][i];
    const KvgRebuiltSequence *said = id != 0 ? said_of(report, id) : NULL;

    for (int r = 0; r < w->ranks; r++) {
        if (survives(b, r) && b->id[r][i] != id) said = NULL;
    }
    seq->open = said != NULL && said->sequence != NULL;
    seq->id = id;
    seq->tainted = said != NULL && said->loss == KVG_LOSS_TAINTED;
}

static void reference_after(World *w, const Rebuilding *b, const KvgRebuildReport *report)
{
    for (uint32_t i = 0; i < SIM_SEQS; i++) {
        RefSeq *seq = &w->front.seq[i];
        if (w->apart) reference_apart(w, b, report, i);
        if (!seq->open) continue;
        seq->len = said_of(report, seq->id)->rows_held;
        seq->cuts++;
        w->kept += seq->len > 0;
        w->reset += seq->len == 0;
    }
}

/* Handles of survivors are those they had, unless the sequence is closed; of a newcomer, what its report has. */
static void take_handles(World *w, const Rebuilding *b, int r, const KvgRebuildReport *report)
{
    Rank *rank = &w->rank[r];

    for (uint32_t i = 0; i < SIM_SEQS; i++) {
        const RefSeq *seq = &w->front.seq[i];
        if (!survives(b, r)) {
            rank->seq[i] = seq->open ? said_of(report, seq->id)->sequence : NULL;
            continue;
        }
        if (rank->seq[i] == NULL) continue;
        const KvgRebuiltSequence *said = said_of(report, b->id[r][i]);
        SIM_CHECK(w, said != NULL, "rank %d: sequence %llu stands in no report of a rebuild", r, (unsigned long long)b->id[r][i]);
        SIM_CHECK(w, said->sequence == NULL || b->report[r] == NULL || said_of(b->report[r], b->id[r][i])->sequence == rank->seq[i],
                  "rank %d: a rebuild has changed the handle of sequence %llu", r, (unsigned long long)b->id[r][i]);
        if (said->sequence == NULL) rank->seq[i] = NULL;
    }
}

static void forget_newcomer(World *w, Rebuilding *b, int r)
{
    Rank *rank = &b->fresh[r];

    if (survives(b, r) || rank->device.ops == NULL) {
        return;
    }
    if (rank->grid != NULL) { /* it had joined before it died */
        kvg_placement_destroy(b->join[r].placement);
        kvg_grid_destroy(rank->grid);
    }
    SIM_CHECK(w, rank->device.ops->taken_bytes(rank->device.self) == 0, "a newcomer that was given up at rank %d has not given back %llu bytes", r,
              (unsigned long long)rank->device.ops->taken_bytes(rank->device.self));
    kvg_dev_close(&rank->device);
}

/* The newcomer is rank r from here on. */
static void adopt(World *w, Rebuilding *b, int r)
{
    world_close_rank(w, r);
    w->rank[r] = b->fresh[r];
    w->rank[r].placement = b->join[r].placement;
    w->rank[r].pc = w->log_end;
    world_begin_rank(w, r);
    w->joined++;
}

/* What a rebuild has made, on every rank that lives: those in doubt will publish it with the next settle. */
static void take_over(World *w, Rebuilding *b, const KvgRebuildReport *report)
{
    b->before = w->front;
    b->ranks_before = w->grid_ranks;
    b->apart_before = w->apart;
    for (int r = 0; r < w->ranks; r++) {
        memcpy(b->handle[r], w->rank[r].seq, sizeof b->handle[r]);
        b->made_by |= (uint64_t)ended_well(w, b, r) << r;
    }
    reference_after(w, b, report);
    for (int r = 0; r < w->ranks; r++) {
        if (!takes_part(b, r)) continue;
        if (!survives(b, r) && ended_well(w, b, r)) {
            adopt(w, b, r);
        } else if (!survives(b, r)) {
            forget_newcomer(w, b, r);
            w->rank[r].dead = 1;
            continue;
        }
        if (!w->rank[r].dead) take_handles(w, b, r, !survives(b, r) ? b->report[r] : report);
    }
    w->grid_ranks = b->joins ? every_place(w) : b->members;
    w->emptied += w->grid_ranks != every_place(w);
    for (uint32_t t = 0; t < SIM_TRUTHS; t++) w->truth[t].number = 0; /* of the ranks that were */
    w->back = w->front;
    w->apart = 0;
}

static int holds(KvgSequence *const handle[SIM_SEQS], const Reference *reference)
{
    for (uint32_t i = 0; i < SIM_SEQS; i++) {
        const RefSeq *seq = &reference->seq[i];
        if ((handle[i] != NULL && handle[i]->open) != seq->open) return 0;
        if (seq->open && (handle[i]->id != seq->id || handle[i]->cache.pos != seq->len)) return 0;
    }
    return 1;
}

/* Those who had published it died before anybody settled with them: it has never been, as a step that only the dead have published. */
static int take_back(World *w, const Rebuilding *b, uint64_t members)
{
    int first = __builtin_ctzll(members);

    if ((members & b->made_by) != 0 || holds(w->rank[first].seq, &w->front)) {
        return 0;
    }
    SIM_CHECK(w, holds(b->handle[first], &b->before), "rank %d holds neither what was before a rebuild that the dead alone have published nor what it made", first);
    for (int r = 0; r < w->ranks; r++) {
        if (members >> r & 1) memcpy(w->rank[r].seq, b->handle[r], sizeof b->handle[r]);
    }
    w->front = w->back = b->before;
    w->grid_ranks = b->ranks_before;
    w->apart = b->apart_before;
    return 1;
}

static void free_reports(World *w, Rebuilding *b)
{
    for (int r = 0; r < w->ranks; r++) kvg_rebuild_report_free(b->report[r]);
}

/* 1: a living rank has published it. */
static int look(World *w, Rebuilding *b)
{
    const KvgRebuildReport *first = NULL;

    for (int r = 0; r < w->ranks; r++) {
        if (!ended_well(w, b, r)) continue;
        SIM_CHECK(w, b->report[r] != NULL, "rank %d has rebuilt and has no report", r);
        SIM_CHECK(w, kvg_grid_state(rank_of(w, b, r)->grid) == KVG_OK, "rank %d has rebuilt, and its grid says %s", r, kvg_last_error());
        SIM_CHECK(w, kvg_grid_epoch(rank_of(w, b, r)->grid) == b->report[r]->epoch, "rank %d is in another epoch than its report says", r);
        if (first != NULL) compare_reports(w, r, b->report[r], first);
        first = first == NULL ? b->report[r] : first;
    }
    if (first != NULL) {
        SIM_CHECK(w, b->joins || !something_is_lost(w, b->members), "the survivors have gone on alone, and a layer is lost");
        check_report(w, b, first);
        take_over(w, b, first);
        return 1;
    }
    for (int r = 0; r < w->ranks; r++) forget_newcomer(w, b, r);
    return 0;
}

/* Nobody joins, and a layer is lost: all are told so, and what was held. */
static int refused_alone(World *w, Rebuilding *b)
{
    if (b->joins || !all_ended_with(w, b, KVG_EGEOM)) {
        return 0;
    }
    SIM_CHECK(w, something_is_lost(w, b->members), "the survivors cannot go on alone, although every layer has a copy: %s", kvg_last_error());
    for (int r = 0; r < w->ranks; r++) {
        if (survives(b, r)) check_report(w, b, b->report[r]);
    }
    return 1;
}

/* calls [rank]: the digest of posted calls as the first settle left it. */
static int still_apart(const Attempt *attempt, const uint64_t calls[SIM_RANKS])
{
    int differs = 0;

    for (int i = 1; i < attempt->count; i++) differs |= calls[attempt->list[i]] != calls[attempt->list[0]];
    return differs;
}

int rebuild(World *w, Attempt *attempt)
{
    static Rebuilding b;
    uint64_t          calls[SIM_RANKS] = { 0 };
    int               joins = something_is_lost(w, settle_list(w, attempt)) ? !chance(&w->draws, 8) : (int)draw(&w->draws, 2), parted = 0; /* parted: the survivors' connections may be those of different attempts */

    if (chance(&w->draws, 2)) settle_wake(w, attempt);
    for (int i = 0; i < attempt->count; i++) calls[attempt->list[i]] = w->rank[attempt->list[i]].grid->running;
    for (int n = 0; w->hub_count < SIM_HUBS; n++) {
        SIM_CHECK(w, n < ATTEMPTS, "the survivors cannot rebuild in %d attempts: %s", ATTEMPTS, kvg_last_error());
        w->faulty &= n < ATTEMPTS_FAULTY;
        if (w->apart && !still_apart(attempt, calls)) {
            return 0; /* who had made the other calls is lost now, and the reference is of neither */
        }
        begin(w, &b, attempt, joins || parted);
        run(w, &b, attempt);
        int well = all_ended_with(w, &b, KVG_OK), refused = refused_alone(w, &b), made = look(w, &b);
        free_reports(w, &b);
        settle_wake(w, attempt);
        if (well) {
            world_compare(w, &w->front);
            return 1;
        }
        joins = refused ? 1 : chance(&w->draws, 4) ? !joins : joins;
        parted = b.joins && !made;
        uint64_t members = parted ? settle_list(w, attempt) : settle_members(w, attempt);
        w->over = members == 0;
        made = made && (members == 0 || !take_back(w, &b, members));
        if (members == 0 || (made && members == w->grid_ranks)) { /* it was in doubt for some, and is made by settling */
            if (members != 0) world_compare(w, &w->front);
            return members != 0;
        }
    }
    return 0;
}
