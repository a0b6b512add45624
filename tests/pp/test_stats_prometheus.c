/* Stats as Prometheus's text: read back by a small parser of the exposition format. */
#include <locale.h>
#include <regex.h>

#include "tests/support/grid_life.h"

enum { TEXT_MAX = 1 << 20, LINES_MAX = 4096 };

typedef struct Sample {
    char   name[64], labels[256];
    double value;
} Sample;

typedef struct Read {
    Sample samples[LINES_MAX];
    int    count, families;
} Read;

static char text[TEXT_MAX];
static Read got;

static void render(const KvgStats *ranks, uint32_t count, const KvgLabel *labels, uint32_t label_count)
{
    size_t needed = 0, again = 0;

    ck_assert_int_eq(kvg_stats_prometheus(ranks, count, labels, label_count, NULL, 0, &needed), KVG_OK);
    ck_assert_uint_lt(needed, sizeof text - 1);
    memset(text, 0x7e, sizeof text);
    ck_assert_int_eq(kvg_stats_prometheus(ranks, count, labels, label_count, text, needed - 1, &again), KVG_ECAPACITY);
    ck_assert_int_eq(text[0], 0x7e); /* not touched */
    ck_assert_int_eq(kvg_stats_prometheus(ranks, count, labels, label_count, text, needed, &again), KVG_OK);
    ck_assert_uint_eq(needed, again);
    ck_assert_uint_eq(strlen(text) + 1, needed);
    ck_assert_int_eq(text[needed], 0x7e);
}

/* A histogram's series belong to the family of its name. */
static int belongs(const char *name, const char *family, const char *type)
{
    size_t length = strlen(family);

    if (strncmp(name, family, length) != 0) return 0;
    if (strcmp(type, "histogram") != 0) return name[length] == '\0';
    return strcmp(name + length, "_bucket") == 0 || strcmp(name + length, "_sum") == 0 || strcmp(name + length, "_count") == 0;
}

/* Every line is HELP, the same family's TYPE, or a sample of it; a family stands once. */
static void parse(void)
{
    static char copy[TEXT_MAX], seen[TEXT_MAX];
    char        family[64] = "", type[16] = "", help[64] = "", *rest = copy;
    regex_t     sample;
    regmatch_t  part[5];

    ck_assert_int_eq(regcomp(&sample, "^([a-zA-Z_:][a-zA-Z0-9_:]*)\\{((([a-zA-Z_][a-zA-Z0-9_]*=\"([^\"\\]|\\\\[\\n\"])*\",?)*))\\} ([0-9.]+)$", REG_EXTENDED), 0);
    got.count = got.families = 0;
    seen[0] = '\0';
    snprintf(copy, sizeof copy, "%s", text);
    ck_assert_int_eq(copy[strlen(copy) - 1], '\n');
    for (char *line = strsep(&rest, "\n"); rest != NULL; line = strsep(&rest, "\n")) {
        if (sscanf(line, "# HELP %63s", help) == 1) {
            char word[80];
            snprintf(word, sizeof word, " %s ", help);
            ck_assert_msg(strstr(seen, word) == NULL, "%s stands twice", help);
            strcat(seen, word);
        } else if (sscanf(line, "# TYPE %63s %15s", family, type) == 2) {
            ck_assert_str_eq(family, help);
            ck_assert_int_eq(strcmp(type, "counter") == 0, strlen(family) > 6 && strcmp(family + strlen(family) - 6, "_total") == 0);
            got.families++;
        } else {
            Sample *at = &got.samples[got.count++];
            ck_assert_msg(regexec(&sample, line, 5, part, 0) == 0, "no sample: %s", line);
            snprintf(at->name, sizeof at->name, "%.*s", (int)part[1].rm_eo, line);
            snprintf(at->labels, sizeof at->labels, "%.*s", (int)(part[2].rm_eo - part[2].rm_so), line + part[2].rm_so);
            ck_assert_msg(belongs(at->name, family, type), "%s stands in the family %s", at->name, family);
            at->value = strtod(strrchr(line, ' '), NULL);
        }
    }
    regfree(&sample);
}

static double value_of(const char *name, const char *labels)
{
    const Sample *found = NULL;
    for (int i = 0; i < got.count; i++) {
        if (strcmp(got.samples[i].name, name) != 0 || strcmp(got.samples[i].labels, labels) != 0) continue;
        ck_assert_msg(found == NULL, "%s{%s} stands twice", name, labels);
        found = &got.samples[i];
    }
    ck_assert_msg(found != NULL, "%s{%s} is missing", name, labels);
    return found->value;
}

static void fill(KvgStats *stats, uint64_t rank)
{
    *stats = (KvgStats){.size = sizeof *stats, .ranks = 1, .rank = rank, .stage = rank / 2, .content_bytes = 1000 + rank, .booked_bytes = 2000,
                        .taken_bytes = UINT64_C(1) << 52, .steps = 9, .commits = 6, .rollbacks = 3, .nonfinite = 4, .saturated = rank,
                        .uptime_ns = 61000000007, .votes = 6, .vote_latency_ns = 1234567890};
    stats->outcomes[0] = 6;
    stats->outcomes[1] = 3;
    stats->refusals[KVG_ECAPACITY] = 11;
    stats->vote_refusals[KVG_ENOTSUP] = 3;
    stats->vote_latency[0] = 1;
    stats->vote_latency[4] = 2;
    stats->vote_latency[KVG_LATENCY_BUCKETS - 1] = 3;
}

START_TEST(test_every_family_stands_once_with_a_sample_a_rank)
{
    KvgStats ranks[3];
    for (uint64_t r = 0; r < 3; r++) fill(&ranks[r], r);
    render(ranks, 3, NULL, 0);
    parse();
    ck_assert_int_eq(got.families, 21);
    for (int r = 0; r < 3; r++) {
        char at[64];
        snprintf(at, sizeof at, "rank=\"%d\",stage=\"%d\"", r, r / 2);
        ck_assert(value_of("kvgrid_content_bytes", at) == 1000 + r);
        ck_assert(value_of("kvgrid_taken_bytes", at) == 4503599627370496.0);
        ck_assert(value_of("kvgrid_commits_total", at) == 6);
        ck_assert(value_of("kvgrid_nonfinite_elements_total", at) == 4);
        ck_assert(value_of("kvgrid_saturated_elements_total", at) == r);
        ck_assert(value_of("kvgrid_uptime_seconds", at) == 61.000000007);
    }
    ck_assert(value_of("kvgrid_sequence_refusals_total", "rank=\"1\",stage=\"0\",reason=\"ECAPACITY\"") == 11);
    ck_assert(value_of("kvgrid_sequence_refusals_total", "rank=\"1\",stage=\"0\",reason=\"ENOMEM\"") == 0);
    ck_assert(value_of("kvgrid_vote_refusals_total", "rank=\"2\",stage=\"1\",reason=\"ENOTSUP\"") == 3);
    ck_assert(value_of("kvgrid_step_outcomes_total", "rank=\"2\",stage=\"1\",outcome=\"refused\"") == 3);
}
END_TEST

START_TEST(test_the_histogram_is_cumulative_in_seconds)
{
    KvgStats one;
    double   last = 0, bound = 0;
    int      buckets = 0;
    fill(&one, 0);
    render(&one, 1, NULL, 0);
    parse();
    for (int i = 0; i < got.count; i++) {
        char le[32];
        if (strcmp(got.samples[i].name, "kvgrid_vote_latency_seconds_bucket") != 0) continue;
        ck_assert_int_eq(sscanf(got.samples[i].labels, "rank=\"0\",stage=\"0\",le=\"%31[^\"]\"", le), 1);
        ck_assert(strtod(le, NULL) > bound && got.samples[i].value >= last);
        bound = strtod(le, NULL);
        last = got.samples[i].value;
        buckets++;
    }
    ck_assert_int_eq(buckets, KVG_LATENCY_BUCKETS);
    ck_assert(bound > 1e300); /* +Inf */
    ck_assert(value_of("kvgrid_vote_latency_seconds_bucket", "rank=\"0\",stage=\"0\",le=\"0.000001\"") == 1);
    ck_assert(value_of("kvgrid_vote_latency_seconds_bucket", "rank=\"0\",stage=\"0\",le=\"0.000008\"") == 1);
    ck_assert(value_of("kvgrid_vote_latency_seconds_bucket", "rank=\"0\",stage=\"0\",le=\"0.000016\"") == 3);
    ck_assert(value_of("kvgrid_vote_latency_seconds_bucket", "rank=\"0\",stage=\"0\",le=\"4.194304\"") == 3);
    ck_assert(value_of("kvgrid_vote_latency_seconds_bucket", "rank=\"0\",stage=\"0\",le=\"+Inf\"") == 6);
    ck_assert(value_of("kvgrid_vote_latency_seconds_count", "rank=\"0\",stage=\"0\"") == 6);
    ck_assert(value_of("kvgrid_vote_latency_seconds_sum", "rank=\"0\",stage=\"0\"") == 1.234567890);
}
END_TEST

START_TEST(test_labels_are_escaped_and_their_names_are_judged)
{
    static const char *const bad[] = {"", "9a", "a-b", "a b", "__a", "rank", "stage", "le", "reason", "outcome", "\xc3\xa4", NULL};
    static const KvgLabel    twice[] = {{"a", "1"}, {"a", "2"}};
    KvgLabel                 labels[] = {{"model", "a\"b\\c\nd {x=\"y\"} #"}, {"_", ""}};
    KvgStats                 one;
    size_t                   needed = 77;

    fill(&one, 0);
    render(&one, 1, labels, 2);
    parse();
    ck_assert(value_of("kvgrid_steps_total", "rank=\"0\",stage=\"0\",model=\"a\\\"b\\\\c\\nd {x=\\\"y\\\"} #\",_=\"\"") == 9);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        labels[1].name = bad[i];
        ck_assert_msg(kvg_stats_prometheus(&one, 1, labels, 2, NULL, 0, &needed) == KVG_EINVAL, "%s", bad[i]);
    }
    labels[1] = (KvgLabel){"b", "\xff\xc3\xa9\xe2\x82"}; /* no UTF-8, a character, one that is cut */
    render(&one, 1, labels, 2);
    ck_assert_ptr_nonnull(strstr(text, "b=\"\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\""));
    labels[1] = (KvgLabel){"b", NULL};
    ck_assert_int_eq(kvg_stats_prometheus(&one, 1, labels, 2, NULL, 0, &needed), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats_prometheus(&one, 1, NULL, 1, NULL, 0, &needed), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats_prometheus(&one, 1, twice, 2, NULL, 0, &needed), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats_prometheus(&one, 0, NULL, 0, NULL, 0, &needed), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats_prometheus(NULL, 1, NULL, 0, NULL, 0, &needed), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats_prometheus(&one, 1, NULL, 0, NULL, 1, &needed), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats_prometheus(&one, 1, NULL, 0, NULL, 0, NULL), KVG_EINVAL);
    ck_assert_uint_eq(needed, 77);
}
END_TEST

START_TEST(test_a_rank_that_is_left_out_has_no_sample)
{
    KvgStats ranks[3];
    for (uint64_t r = 0; r < 3; r++) fill(&ranks[r], r);
    ranks[1] = (KvgStats){.size = sizeof(KvgStats)};
    render(ranks, 3, NULL, 0);
    parse();
    ck_assert_ptr_null(strstr(text, "rank=\"1\""));
    ck_assert(value_of("kvgrid_steps_total", "rank=\"0\",stage=\"0\"") == 9);
    ck_assert(value_of("kvgrid_steps_total", "rank=\"2\",stage=\"1\"") == 9);
}
END_TEST

/* Numbers are Prometheus's, whatever the program's language: where the machine has a locale with a decimal comma. */
START_TEST(test_the_programs_locale_says_nothing)
{
    static char plain[TEXT_MAX];
    KvgStats    one;
    fill(&one, 0);
    render(&one, 1, NULL, 0);
    memcpy(plain, text, sizeof plain);
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL) setlocale(LC_ALL, "");
    render(&one, 1, NULL, 0);
    setlocale(LC_ALL, "C");
    ck_assert_str_eq(plain, text);
}
END_TEST

LIFE_MAIN("stats_prometheus", test_every_family_stands_once_with_a_sample_a_rank, test_the_histogram_is_cumulative_in_seconds,
          test_labels_are_escaped_and_their_names_are_judged, test_a_rank_that_is_left_out_has_no_sample, test_the_programs_locale_says_nothing)
