/* kill_ranks: runs without a fault. */
#include "tests/faults/kill_ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

json_t *last_object(const char *text)
{
    const char *at = strrchr(text, '{'), *line = text;
    for (const char *c = text; at != NULL && (c = strchr(c, '\n')) != NULL; c++) {
        line = c[1] == '{' ? c + 1 : line;
    }
    return *line == '{' ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

uint64_t number_of(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static int load_trail(Reference *reference, int rank, const char *path)
{
    FILE    *file = fopen(path, "r");
    uint64_t commit = 0, lines = 0;
    reference->trail[rank] = calloc(reference->commits, sizeof(TrailPoint));
    while (file != NULL && lines < reference->commits &&
           fscanf(file, "%" SCNu64 " %16s %16s", &commit, reference->trail[rank][lines].agreed, reference->trail[rank][lines].stored) == 3) {
        lines += commit == lines + 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    return lines == reference->commits;
}

int make_reference(Harness *harness, Trial *trial)
{
    Reference *reference = &harness->reference[trial->shape];
    char       trail[96], path[112];
    if (reference->made) {
        return 1;
    }
    snprintf(trail, sizeof trail, "%s/reference%d", harness->scratch, trial->shape);
    double from = now_ms();
    trial->launcher = start_run(harness, trial, trail, NULL);
    if (!await_run(trial, from + 1e3 * RUN_LIMIT_S) || !WIFEXITED(trial->status) || WEXITSTATUS(trial->status) != 0) {
        printf("the run without a fault failed: %s\n", slurp(trial->err));
        return 0;
    }
    reference->seconds = 1e-3 * (now_ms() - from);
    char   *text = slurp(trial->out);
    json_t *object = last_object(text);
    snprintf(reference->digest, sizeof reference->digest, "%s", text_of(object, "digest"));
    reference->commits = number_of(object, "commits");
    reference->grows = number_of(object, "grows");
    reference->made = 1;
    for (int rank = 0; rank < trial->ranks; rank++) {
        snprintf(path, sizeof path, "%s.%d", trail, rank);
        reference->made &= load_trail(reference, rank, path);
    }
    json_decref(object);
    free(text);
    return reference->made;
}
