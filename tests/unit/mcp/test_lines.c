/* test_lines.c - bytes in pieces of any length become the same lines, and a line without end becomes none. */
#include "runtime/mcp/lines.h"

#include "runtime/text/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX 8

/* Lines as they come, each between brackets; '!' for one that is too long. */
static void on_line(void *owner, const char *line, size_t len)
{
    hutch_text_addf(owner, "[%.*s]", (int)len, line);
}

static void on_long(void *owner)
{
    hutch_text_add_string(owner, "!");
}

static const struct line_events events = { on_line, on_long };

static const struct { const char *text, *want; } rows[] = {
    { "a\nbc\n", "[a][bc]" },
    { "a\r\n\r\n\n\nb\n", "[a][b]" },
    { "a", "" },                         /* it has not ended */
    { "12345678\nx\n", "[12345678][x]" },
    { "123456789\nx\n", "![x]" },
    { "123456789", "!" },
    { "1234567890123456789012345\n\n123456789\nok\n", "!![ok]" },
    { "a\rb\n", "[a\rb]" },
};

static void test_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t step = 1; step <= strlen(rows[i].text); step++) {
            struct text_buffer seen = TEXT_BUFFER_INIT;
            struct lines l;

            hutch_lines_init(&l, &events, &seen, MAX);
            hutch_text_add(&seen, "", 0);
            for (size_t at = 0; at < strlen(rows[i].text); at += step) {
                size_t left = strlen(rows[i].text) - at, len = left < step ? left : step;
                char *piece = malloc(len);

                memcpy(piece, rows[i].text + at, len);
                assert_int_equal(hutch_lines_feed(&l, piece, len), 0);
                assert_true(l.len <= MAX);
                free(piece);
            }
            assert_string_equal(seen.data, rows[i].want);
            hutch_lines_done(&l);
            hutch_text_done(&seen);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
