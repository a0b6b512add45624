/* Wire: any bytes as what clients write to the embedding's frontend. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "launch/embed/wire.h"
#include "tests/fuzz/fuzz.h"

static void check_line(const WireLine *line)
{
    FUZZ_CHECK(memchr(line->id, '\0', sizeof line->id) != NULL);
    if (line->kind == WIRE_BAD) {
        FUZZ_CHECK(line->why[0] != '\0' && memchr(line->why, '\0', sizeof line->why) != NULL);
        return;
    }
    FUZZ_CHECK(line->id[0] != '\0');
    if (line->kind == WIRE_ABORT) return;
    FUZZ_CHECK(line->prompt_count >= 1 && line->prompt_count <= WIRE_TOKENS_MAX && line->max_tokens >= 1 && line->max_tokens <= 65535);
    for (uint32_t i = 0; i < line->prompt_count; i++) FUZZ_CHECK(line->prompt[i] < 256);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static WireReader reader;
    FuzzCount         count = fuzz_begin();
    size_t            lines = 0, ends = 1;
    int               fd = memfd_create("lines", MFD_CLOEXEC), more = 1;

    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    memset(&reader, 0xa5, sizeof reader);
    reader.fd = fd;
    reader.have = 0;
    reader.skipping = 0;
    while (more) {
        more = wire_read(&reader) > 0;
        while (wire_next(&reader)) {
            check_line(&reader.line);
            lines++;
        }
    }
    for (size_t i = 0; i < size; i++) ends += data[i] == '\n';
    FUZZ_CHECK(lines <= ends && reader.have == 0);
    close(fd);
    fuzz_end(&count, size, 1, 1);
    return 0;
}
