/* HTML, replay: the page of --report. One file with pictures and the tables of what they show; it loads nothing and runs nothing. Private to the command. */
#ifndef KVG_COMMAND_HTML_REPLAY_H
#define KVG_COMMAND_HTML_REPLAY_H

#include "launch/command/replay_report.h"

typedef struct HtmlReplay {
    const ReplayOptions *options;
    const ReplayResult  *result;
    const KvGridPlan    *plan;
    const KvgStats      *ranks;  /* [result->rank_count] at the end */
    const ReplaySeries  *series; /* [result->rank_count] */
    const char          *model;  /* its file's name */
} HtmlReplay;

/* Writes the page as a whole. EIO. */
KvgStatus kvg_html_replay_write(const char *path, const HtmlReplay *page);

#endif
