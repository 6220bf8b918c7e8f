#include "sandbox/fd.h"
#include "rootfs/targuard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A tar stream under construction. */
struct tar {
    char bytes[64 * 512];
    size_t len;
};

static void add_data(struct tar *t, const void *data, size_t len)
{
    assert_true(t->len + len + 512 <= sizeof(t->bytes));
    memcpy(t->bytes + t->len, data, len);
    t->len += len;
    while (t->len % 512)
        t->bytes[t->len++] = '\0';
}

static void add_header(struct tar *t, char type, unsigned long size)
{
    char header[512] = "name";

    snprintf(header + 124, 12, "%011lo", size);
    header[156] = type;
    memcpy(header + 257, "ustar", 6);
    add_data(t, header, sizeof(header));
}

static void add_member(struct tar *t, char type, const void *data, size_t len)
{
    add_header(t, type, len);
    add_data(t, data, len);
}

static void clean_file(struct tar *t)
{
    add_member(t, '0', "con\0tent", 8);
}

static void clean_pax(struct tar *t)
{
    add_member(t, 'x', "12 path=abc\n", 12);
    clean_file(t);
}

static void nul_in_pax_path(struct tar *t)
{
    clean_file(t);
    add_member(t, 'x', "12 mtime=11\n13 path=a\0bc\n", 25);
}

static void nul_in_pax_linkpath(struct tar *t)
{
    add_member(t, 'x', "16 linkpath=a\0b\n", 16);
}

static void nul_in_global_path(struct tar *t)
{
    add_member(t, 'g', "12 path=a\0b\n", 12);
}

/* Extended attributes are binary. */
static void nul_in_attribute(struct tar *t)
{
    add_member(t, 'x', "31 SCHILY.xattr.user.name=a\0\0b\n", 31);
    clean_file(t);
}

static void nul_in_gnu_name(struct tar *t)
{
    add_member(t, 'L', "a\0b\0", 4);
}

static void padded_gnu_name(struct tar *t)
{
    add_member(t, 'L', "long\0\0\0\0", 8);
    clean_file(t);
}

static void nul_in_gnu_link(struct tar *t)
{
    add_member(t, 'K', "a\0b", 3);
}

/* The extended header's size counts, not the 0 in the header: the next header is behind the content. */
static void size_in_pax(struct tar *t)
{
    add_member(t, 'x', "12 size=512\n", 12);
    add_header(t, '0', 0);
    add_header(t, 'L', 9999999); /* content, though it looks like a header */
    nul_in_pax_path(t);
}

static void looks_like_header_in_content(struct tar *t)
{
    struct tar inner = { .len = 0 };

    nul_in_pax_path(&inner);
    add_member(t, '0', inner.bytes, inner.len);
}

/* Links have no content, and libraries differ on whether they obey a size there. */
static void link_with_size(struct tar *t)
{
    add_header(t, '1', 4096);
    nul_in_gnu_name(t);
}

/* Sun's letter, which libarchive takes for an 'x'. */
static void nul_in_sun_pax(struct tar *t)
{
    add_member(t, 'X', "13 path=a\0bc\n", 13);
}

static void unknown_type(struct tar *t)
{
    add_member(t, 'A', "acl", 3);
}

static void size_of_rubbish(struct tar *t)
{
    add_header(t, '0', 0);
    memcpy(t->bytes + t->len - 512 + 124, "12x", 3);
}

static void sparse_map(struct tar *t, const char *count)
{
    add_member(t, 'x', "22 GNU.sparse.major=1\n", 22);
    add_member(t, '0', count, strlen(count));
}

static void short_sparse_map(struct tar *t)
{
    sparse_map(t, "3\n0\n0\n0\n0\n0\n0\n");
}

static void long_sparse_map(struct tar *t)
{
    sparse_map(t, "65537\n0\n0\n");
}

static void base_256_size(struct tar *t)
{
    struct tar one = { .len = 0 };

    add_header(&one, '0', 0);
    memset(one.bytes + 124, 0, 12);
    one.bytes[124] = (char)0x80;
    one.bytes[134] = 2; /* 512 */
    add_data(t, one.bytes, 512);
    add_header(t, 'L', 9999999);
    nul_in_gnu_name(t);
}

static void long_pax(struct tar *t)
{
    add_header(t, 'x', TARGUARD_MAX_HEADER + 1);
}

static void broken_pax(struct tar *t)
{
    add_member(t, 'x', "99999999999999999999 path=x\n", 28);
    add_member(t, 'x', "no number", 9);
    add_member(t, 'x', "0 path=x\n", 9);
    add_member(t, 'x', "-5 path=x\n", 10);
    add_member(t, 'x', " 5 path=x\n", 10);
    /* Shorter than its own length. */
    add_member(t, 'x', "00000000000000000000000000000000000000005 aaaaaaaaaaaaaaaaaaaa", 60);
    add_member(t, 'x', "", 0);
    clean_file(t);
}

static const struct { const char *label; void (*make)(struct tar *t); const char *want; } cases[] = {
    { "file", clean_file, NULL },
    { "pax path", clean_pax, NULL },
    { "NUL in a pax path", nul_in_pax_path, "a name with a NUL byte in it: 'a" },
    { "NUL in a pax link", nul_in_pax_linkpath, "a name with a NUL byte in it: 'a" },
    { "NUL in a global header", nul_in_global_path, "a name with a NUL byte in it: 'a" },
    { "NUL in an attribute", nul_in_attribute, NULL },
    { "NUL in a GNU name", nul_in_gnu_name, "a name with a NUL byte in it: 'a" },
    { "NULs behind a GNU name", padded_gnu_name, NULL },
    { "NUL in a GNU link", nul_in_gnu_link, "a name with a NUL byte in it: 'a" },
    { "size from the extended header", size_in_pax, "a name with a NUL byte in it: 'a" },
    { "content that looks like headers", looks_like_header_in_content, NULL },
    { "NUL in a Sun extended header", nul_in_sun_pax, "a name with a NUL byte in it: 'a" },
    { "unknown type", unknown_type, "an entry of the unknown type 'A'" },
    { "a size that is no number", size_of_rubbish, "an entry whose size is not a number" },
    { "short sparse map", short_sparse_map, NULL },
    { "long sparse map", long_sparse_map, "a sparse file in more than 65536 pieces" },
    { "link with a size", link_with_size, "which has no content, with a size of" },
    { "size in base 256", base_256_size, "a name with a NUL byte in it: 'a" },
    { "extended header too long", long_pax, "an extended tar header of 1048577 bytes" },
    { "broken extended headers", broken_pax, NULL },
};

static void test_streams(void **state)
{
    static const size_t pieces[] = { 1, 7, 511, 512, 513, 65536 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tar t = { .len = 0 };

        cases[i].make(&t);
        for (size_t p = 0; p < ARRAY_SIZE(pieces); p++) {
            struct hutch_err err = { 0 };
            struct targuard guard;
            int rc = 0;

            print_message("%s, %zu bytes at a time\n", cases[i].label, pieces[p]);
            assert_int_equal(hutch_targuard_open(&guard, &err), 0);
            for (size_t at = 0; at < t.len && rc == 0; at += pieces[p])
                rc = hutch_targuard_feed(&guard, t.bytes + at, t.len - at < pieces[p] ? t.len - at : pieces[p], &err);
            assert_int_equal(rc, cases[i].want ? -1 : 0);
            if (cases[i].want)
                assert_non_null(strstr(err.msg, cases[i].want));
            hutch_targuard_done(&guard);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_streams) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
