/* A cache of the dynamic linker. */
#include "runtime/gpu/ldcache.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ldcache cache = LDCACHE_INIT;
    struct hutch_err err = { .msg = "" };
    const char *name, *path;
    char *copy = malloc(size ? size : 1);
    size_t at = 0, n = 0;
    int rc;

    memcpy(copy, data, size);
    rc = hutch_ldcache_parse("it", copy, size, &cache, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        free(copy);
        return 0;
    }
    while (hutch_ldcache_next(&cache, &at, &name, &path))
        n += strlen(name) + strlen(path) < 2 * size;
    fuzz_check(n <= cache.n && at == cache.n);
    hutch_ldcache_done(&cache);
    return 0;
}
