/* Options: a table says what a part of the command takes; one parser reads it, one printer shows it. Private.
 *
 * "--name value" and "--name=value"; -h is --help. The last of a repeated option counts. */
#ifndef KVG_COMMAND_OPTIONS_H
#define KVG_COMMAND_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kvgrid/format.h>

typedef enum OptionKind {
    OPTION_FLAG,   /* int: 1 when given; takes no value */
    OPTION_TEXT,   /* const char *: points into argv */
    OPTION_COUNT,  /* uint64_t between least and most */
    OPTION_BYTES,  /* uint64_t: plain bytes, or kB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024) */
    OPTION_FORMAT, /* KvFormat */
    OPTION_SWITCH, /* int: 1 for on, 0 for off */
    OPTION_HEADING /* not an option: a line between them in the help */
} OptionKind;

typedef struct Option {
    const char *name;   /* "--tp" */
    OptionKind  kind;
    void       *target; /* of the kind's type; left alone unless the option is given */
    const char *value;  /* what the help calls the value: "N", "FILE" */
    const char *help;
    uint64_t    least, most; /* of a count; most 0: no limit. `least` is of bytes, too */
    int         given;       /* set by the parser */
} Option;

/* Reads argv[1..argc) into the table's targets. EINVAL, one sentence: an unknown option (with the nearest name), a missing or
 * malformed value, a stray argument. */
KvgStatus kvg_options_parse(Option *options, size_t option_count, int argc, char **argv);
/* An option to a line, aligned, and wrapped where it is long; headings between them. */
void kvg_options_print(FILE *stream, const Option *options, size_t option_count);

/* The parsers of values, for other readers. `what` names the value in the sentence. EINVAL; targets change only on success. */
KvgStatus kvg_parse_count(const char *what, const char *text, uint64_t least, uint64_t most, uint64_t *count);
KvgStatus kvg_parse_bytes(const char *what, const char *text, uint64_t *bytes);
/* "3,7,11" into list [capacity]; EINVAL also for more than `capacity` of them. */
KvgStatus kvg_parse_list(const char *what, const char *text, uint32_t *list, size_t capacity, size_t *count);

/* Passes `status` on; in the last error of a failure it writes options where the library names its fields. Fields are whole words. */
typedef struct OptionWord {
    const char *field, *option; /* "memory_bytes", "--memory" */
} OptionWord;
KvgStatus kvg_options_speak(KvgStatus status, const OptionWord *words, size_t word_count);

/* The word of `words` that takes the fewest edits from `word`; NULL if those are more than two, or half of the word and more. */
const char *kvg_nearest_word(const char *word, const char *const *words, size_t word_count);

#endif
