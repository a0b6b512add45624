#include "launch/command/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

/* ---- words */

#define WORD_MOST 31

/* Edits (insert, delete, replace) between two words, of which only the first WORD_MOST letters are looked at. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[WORD_MOST + 1];
    size_t a_count = strnlen(a, WORD_MOST), b_count = strnlen(b, WORD_MOST);

    for (size_t j = 0; j <= b_count; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_count; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_count; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            size_t moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

            diagonal = row[j];
            row[j] = replaced < moved ? replaced : moved;
        }
    }
    return row[b_count];
}

#define EDITS_MOST 2

const char *kvg_nearest_word(const char *word, const char *const *words, size_t word_count)
{
    const char *nearest = NULL;
    size_t      least = EDITS_MOST + 1;

    for (size_t i = 0; i < word_count; i++) {
        size_t distance = edit_distance(word, words[i]);

        if (distance < least) {
            least = distance;
            nearest = words[i];
        }
    }
    return 2 * least < strlen(word) ? nearest : NULL; /* past half of the word it is a guess, and no help */
}

/* ---- values */

/* Digits alone: no sign, no space, no base prefix. *end is the first letter after them. */
static int read_digits(const char *text, uint64_t *number, const char **end)
{
    char *stop;

    if (!isdigit((unsigned char)text[0])) {
        return 0;
    }
    errno = 0;
    *number = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

KvgStatus kvg_parse_count(const char *what, const char *text, uint64_t least, uint64_t most, uint64_t *count)
{
    uint64_t    number;
    const char *end;

    if (!isdigit((unsigned char)text[0]) || text[strspn(text, "0123456789")] != '\0') {
        return kvg_fail(KVG_EINVAL, "%s is \"%s\", which is not a whole number", what, text);
    }
    if (!read_digits(text, &number, &end)) {
        return kvg_fail(KVG_EINVAL, "%s is %s, which is more than 64 bits hold", what, text);
    }
    if (number < least || (most != 0 && number > most)) {
        if (most != 0) {
            return kvg_fail(KVG_EINVAL, "%s is %s: it goes from %llu to %llu", what, text, (unsigned long long)least,
                            (unsigned long long)most);
        }
        return kvg_fail(KVG_EINVAL, "%s is %s: it is at least %llu", what, text, (unsigned long long)least);
    }
    *count = number;
    return KVG_OK;
}

static const struct ByteUnit {
    const char *name;
    uint64_t    bytes;
} byte_units[] = {
    { "", 1 },
    { "B", 1 },
    { "kB", 1000 },
    { "KB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", 1000000000000 },
    { "KiB", 1ull << 10 },
    { "MiB", 1ull << 20 },
    { "GiB", 1ull << 30 },
    { "TiB", 1ull << 40 },
};

static uint64_t unit_bytes(const char *name)
{
    while (*name == ' ') {
        name++;
    }
    for (size_t i = 0; i < sizeof byte_units / sizeof byte_units[0]; i++) {
        if (strcmp(name, byte_units[i].name) == 0) {
            return byte_units[i].bytes;
        }
    }
    return 0;
}

/* "G" is 10^9 to some programs and 2^30 to others, so it is asked and not taken. */
static int is_half_unit(const char *name)
{
    name += strspn(name, " ");
    return name[0] != '\0' && strchr("kKMGT", name[0]) != NULL && name[1] == '\0';
}

static KvgStatus unknown_unit(const char *what, const char *text, const char *name)
{
    const int stem = (int)(name - text);

    if (is_half_unit(name)) {
        const char letter = name[strlen(name) - 1];

        return kvg_fail(KVG_EINVAL, "%s is \"%s\", which has two meanings: write %.*s%cB (powers of 1000) or %.*s%ciB (powers of 1024)", what,
                        text, stem, text, letter, stem, text, letter == 'k' ? 'K' : letter);
    }
    return kvg_fail(KVG_EINVAL, "%s is \"%s\", which has no known unit: write bytes, or kB MB GB TB (powers of 1000), KiB MiB GiB TiB "
                    "(powers of 1024)", what, text);
}

/* ".25" of a unit, exactly rounded down; at most nine digits are looked at. */
static uint64_t read_fraction(const char *text, uint64_t unit, const char **end)
{
    unsigned __int128 digits = 0;
    uint64_t          scale = 1;
    const char       *at = text;

    for (; isdigit((unsigned char)*at); at++) {
        if (scale < 1000000000) {
            digits = digits * 10 + (unsigned)(*at - '0');
            scale *= 10;
        }
    }
    *end = at;
    return (uint64_t)(digits * unit / scale);
}

KvgStatus kvg_parse_bytes(const char *what, const char *text, uint64_t *bytes)
{
    uint64_t    number, unit, fraction = 0;
    const char *end;

    if (!read_digits(text, &number, &end)) {
        return kvg_fail(KVG_EINVAL, "%s is \"%s\", which is no size: write bytes, or 141GB (10^9), 80GiB (2^30)", what, text);
    }
    if (end[0] == '.' && isdigit((unsigned char)end[1])) {
        const char *point = end + 1;

        (void)read_fraction(point, 1, &end);
        unit = unit_bytes(end);
        fraction = read_fraction(point, unit, &end);
    } else {
        unit = unit_bytes(end);
    }
    if (unit == 0) {
        return unknown_unit(what, text, end);
    }
    if (!kvg_mul_u64(number, unit, &number) || !kvg_add_u64(number, fraction, &number) || number > INT64_MAX) {
        return kvg_fail(KVG_EINVAL, "%s is %s, which is more than 2^63 bytes", what, text);
    }
    *bytes = number;
    return KVG_OK;
}

KvgStatus kvg_parse_list(const char *what, const char *text, uint32_t *list, size_t capacity, size_t *count)
{
    const char *at = text;
    size_t      found = 0;

    for (;;) {
        uint64_t number;

        if (!read_digits(at, &number, &at) || (*at != ',' && *at != '\0') || number > UINT32_MAX) {
            return kvg_fail(KVG_EINVAL, "%s is \"%s\", which is not a list of numbers such as 20,41", what, text);
        }
        if (found == capacity) {
            return kvg_fail(KVG_EINVAL, "%s has more than %zu numbers", what, capacity);
        }
        list[found++] = (uint32_t)number;
        if (*at++ == '\0') {
            break;
        }
    }
    *count = found;
    return KVG_OK;
}

/* ---- the table */

static Option *find_option(Option *options, size_t option_count, const char *name, size_t name_count)
{
    for (size_t i = 0; i < option_count; i++) {
        if (options[i].kind != OPTION_HEADING && strlen(options[i].name) == name_count &&
            strncmp(options[i].name, name, name_count) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

#define OPTIONS_MOST 48

/* Names are compared without their dashes, which all have. */
static KvgStatus unknown_option(const Option *options, size_t option_count, const char *name, size_t name_count)
{
    const char *names[OPTIONS_MOST], *nearest;
    char        word[2 * WORD_MOST];
    size_t      count = 0;

    for (size_t i = 0; i < option_count && count < OPTIONS_MOST; i++) {
        if (options[i].kind != OPTION_HEADING) {
            names[count++] = options[i].name + strspn(options[i].name, "-");
        }
    }
    snprintf(word, sizeof word, "%.*s", (int)name_count, name);
    nearest = kvg_nearest_word(word + strspn(word, "-"), names, count);
    if (nearest != NULL) {
        return kvg_fail(KVG_EINVAL, "there is no option %.*s: did you mean --%s? --help lists them", (int)name_count, name, nearest);
    }
    return kvg_fail(KVG_EINVAL, "there is no option %.*s: --help lists those there are", (int)name_count, name);
}

static KvgStatus set_bytes(Option *option, const char *value)
{
    uint64_t bytes;

    KVG_TRY(kvg_parse_bytes(option->name, value, &bytes));
    if (bytes != 0 && bytes < option->least && value[strspn(value, "0123456789")] == '\0') {
        return kvg_fail(KVG_EINVAL, "%s is %s, which is %s bytes: did you mean %sGB? It is at least %llu bytes, or left out", option->name,
                        value, value, value, (unsigned long long)option->least);
    }
    if (bytes < option->least) {
        return kvg_fail(KVG_EINVAL, "%s is %s: it is at least %llu bytes, or left out", option->name, value,
                        (unsigned long long)option->least);
    }
    *(uint64_t *)option->target = bytes;
    return KVG_OK;
}

static KvgStatus set_option(Option *option, const char *value)
{
    switch (option->kind) {
    case OPTION_FLAG: *(int *)option->target = 1; return KVG_OK;
    case OPTION_TEXT:
        if (value[0] == '\0') {
            return kvg_fail(KVG_EINVAL, "%s needs a value (%s)", option->name, option->value);
        }
        *(const char **)option->target = value;
        return KVG_OK;
    case OPTION_COUNT: return kvg_parse_count(option->name, value, option->least, option->most, option->target);
    case OPTION_BYTES: return set_bytes(option, value);
    case OPTION_FORMAT:
        if (kvg_format_parse(value, option->target) != KVG_OK) {
            return kvg_fail(KVG_EINVAL, "%s: %s", option->name, kvg_last_error());
        }
        return KVG_OK;
    case OPTION_SWITCH:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
            return kvg_fail(KVG_EINVAL, "%s is \"%s\": it is on or off", option->name, value);
        }
        *(int *)option->target = strcmp(value, "on") == 0;
        return KVG_OK;
    default: KVG_ASSERT(!"an option of no kind"); return KVG_EINVAL;
    }
}

/* One option at argv[i]; *used says how many arguments it took. */
static KvgStatus parse_one(Option *options, size_t option_count, int argc, char **argv, int i, int *used)
{
    const char *name = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
    const char *equals = strchr(name, '=');
    size_t      name_count = equals != NULL ? (size_t)(equals - name) : strlen(name);
    Option     *option = find_option(options, option_count, name, name_count);
    const char *value = equals != NULL ? equals + 1 : NULL;

    if (name[0] != '-') {
        return kvg_fail(KVG_EINVAL, "\"%s\" is not expected here: options begin with --, and --help lists them", name);
    }
    if (option == NULL) {
        return unknown_option(options, option_count, name, name_count);
    }
    *used = 1;
    if (option->kind == OPTION_FLAG && value != NULL) {
        return kvg_fail(KVG_EINVAL, "%s takes no value", option->name);
    }
    if (option->kind != OPTION_FLAG && value == NULL) {
        if (i + 1 >= argc) {
            return kvg_fail(KVG_EINVAL, "%s needs a value (%s)", option->name, option->value);
        }
        value = argv[i + 1];
        *used = 2;
    }
    KVG_TRY(set_option(option, value));
    option->given = 1;
    return KVG_OK;
}

KvgStatus kvg_options_parse(Option *options, size_t option_count, int argc, char **argv)
{
    for (int i = 1, used = 0; i < argc; i += used) {
        KVG_TRY(parse_one(options, option_count, argc, argv, i, &used));
    }
    return KVG_OK;
}

static int is_letter(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_';
}

/* The option's word for the field that stands at `at`, NULL if none does. */
static const OptionWord *field_at(const char *at, const OptionWord *words, size_t word_count)
{
    for (size_t i = 0; i < word_count; i++) {
        size_t count = strlen(words[i].field);

        if (strncmp(at, words[i].field, count) == 0 && !is_letter(at[count])) {
            return &words[i];
        }
    }
    return NULL;
}

KvgStatus kvg_options_speak(KvgStatus status, const OptionWord *words, size_t word_count)
{
    char        sentence[1024];
    size_t      used = 0;
    const char *text = kvg_last_error();

    if (status == KVG_OK) {
        return status;
    }
    for (const char *at = text; *at != '\0' && used + 1 < sizeof sentence;) {
        const OptionWord *word = at == text || !is_letter(at[-1]) ? field_at(at, words, word_count) : NULL;

        if (word == NULL) {
            sentence[used++] = *at++;
            continue;
        }
        used += (size_t)snprintf(sentence + used, sizeof sentence - used, "%s", word->option);
        used = used < sizeof sentence ? used : sizeof sentence - 1;
        at += strlen(word->field);
    }
    sentence[used] = '\0';
    return kvg_fail(status, "%s", sentence);
}

#define LINE_MOST 110

/* `text` in lines that end by LINE_MOST, from column `indent` on, where the first of them stands already. */
static void print_wrapped(FILE *stream, const char *text, int indent)
{
    int column = indent;

    for (const char *word = text; *word != '\0';) {
        int count = (int)strcspn(word, " ");

        if (column > indent && column + 1 + count > LINE_MOST) {
            fprintf(stream, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(stream, "%s%.*s", column > indent ? " " : "", count, word);
        word += count;
        word += strspn(word, " ");
    }
    fputc('\n', stream);
}

static int left_side(const Option *option, char left[64])
{
    return snprintf(left, 64, "%s%s%s", option->name, option->value != NULL ? " " : "", option->value != NULL ? option->value : "");
}

void kvg_options_print(FILE *stream, const Option *options, size_t option_count)
{
    char left[64];
    int  widest = 0;

    for (size_t i = 0; i < option_count; i++) {
        int width = options[i].kind != OPTION_HEADING ? left_side(&options[i], left) : 0;

        widest = width > widest ? width : widest;
    }
    for (size_t i = 0; i < option_count; i++) {
        if (options[i].kind == OPTION_HEADING) {
            fprintf(stream, "%s%s\n", i > 0 ? "\n" : "", options[i].help);
            continue;
        }
        left_side(&options[i], left);
        fprintf(stream, "  %-*s  ", widest, left);
        print_wrapped(stream, options[i].help, 2 + widest + 2);
    }
}
