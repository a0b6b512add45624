/* HTML, writing. */
#include "launch/command/html_write.h"

#include <stdarg.h>
#include <string.h>

#include "runtime/base/utf8.h"

enum { PRINTED_MAX = 1000 };

/* The length of the character that begins at `text`, of which `bytes` bytes are left, if it is one that XML allows; else 0. */
static int character_length(const char *text, size_t bytes)
{
    uint32_t     code = 0;
    const size_t length = kvg_utf8_take(text, bytes, &code);

    if (length <= 1) {
        return length == 1 && (code >= 0x20 || code == '\t' || code == '\n' || code == '\r') && code != 0x7f;
    }
    return code < 0xa0 || (code & 0xfffe) == 0xfffe ? 0 : (int)length; /* a control of the upper half, or no character */
}

static const char *entity(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void kvg_html_part(FILE *file, const char *text, size_t bytes)
{
    for (const char *end = text + bytes; text < end;) {
        const int   length = character_length(text, (size_t)(end - text));
        const char *escaped = entity(*text);
        if (length == 0) {
            fputs("\xef\xbf\xbd", file);
        } else if (escaped != NULL) {
            fputs(escaped, file);
        } else {
            fwrite(text, 1, (size_t)length, file);
        }
        text += length > 0 ? length : 1;
    }
}

void kvg_html_text(FILE *file, const char *text)
{
    kvg_html_part(file, text, strlen(text));
}

static void print_escaped(FILE *file, const char *format, va_list arguments)
{
    char text[PRINTED_MAX];

    vsnprintf(text, sizeof text, format, arguments);
    kvg_html_text(file, text);
}

void kvg_html_printf(FILE *file, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_escaped(file, format, arguments);
    va_end(arguments);
}

/* ---- frame */

static const char style[] =
    ":root{color-scheme:light dark;--page:#ffffff;--text:#1f2933;--quiet:#55616d;--line:#d5dce3;--card:#f4f6f8;"
    "--content:#1668a8;--booked:#7fb6e0;--taken:#dbe6ef;--bar:#1668a8;--warn:#b4530a}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#12171c;--text:#e4eaf0;--quiet:#a3afba;--line:#323d48;--card:#1b2229;"
    "--content:#5db4ee;--booked:#2f6d9c;--taken:#26333f;--bar:#5db4ee;--warn:#f2a35e}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
    "main{max-width:75rem;margin:0 auto;padding:1.5rem 1rem 3rem}\n"
    "h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}\nh2{font-size:1.2rem;margin:2.2rem 0 .6rem}\n"
    "p{margin:.3rem 0 .8rem;max-width:65rem}\n.quiet{color:var(--quiet)}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0;padding:0;list-style:none}\n"
    ".cards li{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.5rem .75rem}\n"
    ".cards b{display:block;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}\n.cards span{color:var(--quiet);font-size:.85rem}\n"
    ".panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr));gap:.9rem}\n"
    ".beside{display:grid;grid-template-columns:minmax(0,34rem) minmax(0,1fr);gap:.9rem 1.5rem;align-items:start;margin-bottom:1rem}\n"
    "@media (max-width:56rem){.beside{grid-template-columns:minmax(0,1fr)}}\n"
    "figure{margin:0}\nfigcaption{font-weight:600;font-size:.9rem;margin:0 0 .2rem}\n"
    "svg{display:block;width:100%;height:auto;max-width:40rem}\n"
    "svg text{fill:var(--quiet);font-size:12px;font-variant-numeric:tabular-nums}\nsvg .strong{fill:var(--text)}\n"
    ".grid{stroke:var(--line);stroke-width:1}\n.axis{stroke:var(--quiet);stroke-width:1}\n"
    ".content{fill:var(--content)}\n.booked{fill:var(--booked)}\n.taken{fill:var(--taken)}\n.bar{fill:var(--bar)}\n.warn{fill:var(--warn)}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.2rem 0 .8rem;padding:0;list-style:none;font-size:.9rem}\n"
    ".legend svg{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:-.05rem}\n.swatch{stroke:var(--quiet);stroke-width:1}\n"
    ".scroll{overflow-x:auto}\n"
    ".beside table{width:100%;max-width:26rem}\n"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\ncaption{text-align:left;font-weight:600;padding:0 0 .3rem}\n"
    "th,td{padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\nth{font-weight:600}\n"
    "td.n,th.n{text-align:right;white-space:nowrap;padding-left:.75rem;padding-right:0}\ntd code,p code{font:.85rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}\n"
    ".scroll{margin-top:.4rem}\n.beside .scroll{margin-top:0}\n.facts{width:100%;table-layout:fixed}\n.facts td{overflow-wrap:anywhere}\n"
    ".facts th{width:6rem;white-space:nowrap;color:var(--quiet);font-weight:400}\n";

void kvg_html_open(FILE *file, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n<title>", file);
    kvg_html_text(file, title);
    fprintf(file, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", style);
}

void kvg_html_close(FILE *file)
{
    fputs("</main>\n</body>\n</html>\n", file);
}

/* ---- tables */

void kvg_html_table_open(FILE *file, const char *caption, const char *const *columns, int count, int numbers)
{
    fputs("<div class=\"scroll\">\n<table>\n<caption>", file);
    kvg_html_text(file, caption);
    fputs("</caption>\n<thead><tr>", file);
    for (int i = 0; i < count; i++) {
        fprintf(file, "<th scope=\"col\"%s>", i >= numbers ? " class=\"n\"" : "");
        kvg_html_text(file, columns[i]);
        fputs("</th>", file);
    }
    fputs("</tr></thead>\n<tbody>\n", file);
}

void kvg_html_table_close(FILE *file)
{
    fputs("</tbody>\n</table>\n</div>\n", file);
}

void kvg_html_fact(FILE *file, const char *name, const char *format, ...)
{
    va_list arguments;

    fputs("<tr><th scope=\"row\">", file);
    kvg_html_text(file, name);
    fputs("</th><td>", file);
    va_start(arguments, format);
    print_escaped(file, format, arguments);
    va_end(arguments);
    fputs("</td></tr>\n", file);
}
