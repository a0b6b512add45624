/* UTF-8: text from outside, character by character. */
#ifndef KVG_BASE_UTF8_H
#define KVG_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of the character that begins at `text`, of which `bytes` (at least 1) are left; its number is in *code. 0 where none begins: an overlong form, half of
 * a surrogate pair, beyond U+10FFFF, cut. */
size_t kvg_utf8_take(const char *text, size_t bytes, uint32_t *code);

#endif
