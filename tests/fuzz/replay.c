/* Replays inputs through one fuzz target, without libFuzzer: replay_NAME FILE|DIRECTORY...
 * A file is run as it is, then cut short at some lengths, then with single bytes changed: cheap neighbours of every input that is kept.
 * Exit status: 0 all ran (a finding aborts), 1 there was nothing to run. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

#define FILE_MOST ((size_t)1 << 20)
#define CUTS      8
#define CHANGES   24

static size_t inputs;

/* A buffer of just this size: a sanitizer sees a read past its end. */
static void run_copy(const uint8_t *bytes, size_t count, size_t change, uint8_t by)
{
    uint8_t *copy = malloc(count > 0 ? count : 1);

    FUZZ_CHECK(copy != NULL);
    memcpy(copy, bytes, count);
    if (count > 0) {
        copy[change % count] ^= by;
    }
    LLVMFuzzerTestOneInput(copy, count);
    free(copy);
}

static void run_neighbours(const uint8_t *bytes, size_t count)
{
    uint64_t seed = count;

    run_copy(bytes, count, 0, 0);
    for (size_t i = 0; i < CUTS; i++) {
        run_copy(bytes, count * i / CUTS, 0, 0);
    }
    for (int i = 0; i < CHANGES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        run_copy(bytes, count, (size_t)(seed >> 33), (uint8_t)(1u << (seed >> 29 & 7)));
    }
}

static int run_file(const char *path)
{
    uint8_t *bytes = malloc(FILE_MOST);
    FILE    *file = fopen(path, "rb");

    FUZZ_CHECK(bytes != NULL);
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        free(bytes);
        return 0;
    }
    size_t count = fread(bytes, 1, FILE_MOST, file);
    fclose(file);
    run_neighbours(bytes, count);
    free(bytes);
    inputs++;
    return 1;
}

static int run_path(const char *path)
{
    struct stat    about;
    struct dirent *entry;
    int            ok = 1;

    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
        return run_file(path);
    }
    DIR *directory = opendir(path);

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char full[4096];

        if (entry->d_name[0] != '.') {
            snprintf(full, sizeof full, "%s/%s", path, entry->d_name);
            ok &= run_file(full);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return ok;
}

int main(int argc, char **argv)
{
    int ok = 1;

    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        ok &= run_path(argv[i]);
    }
    printf("%zu inputs and their neighbours\n", inputs);
    return ok && inputs > 0 ? 0 : 1;
}
