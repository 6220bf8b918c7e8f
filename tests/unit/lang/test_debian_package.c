/* Packages of Debian: names and versions, and a sentence for what apt would take for something else. */
#include "runtime/lang/debian_package.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct { const char *label, *text, *want; } words[] = {
    { "one", "graphviz", "graphviz" },
    { "several, sorted", "lua5.4,g++, libc6-dev=2.41-12~bpo1 ", "g++ libc6-dev=2.41-12~bpo1 lua5.4" },
    { "a name that another begins with", "ab,a1-x,a1", "a1 a1-x ab" },
    { "an epoch", "bind9=1:9.20.4-4+b1", "bind9=1:9.20.4-4+b1" },
    { "twice the same", "a1,a1", "a1" },
    { "twice", "a1,a1=2", "is asked for twice, as 'a1' and as 'a1=2'" },
    { "nothing", "", "'' is no name of a package of Debian" },
    { "nothing between", "aa,,bb", "'' is no name" },
    { "spaces alone", "   ", "'' is no name" },
    { "one letter", "a", "'a' is no name" },
    { "an option", "--allow-unauthenticated", "'--allow-unauthenticated' is no name" },
    { "to be removed", "dpkg-", "'dpkg-' is no name" },
    { "a pattern", "lib.*", "'lib.*' is no name" },
    { "apt's own pattern", "~napt", "'~napt' is no name" },
    { "another release", "aa/sid", "'aa/sid' is no name" },
    { "another architecture", "aa:i386", "'aa:i386' is no name" },
    { "a file", "./x.deb", "'./x.deb' is no name" },
    { "a path", "/etc/x.deb", "'/etc/x.deb' is no name" },
    { "a capital", "Xorg", "'Xorg' is no name" },
    { "a space within", "aa bb", "'aa bb' is no name" },
    { "a line", "aa\nbb", "is no name" },
    { "no version", "aa=", "what follows '=' is no version" },
    { "a version that is none", "aa=*", "is no version" },
    { "a version of a letter", "aa=x1", "is no version" },
    { "a version with a space", "aa=1 2", "is no version" },
};

static void join(const struct debian_packages *packages, char *ret, size_t size)
{
    size_t len = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < packages->n && len < size; i++)
        len += (size_t)snprintf(ret + len, size - len, "%s%s", i ? " " : "", packages->texts[i]);
}

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        auto_debian_packages packages = DEBIAN_PACKAGES_INIT;
        struct hutch_err err = { .msg = "" };
        char got[400];
        int rc = hutch_debian_packages_add(&packages, words[i].text, &err);

        join(&packages, got, sizeof(got));
        if (rc == 0 ? strcmp(got, words[i].want) != 0 : !strstr(err.msg, words[i].want))
            fail_msg("%s: %s", words[i].label, rc == 0 ? got : err.msg);
    }
}

static void test_bounds(void **state)
{
    auto_debian_packages packages = DEBIAN_PACKAGES_INIT;
    char text[DEBIAN_PACKAGE_MAX_TEXT + 2];
    struct hutch_err err;

    (void)state;
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(hutch_debian_packages_add(&packages, text, &err), -1);
    text[DEBIAN_PACKAGE_MAX_TEXT] = '\0';
    assert_int_equal(hutch_debian_packages_add(&packages, text, &err), 0);
    for (int i = 1; i <= DEBIAN_PACKAGES_MAX; i++) {
        snprintf(text, sizeof(text), "p%d", i);
        assert_int_equal(hutch_debian_packages_add(&packages, text, &err), i < DEBIAN_PACKAGES_MAX ? 0 : -1);
    }
    assert_string_equal(err.msg, "more than 256 packages");
}

static void test_labels(void **state)
{
    static const char *const good[] = { "trixie", "amd64", "forky-updates", "14.04" };
    static const char *const bad[] = { "", "-o", "a b", "A", "a;b", "a/b", "\303\244" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(hutch_debian_is_label(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(hutch_debian_is_label(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_labels),
    };

    return cmocka_run_group_tests_name("debian_package", tests, NULL, NULL);
}
