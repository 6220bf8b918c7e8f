/* test_mime.c - types by name and by content. */
#include "sandbox/fd.h"
#include "runtime/data/mime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_by_name(void **state)
{
    static const struct { const char *path, *want; } cases[] = {
        { "chart.png", "image/png" },
        { "CHART.PNG", "image/png" },
        { "a/b.d/table.csv", "text/csv" },
        { "a.csv/noext", NULL }, /* the dot is the directory's */
        { "report.tar.gz", "application/gzip" },
        { ".csv", NULL }, /* a hidden file's name is no extension */
        { "dir/.json", NULL },
        { "..csv", "text/csv" },
        { "csv", NULL },
        { "x.", NULL },
        { "x.png ", NULL },
        { "x.pngpng", NULL },
        { "x.pn", NULL },
        { "", NULL },
        { "/", NULL },
        { "\xff\xfe.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
        { "nb.ipynb", "application/x-ipynb+json" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *got = hutch_mime_by_name(cases[i].path);

        if (cases[i].want == NULL ? got != NULL : got == NULL || strcmp(got, cases[i].want) != 0)
            fail_msg("'%s': got %s, want %s", cases[i].path, got ? got : "none",
                     cases[i].want ? cases[i].want : "none");
    }
}

#define BYTES(text) text, sizeof(text) - 1
static void test_by_content(void **state)
{
    static const struct { const char *label, *head; size_t len; bool is_whole; const char *want; } cases[] = {
        { "png", BYTES("\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), false, "image/png" },
        { "png cut", BYTES("\x89PNG\r\n\x1a"), true, "application/octet-stream" },
        { "jpeg", BYTES("\xff\xd8\xff\xe0"), false, "image/jpeg" },
        { "gif", BYTES("GIF89a..."), false, "image/gif" },
        { "webp", BYTES("RIFF....WEBPVP8 "), false, "image/webp" },
        { "pdf", BYTES("%PDF-1.7\n%\xe2\xe3"), false, "application/pdf" },
        { "zip", BYTES("PK\x03\x04...."), false, "application/zip" },
        { "gzip", BYTES("\x1f\x8b\x08"), false, "application/gzip" },
        { "numpy", BYTES("\x93NUMPY\x01\0"), false, "application/x-npy" },
        { "script", BYTES("#!/bin/sh\n"), true, "text/x-script" },
        { "empty", BYTES(""), true, "application/x-empty" },
        { "text", BYTES("one\ntwo\tthree\r\n\f"), true, "text/plain" },
        { "coloured text", BYTES("\x1b[31mred\x1b[0m"), true, "text/plain" },
        { "utf-8", BYTES("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"), true, "text/plain" },
        { "utf-8 cut by the head", BYTES("ab\xe4\xb8"), false, "text/plain" },
        { "utf-8 cut by the file", BYTES("ab\xe4\xb8"), true, "application/octet-stream" },
        { "latin-1", BYTES("caf\xe9 noir"), true, "application/octet-stream" },
        { "overlong", BYTES("\xc0\x80"), true, "application/octet-stream" },
        { "nul", BYTES("a\0b"), true, "application/octet-stream" },
        { "delete", BYTES("a\x7f"), true, "application/octet-stream" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *got = hutch_mime_by_content(cases[i].head, cases[i].len, cases[i].is_whole);

        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: got %s, want %s", cases[i].label, got, cases[i].want);
    }
}

/* Every length of every kind of garbage, in a block of exactly that size, for the sanitizers. */
static void test_never_reads_past_the_end(void **state)
{
    uint32_t seed = 1;

    (void)state;
    for (size_t len = 0; len < 600; len++) {
        uint8_t *block = malloc(len + (len == 0));

        assert_non_null(block);
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1664525 + 1013904223;
            block[i] = (uint8_t)(seed >> 24);
        }
        assert_non_null(hutch_mime_by_content(block, len, len % 2 == 0));
        memset(block, 0xe4, len);
        assert_non_null(hutch_mime_by_content(block, len, false));
        free(block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_by_content),
        cmocka_unit_test(test_never_reads_past_the_end),
    };

    return cmocka_run_group_tests_name("mime", tests, NULL, NULL);
}
