/* test_hosts.c - what a sandbox's /etc/hosts says: its own name, localhost, and what the image's file has besides. */
#include "sandbox/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define V4 "127.0.0.1 localhost\n"
#define V6 "::1 localhost ip6-localhost ip6-loopback\n"
#define OWN "127.0.1.1 box\n"

static const struct { const char *label, *given, *name; bool has_ipv6; const char *want; } rows[] = {
    { "no file", "", "box", true, V4 V6 OWN },
    { "no file, a kernel without IPv6", "", "box", false, V4 OWN },
    { "Debian's", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n", "box", true,
      OWN "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n" },
    { "comments and other hosts stay", "# x box\n10.0.0.1 db # box\n", "box", false,
      V4 OWN "# x box\n10.0.0.1 db # box\n" },
    { "a build machine's line for the name", "172.17.0.2 BOX buildkit\n10.0.0.1 db\n", "box", false,
      V4 OWN "10.0.0.1 db\n" },
    { "localhost on that line is not lost", "127.0.0.1 localhost box\n", "box", false, V4 OWN },
    { "a longer name is another", "10.0.0.1 box.example boxer\n", "box", false, V4 OWN "10.0.0.1 box.example boxer\n" },
    { "no newline at the end", "10.0.0.1 db", "box", false, V4 OWN "10.0.0.1 db\n" },
    { "line ends of another system", "127.0.0.1 localhost\r\n", "box", false, OWN "127.0.0.1 localhost\r\n" },
    { "localhost by another address", "127.0.0.2 localhost\n", "box", false, V4 OWN "127.0.0.2 localhost\n" },
    { "the name is localhost", "", "localhost", false, V4 },
    { "a name that is several words", "", "a b\n6.6.6.6 db", false, V4 },
    { "a name that is a comment", "", "#", false, V4 },
    { "no name", "", "", false, V4 },
    { "an address alone", "10.0.0.1\n\n \n", "10.0.0.1", false, V4 "127.0.1.1 10.0.0.1\n10.0.0.1\n\n \n" },
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *buf = malloc(HOSTS_MAX + 1);
        size_t n = hutch_hosts_format(rows[i].given, strlen(rows[i].given), rows[i].name, rows[i].has_ipv6, buf);

        buf[n] = '\0';
        if (strcmp(buf, rows[i].want) != 0)
            fail_msg("%s: got\n%swanted\n%s", rows[i].label, buf, rows[i].want);
        free(buf);
    }
}

/* The image is a stranger's: any length and any bytes, in a buffer of HOSTS_MAX. */
static void test_hostile_files(void **state)
{
    static const char patterns[][8] = { "\n", "a", "#", " box", "box\n", "\0\n", "1 box\n", "127\n" };
    static const size_t sizes[] = { HOSTS_MAX_GIVEN - 1, HOSTS_MAX_GIVEN, HOSTS_MAX_GIVEN + 1 };
    char name[65];

    (void)state;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            size_t step = i == 5 ? 2 : strlen(patterns[i]), n;
            char *given = malloc(sizes[j]), *buf = malloc(HOSTS_MAX); /* exact: a sanitizer sees one byte more */

            for (size_t k = 0; k < sizes[j]; k++)
                given[k] = patterns[i][k % step];
            n = hutch_hosts_format(given, sizes[j], name, true, buf);
            assert_true(n >= sizeof(V4 V6) - 1 && n <= HOSTS_MAX);
            assert_memory_equal(buf, V4 V6 "127.0.1.1 nnn", sizeof(V4 V6 "127.0.1.1 nnn") - 1);
            assert_int_equal(buf[n - 1], '\n');
            free(given);
            free(buf);
        }
}

/* A file that is too long is cut after its last whole line that fits. */
static void test_a_file_that_is_too_long(void **state)
{
    static const char line[] = "10.0.0.1 db\n";
    char *given = malloc(HOSTS_MAX_GIVEN + 1), *buf = malloc(HOSTS_MAX);
    size_t n;

    (void)state;
    for (size_t i = 0; i < HOSTS_MAX_GIVEN + 1; i++)
        given[i] = line[i % (sizeof(line) - 1)];
    n = hutch_hosts_format(given, HOSTS_MAX_GIVEN + 1, "box", false, buf);
    assert_int_equal((n - (sizeof(V4 OWN) - 1)) % (sizeof(line) - 1), 0);
    assert_memory_equal(buf + n - (sizeof(line) - 1), line, sizeof(line) - 1);
    free(given);
    free(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_a_file_that_is_too_long),
    };

    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
