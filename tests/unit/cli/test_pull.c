/* What `hutch rootfs pull` makes of what it is asked for, and of what skopeo says. */
#include "runtime/cli/pull_source.h"
#include "runtime/cli/skopeo.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SHA "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct {
    const char *text, *name, *asked; /* NULL: the same text */
} good[] = {
    { "docker://debian", "debian:latest", NULL },
    { "docker://debian:12", "debian:12", NULL },
    { "docker://registry.example:5000/team/app", "app:latest", NULL },
    { "docker://registry.example:5000/team/app:1.0", "app:1.0", NULL },
    { "docker://localhost:5000", "localhost:5000", NULL },
    { "docker://example.org/a/b@" SHA, "b@" SHA, NULL },
    { "docker://example.org:443/a/b:7@" SHA, "b:7", "docker://example.org:443/a/b@" SHA },
    { "docker://a/", "", NULL },
    { "docker://-x", "-x:latest", NULL }, /* the store's judge says that it is no name */
    { "docker-archive:app.tar", "app:latest", NULL },
    { "docker-archive:/srv/images/app.tar.gz:", "app:latest", NULL },
    { "docker-archive:/srv/app.tar:example.org/team/tool:2", "tool:2", NULL },
    { "docker-archive:/srv/app.tar:@1", "app:latest", NULL },
    { "oci:/srv/app", "app:latest", NULL },
    { "oci:/srv/app/:1.0", "app:1.0", NULL },
    { "oci:app:example.org/team/tool", "tool:latest", NULL },
    { "oci:.", "", NULL },
    { "oci:../..", "", NULL },
    { "oci:/", "", NULL },
    { "oci-archive:app.tgz:1", "app:1", NULL },
    { "dir:/srv/a:b", "a:b:latest", NULL }, /* all of it is the path */
    { "dir:app.tar", "app:latest", NULL },
    { "oci-archive:.tar", "", NULL },
    { "containers-storage:localhost/app", "app:latest", NULL },
    { "containers-storage:[overlay@/srv/store+/run/store]localhost/app:3", "app:3", NULL },
    { "containers-storage:localhost/app:3@" ID, "app:3", NULL },
    { "containers-storage:" ID, "", NULL },
    { "containers-storage:@" ID, "", NULL },
    { "containers-storage:localhost/app:3@" SHA, "app:3", NULL },
};

static void test_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct hutch_err err = { .msg = "" };
        struct pull_source source;

        if (hutch_pull_source_parse(good[i].text, &source, &err) < 0)
            fail_msg("%s: %s", good[i].text, err.msg);
        assert_string_equal(source.name, good[i].name);
        assert_string_equal(source.text, good[i].asked ? good[i].asked : good[i].text);
        assert_int_equal(source.is_registry, strncmp(good[i].text, "docker://", 9) == 0);
    }
}

static const struct { const char *text, *says; } bad[] = {
    { "", "begins with none of docker://, " },
    { "debian", "an image of a registry is docker://debian" },
    { "debian:12", "an image of a registry is docker://debian:12" },
    { "https://example.org/a", "an image of a registry is docker://NAME[:TAG]" },
    { "-", "begins with none of" },
    { "--debug", "begins with none of" },
    { "docker:debian", "is not of the form docker://" },
    { "docker://", "is not of the form docker://" },
    { "docker:///a", "is not of the form docker://" },
    { "oci:", "names no file" },
    { "oci::1", "names no file" },
    { "dir:", "names no directory" },
    { "containers-storage:", "names no image" },
    { "containers-storage:[overlay@/srv", "names no image" },
    { "containers-storage:[overlay@/srv]", "names no image" },
    { "docker-daemon:debian:12", "'docker-daemon:' is not taken: to ask Docker's daemon is to be as good as root" },
    { "sif:a", "'sif:' is not taken" },
    { "ostree:a", "'ostree:' is not taken" },
    { "tarball:a", "'tarball:' is not taken" },
    { "docker://a\nb", "has a control character" },
    { "oci:a\x1b[2J", "has a control character" },
    { "oci:a\xff", "is not UTF-8" },
};

static void test_refusals(void **state)
{
    char text[PULL_SOURCE_MAX + 2];
    struct hutch_err err;
    struct pull_source source;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(hutch_pull_source_parse(bad[i].text, &source, &err), -1);
        if (!strstr(err.msg, bad[i].says))
            fail_msg("%s: %s", bad[i].text, err.msg);
    }
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    memcpy(text, "docker://", 9);
    assert_int_equal(hutch_pull_source_parse(text, &source, &err), -1);
    assert_non_null(strstr(err.msg, "is longer than 1024 bytes"));
    text[PULL_SOURCE_MAX] = '\0';
    assert_int_equal(hutch_pull_source_parse(text, &source, &err), 0);
    assert_int_equal(strlen(source.name), PULL_SOURCE_MAX - 9 + strlen(":latest"));
}

static const struct { const char *text, *want; } words[] = {
    { "", "" },
    { "\n\n", "" },
    { "plain words", "plain words" },
    { "first\nlast\n", "last" },
    { "time=\"2026\" level=fatal msg=\"Get \\\"https://x/\\\": no such host\"\n", "Get \"https://x/\": no such host" },
    { "time=\"2026\" level=warning msg=\"a\"\ntime=\"2026\" level=fatal msg=\"b\\nc\\\\d\"", "b c\\d" },
    { "a msg=\"never closed", "never closed" },
    { "a msg=\"ends in \\", "ends in \\" },
    { "a msg=\"\"", "" },
};

static void test_last_words(void **state)
{
    char got[SKOPEO_MAX_WORDS + 1], *text;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        hutch_skopeo_last_words(words[i].text, strlen(words[i].text), got);
        assert_string_equal(got, words[i].want);
    }
    hutch_skopeo_last_words("a\0b", 3, got);
    assert_string_equal(got, "a b");

    /* A long one: its end, and no half of a letter. */
    for (size_t n = 300; n < 9000; n += 37) {
        assert_true(asprintf(&text, "%0*d", (int)n, 0) > 0);
        for (size_t i = 0; i + 1 < n - 5; i += 2)
            memcpy(text + i, "\xc3\xa4", 2);
        memcpy(text + n - 5, "cause", 5);
        hutch_skopeo_last_words(text, n, got);
        assert_true(strlen(got) <= SKOPEO_MAX_WORDS);
        assert_string_equal(got + strlen(got) - 5, "cause");
        if (n > SKOPEO_MAX_WORDS) {
            assert_memory_equal(got, "...", 3);
            assert_int_not_equal((unsigned char)got[3] & 0xc0, 0x80);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_last_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
