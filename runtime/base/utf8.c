#include "runtime/base/utf8.h"

size_t kvg_utf8_take(const char *text, size_t bytes, uint32_t *code)
{
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 }; /* by length: anything below is an overlong form */
    const unsigned char   first = (unsigned char)text[0];
    const size_t          length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
    uint32_t              found = length <= 1 ? first : first & (0x7fu >> length);

    for (size_t i = 1; i < length; i++) {
        if (i >= bytes || ((unsigned char)text[i] & 0xc0) != 0x80) {
            return 0;
        }
        found = found << 6 | ((unsigned char)text[i] & 0x3fu);
    }
    if (length == 0 || found < least[length] || (found >= 0xd800 && found <= 0xdfff) || found > 0x10ffff) {
        return 0;
    }
    *code = found;
    return length;
}
