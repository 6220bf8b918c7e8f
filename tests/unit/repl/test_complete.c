/* test_complete.c - what is taken of the words that an interpreter proposes. */
#include "runtime/repl/complete.h"

#include "sandbox/fd.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_answers(void **state)
{
    static const struct {
        const char *label, *line, *answer, *words, *rest; /* words: each with a blank behind it */
    } rows[] = {
        { "one", "x = so", "so\nsorted", "sorted ", "rted" },
        { "none", "x = so", "so", "", NULL },
        { "an empty answer", "x = so", "", "", NULL },
        { "all begin alike", "a.is", "a.is\na.isalnum\na.isalpha", "a.isalnum a.isalpha ", "al" },
        { "and differ at once", "is", "is\nisalnum\nisdigit", "isalnum isdigit ", NULL },
        { "one is the beginning of the other", "is", "is\nisa\nisab", "isa isab ", "a" },
        { "twice", "so", "so\nsorted\nsorted", "sorted ", "rted" },
        { "not within a letter", "x", "x\nx\xc3\xa8\nx\xc3\xa0", "x\xc3\xa8 x\xc3\xa0 ", NULL },
        { "another word than was typed", "so", "xx\nxxyy", "", NULL },
        { "a longer one than the line", "so", "ssso\nssso1", "", NULL },
        { "a word that begins otherwise", "so", "so\n%reset\nsorted", "sorted ", "rted" },
        { "nothing but what was typed", "so", "so\nso\n\n", "", NULL },
        { "an escape sequence", "so", "so\nso\x1b[2J\nsorted", "sorted ", "rted" },
        { "Return", "so", "so\nso\r%reset\nsorted", "sorted ", "rted" },
        { "C1", "so", "so\nso\xc2\x9b\nsorted", "sorted ", "rted" },
        { "backwards", "so", "so\nso\xe2\x80\xae\nsorted", "sorted ", "rted" },
        { "blanks", "so", "so\nso rm\nso\u00a0rm\nso\u3000rm\nsorted", "sorted ", "rted" },
        { "letters that are blank", "so", "so\nso\u115fx\nso\u1160x\nso\u3164x\nso\uffa0x\nso\u2800x\nsorted",
          "sorted ", "rted" },
        { "what is not seen", "so",
          "so\nso\u00adx\nso\u034fx\nso\u17b4x\nso\u180bx\nso\u200bx\nso\u2060x\nso\ufe0fx\nso\ufeffx\n"
          "so\U000e0041x\nsorted",
          "sorted ", "rted" },
        { "another statement", "so", "so\nso;x\nso!x\nso(x)\nso|x\nsorted", "sorted ", "rted" },
        { "letters", "na", "na\nna\u00efve_\u4e2d\u6587", "na\u00efve_\u4e2d\u6587 ", "\u00efve_\u4e2d\u6587" },
        { "a path", "open('da", "'da\n'data/a-b.csv'", "'data/a-b.csv' ", "ta/a-b.csv'" },
        { "a key", "d['k", "d['k\nd['key']", "d['key'] ", "ey']" },
        { "an argument", "f(ke", "ke\nkey=", "key= ", "y=" },
        { "a magic", "%%ti", "%%ti\n%%timeit", "%%timeit ", "meit" },
        { "no UTF-8", "so", "so\nso\xff\nso\xc3\nsorted", "sorted ", "rted" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct completion c = { .n = 0 };
        auto_free char *rest = NULL;
        char words[200] = "";

        hutch_completion_add(&c, rows[i].line, strlen(rows[i].line), rows[i].answer);
        for (size_t j = 0; j < c.n; j++)
            strcat(strcat(words, c.words[j]), " ");
        rest = hutch_completion_rest(&c);
        if (strcmp(words, rows[i].words) != 0 || !rest != !rows[i].rest || (rest && strcmp(rest, rows[i].rest) != 0))
            fail_msg("%s: words '%s', rest '%s'", rows[i].label, words, rest ? rest : "(none)");
        hutch_completion_done(&c);
    }
}

static void test_bounds(void **state)
{
    struct completion c = { .n = 0 };
    char answer[COMPLETE_MAX_LEN * 4] = "w\nw", many[COMPLETE_MAX_WORDS * 8 + 64] = "w";
    size_t len = 1;

    (void)state;
    memset(answer + 3, 'a', COMPLETE_MAX_LEN);
    hutch_completion_add(&c, "w", 1, answer);
    assert_int_equal(c.n, 0);
    answer[2 + COMPLETE_MAX_LEN] = '\0';
    hutch_completion_add(&c, "w", 1, answer);
    assert_int_equal(c.n, 1);
    hutch_completion_done(&c);
    for (int i = 0; i <= COMPLETE_MAX_WORDS; i++) {
        assert_int_equal(c.is_cut, false);
        len += (size_t)snprintf(many + len, sizeof(many) - len, "\nw_%d", i);
    }
    hutch_completion_add(&c, "w", 1, many);
    assert_int_equal(c.n, COMPLETE_MAX_WORDS);
    assert_true(c.is_cut);
    assert_null(hutch_completion_rest(&c)); /* what is not there may begin otherwise */
    hutch_completion_done(&c);
}

/* What the interpreter says is hostile: what is not of the form proposes nothing. */
static void test_replies(void **state)
{
    static const struct {
        const char *label, *line, *json, *words;
    } rows[] = {
        { "one", "x = so", "{\"cursor_start\":4,\"matches\":[\"sorted\"]}", "sorted " },
        { "letters of two bytes", "\u00e4 = so", "{\"cursor_start\":4,\"matches\":[\"sorted\"]}", "sorted " },
        { "the whole line", "so", "{\"cursor_start\":0,\"matches\":[\"sorted\",\"source\"]}", "sorted source " },
        { "beyond the line", "so", "{\"cursor_start\":7,\"matches\":[\"sorted\"]}", "sorted " },
        { "a line's end", "so", "{\"cursor_start\":0,\"matches\":[\"sorted\\n%reset\",\"source\"]}", "source " },
        { "NUL", "so", "{\"cursor_start\":0,\"matches\":[\"so\\u0000rt\",\"source\"]}", "source " },
        { "no place", "so", "{\"matches\":[\"sorted\"]}", "" },
        { "a place before the line", "so", "{\"cursor_start\":-1,\"matches\":[\"sorted\"]}", "" },
        { "no list", "so", "{\"cursor_start\":0,\"matches\":\"sorted\"}", "" },
        { "no texts", "so", "{\"cursor_start\":0,\"matches\":[1,{},[\"sorted\"]]}", "" },
        { "no object", "so", "[]", "" },
        { "no JSON", "so", "{", "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct completion c = { .n = 0 };
        char words[200] = "";

        hutch_completion_read(&c, rows[i].line, strlen(rows[i].line), rows[i].json);
        for (size_t j = 0; j < c.n; j++)
            strcat(strcat(words, c.words[j]), " ");
        if (strcmp(words, rows[i].words) != 0)
            fail_msg("%s: words '%s'", rows[i].label, words);
        hutch_completion_done(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_bounds),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
