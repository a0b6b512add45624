/* kill_ranks: what must be true after a trial. */
#include "tests/faults/kill_ranks.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the command is to name it: with this host, and with its pid where that is known. Of a limit it says itself, and leaves the pid out. */
static void name_rank(const Trial *trial, int rank, char text[400])
{
    char host[256] = "", pid[32] = ", pid ";
    gethostname(host, sizeof host - 1);
    if (trial->found && rank >= 0) {
        snprintf(pid, sizeof pid, ", pid %ld) ", (long)trial->pids[rank]);
    }
    snprintf(text, 400, "rank %d (host %s%s", rank, host, trial->fault == LIMIT ? "" : pid);
}

/* Sentences of the command on stderr: those of the fault, and those of a rank that was left out. */
static void count_sentences(const char *text, const Trial *trial, int *faults, int *named, int *outs, int *strange)
{
    char who[400], or_who[400];
    name_rank(trial, trial->victim, who);
    name_rank(trial, trial->second, or_who);
    *faults = *named = *outs = *strange = 0;
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        size_t      length = end != NULL ? (size_t)(end - text) : strlen(text);
        char        line[2048];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        if (strncmp(line, "kvgrid replay: ", 15) != 0) {
            *strange += length > 0;
        } else if (strstr(line, "was left out: the others") != NULL) {
            *outs += strncmp(line + 15, who, strlen(who)) == 0;
            *strange += strncmp(line + 15, who, strlen(who)) != 0;
        } else {
            ++*faults;
            *named += strncmp(line + 15, who, strlen(who)) == 0 || strncmp(line + 15, or_who, strlen(or_who)) == 0;
        }
        text += length + (end != NULL);
    }
}

static void judge_survivor(Harness *harness, const Trial *trial, const json_t *rank)
{
    const Reference *reference = &harness->reference[trial->shape];
    const int        number = (int)number_of(rank, "rank");
    const uint64_t   commit = number_of(rank, "commit");
    const char      *agreed = text_of(rank, "digest"), *stored = text_of(rank, "rows_digest");
    const TrailPoint none = { "0000000000000000", "0000000000000000" };
    if (commit > reference->commits) {
        violation(harness, trial, "rank %d is at commit %" PRIu64 " of %" PRIu64, number, commit, reference->commits);
        return;
    }
    const TrailPoint *point = commit > 0 ? &reference->trail[number][commit - 1] : &none;
    if (strcmp(point->agreed, agreed) != 0 || strcmp(point->stored, stored) != 0) {
        violation(harness, trial, "rank %d holds %s, %s at commit %" PRIu64 ", where a run without a fault holds %s, %s", number, agreed, stored, commit,
                  point->agreed, point->stored);
    }
    if (number_of(rank, "mismatches") != 0 || !json_is_true(json_object_get(rank, "held"))) {
        violation(harness, trial, "rank %d: %" PRIu64 " mismatches, held %d", number, number_of(rank, "mismatches"),
                  json_is_true(json_object_get(rank, "held")));
    }
}

static double limit_ms(const Trial *trial)
{
    return SLACK_MS + (trial->fault == KILL || trial->fault == TWO || trial->fault == LEAVE ? PEER_MS : TIMEOUT_MS);
}

static void judge_noticed(Harness *harness, const Trial *trial, const json_t *rank)
{
    const double at = 1e-6 * (double)number_of(rank, "noticed_at_ns");
    const int    outside = trial->fault == KILL || trial->fault == TWO || trial->fault == FREEZE || trial->fault == WAKE;
    const double ms = outside ? at - trial->struck_ms : json_real_value(json_object_get(rank, "noticed_ms"));
    Samples     *samples = &harness->noticed[trial->fault];
    if (ms > limit_ms(trial)) {
        violation(harness, trial, "rank %" PRIu64 " noticed after %.0f ms, at most %.0f", number_of(rank, "rank"), ms, limit_ms(trial));
    }
    if (samples->count < SAMPLES_MAX) {
        samples->ms[samples->count++] = ms;
    }
}

/* A rank that finds itself left out says so, once; one that slept three deadlines has heard it from the survivors. */
static void judge_left_out(Harness *harness, const Trial *trial, const json_t *ranks, int outs)
{
    const json_t *victim = json_array_get(ranks, (size_t)trial->victim);
    const int     out = json_is_true(json_object_get(victim, "out"));
    if (out != outs) {
        violation(harness, trial, "rank %d %s left out, and %d sentences on stderr say so", trial->victim, out ? "found itself" : "did not find itself", outs);
    }
    const char *told = text_of(victim, "why"); /* by the survivors; or by the launcher's all-gather after the last step */
    if (trial->fault == STALL && (!out || (strstr(told, "was left out") == NULL && strstr(told, " settles: ") == NULL))) {
        violation(harness, trial, "rank %d woke after the others had settled, and was told: %s", trial->victim, told);
    }
}

static int anybody_noticed(const json_t *ranks)
{
    const json_t *rank;
    size_t        i;
    json_array_foreach(ranks, i, rank) {
        if (text_of(rank, "why")[0] != '\0') {
            return 1;
        }
    }
    return 0;
}

/* No survivor shows what it holds: the others have left the set-up, or had nothing more to do, or died, too; and that was soon. */
static void judge_given_up(Harness *harness, const Trial *trial, const json_t *ranks, const char *err)
{
    const int    frozen = trial->fault == FREEZE || trial->fault == WAKE;
    const double most = limit_ms(trial) + (frozen ? SLACK_MS : 0); /* the launcher's patience with who is frozen for good */
    if (trial->struck_ms > 0 && trial->hit && trial->ended_ms - trial->struck_ms > most) {
        violation(harness, trial, "it ended %.0f ms after the fault, at most %.0f", trial->ended_ms - trial->struck_ms, most);
    }
    if (anybody_noticed(ranks) && strstr(err, "no step was under way") != NULL) {
        violation(harness, trial, "a rank was in the midst of a step: %s", err);
    }
}

static void judge_report(Harness *harness, const Trial *trial, const json_t *object, const char *err, int outs)
{
    const json_t *ranks = json_object_get(object, "ranks"), *rank;
    size_t        i;
    int           alone_again = trial->fault == WAKE || trial->fault == STALL || trial->fault == LIMIT;
    uint64_t      survivors = number_of(object, "survivors");
    if (!json_is_true(json_object_get(object, "same")) && survivors > 0) {
        violation(harness, trial, "the survivors do not hold the same");
    }
    if (json_is_true(json_object_get(object, "overdue"))) {
        violation(harness, trial, "somebody had to be ended");
    }
    if (trial->fault == TWO ? survivors > (uint64_t)trial->ranks - 1 || (survivors > 0 && survivors < (uint64_t)trial->ranks - 2)
                            : survivors != 0 && survivors != (uint64_t)trial->ranks - 1 &&
                              !(alone_again && survivors == (uint64_t)trial->ranks)) {
        violation(harness, trial, "%" PRIu64 " of %d ranks survive", survivors, trial->ranks);
    }
    if (survivors == 0) {
        judge_given_up(harness, trial, ranks, err);
        return;
    }
    harness->judged++;
    judge_left_out(harness, trial, ranks, outs);
    json_array_foreach(ranks, i, rank) {
        if (json_is_true(json_object_get(rank, "survives"))) {
            judge_survivor(harness, trial, rank);
            if ((int)number_of(rank, "rank") != trial->victim && trial->fault != LIMIT) {
                judge_noticed(harness, trial, rank);
            }
        }
    }
}

/* A refused step comes again behind those of other batches, so there are other points on the way; the last one is the same. */
static int same_trail(const Trial *trial, const char *mine, const char *theirs)
{
    const size_t last = 2 * 17, length = strlen(mine), length_theirs = strlen(theirs); /* the sums of the last line */
    if (trial->fault != OOM) {
        return strcmp(mine, theirs) == 0;
    }
    return length > last && length_theirs > last && strcmp(mine + length - last, theirs + length_theirs - last) == 0;
}

/* What this program has made itself. */
static int is_ours(const char *name)
{
    return name[0] == '.' || strcmp(name, "out") == 0 || strcmp(name, "err") == 0 || strncmp(name, "reference", 9) == 0;
}

/* Counters are written anew each second, to a file that is seen as it was or as it is. They end with a whole line of the last of them. */
static int are_counters(const char *name, const char *text)
{
    const size_t length = strlen(text);
    size_t       last = length > 0 ? length - 1 : 0;
    while (last > 0 && text[last - 1] != '\n') {
        last--;
    }
    return strncmp(name, "metrics", 7) == 0 && length > 0 && text[length - 1] == '\n' && strncmp(&text[last], "kvgrid_vote_latency_seconds_count{", 34) == 0;
}

void judge_files(Harness *harness, const Trial *trial, int finished)
{
    DIR *directory = opendir(harness->scratch);
    int  whole = 0;
    for (struct dirent *entry = directory != NULL ? readdir(directory) : NULL; entry != NULL; entry = readdir(directory)) {
        if (is_ours(entry->d_name)) {
            continue;
        }
        char path[400], reference[400];
        snprintf(path, sizeof path, "%s/%s", harness->scratch, entry->d_name);
        snprintf(reference, sizeof reference, "%s/reference%d%s", harness->scratch, trial->shape, entry->d_name + 5);
        char *mine = slurp(path), *theirs = slurp(reference);
        const int is_trail = strncmp(entry->d_name, "trail", 5) == 0;
        if (is_trail ? !same_trail(trial, mine, theirs) : !are_counters(entry->d_name, mine)) {
            violation(harness, trial, "half a file: %s", entry->d_name);
        }
        whole += is_trail;
        free(mine);
        free(theirs);
        unlink(path);
    }
    if (directory != NULL) {
        closedir(directory);
    }
    if (finished && whole != trial->ranks) {
        violation(harness, trial, "%d of %d trails", whole, trial->ranks);
    }
}

void judge_processes(Harness *harness, const Trial *trial, double patience_ms)
{
    double until = now_ms() + patience_ms;
    while (kill(-trial->launcher, 0) == 0 && now_ms() < until) {
        while (waitpid(-trial->launcher, NULL, WNOHANG) > 0) { /* orphans come to this program: see main */
        }
        sleep_ms(1);
    }
    if (kill(-trial->launcher, 0) == 0) {
        violation(harness, trial, "processes of the run are left");
        kill(-trial->launcher, SIGKILL);
    }
}

void judge_end(Harness *harness, const Trial *trial, const char *out, const char *err)
{
    json_t   *object = last_object(out);
    const int code = WIFEXITED(trial->status) ? WEXITSTATUS(trial->status) : -1;
    const int reported = object != NULL && json_object_get(object, "survivors") != NULL;
    int       faults, named, outs, strange;
    count_sentences(err, trial, &faults, &named, &outs, &strange);
    if (strange > 0 || outs > 1 || (outs > 0 && trial->fault != WAKE && trial->fault != STALL)) {
        violation(harness, trial, "stderr has %d strange lines, %d of ranks left out: %s", strange, outs, err);
    }
    if (code == 2 && strstr(err, "--fault never struck") != NULL) {
        harness->late[trial->fault]++;
    } else if (code == 0) { /* it went on, or was over */
        harness->late[trial->fault]++;
        if (strcmp(text_of(object, "digest"), harness->reference[trial->shape].digest) != 0 || faults > 0) {
            violation(harness, trial, "exit 0, digest %s, %d sentences", text_of(object, "digest"), faults);
        }
    } else if (code != 1 || faults != 1 || named != 1) {
        violation(harness, trial, "exit %d (status 0x%x), %d sentences of which %d name the rank: %s", code, (unsigned)trial->status, faults, named, err);
    } else if (!reported && trial->fault == LIMIT) { /* all ranks have ended together, over what this one could not have */
        harness->early[trial->fault]++;
    } else if (!reported) {
        violation(harness, trial, "exit 1, and no object that says what the survivors hold: %s", err);
    } else {
        harness->early[trial->fault] += number_of(object, "survivors") == 0;
        judge_report(harness, trial, object, err, outs);
    }
    /* A signal is nothing to a process that is exiting: such a run is over within moments. */
    if (code == 0 && (trial->fault == KILL || trial->fault == TWO || trial->fault == FREEZE) && trial->hit && trial->ended_ms > trial->struck_ms + 200) {
        pid_t pid = trial->pids[trial->victim];
        violation(harness, trial, "exit 0, though rank %d (pid %ld) was hit", trial->victim, (long)pid);
    }
    json_decref(object);
}
