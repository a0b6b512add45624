/* Replay's own launcher: what it says when no rank is left. One sentence on stderr for the fault; on stdout what the survivors hold. */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/command.h"
#include "launch/command/replay_fork.h"

typedef struct Verdict {
    int      culprit;  /* who is spoken of; -1: nobody is to blame by name */
    int      survivors, settled;
    int      same;     /* 1: all survivors hold the same, and held it to the end */
    uint64_t fault_ns; /* when it struck; 0: not known */
    const ReplayHolding *holding; /* of the first survivor; NULL: none has settled */
} Verdict;

static int has_left_early(const ForkWatch *watch, int rank)
{
    const ForkSeat *seat = &watch->page->seats[rank];
    return watch->end[rank] == FORK_SIGNALLED || !atomic_load(&seat->ended) || seat->words[0] != '\0';
}

static int is_survivor(const ForkWatch *watch, int rank)
{
    return atomic_load(&watch->page->called) > 0 && watch->page->member[rank] && !has_left_early(watch, rank);
}

/* Killed, or gone without a word, by no doing of the launcher. */
static int is_gone_silently(const ForkWatch *watch, int rank)
{
    const int killed = watch->end[rank] == FORK_SIGNALLED && !watch->put_down[rank] && watch->stopped_ns[rank] == 0;
    return killed || (watch->end[rank] == FORK_EXITED && !atomic_load(&watch->page->seats[rank].ended));
}

/* Who began it: killed or gone without a word, unless by us; else whom the settle left out; else who was seen stopped; else who said
 * why it left; else who said that of another. */
static int find_culprit(const ForkWatch *watch)
{
    const ForkPage *page = watch->page;
    int             found[5] = { -1, -1, -1, -1, -1 };
    for (int rank = 0; rank < watch->ranks; rank++) {
        const ForkSeat *seat = &page->seats[rank];
        int             kind = is_gone_silently(watch, rank)                                                            ? 0
                             : atomic_load(&page->called) > 0 && !page->member[rank]                                    ? 1
                             : watch->stopped_ns[rank] != 0                                                             ? 2
                             : seat->words[0] != '\0'                                                                   ? 3 + seat->hearsay
                             : watch->put_down[rank] || atomic_load(&seat->struck_ns) != 0                              ? 3
                                                                                                                        : -1;
        if (kind >= 0 && (found[kind] < 0 || watch->ended_ns[rank] < watch->ended_ns[found[kind]])) {
            found[kind] = rank; /* of several the first */
        }
    }
    for (int kind = 0; kind < 5; kind++) {
        if (found[kind] >= 0) {
            return found[kind];
        }
    }
    return -1;
}

static int holds_same(const ReplayHolding *a, const ReplayHolding *b)
{
    return a->state == KVG_OK && b->state == KVG_OK && a->commit == b->commit && a->agreed == b->agreed && a->epoch == b->epoch &&
           a->requests == b->requests && a->rows == b->rows;
}

static int held_it(const ForkSeat *seat)
{
    return atomic_load(&seat->shown) == 2 && holds_same(&seat->holding, &seat->later) && seat->holding.stored == seat->later.stored &&
           seat->holding.mismatches == 0 && seat->later.mismatches == 0;
}

static Verdict judge(const ForkWatch *watch)
{
    const ForkPage *page = watch->page;
    Verdict         verdict = { .culprit = find_culprit(watch), .same = 1 };
    for (int rank = 0; rank < watch->ranks; rank++) {
        const ForkSeat *seat = &page->seats[rank];
        if (!is_survivor(watch, rank)) {
            continue;
        }
        verdict.survivors++;
        if (atomic_load(&seat->shown) > 0) {
            verdict.settled++;
            verdict.holding = verdict.holding != NULL ? verdict.holding : &seat->holding;
        }
        verdict.same &= held_it(seat) && holds_same(&seat->holding, verdict.holding);
    }
    if (verdict.culprit >= 0) {
        const ForkSeat *seat = &page->seats[verdict.culprit];
        verdict.fault_ns = atomic_load(&seat->struck_ns) != 0         ? atomic_load(&seat->struck_ns)
                         : watch->stopped_ns[verdict.culprit] != 0    ? watch->stopped_ns[verdict.culprit]
                         : watch->end[verdict.culprit] != FORK_RUNS   ? watch->ended_ns[verdict.culprit]
                                                                      : 0;
    }
    verdict.same &= verdict.survivors > 0 && verdict.settled == verdict.survivors;
    return verdict;
}

/* ---- the sentence */

static void say_signal(int number, char *text, size_t bytes)
{
    const char *name = sigabbrev_np(number);
    snprintf(text, bytes, "was ended by signal %d%s%s%s", number, name != NULL ? " (SIG" : "", name != NULL ? name : "", name != NULL ? ")" : "");
}

static void say_culprit(const ForkWatch *watch, int rank, char *text, size_t bytes)
{
    const ForkSeat *seat = &watch->page->seats[rank];
    const int       woke_too_late = seat->hearsay && watch->stopped_ns[rank] != 0; /* what it found then are the others' answers to its silence */
    if (seat->words[0] != '\0' && !woke_too_late) {
        snprintf(text, bytes, "left: %s", seat->words);
    } else if (watch->end[rank] == FORK_SIGNALLED && !watch->put_down[rank] && watch->stopped_ns[rank] == 0) {
        say_signal(watch->code[rank], text, bytes);
    } else if (!atomic_load(&seat->ended) && watch->end[rank] == FORK_EXITED) {
        snprintf(text, bytes, "left with status %d and without a word", watch->code[rank]);
    } else {
        snprintf(text, bytes, "fell silent%s", watch->stopped_ns[rank] != 0 ? " (it was stopped)" : "");
    }
}

/* Milliseconds from the fault to the last survivor that noticed. */
static double noticed_ms(const ForkWatch *watch, const Verdict *verdict, int rank)
{
    const uint64_t at = watch->page->seats[rank].noticed_ns;
    return at > verdict->fault_ns && verdict->fault_ns != 0 ? 1e-6 * (double)(at - verdict->fault_ns) : 0;
}

static double noticed_at_most_ms(const ForkWatch *watch, const Verdict *verdict)
{
    double most = 0;
    for (int rank = 0; rank < watch->ranks; rank++) {
        double ms = is_survivor(watch, rank) ? noticed_ms(watch, verdict, rank) : 0;
        most = ms > most ? ms : most;
    }
    return most;
}

/* The first rank that asked for a settle: it was in the midst of its steps; -1: none. */
static int first_that_asked(const ForkWatch *watch)
{
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (atomic_load(&watch->page->seats[rank].wants) > 0) {
            return rank;
        }
    }
    return -1;
}

/* Where none has settled or asked for it. */
static const char *say_end(const ForkWatch *watch)
{
    int ended = 0;
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (watch->page->seats[rank].words[0] != '\0') {
            return "no step was under way, and the run is given up";
        }
        ended += atomic_load(&watch->page->seats[rank].ended) != 0;
    }
    return ended > 0 ? "the run was over for the others, and all that is printed holds" : "no rank is left, and the run is given up";
}

static void say_rest(const ForkWatch *watch, const Verdict *verdict, char *text, size_t bytes)
{
    if (verdict->holding != NULL) {
        snprintf(text, bytes, "%d of %d ranks survive, noticed within %.1f ms, have settled at commit %" PRIu64 " and %s", verdict->survivors,
                 watch->ranks, noticed_at_most_ms(watch, verdict), verdict->holding->commit,
                 verdict->same ? "hold the same" : "DO NOT HOLD THE SAME: see what each holds on stdout, and report it as a bug");
    } else if (first_that_asked(watch) >= 0) {
        snprintf(text, bytes, "no rank was left that could settle; rank %d had noticed: %s", first_that_asked(watch),
                 watch->page->seats[first_that_asked(watch)].why);
    } else {
        snprintf(text, bytes, "%s", say_end(watch));
    }
}

static void say_fault(const ForkWatch *watch, const Verdict *verdict)
{
    char what[FORK_WORDS + 64] = "", rest[FORK_WORDS + 128];
    say_rest(watch, verdict, rest, sizeof rest);
    if (verdict->culprit < 0) {
        fprintf(stderr, "kvgrid replay: a rank stopped the run and none is gone: %s\n", rest);
        return;
    }
    say_culprit(watch, verdict->culprit, what, sizeof what);
    fprintf(stderr, "kvgrid replay: rank %d (host %s, pid %ld) %s; %s%s\n", verdict->culprit, watch->page->host,
            (long)watch->page->pids[verdict->culprit], what, rest, watch->overdue ? "; processes had to be ended that should have left" : "");
}

/* ---- what the survivors hold */

static void print_survivors(const ForkWatch *watch, const Verdict *verdict)
{
    const ReplayHolding *holding = verdict->holding;
    printf("lost       ");
    for (int rank = 0; rank < watch->ranks; rank++) {
        if (!is_survivor(watch, rank)) {
            printf(" rank %d (host %s, pid %ld)%s", rank, watch->page->host, (long)watch->page->pids[rank],
                   watch->put_down[rank] ? ", ended by the launcher" : atomic_load(&watch->page->seats[rank].out) ? ", woke and left by itself" : "");
        }
    }
    printf("\n");
    for (int rank = 0; rank < watch->ranks; rank++) {
        const ForkSeat *seat = &watch->page->seats[rank];
        if (is_survivor(watch, rank)) {
            printf("rank %-6d noticed after %.1f ms; holds %" PRIu64 " rows of %" PRIu64 " requests at commit %" PRIu64 ", digest %016" PRIx64
                   ", its own rows %016" PRIx64 "; %" PRIu64 " rows against a fresh encode, %" PRIu64 " mismatches\n",
                   rank, noticed_ms(watch, verdict, rank), seat->holding.rows, seat->holding.requests, seat->holding.commit, seat->holding.agreed,
                   seat->holding.stored, seat->holding.checked, seat->holding.mismatches);
        }
    }
    printf("settled     %d ranks at commit %" PRIu64 ", epoch %u, digest %016" PRIx64 ": %s\n", verdict->settled, holding->commit, holding->epoch,
           holding->agreed, verdict->same ? "the same on all" : "NOT THE SAME");
}

static json_t *rank_object(const ForkWatch *watch, const Verdict *verdict, int rank)
{
    const ForkSeat *seat = &watch->page->seats[rank];
    char            agreed[17], stored[17];
    snprintf(agreed, sizeof agreed, "%016" PRIx64, seat->holding.agreed);
    snprintf(stored, sizeof stored, "%016" PRIx64, seat->holding.stored);
    return json_pack("{s:i, s:I, s:b, s:b, s:b, s:I, s:f, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:s}", "rank", rank, "pid",
                     (json_int_t)watch->page->pids[rank], "survives", is_survivor(watch, rank), "held", held_it(seat), "out",
                     atomic_load(&seat->out), "noticed_at_ns", (json_int_t)seat->noticed_ns, "noticed_ms", noticed_ms(watch, verdict, rank),
                     "commit", (json_int_t)seat->holding.commit, "epoch", (json_int_t)seat->holding.epoch, "digest", agreed, "rows_digest", stored,
                     "rows", (json_int_t)seat->holding.rows, "verified_rows", (json_int_t)seat->holding.checked, "mismatches",
                     (json_int_t)seat->holding.mismatches, "why", seat->why);
}

static void print_json(const ForkWatch *watch, const Verdict *verdict)
{
    json_t *ranks = json_array();
    for (int rank = 0; rank < watch->ranks; rank++) {
        json_array_append_new(ranks, rank_object(watch, verdict, rank));
    }
    json_t *object = json_pack("{s:i, s:i, s:b, s:b, s:o}", "fault_of_rank", verdict->culprit, "survivors", verdict->survivors, "same", verdict->same,
                               "overdue", watch->overdue, "ranks", ranks);
    char   *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text != NULL) {
        puts(text);
    }
    free(text);
    json_decref(object);
}

int kvg_replay_fork_tell(const ForkWatch *watch, const ReplayOptions *options)
{
    if (watch->trouble_ns == 0) {
        int worst = KVG_EXIT_DONE;
        for (int rank = 0; rank < watch->ranks; rank++) {
            worst = watch->code[rank] > worst ? watch->code[rank] : worst;
        }
        return worst;
    }
    Verdict verdict = judge(watch);
    say_fault(watch, &verdict);
    if (verdict.holding != NULL) {
        print_survivors(watch, &verdict);
    }
    if (options->json) {
        print_json(watch, &verdict);
    }
    return kvg_command_finish("replay", KVG_EXIT_FAILED);
}
