/* test_filter.c - what hostile code may show on a terminal: text and colours, and nothing that the terminal
 * obeys. */
#include "runtime/term/filter.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct shown {
    char text[4096];
    size_t len;
};

static void show(void *user, const char *text, size_t len)
{
    struct shown *s = user;

    assert_true(len > 0);
    assert_true(s->len + len < sizeof(s->text));
    memcpy(s->text + s->len, text, len);
    s->len += len;
}

#define FFFD "\xef\xbf\xbd"

static const struct {
    const char *label, *text, *want;
} cases[] = {
    { "text", "hello\tworld\n", "hello\tworld\n" },
    { "letters of every length", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
    { "progress bar", "10%\r20%\r\n", "10%\r20%\r\n" },
    { "colour", "\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m" },
    { "256 colours, true colour", "\x1b[38;5;214mx\x1b[38:2::1:2:3my\x1b[m",
      "\x1b[38;5;214mx\x1b[38:2::1:2:3my\x1b[m" },
    { "colour that is left on", "\x1b[1;31mred", "\x1b[1;31mred\x1b[0m" },
    { "title", "\x1b]0;owned\a", "^[]0;owned^G" },
    { "clipboard", "\x1b]52;c;Zm9v\x1b\\", "^[]52;c;Zm9v^[\\" },
    { "report that comes back as if it were typed", "\x1b[6n\x1b[c\x1bP$q\"p\x1b\\", "^[[6n^[[c^[P$q\"p^[\\" },
    { "clear, cursor, scroll region", "\x1b[2J\x1b[H\x1b[1;2r", "^[[2J^[[H^[[1;2r" },
    { "alternate screen", "\x1b[?1049h", "^[[?1049h" },
    { "private parameter that ends in m", "\x1b[>4;2m", "^[[>4;2m" }, /* xterm: what keys send */
    { "image", "\x1b_Ga=T,f=100;AAAA\x1b\\", "^[_Ga=T,f=100;AAAA^[\\" },
    { "reset",
      "\x1b"
      "c",
      "^[c" },
    { "escape at the end", "x\x1b", "x^[" },
    { "half a sequence at the end", "x\x1b[31", "x^[[31" },
    { "escape within a sequence", "\x1b[3\x1b[31mx\x1b[0m", "^[[3\x1b[31mx\x1b[0m" },
    { "escape twice", "\x1b\x1b[31m", "^[\x1b[31m\x1b[0m" },
    { "newline within a sequence", "\x1b[3\nm", "^[[3\nm" },
    { "controls of C0", "\a\b\v\f\x0e\x7f", "^G^H^K^L^N^?" },
    { "controls of C1",
      "\xc2\x9b"
      "31m\xc2\x9d"
      "0;x\xc2\x90\xc2\x85",
      "\\x9b31m\\x9d0;x\\x90\\x85" },
    { "controls of C1 as bytes",
      "\x9b"
      "31m\x9d",
      FFFD "31m" FFFD },
    { "overlong escape", "\xc1\x9b[2J\xe0\x80\x9b[2J", FFFD FFFD "[2J" FFFD FFFD FFFD "[2J" },
    { "surrogate, and above the last", "\xed\xa0\x80\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD FFFD FFFD FFFD },
    { "letter that is cut", "\xe2\x82", FFFD },
    { "letter that is cut by a letter", "\xe2\x82x\xf0\x9f\xc3\xa9", FFFD "x" FFFD "\xc3\xa9" },
    { "letter that is cut by a sequence", "\xe2\x1b[31mx\x1b[m", FFFD "\x1b[31mx\x1b[m" },
    { "text that is read backwards",
      "a\xe2\x80\xae"
      "b\xe2\x81\xa6"
      "c",
      "a\\u202eb\\u2066c" },
    { "sequence that is too long", "\x1b[1111111111111111111111111111111111111111111111111111111111111111111111111m",
      "^[[1111111111111111111111111111111111111111111111111111111111111111111111111m" },
};

static void check(const char *label, const char *got, size_t len, const char *want)
{
    if (len != strlen(want) || memcmp(got, want, len) != 0)
        fail_msg("%s: got '%.*s', wanted '%s'", label, (int)len, got, want);
}

/* In one piece, and cut at every place. */
static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = strlen(cases[i].text);

        for (size_t cut = 0; cut <= len; cut++) {
            struct term_filter filter = { .has_colours = true, .has_utf8 = true };
            struct shown shown = { .len = 0 };

            hutch_term_filter(&filter, cases[i].text, cut, show, &shown);
            hutch_term_filter(&filter, cases[i].text + cut, len - cut, show, &shown);
            hutch_term_filter_end(&filter, show, &shown);
            check(cases[i].label, shown.text, shown.len, cases[i].want);
        }
    }
}

static void test_nul_bytes(void **state)
{
    struct term_filter filter = { .has_colours = true, .has_utf8 = true };
    struct shown shown = { .len = 0 };

    (void)state;
    hutch_term_filter(&filter, "a\0b", 3, show, &shown);
    check("NUL", shown.text, shown.len, "a^@b");
}

static void test_without_colours(void **state)
{
    static const char text[] = "\x1b[31mred\x1b[0m \x1b[2J\x1b[1mend";
    struct term_filter filter = { .has_utf8 = true };
    struct shown shown = { .len = 0 };

    (void)state;
    hutch_term_filter(&filter, text, strlen(text), show, &shown);
    hutch_term_filter_end(&filter, show, &shown);
    check("without colours", shown.text, shown.len, "red ^[[2Jend");
}

/* In such a terminal the second byte of U+011B is the control character that begins a sequence. */
static void test_without_utf8(void **state)
{
    static const char text[] = "\xc4\x9b" "2J \xf0\x9f\x98\x80 \x80 \xc3\xa9";
    struct term_filter filter = { .has_colours = true };
    struct shown shown = { .len = 0 };

    (void)state;
    hutch_term_filter(&filter, text, strlen(text), show, &shown);
    hutch_term_filter_end(&filter, show, &shown);
    check("without UTF-8", shown.text, shown.len, "\\u011b2J \\U0001f600 \xef\xbf\xbd \xc3\xa9");
}

/* Whatever the bytes are, what comes out has no control character but the four, and no escape that is not a
 * colour's. */
static void test_random_bytes(void **state)
{
    uint64_t seed = 0x9e3779b97f4a7c15;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        static const char often[] = "\x1b\x1b[[]m;:012\x9b\xc2\xc4\xe2\xf0\n\rP_\\\a";
        struct term_filter filter = { .has_colours = true, .has_utf8 = true };
        struct shown shown = { .len = 0 };
        char text[64];

        for (size_t i = 0; i < sizeof(text); i++) {
            seed = seed * 6364136223846793005 + 1442695040888963407;
            text[i] = seed >> 63 ? (char)(seed >> 40) : often[(seed >> 40) % (sizeof(often) - 1)];
        }
        hutch_term_filter(&filter, text, sizeof(text), show, &shown);
        hutch_term_filter_end(&filter, show, &shown);
        for (size_t i = 0; i < shown.len; i++) {
            unsigned char c = (unsigned char)shown.text[i];

            if (c == 0x1b) {
                assert_int_equal(shown.text[i + 1], '[');
                i += 2 + strspn(shown.text + i + 2, "0123456789;:");
                assert_int_equal(shown.text[i], 'm');
            } else if (c < 0x20) {
                assert_non_null(strchr("\n\r\t", c));
            } else {
                assert_int_not_equal(c, 0x7f);
                assert_false(c == 0xc2 && (unsigned char)shown.text[i + 1] < 0xa0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_without_colours),
        cmocka_unit_test(test_without_utf8),
        cmocka_unit_test(test_random_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
