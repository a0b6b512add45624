/* HTML, replay: the page from top to bottom. Numbers that the summary has are formatted as there. */
#include "launch/command/html_replay.h"

#include <inttypes.h>
#include <string.h>

#include "launch/command/html_chart.h"
#include "launch/command/html_write.h"
#include "launch/command/plan_report.h"
#include "launch/command/whole_file.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

enum { PANELS_MAX = 64 }; /* ranks that are drawn; the table has all */

/* ---- the run */

static void write_card(FILE *file, const char *value, const char *what)
{
    fputs("<li><b>", file);
    kvg_html_text(file, value);
    fputs("</b><span>", file);
    kvg_html_text(file, what);
    fputs("</span></li>\n", file);
}

static void write_cards(FILE *file, const HtmlReplay *page)
{
    const ReplayResult *result = page->result;
    char                text[64];

    fputs("<ul class=\"cards\">\n", file);
    write_card(file, kvg_chart_number(result->rows_per_second, text), "state rows/s (no model compute)");
    write_card(file, kvg_plan_digits(result->tokens, text), "tokens");
    snprintf(text, sizeof text, "%.2f s", result->seconds);
    write_card(file, text, "served in");
    write_card(file, kvg_plan_digits(result->commits, text), "commits");
    write_card(file, kvg_plan_digits(result->rollbacks, text), "rollbacks");
    write_card(file, kvg_chart_micros(result->vote_p50_us, text), "vote p50, rank 0");
    write_card(file, kvg_chart_micros(result->vote_p99_us, text), "vote p99, rank 0");
    fputs("</ul>\n", file);
}

/* A word that a shell reads as more than itself stands in quotes. */
static void write_word(FILE *file, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        kvg_html_text(file, word);
        return;
    }
    kvg_html_text(file, "'");
    for (const char *quote = strchr(word, '\''); quote != NULL; quote = strchr(word, '\'')) {
        kvg_html_part(file, word, (size_t)(quote - word));
        kvg_html_text(file, "'\\''");
        word = quote + 1;
    }
    kvg_html_text(file, word);
    kvg_html_text(file, "'");
}

static void write_command(FILE *file, const ReplayOptions *options)
{
    fputs("<tr><th scope=\"row\">command</th><td><code>kvgrid", file);
    for (int i = 0; i < options->word_count; i++) {
        fputc(' ', file);
        write_word(file, options->words[i]);
    }
    fputs("</code></td></tr>\n", file);
}

static void write_facts(FILE *file, const HtmlReplay *page)
{
    const ReplayResult *result = page->result;
    char                hex[33];

    kvg_digest_hex(&result->digest, hex);
    fputs("<h2>Run</h2>\n<div class=\"scroll\">\n<table class=\"facts\">\n<tbody>\n", file);
    write_command(file, page->options);
    kvg_html_fact(file, "model", "%s", page->options->model);
    kvg_html_fact(file, "trace", "%s", page->options->trace);
    kvg_html_fact(file, "formats", "%s", result->formats);
    kvg_html_fact(file, "grid", "%u ranks: tp %u x pp %u", page->plan->ranks_count, page->plan->tp, page->plan->pp);
    kvg_html_fact(file, "requests", "%" PRIu64 ", refused %" PRIu64 " (longer than the model's context), preempted for memory and served again %" PRIu64,
                  result->requests, result->refused, result->turned_out);
    kvg_html_fact(file, "vote", "%s", result->vote);
    if (result->replayed > 0) {
        kvg_html_fact(file, "replayed", "%" PRIu64 " accepted rows, into recurrent state or an index ring that stood before them", result->replayed);
    }
    if (result->checked_rows > 0) {
        kvg_html_fact(file, "verify", "%" PRIu64 " rows against a fresh encode, %" PRIu64 " mismatches", result->checked_rows, result->mismatches);
    }
    kvg_html_fact(file, "digest", "%s", hex);
    kvg_html_fact(file, "kvgrid", "%s", kvg_version(NULL, NULL, NULL));
    fputs("</tbody>\n</table>\n</div>\n", file);
}

/* ---- memory */

static double seconds_of(const ReplaySeries *series)
{
    return 1e-9 * (double)series->width_ns * (double)series->count;
}

static void write_legend(FILE *file)
{
    static const char *const items[][2] = { { "content", "content: live rows" }, { "booked", "booked: set aside for open sequences" },
                                            { "taken", "taken: got from host or device" } };

    fputs("<ul class=\"legend\">\n", file);
    for (int i = 0; i < 3; i++) {
        fputs("<li>", file);
        kvg_chart_swatch(file, items[i][0]);
        kvg_html_text(file, items[i][1]);
        fputs("</li>\n", file);
    }
    fputs("</ul>\n", file);
}

static void write_panel(FILE *file, const HtmlReplay *page, int rank, double most_s, double most)
{
    const ReplayRankEnd *end = &page->result->ranks[rank];
    const ReplaySeries  *series = &page->series[rank];
    const ReplayBin     *bins = series->bins;
    char                 id[32], title[96], description[256], size[3][32];
    const ChartArea      areas[] = { { "taken", &bins->taken, sizeof *bins }, { "booked", &bins->booked, sizeof *bins }, { "content", &bins->content, sizeof *bins } };

    snprintf(id, sizeof id, "memory-%d", rank);
    snprintf(title, sizeof title, "Memory of rank %d (stage %" PRIu64 ") over time", rank, page->ranks[rank].stage);
    snprintf(description, sizeof description, "At most %s content, %s booked, %s taken", kvg_plan_size(end->peak.content, size[0]),
             kvg_plan_size(end->peak.booked, size[1]), kvg_plan_size(end->peak.taken, size[2]));
    fputs("<figure><figcaption>", file);
    kvg_html_printf(file, "rank %d, stage %" PRIu64, rank, page->ranks[rank].stage);
    fputs("</figcaption>\n", file);
    kvg_chart_areas(file, &(ChartAxis){ id, title, description, kvg_chart_bytes }, areas, 3, series->count, 1e-9 * (double)series->width_ns, 1, most_s, most);
    fputs("</figure>\n", file);
}

static void write_bytes(FILE *file, uint64_t bytes)
{
    char size[32];

    fputs("<td class=\"n\">", file);
    kvg_html_text(file, kvg_plan_size(bytes, size));
    fputs("</td>", file);
}

static void write_number(FILE *file, uint64_t number)
{
    char digits[32];

    fprintf(file, "<td class=\"n\">%s</td>", kvg_plan_digits(number, digits));
}

static void write_memory_table(FILE *file, const HtmlReplay *page)
{
    static const char *const columns[] = { "rank", "stage", "content, most", "booked, most", "taken, most", "content, end", "booked, end", "taken, end",
                                           "nonfinite", "saturated" };

    kvg_html_table_open(file, "By rank: bytes, and elements that no format holds", columns, 10, 2);
    for (int rank = 0; rank < page->result->rank_count; rank++) {
        const ReplayRankEnd *at = &page->result->ranks[rank];
        fprintf(file, "<tr><th scope=\"row\">%d</th><td>%" PRIu64 "</td>", rank, page->ranks[rank].stage);
        write_bytes(file, at->peak.content);
        write_bytes(file, at->peak.booked);
        write_bytes(file, at->peak.taken);
        write_bytes(file, at->end.content);
        write_bytes(file, at->end.booked);
        write_bytes(file, at->end.taken);
        write_number(file, at->nonfinite);
        write_number(file, at->saturated);
        fputs("</tr>\n", file);
    }
    kvg_html_table_close(file);
}

static void write_memory(FILE *file, const HtmlReplay *page)
{
    const int count = page->result->rank_count;
    double    most_s = 0, most = 0;

    for (int rank = 0; rank < count; rank++) {
        const double seconds = seconds_of(&page->series[rank]), taken = (double)page->result->ranks[rank].peak.taken;
        most_s = seconds > most_s ? seconds : most_s;
        most = taken > most ? taken : most;
    }
    fputs("<h2>Memory by rank over time</h2>\n", file);
    write_legend(file);
    if (count > PANELS_MAX) {
        fputs("<p class=\"quiet\">", file);
        kvg_html_printf(file, "The first %d ranks of %d are drawn; the table has all.", PANELS_MAX, count);
        fputs("</p>\n", file);
    }
    fputs("<div class=\"panels\">\n", file);
    for (int rank = 0; rank < count && rank < PANELS_MAX; rank++) {
        write_panel(file, page, rank, most_s, most);
    }
    fputs("</div>\n", file);
    write_memory_table(file, page);
}

/* ---- over time, as rank 0 saw it */

/* One picture of `values` [bins of rank 0's series], each times `scale`; `description` says what the most is. */
static void write_over_time(FILE *file, const HtmlReplay *page, const ChartAxis *axis, const char *color, const uint64_t *values, size_t stride, double scale,
                            double most)
{
    const ReplaySeries *series = &page->series[0];
    const ChartArea     area = { color, values, stride };

    fputs("<figure><figcaption>", file);
    kvg_html_text(file, axis->title);
    fputs("</figcaption>\n", file);
    kvg_chart_areas(file, axis, &area, 1, series->count, 1e-9 * (double)series->width_ns, scale, seconds_of(series), most);
    fputs("</figure>\n", file);
}

/* ---- rows */

static void write_rows(FILE *file, const HtmlReplay *page)
{
    static const char *const columns[] = { "", "state rows/s" };
    const ReplaySeries *series = &page->series[0];
    const double        width_s = 1e-9 * (double)series->width_ns;
    uint64_t            most = 0;
    char                text[32], description[128];

    for (uint64_t i = 0; i < series->count; i++) {
        most = kvg_max_u64(most, series->bins[i].rows);
    }
    const double peak = width_s > 0 ? (double)most / width_s : 0;
    snprintf(description, sizeof description, "%s rows/s at most in %g ms", kvg_chart_number(peak, text), 1e3 * width_s);
    fputs("<h2>Rows</h2>\n<div class=\"beside\">\n", file);
    write_over_time(file, page, &(ChartAxis){ "rows", "Rows committed a second, over time", description, kvg_chart_number }, "bar", &series->bins->rows,
                    sizeof *series->bins, width_s > 0 ? 1 / width_s : 0, peak);
    fputs("<div>\n", file);
    kvg_html_table_open(file, "Rows a second", columns, 2, 1);
    fprintf(file, "<tr><th scope=\"row\">whole run</th><td class=\"n\">%s</td></tr>\n", kvg_chart_number(page->result->rows_per_second, text));
    fprintf(file, "<tr><th scope=\"row\">best %g ms</th><td class=\"n\">%s</td></tr>\n", 1e3 * width_s, kvg_chart_number(peak, text));
    kvg_html_table_close(file);
    fputs("</div>\n</div>\n", file);
}

/* ---- votes */

static const char *bucket_words(uint32_t i, char text[32])
{
    const uint64_t us = kvg_latency_bucket_us(i);

    if (us == 0) {
        snprintf(text, 32, "more");
    } else {
        kvg_chart_micros((double)us, text);
    }
    return text;
}

static void write_vote_table(FILE *file, const KvgStats *total, uint32_t first, uint32_t last)
{
    static const char *const columns[] = { "at most", "votes", "share" };
    char                     words[32];

    kvg_html_table_open(file, "Votes by latency, all ranks", columns, 3, 1);
    for (uint32_t i = first; i <= last; i++) {
        fprintf(file, "<tr><th scope=\"row\">%s</th>", bucket_words(i, words));
        write_number(file, total->vote_latency[i]);
        fprintf(file, "<td class=\"n\">%.1f %%</td></tr>\n", 100.0 * (double)total->vote_latency[i] / (double)total->votes);
    }
    kvg_html_table_close(file);
}

/* The mean of each bin's votes: bins without one stand at 0. */
static void write_mean_latency(FILE *file, const HtmlReplay *page)
{
    const ReplaySeries *series = &page->series[0];
    uint64_t            mean_ns[REPLAY_BINS] = { 0 }, most = 0;
    char                description[128], text[32];

    for (uint64_t i = 0; i < series->count; i++) {
        mean_ns[i] = series->bins[i].votes > 0 ? series->bins[i].latency_ns / series->bins[i].votes : 0;
        most = kvg_max_u64(most, mean_ns[i]);
    }
    snprintf(description, sizeof description, "%s at most in %g ms", kvg_chart_micros(1e-3 * (double)most, text), 1e-6 * (double)series->width_ns);
    write_over_time(file, page, &(ChartAxis){ "latency", "Mean vote latency on rank 0, over time", description, kvg_chart_micros }, "bar", mean_ns, sizeof *mean_ns,
                    1e-3, 1e-3 * (double)most);
}

static void write_votes(FILE *file, const HtmlReplay *page, const KvgStats *total)
{
    const char *names[KVG_LATENCY_BUCKETS];
    char        words[KVG_LATENCY_BUCKETS][32], description[128], from[32], to[32];
    uint32_t    first = 0, last = KVG_LATENCY_BUCKETS - 1;

    fputs("<h2>Vote latency</h2>\n", file);
    if (total->votes == 0) {
        fputs("<p>No vote was taken.</p>\n", file);
        return;
    }
    while (total->vote_latency[first] == 0) first++;
    while (total->vote_latency[last] == 0) last--;
    for (uint32_t i = first; i <= last; i++) {
        names[i] = bucket_words(i, words[i]);
    }
    snprintf(description, sizeof description, "%" PRIu64 " votes, between %s and %s", total->votes, bucket_words(first, from), bucket_words(last, to));
    fputs("<p class=\"quiet\">From posting a step's record until the rank has decided the step, which is when it looked; all ranks. ", file);
    kvg_html_printf(file, "p50 %.1f \xc2\xb5s, p99 %.1f \xc2\xb5s on rank 0; mean %.1f \xc2\xb5s on all.", page->result->vote_p50_us, page->result->vote_p99_us,
                    1e-3 * (double)total->vote_latency_ns / (double)total->votes);
    fputs("</p>\n<div class=\"beside\">\n<div>\n<figure><figcaption>Votes by latency, all ranks</figcaption>\n", file);
    kvg_chart_bars(file, &(ChartAxis){ "votes", "Votes by latency", description, kvg_chart_number }, "bar", total->vote_latency + first, names + first,
                   (int)(last - first + 1), (int)(last - first) / 7 + 1);
    fputs("</figure>\n", file);
    write_mean_latency(file, page);
    fputs("</div>\n<div>\n", file);
    write_vote_table(file, total, first, last);
    fputs("</div>\n</div>\n", file);
}

/* ---- refusals */

typedef struct Reasons {
    const char *names[2 * KVG_STATUS_COUNT + KVG_OUTCOME_KINDS];
    uint64_t    counts[2 * KVG_STATUS_COUNT + KVG_OUTCOME_KINDS];
    int         count;
} Reasons;

static void add_reasons(Reasons *reasons, const uint64_t *counts)
{
    for (int status = KVG_OK + 1; status < KVG_STATUS_COUNT; status++) {
        if (counts[status] > 0) {
            reasons->names[reasons->count] = kvg_status_name((KvgStatus)status);
            reasons->counts[reasons->count++] = counts[status];
        }
    }
}

static void write_reasons(FILE *file, const char *id, const char *title, const char *none, const Reasons *reasons)
{
    static const char *const columns[] = { "reason", "times" };

    if (reasons->count == 0) {
        fputs("<p>", file);
        kvg_html_text(file, none);
        fputs("</p>\n", file);
        return;
    }
    fputs("<div class=\"beside\">\n<figure><figcaption>", file);
    kvg_html_text(file, title);
    fputs("</figcaption>\n", file);
    kvg_chart_rows(file, &(ChartAxis){ id, title, "The table beside has the numbers", kvg_chart_number }, "warn", reasons->counts, reasons->names, reasons->count);
    fputs("</figure>\n<div>\n", file);
    kvg_html_table_open(file, title, columns, 2, 1);
    for (int i = 0; i < reasons->count; i++) {
        fprintf(file, "<tr><th scope=\"row\">%s</th>", reasons->names[i]);
        write_number(file, reasons->counts[i]);
        fputs("</tr>\n", file);
    }
    kvg_html_table_close(file);
    fputs("</div>\n</div>\n", file);
}

static void write_refusals_over_time(FILE *file, const HtmlReplay *page)
{
    const ReplaySeries *series = &page->series[0];
    uint64_t            most = 0, all = 0;
    char                title[96], description[96];

    for (uint64_t i = 0; i < series->count; i++) {
        most = kvg_max_u64(most, series->bins[i].refusals);
        all += series->bins[i].refusals;
    }
    if (all == 0) {
        return;
    }
    snprintf(title, sizeof title, "Refusals and rollbacks in each %g ms, over time", 1e-6 * (double)series->width_ns);
    snprintf(description, sizeof description, "%" PRIu64 " in all, %" PRIu64 " at most", all, most);
    fputs("<div class=\"beside\">\n", file);
    write_over_time(file, page, &(ChartAxis){ "refusals", title, description, kvg_chart_number }, "warn", &series->bins->refusals, sizeof *series->bins, 1,
                    (double)most);
    fputs("</div>\n", file);
}

static void write_refusals(FILE *file, const HtmlReplay *page, const KvgStats *total)
{
    Reasons sequences = { .count = 0 }, steps = { .count = 0 };
    const uint64_t disagreed = total->outcomes[KVG_OUTCOME_DISAGREE] + total->outcomes[KVG_OUTCOME_UNACCEPTED];

    add_reasons(&sequences, total->refusals);
    add_reasons(&steps, total->vote_refusals);
    if (disagreed > 0) {
        steps.names[steps.count] = "disagreed";
        steps.counts[steps.count++] = disagreed;
    }
    fputs("<h2>Refusals</h2>\n<p class=\"quiet\">Every rank counts the same. ECAPACITY and EBUSY are delays here: a request that finds no memory or no place is asked "
          "for again.</p>\n", file);
    write_reasons(file, "sequences", "Sequences refused at open, or left out of a step", "No sequence was refused at open or left out of a step.", &sequences);
    write_reasons(file, "steps", "Steps rolled back, by the refusing rank's reason", "No step was rolled back.", &steps);
    write_refusals_over_time(file, page);
}

/* ---- the page */

static void write_page(FILE *file, const HtmlReplay *page, const KvgStats *total)
{
    char title[256];

    snprintf(title, sizeof title, "kvgrid replay: %s on tp %u x pp %u", page->model, page->plan->tp, page->plan->pp);
    kvg_html_open(file, title);
    fputs("<h1>", file);
    kvg_html_text(file, title);
    fputs("</h1>\n<p class=\"quiet\">A request trace served from sequence state that is spread over a grid of ranks. No model computes here: rows are generated.</p>\n", file);
    write_cards(file, page);
    write_memory(file, page);
    write_rows(file, page);
    write_votes(file, page, total);
    write_refusals(file, page, total);
    write_facts(file, page);
    kvg_html_close(file);
}

KvgStatus kvg_html_replay_write(const char *path, const HtmlReplay *page)
{
    KvgStats  total = { .size = sizeof total };
    WholeFile file;

    KVG_TRY(kvg_stats_total(page->ranks, (uint32_t)page->result->rank_count, &total));
    KVG_TRY(kvg_whole_file_begin("--report", path, &file));
    write_page(file.stream, page, &total);
    return kvg_whole_file_end(&file, KVG_OK);
}
