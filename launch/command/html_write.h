/* HTML, writing: text that may come from anywhere, and the frame of a page that loads nothing. Private to the command.
 *
 * Pages are well-formed XML too: every element is closed, every attribute quoted. Threads: the main thread. */
#ifndef KVG_COMMAND_HTML_WRITE_H
#define KVG_COMMAND_HTML_WRITE_H

#include <stdint.h>
#include <stdio.h>

/* Any bytes as text, good in an attribute too: markup is escaped, what is no UTF-8 or no character of XML becomes U+FFFD. */
void kvg_html_text(FILE *file, const char *text);
/* The same of its first `bytes` bytes. */
void kvg_html_part(FILE *file, const char *text, size_t bytes);
/* The same of a format's result, cut to 1000 bytes. */
void kvg_html_printf(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* From <!DOCTYPE> to <main>, and from there to the end. */
void kvg_html_open(FILE *file, const char *title);
void kvg_html_close(FILE *file);

/* A table's head: its caption, and `count` columns; those from `numbers` on are numbers. Rows follow, then kvg_html_table_close. */
void kvg_html_table_open(FILE *file, const char *caption, const char *const *columns, int count, int numbers);
void kvg_html_table_close(FILE *file);
/* A row of two: a word and what it means. */
void kvg_html_fact(FILE *file, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
