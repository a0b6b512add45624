/* HTML, charts: pictures in SVG, inside the page. Colours are the page's classes. Private to the command. */
#ifndef KVG_COMMAND_HTML_CHART_H
#define KVG_COMMAND_HTML_CHART_H

#include <stdint.h>
#include <stdio.h>

typedef struct ChartArea {
    const char     *color;  /* a class */
    const uint64_t *values; /* [count], one a bin, `stride` bytes from one to the next */
    size_t          stride;
} ChartArea;

typedef struct ChartAxis {
    const char *id;     /* unique on the page, [a-z0-9-] */
    const char *title, *description; /* for those who do not see the picture */
    const char *(*words)(double value, char text[32]); /* of the upright axis */
} ChartAxis;

/* Areas over time, the first one at the back, all from zero: `count` bins of `width_s` seconds; axes reach to most_s and to most. `scale` is what a value is multiplied by. */
void kvg_chart_areas(FILE *file, const ChartAxis *axis, const ChartArea *areas, int area_count, uint64_t count, double width_s, double scale, double most_s,
                     double most);
/* Upright bars side by side, each with a word below it; `every` of these are written. */
void kvg_chart_bars(FILE *file, const ChartAxis *axis, const char *color, const uint64_t *values, const char *const *names, int count, int every);
/* Lying bars, one below the other: a word to the left, the value at the end. */
void kvg_chart_rows(FILE *file, const ChartAxis *axis, const char *color, const uint64_t *values, const char *const *names, int count);

/* A number with its thousands apart; bytes; microseconds. For ChartAxis.words. */
const char *kvg_chart_number(double value, char text[32]);
const char *kvg_chart_bytes(double value, char text[32]);
const char *kvg_chart_micros(double value, char text[32]);
/* A little square for a legend. */
void kvg_chart_swatch(FILE *file, const char *color);

#endif
