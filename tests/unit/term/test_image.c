/* test_image.c - images on a terminal: how kitty's protocol wraps them, and which terminals show any. */
#include "runtime/term/image.h"

#include "runtime/text/base64.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- kitty --- */

static void test_kitty(void **state)
{
    unsigned char png[8000];
    size_t len, at = 0, n_parts = 0, joined_len = 0, decoded_len;
    auto_free char *out = NULL, *joined = NULL;
    auto_free unsigned char *decoded = NULL;

    (void)state;
    memset(png, 0xa5, sizeof(png));
    out = hutch_term_image_kitty(png, sizeof(png), &len);
    joined = calloc(1, len + 1);
    assert_non_null(out);
    assert_non_null(joined);
    assert_int_equal(strlen(out), len);
    while (at < len) {
        const char *semicolon, *end;

        assert_memory_equal(out + at, "\x1b_G", 3);
        semicolon = strchr(out + at, ';');
        assert_non_null(semicolon);
        end = strstr(semicolon, "\x1b\\");
        assert_non_null(end);
        assert_in_range(end - semicolon - 1, 1, 4096);
        if (n_parts == 0)
            assert_memory_equal(out, "\x1b_Ga=T,f=100,q=2,m=1;", 21);
        assert_int_equal(semicolon[-1], (size_t)(end + 2 - out) == len ? '0' : '1');
        memcpy(joined + joined_len, semicolon + 1, (size_t)(end - semicolon - 1));
        joined_len += (size_t)(end - semicolon - 1);
        at = (size_t)(end + 2 - out);
        n_parts++;
    }
    assert_int_equal(n_parts, 3);
    decoded = hutch_base64_decode(joined, joined_len, &decoded_len);
    assert_int_equal(decoded_len, sizeof(png));
    assert_memory_equal(decoded, png, sizeof(png));
}

/* --- terminals --- */

static const struct {
    const char *term, *window, *program;
    enum term_images want;
} terminals[] = {
    { "xterm-256color", NULL, NULL, TERM_IMAGES_BLOCKS },
    { "xterm", NULL, NULL, TERM_IMAGES_NONE },
    { "xterm-kitty", NULL, NULL, TERM_IMAGES_KITTY },
    { "xterm-256color", "1", NULL, TERM_IMAGES_KITTY },
    { "xterm-256color", "", NULL, TERM_IMAGES_BLOCKS },
    { "xterm-256color", NULL, "WezTerm", TERM_IMAGES_KITTY },
    { "xterm-256color", NULL, "Apple_Terminal", TERM_IMAGES_BLOCKS },
    { "foot", NULL, NULL, TERM_IMAGES_SIXEL },
    { "foot-extra", NULL, NULL, TERM_IMAGES_SIXEL },
    { "mlterm-256color", NULL, NULL, TERM_IMAGES_SIXEL },
    { "screen-256color", "1", "WezTerm", TERM_IMAGES_BLOCKS },
    { "tmux-256color", "1", NULL, TERM_IMAGES_BLOCKS },
    { "screen", "1", "WezTerm", TERM_IMAGES_NONE },
    { "dumb", "1", NULL, TERM_IMAGES_NONE },
    { NULL, NULL, NULL, TERM_IMAGES_NONE },
};

static void set(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void test_terminals(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(terminals); i++) {
        set("TERM", terminals[i].term);
        set("KITTY_WINDOW_ID", terminals[i].window);
        set("TERM_PROGRAM", terminals[i].program);
        set("COLORTERM", NULL);
        if (hutch_term_images_detect() != terminals[i].want)
            fail_msg("terminal %zu is taken for another", i);
    }
    set("TERM", "vt100");
    set("COLORTERM", "truecolor");
    assert_int_equal(hutch_term_images_detect(), TERM_IMAGES_BLOCKS);
    set("TERM", "dumb");
    assert_int_equal(hutch_term_images_detect(), TERM_IMAGES_NONE);
}

static void test_names(void **state)
{
    enum term_images images = TERM_IMAGES_SIXEL;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_term_images_parse("kitty", &images, &err), 0);
    assert_int_equal(images, TERM_IMAGES_KITTY);
    assert_int_equal(hutch_term_images_parse("ansi", &images, &err), -1);
    assert_string_equal(err.msg, "'ansi' is no way to show images: expected kitty, sixel, blocks or none");
    assert_int_equal(images, TERM_IMAGES_KITTY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kitty),
        cmocka_unit_test(test_terminals),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
