/* HTML, charts.
 *
 *   TOP     +----------------+
 *           |                |   a picture is WIDTH x HEIGHT units and as wide as its place on the page
 *   BOTTOM  +----------------+
 *         LEFT             RIGHT */
#include "launch/command/html_chart.h"

#include <string.h>

#include "launch/command/html_write.h"
#include "launch/command/plan_report.h"

enum { WIDTH = 480, HEIGHT = 210, LEFT = 66, RIGHT = 468, TOP = 12, BOTTOM = 178, ROW_HEIGHT = 26, ROW_LEFT = 120, ROW_RIGHT = 390 };

/* 1, 2 or 5 times a power of ten; at most `count` of them to `most`. */
static double tick_step(double most, int count)
{
    static const double leads[] = { 1, 2, 5 };
    double              power = 1e-9;

    for (;; power *= 10) {
        for (int i = 0; i < 3; i++) {
            if (most / (power * leads[i]) <= count) {
                return power * leads[i];
            }
        }
    }
}

static void open_picture(FILE *file, const ChartAxis *axis, int height)
{
    fprintf(file, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n<title id=\"%s-t\">", WIDTH, height, axis->id, axis->id, axis->id);
    kvg_html_text(file, axis->title);
    fprintf(file, "</title><desc id=\"%s-d\">", axis->id);
    kvg_html_text(file, axis->description);
    fputs("</desc>\n", file);
}

static void write_word(FILE *file, double x, double y, const char *anchor, const char *text)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    kvg_html_text(file, text);
    fputs("</text>\n", file);
}

static void write_line(FILE *file, const char *color, double x1, double y1, double x2, double y2)
{
    fprintf(file, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", color, x1, y1, x2, y2);
}

static double y_of(double value, double most)
{
    return BOTTOM - value / most * (BOTTOM - TOP);
}

static void write_upright(FILE *file, const ChartAxis *axis, double most)
{
    const double step = tick_step(most, 5);
    char         text[32];

    for (int i = 0; i * step <= most * 1.0001; i++) {
        write_line(file, i == 0 ? "axis" : "grid", LEFT, y_of(i * step, most), RIGHT, y_of(i * step, most));
        write_word(file, LEFT - 6, y_of(i * step, most) + 4, "end", axis->words(i * step, text));
    }
}

static void write_seconds(FILE *file, double most_s)
{
    const double step = tick_step(most_s, 5);
    char         text[32];

    for (int i = 0; i * step <= most_s * 1.0001; i++) {
        const double x = LEFT + i * step / most_s * (RIGHT - LEFT);
        write_line(file, "axis", x, BOTTOM, x, BOTTOM + 4);
        snprintf(text, sizeof text, "%g s", i * step);
        write_word(file, x, BOTTOM + 20, i == 0 ? "start" : x > RIGHT - 12 ? "end" : "middle", text);
    }
}

static uint64_t value_at(const ChartArea *area, uint64_t i)
{
    uint64_t value;

    memcpy(&value, (const char *)area->values + i * area->stride, sizeof value);
    return value;
}

static void write_area(FILE *file, const ChartArea *area, uint64_t count, double unit, double scale, double most)
{
    fprintf(file, "<path class=\"%s\" d=\"M%d %d", area->color, LEFT, BOTTOM);
    for (uint64_t i = 0; i < count; i++) {
        const double right = LEFT + (double)(i + 1) * unit;
        fprintf(file, "V%.1fH%.1f", y_of((double)value_at(area, i) * scale, most), right < RIGHT ? right : RIGHT);
    }
    fprintf(file, "V%dZ\"/>\n", BOTTOM);
}

void kvg_chart_areas(FILE *file, const ChartAxis *axis, const ChartArea *areas, int area_count, uint64_t count, double width_s, double scale, double most_s,
                     double most)
{
    most = most > 0 ? most : 1;
    most_s = most_s > 0 ? most_s : 1;
    open_picture(file, axis, HEIGHT);
    for (int i = 0; i < area_count; i++) {
        write_area(file, &areas[i], count, width_s / most_s * (RIGHT - LEFT), scale, most);
    }
    write_upright(file, axis, most);
    write_seconds(file, most_s);
    fputs("</svg>\n", file);
}

static uint64_t largest(const uint64_t *values, int count)
{
    uint64_t most = 1;

    for (int i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

void kvg_chart_bars(FILE *file, const ChartAxis *axis, const char *color, const uint64_t *values, const char *const *names, int count, int every)
{
    const double most = (double)largest(values, count), width = (double)(RIGHT - LEFT) / (count > 0 ? count : 1);

    open_picture(file, axis, HEIGHT);
    write_upright(file, axis, most);
    for (int i = 0; i < count; i++) {
        const double x = LEFT + i * width, y = y_of((double)values[i], most);
        fprintf(file, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", color, x + width * 0.1, y, width * 0.8, BOTTOM - y);
        if (i % every == 0) {
            write_word(file, x + width / 2, BOTTOM + 20, "middle", names[i]);
        }
    }
    fputs("</svg>\n", file);
}

void kvg_chart_rows(FILE *file, const ChartAxis *axis, const char *color, const uint64_t *values, const char *const *names, int count)
{
    const double most = (double)largest(values, count);
    char         text[32];

    open_picture(file, axis, count * ROW_HEIGHT + 8);
    for (int i = 0; i < count; i++) {
        const double y = 4 + i * ROW_HEIGHT, width = (double)values[i] / most * (ROW_RIGHT - ROW_LEFT);
        write_word(file, ROW_LEFT - 8, y + 17, "end", names[i]);
        fprintf(file, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n", color, ROW_LEFT, y + 4, width, ROW_HEIGHT - 8);
        write_word(file, ROW_LEFT + width + 6, y + 17, "start", axis->words((double)values[i], text));
    }
    fputs("</svg>\n", file);
}

const char *kvg_chart_number(double value, char text[32])
{
    return kvg_plan_digits((uint64_t)(value + 0.5), text);
}

static const char *in_units(double value, const char *const *units, int count, char text[32])
{
    int unit = 0;

    for (; value >= 1000 && unit + 1 < count; unit++) {
        value /= 1000;
    }
    snprintf(text, 32, "%.3g %s", value, units[unit]);
    return text;
}

const char *kvg_chart_bytes(double value, char text[32])
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };

    return in_units(value, units, 7, text);
}

const char *kvg_chart_micros(double value, char text[32])
{
    static const char *const units[] = { "\xc2\xb5s", "ms", "s" };

    return in_units(value, units, value < 1e9 ? 3 : 1, text);
}

void kvg_chart_swatch(FILE *file, const char *color)
{
    fprintf(file, "<svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect class=\"%s swatch\" x=\"0\" y=\"0\" width=\"12\" height=\"12\"/></svg>", color);
}
