/* Plan, picture: one bar a rank, as long as its device.
 *
 *   | weights | cache by class ... | slots | free | reserve |
 *
 * Stages are bands with their layers at the left; ticks in bytes at the top; the rank that limits is named. While no device memory
 * is given a bar is what the model and one sequence of T tokens take. Beyond RANKS_DRAWN ranks one bar stands for each stage:
 * its ranks hold the same bytes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/command/plan_report.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"

#define WIDTH       1080
#define BAR_LEFT    214
#define BAR_RIGHT   970
#define HEAD_HEIGHT 148
#define RANKS_DRAWN 128
#define GLYPH       6.4 /* px of one letter at the size of a label */

#define COLOR_TEXT    "#1f2933"
#define COLOR_QUIET   "#66727f"
#define COLOR_WEIGHTS "#7b8794"
#define COLOR_SLOTS   "#e0912f"
#define COLOR_FREE    "#eef1f4"
#define COLOR_RESERVE "#c9d1d9"
#define COLOR_LIMITS  "#c0392b"

static const char *const class_colors[KVG_PLAN_CLASSES_MAX] = { "#1f77b4", "#2ca58d", "#8e6bbf", "#d1495b",
                                                                "#5c9ead", "#a3a847", "#c77dba", "#6c757d" };

#define SEGMENTS_MOST (KVG_PLAN_CLASSES_MAX + 4)

typedef struct Segment {
    char        label[56];
    const char *color;
    const char *text_color;
    uint64_t    bytes;
} Segment;

typedef struct Bar {
    Segment  segments[SEGMENTS_MOST];
    int      count;
    uint64_t bytes;
} Bar;

typedef struct Picture {
    FILE             *file;
    const PlanReport *report;
    uint64_t          longest; /* bytes of the longest bar */
    uint32_t          stride;  /* ranks from one bar to the next: 1, or tp */
    double            row_height, bar_height;
} Picture;

/* ---- text */

static void write_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&': fputs("&amp;", file); break;
        case '<': fputs("&lt;", file); break;
        case '>': fputs("&gt;", file); break;
        case '"': fputs("&quot;", file); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, file);
        }
    }
}

static void write_text(FILE *file, double x, double y, int size, const char *color, const char *anchor, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" fill=\"%s\" text-anchor=\"%s\">", x, y, size, color, anchor);
    write_escaped(file, text);
    fputs("</text>\n", file);
}

static void write_rect(FILE *file, double x, double y, double width, double height, const char *color)
{
    fprintf(file, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height, color);
}

/* ---- bars */

static void add_segment(Bar *bar, const char *label, const char *color, const char *text_color, uint64_t bytes)
{
    Segment *segment = &bar->segments[bar->count++];

    KVG_ASSERT(bar->count <= SEGMENTS_MOST);
    snprintf(segment->label, sizeof segment->label, "%s", label);
    segment->color = color;
    segment->text_color = text_color;
    segment->bytes = bytes;
    bar->bytes += bytes;
}

static uint64_t cache_bytes(const KvGridPlan *plan, const KvRankPlan *rank, uint32_t c)
{
    return plan->memory_known ? kvg_plan_class_bytes(plan, rank, c) : rank->class_unit_bytes[c] * plan->classes[c].units_per_sequence;
}

static Bar make_bar(const PlanReport *report, const KvRankPlan *rank)
{
    const KvGridPlan *plan = &report->grid.plan;
    uint64_t          slots = plan->memory_known ? kvg_plan_slots_bytes(plan, rank) : rank->slot_bytes;
    uint64_t          state = slots;
    Bar               bar = { .count = 0 };
    char              name[40], label[56];

    add_segment(&bar, report->arguments->weights_bytes != 0 ? "weights" : "weights (estimate)", COLOR_WEIGHTS, "#ffffff",
                rank->weight_bytes);
    for (uint32_t c = 0; c < plan->class_count; c++) {
        snprintf(label, sizeof label, "cache, %s", kvg_plan_class_name(&plan->classes[c], name));
        add_segment(&bar, label, class_colors[c], "#ffffff", cache_bytes(plan, rank, c));
        state += cache_bytes(plan, rank, c);
    }
    add_segment(&bar, "fixed state", COLOR_SLOTS, "#ffffff", slots);
    if (plan->memory_known) {
        add_segment(&bar, "free", COLOR_FREE, COLOR_QUIET, kvg_monus_u64(rank->state_bytes, state));
        add_segment(&bar, "reserve", COLOR_RESERVE, COLOR_TEXT,
                    kvg_min_u64(report->arguments->reserve_bytes, kvg_monus_u64(report->arguments->device_memory, rank->weight_bytes)));
    }
    return bar;
}

static double bar_x(const Picture *picture, uint64_t bytes)
{
    return BAR_LEFT + (double)bytes / (double)picture->longest * (BAR_RIGHT - BAR_LEFT);
}

/* The label that the width has room for: name and size, the size alone, or none. */
static void write_segment_label(const Picture *picture, const Segment *segment, double x, double y, double width)
{
    char size[32], label[sizeof segment->label + sizeof size + 4]; /* the dot and its spaces take 4 */

    if (picture->bar_height < 14) {
        return;
    }
    kvg_plan_size(segment->bytes, size);
    snprintf(label, sizeof label, "%s \xc2\xb7 %s", segment->label, size);
    if ((double)strlen(label) * GLYPH + 8 > width) {
        snprintf(label, sizeof label, "%s", size);
    }
    if ((double)strlen(label) * GLYPH + 8 <= width) {
        write_text(picture->file, x + width / 2, y + picture->bar_height / 2 + 4, 11, segment->text_color, "middle", label);
    }
}

static void write_bar(const Picture *picture, const KvRankPlan *rank, double y)
{
    Bar      bar = make_bar(picture->report, rank);
    uint64_t before = 0;

    for (int i = 0; i < bar.count; i++) {
        double x = bar_x(picture, before), width = bar_x(picture, before + bar.segments[i].bytes) - x;

        before += bar.segments[i].bytes;
        if (bar.segments[i].bytes != 0) {
            write_rect(picture->file, x, y, width, picture->bar_height, bar.segments[i].color);
            write_segment_label(picture, &bar.segments[i], x, y, width);
        }
    }
    fprintf(picture->file, "<rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"none\" stroke=\"#9aa5b1\" stroke-width=\"0.7\"/>\n",
            BAR_LEFT, y, bar_x(picture, bar.bytes) - BAR_LEFT, picture->bar_height);
}

/* ---- frame */

static void write_heading(const Picture *picture)
{
    const KvGridPlan *plan = &picture->report->grid.plan;
    char              text[256], ctx[32];

    snprintf(text, sizeof text, "%s on tp %u x pp %u", picture->report->config.name, plan->tp, plan->pp);
    fprintf(picture->file, "<g font-weight=\"600\">");
    write_text(picture->file, 24, 38, 22, COLOR_TEXT, "start", text);
    fprintf(picture->file, "</g>");
    if (plan->memory_known) {
        kvg_plan_capacity_text(plan, text, sizeof text);
    } else {
        snprintf(text, sizeof text, "what the model and one sequence of %s tokens take on each rank; --device-memory shows what fits",
                 kvg_plan_digits(plan->ctx, ctx));
    }
    write_text(picture->file, 24, 62, 14, COLOR_QUIET, "start", text);
}

static void write_legend(const Picture *picture)
{
    uint64_t seen[SEGMENTS_MOST] = { 0 };
    Bar      bar = { .count = 0 };
    double   x = 24;

    for (uint32_t r = 0; r < picture->report->grid.plan.ranks_count; r += picture->report->grid.plan.tp) {
        bar = make_bar(picture->report, &picture->report->grid.plan.ranks[r]);
        for (int i = 0; i < bar.count; i++) {
            seen[i] |= bar.segments[i].bytes;
        }
    }
    for (int i = 0; i < bar.count; i++) {
        if (seen[i] == 0) {
            continue;
        }
        fprintf(picture->file, "<rect x=\"%.1f\" y=\"82\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\" stroke=\"#9aa5b1\" stroke-width=\"0.5\"/>\n",
                x, bar.segments[i].color);
        write_text(picture->file, x + 17, 92.5, 12, COLOR_TEXT, "start", bar.segments[i].label);
        x += 17 + (double)strlen(bar.segments[i].label) * 6.7 + 20;
    }
}

/* 1, 2 or 5 times a power of ten, at most eight of them along the bar. */
static uint64_t tick_step(uint64_t longest)
{
    uint64_t step = 1;

    while (longest / step > 8) {
        uint64_t lead = step;
        while (lead >= 10) {
            lead /= 10;
        }
        step = lead == 2 ? step / 2 * 5 : step * 2;
    }
    return step;
}

/* "20 GB": a tick is a round number, so no digits after the point but where the step has some. */
static const char *tick_text(uint64_t at, char text[32])
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
    double                   size = (double)at;
    int                      unit = 0;

    for (; size >= 1000 && unit < 6; unit++) {
        size /= 1000;
    }
    snprintf(text, 32, "%g %s", size, units[unit]);
    return text;
}

static void write_ticks(const Picture *picture, double bottom)
{
    uint64_t step = tick_step(picture->longest);
    char     size[32];

    for (uint64_t at = 0; at <= picture->longest; at += step) {
        double x = bar_x(picture, at);

        fprintf(picture->file, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#d9dee3\" stroke-width=\"1\"/>\n", x,
                HEAD_HEIGHT - 18, x, bottom);
        write_text(picture->file, x, HEAD_HEIGHT - 23, 11, COLOR_QUIET, "middle", at == 0 ? "0" : tick_text(at, size));
    }
}

static void write_stage_label(const Picture *picture, uint32_t stage, double y, double height)
{
    const KvGridPlan *plan = &picture->report->grid.plan;
    const KvRankPlan *rank = &plan->ranks[stage * plan->tp];
    char              text[64];

    if (stage > 0) {
        fprintf(picture->file, "<line x1=\"24\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#b8c2cc\" stroke-width=\"0.8\"/>\n", y - 4, BAR_RIGHT,
                y - 4);
    }
    snprintf(text, sizeof text, "stage %u", stage);
    write_text(picture->file, 24, y + height / 2 + (height >= 26 ? -2 : 4), 12, COLOR_TEXT, "start", text);
    if (height >= 26) {
        snprintf(text, sizeof text, "layers %u-%u", rank->lo, rank->hi - 1);
        write_text(picture->file, 24, y + height / 2 + 13, 11, COLOR_QUIET, "start", text);
    }
}

static void write_rank_label(const Picture *picture, const KvRankPlan *rank, double y)
{
    const KvGridPlan *plan = &picture->report->grid.plan;
    int               limits = plan->limiting_rank >= (int32_t)rank->rank && plan->limiting_rank < (int32_t)(rank->rank + picture->stride);
    double            middle = y + picture->bar_height / 2 + 4;
    char              text[64];

    if (picture->row_height >= 11) {
        if (picture->stride > 1) {
            snprintf(text, sizeof text, "ranks %u-%u", rank->rank, rank->rank + picture->stride - 1);
        } else {
            snprintf(text, sizeof text, "rank %u", rank->rank);
        }
        write_text(picture->file, BAR_LEFT - 10, middle, picture->row_height >= 16 ? 12 : 9, COLOR_TEXT, "end", text);
    }
    if (limits) {
        write_text(picture->file, BAR_RIGHT + 10, middle, 12, COLOR_LIMITS, "start", "limits the grid");
    }
}

/* ---- the picture */

static void write_rows(const Picture *picture)
{
    const KvGridPlan *plan = &picture->report->grid.plan;
    uint32_t          bars_a_stage = plan->tp / picture->stride;
    double            y = HEAD_HEIGHT;

    for (uint32_t stage = 0; stage < plan->pp; stage++) {
        write_stage_label(picture, stage, y, bars_a_stage * picture->row_height - (picture->row_height - picture->bar_height));
        for (uint32_t b = 0; b < bars_a_stage; b++, y += picture->row_height) {
            const KvRankPlan *rank = &plan->ranks[stage * plan->tp + b * picture->stride];

            write_rank_label(picture, rank, y);
            write_bar(picture, rank, y);
        }
        y += 8;
    }
}

static void write_picture(FILE *file, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    Picture           picture = { .file = file, .report = report, .longest = 1, .stride = 1 };
    uint32_t          bars;
    double            bottom;

    if (plan->ranks_count > RANKS_DRAWN) {
        picture.stride = plan->tp;
    }
    bars = plan->ranks_count / picture.stride;
    picture.row_height = bars <= 24 ? 32 : bars <= 64 ? 20 : 12;
    picture.bar_height = picture.row_height - (bars <= 24 ? 6 : 3);
    for (uint32_t r = 0; r < plan->ranks_count; r += picture.stride) {
        Bar bar = make_bar(report, &plan->ranks[r]);
        picture.longest = kvg_max_u64(picture.longest, bar.bytes);
    }
    bottom = HEAD_HEIGHT + bars * picture.row_height + plan->pp * 8.0;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
            "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            WIDTH, bottom + 16, WIDTH, bottom + 16);
    write_heading(&picture);
    write_legend(&picture);
    write_ticks(&picture, bottom);
    write_rows(&picture);
    fputs("</svg>\n", file);
}

/* ---- the file */

static KvgStatus svg_failed(const char *path)
{
    return kvg_fail(KVG_EIO, "the picture %s cannot be written: %s", path, strerror(errno));
}

static KvgStatus write_and_close(int fd, const char *path, const PlanReport *report)
{
    FILE *file = fdopen(fd, "w");

    if (file == NULL) {
        close(fd);
        return svg_failed(path);
    }
    write_picture(file, report);
    if (fflush(file) != 0 || ferror(file)) {
        KvgStatus status = svg_failed(path);

        fclose(file);
        return status;
    }
    return fclose(file) == 0 ? KVG_OK : svg_failed(path);
}

/* A device or a pipe is written as it is: there is nothing to replace. */
static int is_special(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

KvgStatus kvg_plan_write_svg(const char *path, const PlanReport *report)
{
    char      beside[4096];
    int       special = is_special(path), fd;
    KvgStatus status;

    if ((size_t)snprintf(beside, sizeof beside, special ? "%s" : "%s.%ld.tmp", path, (long)getpid()) >= sizeof beside) {
        errno = ENAMETOOLONG;
        return svg_failed(path);
    }
    fd = open(beside, special ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0) {
        return svg_failed(path);
    }
    status = write_and_close(fd, path, report);
    if (special) {
        return status;
    }
    if (status == KVG_OK && rename(beside, path) != 0) {
        status = svg_failed(path);
    }
    if (status != KVG_OK) {
        unlink(beside);
    }
    return status;
}
