/* replay.c - a fuzz target (tests/fuzz) as a test: it is called with each of its seeds, whole and cut off at some
 * places. It draws no new inputs, so it says the same everywhere; `make fuzz` looks for new ones, by libFuzzer.
 *
 *     NAME DIRECTORY...
 *
 * The directories are those that tests/run gives libFuzzer for the target of this name. It fails where they have no
 * seeds. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <limits.h>

#define MAX_SEED (1u << 20) /* bytes; the largest seeds are the policies */
#define CUTS     32u

/* A copy of its own for each call, so that a tool that watches memory sees a read beyond its end. */
static void call(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size ? size : 1);

    fuzz_check(copy);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void replay_file(const char *path)
{
    static uint8_t data[MAX_SEED];
    FILE *file = fopen(path, "re");
    size_t size, step, len = 0;

    if (!file) {
        perror(path);
        exit(1);
    }
    size = fread(data, 1, sizeof(data), file);
    fclose(file);
    if (size == sizeof(data)) {
        fprintf(stderr, "%s: a seed of more than %u bytes\n", path, MAX_SEED - 1);
        exit(1);
    }
    step = size / CUTS + 1;
    for (; len < size; len += step)
        call(data, len);
    call(data, size);
}

/* How many files were replayed; 0 where there is no such directory. */
static unsigned replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    unsigned n = 0;

    while (directory && (entry = readdir(directory))) {
        char file[PATH_MAX];

        if (entry->d_name[0] == '.' || entry->d_type == DT_DIR)
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        replay_file(file);
        n++;
    }
    if (directory)
        closedir(directory);
    return n;
}

int main(int argc, char **argv)
{
    unsigned n = 0;

    for (int i = 1; i < argc; i++)
        n += replay_directory(argv[i]);
    call((const uint8_t *)"", 0);
    if (n == 0) {
        fprintf(stderr, "%s: no seeds; they are to be in tests/fuzz/seeds\n", argv[0]);
        return 1;
    }
    printf("%s: %u seeds\n[  PASSED  ] 1 test(s).\n", argv[0], n);
    return 0;
}
