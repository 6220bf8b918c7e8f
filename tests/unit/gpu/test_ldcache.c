/* test_ldcache.c - the cache of this host's dynamic linker, and ones that are none. */
#include "runtime/gpu/ldcache.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAGIC "glibc-ld.so.cache1.1"
#if defined(__aarch64__)
#define OWN_FLAGS 0x0a03u
#else
#define OWN_FLAGS 0x0303u
#endif

struct entry { uint32_t flags, name, path; };

/* With the table of the old format before it, where @n_old is not 0. The block is of malloc(3). */
static char *make(size_t n_old, const struct entry *entries, uint32_t n, const char *names, size_t names_len,
                  size_t *ret_len)
{
    size_t old = n_old ? (16 + n_old * 12 + 7) & ~(size_t)7 : 0;
    size_t len = old + 48 + (size_t)n * 24 + names_len;
    char *data = calloc(1, len), *p = data + old;
    uint32_t count = (uint32_t)n_old;

    if (n_old) {
        memcpy(data, "ld.so-1.7.0", 11);
        memcpy(data + 12, &count, 4);
    }
    memcpy(p, MAGIC, 20);
    memcpy(p + 20, &n, 4);
    for (uint32_t i = 0; i < n; i++)
        memcpy(p + 48 + i * 24, &entries[i], sizeof(entries[i]));
    memcpy(p + 48 + (size_t)n * 24, names, names_len);
    *ret_len = len;
    return data;
}

static void test_the_hosts(void **state)
{
    struct ldcache cache = LDCACHE_INIT;
    const char *name, *path;
    bool has_libc = false;
    struct hutch_err err;
    size_t len, at = 0;
    char *data;

    (void)state;
    if (access("/etc/ld.so.cache", R_OK) < 0) {
        print_message("this host has no /etc/ld.so.cache\n");
        skip();
    }
    assert_int_equal(hutch_fd_slurp_path("/etc/ld.so.cache", LDCACHE_MAX_BYTES, &data, &len, &err), 0);
    if (hutch_ldcache_parse("the cache", data, len, &cache, &err) < 0)
        fail_msg("%s", err.msg);
    while (hutch_ldcache_next(&cache, &at, &name, &path)) {
        assert_int_equal(path[0], '/');
        has_libc |= strcmp(name, "libc.so.6") == 0 && access(path, R_OK) == 0;
    }
    assert_true(has_libc);
    hutch_ldcache_done(&cache);
}

static void test_what_is_told(void **state)
{
    static const char names[] = "libx.so.1\0/lib/libx.so.1";
    const struct entry entries[] = {
        { OWN_FLAGS, 48 + 5 * 24, 48 + 5 * 24 + 10 },
        { 0x0003, 48 + 5 * 24, 48 + 5 * 24 + 10 }, /* another machine's */
        { OWN_FLAGS, 0xffffffff, 48 + 5 * 24 },    /* behind the end */
        { OWN_FLAGS, 48 + 5 * 24, 48 + 5 * 24 + sizeof(names) },
        { OWN_FLAGS, 48 + 5 * 24 + 10, 48 + 5 * 24 + 10 },
    };

    (void)state;
    for (size_t n_old = 0; n_old < 4; n_old++) {
        struct ldcache cache = LDCACHE_INIT;
        const char *name, *path;
        struct hutch_err err;
        size_t len, at = 0;
        char *data = make(n_old, entries, ARRAY_SIZE(entries), names, sizeof(names), &len);

        assert_int_equal(hutch_ldcache_parse("it", data, len, &cache, &err), 0);
        assert_true(hutch_ldcache_next(&cache, &at, &name, &path));
        assert_string_equal(name, "libx.so.1");
        assert_string_equal(path, "/lib/libx.so.1");
        assert_true(hutch_ldcache_next(&cache, &at, &name, &path));
        assert_string_equal(name, "/lib/libx.so.1");
        assert_false(hutch_ldcache_next(&cache, &at, &name, &path));
        hutch_ldcache_done(&cache);
    }
}

/* A name whose end is that of the cache, without a NUL. */
static void test_name_without_end(void **state)
{
    const struct entry entry = { OWN_FLAGS, 48 + 24, 48 + 24 };
    struct ldcache cache = LDCACHE_INIT;
    const char *name, *path;
    struct hutch_err err;
    size_t len, at = 0;
    char *data = make(0, &entry, 1, "name", 4, &len);

    (void)state;
    assert_int_equal(hutch_ldcache_parse("it", data, len, &cache, &err), 0);
    assert_false(hutch_ldcache_next(&cache, &at, &name, &path));
    hutch_ldcache_done(&cache);
}

static void test_what_is_none(void **state)
{
    static const struct { const char *label; size_t at; uint32_t value; size_t len; const char *why; } rows[] = {
        { "empty", 0, 0, 0, "it is no cache of the dynamic linker" },
        { "short", 0, 0x62696c67, 12, "it is no cache" },
        { "another magic", 0, 0, 60, "it is no cache" },
        { "cut in the header", 0, 0x62696c67, 40, "it ends in its header" },
        { "more entries than there are", 20, 1000, 72, "it has 1000 entries by its header" },
        { "most entries", 20, 0xffffffff, 72, "it has 4294967295 entries" },
        { "the other byte order", 28, 3, 72, "another byte order" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct entry entry = { OWN_FLAGS, 0, 0 };
        struct ldcache cache = LDCACHE_INIT;
        struct hutch_err err;
        size_t len;
        char *data = make(0, &entry, 1, "", 0, &len);

        memcpy(data + rows[i].at, &rows[i].value, 4);
        assert_int_equal(hutch_ldcache_parse("it", data, rows[i].len, &cache, &err), -1);
        if (!strstr(err.msg, rows[i].why))
            fail_msg("%s: %s", rows[i].label, err.msg);
        free(data);
    }
}

/* The old table's own number of entries. */
static void test_old_table(void **state)
{
    struct ldcache cache = LDCACHE_INIT;
    uint32_t many[] = { 0xffffffff, 100, 2 };
    struct hutch_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
        size_t len;
        char *data = make(1, NULL, 0, "", 0, &len);

        memcpy(data + 12, &many[i], 4);
        assert_int_equal(hutch_ldcache_parse("it", data, len, &cache, &err), -1);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hosts),        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_name_without_end), cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_old_table),
    };

    return cmocka_run_group_tests_name("ldcache", tests, NULL, NULL);
}
