/* test_blocks.c - pictures as half blocks: their size, their colours, and nothing else. */
#include "runtime/term/blocks.h"

#include "runtime/term/png.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HALF "\xe2\x96\x80"

/* Two wide and three high: red and white, green and half of a black on paper, blue and nothing. */
static unsigned char pixels[] = {
    255, 0, 0, 255, 255, 255, 255, 255, 0, 255, 0, 255, 0, 0, 0, 128, 0, 0, 255, 255, 9, 9, 9, 0,
};
static const struct png_image image = { 2, 3, pixels };

static void test_colours(void **state)
{
    static const struct {
        bool has_all_colours;
        const char *want;
    } rows[] = {
        { true, "\x1b[38;2;255;0;0m\x1b[48;2;0;255;0m" HALF
                "\x1b[38;2;255;255;255m\x1b[48;2;127;127;127m" HALF "\x1b[0m\n"
                "\x1b[38;2;0;0;255m" HALF "\x1b[38;2;255;255;255m" HALF "\x1b[0m" },
        { false, "\x1b[38;5;196m\x1b[48;5;46m" HALF "\x1b[38;5;231m\x1b[48;5;102m" HALF "\x1b[0m\n"
                 "\x1b[38;5;21m" HALF "\x1b[38;5;231m" HALF "\x1b[0m" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct blocks_screen screen = { 80, 24, rows[i].has_all_colours };
        size_t len;
        auto_free char *text = hutch_blocks_encode(&image, &screen, &len);

        assert_non_null(text);
        assert_string_equal(text, rows[i].want);
        assert_int_equal(len, strlen(text));
    }
}

static void count(const char *text, unsigned *ret_columns, unsigned *ret_rows)
{
    unsigned n = 0;

    *ret_columns = 0;
    *ret_rows = 1;
    for (const char *p = text; *p; p++)
        if (strncmp(p, HALF, 3) == 0)
            n++;
        else if (*p == '\n')
            ++*ret_rows;
    *ret_columns = n / *ret_rows;
}

static void test_sizes(void **state)
{
    static const struct {
        unsigned width, height, columns, rows, want_columns, want_rows;
    } rows[] = {
        { 640, 480, 80, 23, 61, 23 },     /* as high as the window */
        { 640, 480, 80, 100, 80, 30 },    /* as wide */
        { 10, 4, 80, 23, 10, 2 },         /* not larger than it is */
        { 1, 1000, 80, 23, 1, 23 },
        { 1000, 1, 80, 23, 80, 1 },
        { 2000, 2000, 9999, 9999, BLOCKS_MAX_COLUMNS, BLOCKS_MAX_ROWS },
        { 20, 20, 1, 1, 1, 1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct png_image grey = { rows[i].width, rows[i].height, calloc(4, (size_t)rows[i].width * rows[i].height) };
        struct blocks_screen screen = { rows[i].columns, rows[i].rows, false };
        auto_free char *text = NULL;
        unsigned columns, n_rows;
        size_t len;

        assert_non_null(grey.pixels);
        text = hutch_blocks_encode(&grey, &screen, &len);
        assert_non_null(text);
        count(text, &columns, &n_rows);
        if (columns != rows[i].want_columns || n_rows != rows[i].want_rows)
            fail_msg("row %zu: %u columns and %u rows", i, columns, n_rows);
        free(grey.pixels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colours),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
