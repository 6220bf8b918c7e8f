/* .hutchignore: what its lines hold back, and those that are refused. */
#include "runtime/text/ignore.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_what_is_held_back(void **state)
{
    static const struct { const char *text, *path; bool want; } cases[] = {
        { "secret", "secret", true },
        { "secret", "a/b/secret", true },
        { "secret", "secret/key", true }, /* with its directory */
        { "secret", "secrets", false },
        { "secret", "a/secret.txt", false },
        { "*.pem", "a/k.pem", true },
        { "*.pem", ".pem", true },
        { "*.pem", "k.pem.txt", false },
        { ".env*", "a/.env.local", true },
        { "?.py", "a.py", true },
        { "?.py", "ab.py", false },
        { "a*b*c", "axxbyybzc", true },
        { "a*b*c", "axxbyyb", false },
        { "/data", "data", true },
        { "/data", "a/data", false },
        { "a/*.csv", "a/x.csv", true },
        { "a/*.csv", "a/b/x.csv", false }, /* a star does not reach over a slash */
        { "a/*.csv", "b/a/x.csv", false },
        { "*/x", "a/x", true },
        { "*/x", "a/b/x", false },
        { "a?b/c", "a/b/c", false },
        { "build/", "build", false }, /* a file */
        { "build/", "a/build/x", true },
        { "/a/build/", "a/build/x", true },
        { "/a/build/", "b/a/build/x", false },
        { "# secret\n\n  \nother\r\n", "secret", false },
        { "# secret\n\n  \nother\r\n", "other", true },
        { "\xef\xbb\xbfsecret\n", "secret", true },
        { "secret  \t\nx", "secret", true },
        { "\xff*", "\xff\xfe", true },
        { "", "a", false },
        { "*", "a/b", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ignore_list list;
        struct hutch_err err;

        if (hutch_ignore_parse(cases[i].text, strlen(cases[i].text), &list, &err) < 0)
            fail_msg("%zu: %s", i, err.msg);
        if (hutch_ignore_holds_back(&list, cases[i].path) != cases[i].want)
            fail_msg("%zu: '%s' of '%s'", i, cases[i].path, cases[i].text);
        hutch_ignore_done(&list);
    }
}

static void test_what_is_refused(void **state)
{
    static const struct { const char *text; size_t len; const char *says; } cases[] = {
        { "a\n!b", 4, "line 2 of .hutchignore, '!b': '!' brings nothing back" },
        { "a\0b", 3, "line 1 of .hutchignore, 'a': there is a NUL" },
        { "[ab]", 4, "there are '*' and '?'" },
        { "a\\*", 3, "there are '*' and '?'" },
        { "a/**/b", 6, "'**' is not known" },
        { " a", 2, "it begins with a blank" },
        { "\ta", 2, "it begins with a blank" },
        { "a # b", 5, "a remark is a line of its own" },
        { "{a,b}", 5, "'{'" },
        { "/", 1, "a path has neither" },
        { "//", 2, "a path has neither" },
        { "a//b", 4, "a path has neither" },
        { "./a", 3, "a path has neither" },
        { "a/..", 4, "a path has neither" },
        { "..", 2, "a path has neither" },
    };
    static char large[IGNORE_MAX_BYTES + 1];
    struct ignore_list list;
    struct hutch_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(hutch_ignore_parse(cases[i].text, cases[i].len, &list, &err), -1);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%zu: %s", i, err.msg);
    }
    memset(large, 'a', sizeof(large));
    assert_int_equal(hutch_ignore_parse(large, IGNORE_MAX_PATTERN, &list, &err), 0);
    hutch_ignore_done(&list);
    assert_int_equal(hutch_ignore_parse(large, IGNORE_MAX_PATTERN + 1, &list, &err), -1);
    assert_non_null(strstr(err.msg, "255 bytes at most"));
    memset(large, '\n', sizeof(large));
    assert_int_equal(hutch_ignore_parse(large, IGNORE_MAX_LINES, &list, &err), 0);
    assert_int_equal(list.n, 0);
    hutch_ignore_done(&list);
    assert_int_equal(hutch_ignore_parse(large, IGNORE_MAX_LINES + 1, &list, &err), -1);
    assert_int_equal(err.errnum, E2BIG);
    assert_int_equal(hutch_ignore_parse(large, sizeof(large), &list, &err), -1);
    assert_int_equal(err.errnum, E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_held_back),
        cmocka_unit_test(test_what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
