/* test_mark.c - the end of what a shell says is found however its bytes come, and nothing else is taken for it. */
#include "runtime/e2b/mark.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define ID "aaaaabbbbbcccccddddde"
#define E "\036"

_Static_assert(sizeof(ID) == ID_LEN + 1, "the id of this test has not the length of ids");

static const struct { const char *label, *said, *text; int status; } cases[] = {
    { "nothing but it", E ID " 0" E, "", 0 },
    { "text before it", "out\n" E ID " 127" E, "out\n", 127 },
    { "what comes behind it is dropped", "a" E ID " 3" E "b", "a", 3 },
    { "an edge alone", E "a" E E ID " 1" E, E "a" E, 1 },
    { "its beginning, twice", E "aaaaab" E "aaaa" E ID " 1" E, E "aaaaab" E "aaaa", 1 },
    { "no status", E ID " " E E ID " 2" E, E ID " " E, 2 },
    { "a long status", E ID " 1234" E E ID " 5" E, E ID " 1234" E, 5 },
    { "a status that is no number", E ID " -1" E E ID " 6" E, E ID " -1" E, 6 },
    { "another id", E "aaaaabbbbbcccccdddddf 1" E, E "aaaaabbbbbcccccdddddf 1" E, -1 },
    { "none", "text", "text", -1 },
    { "half of one", "text" E "aaa", "text" E "aaa", -1 },
    { "all but its end", E ID " 255", E ID " 255", -1 },
};

static void take_in_pieces(size_t at, size_t piece)
{
    struct mark mark = { .id = ID };
    struct text_buffer t = TEXT_BUFFER_INIT;
    const char *said = cases[at].said;

    for (size_t i = 0, n; i < strlen(said); i += n) {
        n = strlen(said) - i < piece ? strlen(said) - i : piece;
        hutch_e2b_mark_take(&mark, said + i, n, &t);
        assert_true(mark.n_held <= MARK_MAX);
    }
    hutch_e2b_mark_flush(&mark, &t);
    assert_int_equal(mark.is_found ? mark.status : -1, cases[at].status);
    assert_int_equal(t.len, strlen(cases[at].text));
    assert_memory_equal(t.len ? t.data : "", cases[at].text, t.len);
    hutch_text_done(&t);
}

static void test_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("  %s\n", cases[i].label);
        for (size_t piece = 1; piece <= strlen(cases[i].said); piece++)
            take_in_pieces(i, piece);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
