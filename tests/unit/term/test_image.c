/* test_term_image.c - images on a terminal: what is a PNG, what are sixels, and which terminals show either. */
#include "runtime/term/image.h"

#include "runtime/text/base64.h"
#include "sandbox/fd.h"
#include "runtime/term/png.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- PNG: made here, chunk by chunk; the data need not be a picture, which is for a decoder to see --- */

struct png {
    unsigned char data[4096];
    size_t len;
};

static void put_u32(unsigned char *to, uint32_t n)
{
    to[0] = (unsigned char)(n >> 24);
    to[1] = (unsigned char)(n >> 16);
    to[2] = (unsigned char)(n >> 8);
    to[3] = (unsigned char)n;
}

static uint32_t crc_of(const unsigned char *data, size_t len)
{
    uint32_t c = UINT32_MAX;

    for (size_t i = 0; i < len; i++) {
        c ^= data[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

static void add_chunk(struct png *png, const char *type, const void *data, size_t len)
{
    unsigned char *at = png->data + png->len;

    put_u32(at, (uint32_t)len);
    memcpy(at + 4, type, 4);
    memcpy(at + 8, data, len);
    put_u32(at + 8 + len, crc_of(at + 4, len + 4));
    png->len += len + 12;
}

static void begin_png(struct png *png, uint32_t width, uint32_t height, unsigned char depth, unsigned char colour_type)
{
    unsigned char header[13] = { 0 };

    memcpy(png->data, "\x89PNG\r\n\x1a\n", 8);
    png->len = 8;
    put_u32(header, width);
    put_u32(header + 4, height);
    header[8] = depth;
    header[9] = colour_type;
    add_chunk(png, "IHDR", header, sizeof(header));
}

static int clean(const struct png *png, struct png *ret, struct hutch_err *err)
{
    auto_free unsigned char *exact = malloc(png->len); /* so that the sanitizers see a byte too many */
    unsigned char *copy;
    struct png_size size;
    size_t len;

    assert_non_null(exact);
    memcpy(exact, png->data, png->len);
    if (hutch_png_clean(exact, png->len, &copy, &len, &size, err) < 0)
        return -1;
    memcpy(ret->data, copy, len);
    ret->len = len;
    free(copy);
    return 0;
}

static void test_png_loses_what_no_picture_needs(void **state)
{
    struct png png, want, got;
    struct hutch_err err;

    (void)state;
    begin_png(&png, 640, 480, 8, 3);
    want = png;
    add_chunk(&png, "tEXt", "Comment\0\x1b]0;x\a", 13);
    add_chunk(&png, "iCCP", "profile", 7);
    for (int i = 0; i < 2; i++) {
        struct png *p = i ? &want : &png;

        add_chunk(p, "PLTE", "abcdef", 6);
        add_chunk(p, "tRNS", "\0", 1);
        add_chunk(p, "IDAT", "first", 5);
        if (p == &png)
            add_chunk(p, "fdAT", "an animation", 12);
        add_chunk(p, "IDAT", "second", 6);
        add_chunk(p, "IEND", "", 0);
    }
    memcpy(png.data + png.len, "\x1b[2Jbehind", 10);
    png.len += 10;
    assert_int_equal(clean(&png, &got, &err), 0);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
}

static void test_png_of_every_header(void **state)
{
    (void)state;
    for (unsigned type = 0; type < 9; type++)
        for (unsigned depth = 0; depth < 40; depth++) {
            bool is_power = depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
            bool want = is_power && (type == 0 || (type == 3 && depth <= 8) || ((type == 2 || type == 4 || type == 6) && depth >= 8));
            struct png png, got;
            struct hutch_err err;

            begin_png(&png, 1, 1, (unsigned char)depth, (unsigned char)type);
            if (type == 3)
                add_chunk(&png, "PLTE", "abc", 3);
            add_chunk(&png, "IDAT", "x", 1);
            add_chunk(&png, "IEND", "", 0);
            if ((clean(&png, &got, &err) == 0) != want)
                fail_msg("colour type %u, depth %u should %s", type, depth, want ? "be fine" : "be refused");
        }
}

static void refuse(const struct png *png, const char *says)
{
    struct hutch_err err = { .errnum = -1 };
    struct png got;

    assert_int_equal(clean(png, &got, &err), -1);
    assert_int_equal(err.errnum, 0);
    assert_string_equal(err.msg, says);
}

static void test_png_refused(void **state)
{
    static const char text[] = "GIF89a, or something else that has more bytes than a header";
    struct png whole, png;

    (void)state;
    begin_png(&whole, 2, 2, 8, 2);
    add_chunk(&whole, "IDAT", "data", 4);
    add_chunk(&whole, "IEND", "", 0);
    for (size_t len = 1; len < whole.len; len++) {
        struct hutch_err err;
        struct png got;

        png = whole;
        png.len = len;
        assert_int_equal(clean(&png, &got, &err), -1);
    }
    for (size_t at = 0; at < whole.len; at++) { /* any byte that is another one: a checksum is wrong, or more */
        struct hutch_err err;
        struct png got;

        png = whole;
        png.data[at] ^= 0x41;
        assert_int_equal(clean(&png, &got, &err), -1);
    }

    memcpy(png.data, text, sizeof(text));
    png.len = sizeof(text);
    refuse(&png, "it is not a PNG image");
    begin_png(&png, 0, 1, 8, 2);
    refuse(&png, "it is too large to be shown: 0 x 1 pixels");
    begin_png(&png, UINT32_MAX, UINT32_MAX, 8, 2);
    refuse(&png, "it is too large to be shown: 4294967295 x 4294967295 pixels");
    begin_png(&png, 16000, 16000, 8, 2);
    refuse(&png, "it is too large to be shown: 16000 x 16000 pixels");
    begin_png(&png, 2, 2, 8, 2);
    add_chunk(&png, "IEND", "", 0);
    refuse(&png, "it is a broken PNG image: it has no picture");
    begin_png(&png, 2, 2, 8, 3);
    add_chunk(&png, "IDAT", "data", 4);
    refuse(&png, "it is a broken PNG image: there is no palette");
    begin_png(&png, 2, 2, 8, 3);
    add_chunk(&png, "PLTE", "ab", 2);
    refuse(&png, "it is a broken PNG image: its palette cannot be one");
    begin_png(&png, 2, 2, 8, 2);
    add_chunk(&png, "EVIL", "x", 1);
    refuse(&png, "it is not a PNG image that can be shown: it needs 'EVIL'");
    begin_png(&png, 2, 2, 8, 2);
    put_u32(png.data + png.len, UINT32_MAX); /* a length beyond the end */
    memcpy(png.data + png.len + 4, "IDATxxxxxxxx", 12);
    png.len += 16;
    refuse(&png, "it is not a whole PNG image");
}

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

/* --- sixels --- */

static const struct {
    const char *label, *text;
    bool want;
} sixels[] = {
    { "a picture", "#0;2;0;0;0#1;2;100;100;100#0!640~$#1!3?AB-#0??@@~~", true },
    { "only sixels", "?@~", true },
    { "nothing", "", false },
    { "the end of the string, and then anything", "??\x1b\\\x1b]0;x\a", false },
    { "CAN, which ends it too", "??\x18", false },
    { "a control of C1", "??\x9c", false },
    { "newline", "??\n??", false },
    { "blank", "?? ??", false },
    { "raster attributes", "\"1;1;99999;99999?", false },
    { "colour 256", "#256?", false },
    { "a colour in another system", "#1;1;0;0;0?", false },
    { "half a colour", "#1;2;3?", false },
    { "colour with too much of red", "#1;2;101;0;0?", false },
    { "colour with a fifth number", "#1;2;1;1;1;1?", false },
    { "no colour", "#?", false },
    { "repeat of nothing", "!?", false },
    { "repeat at the end", "!5", false },
    { "repeat of a control", "!5$", false },
    { "no times", "!0?", false },
    { "wide", "!4096?", true },
    { "too wide", "!4097?", false },
    { "too wide in sum", "!4096??", false },
    { "long number", "!00005?", true },
    { "longer number", "!000005?", false },
};

static void test_sixels(void **state)
{
    char high[2000];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(sixels); i++)
        if (hutch_term_image_is_sixel(sixels[i].text, strlen(sixels[i].text)) != sixels[i].want)
            fail_msg("%s: should be %s", sixels[i].label, sixels[i].want ? "fine" : "refused");
    assert_false(hutch_term_image_is_sixel("?\0?", 3));
    memset(high, '-', sizeof(high));
    assert_true(hutch_term_image_is_sixel(high, 600));
    assert_false(hutch_term_image_is_sixel(high, 1000));
}

static void test_sixel_code(void **state)
{
    auto_free char *code = hutch_term_image_sixel_code("figure-1.png");

    (void)state;
    assert_non_null(code);
    assert_non_null(strstr(code, "\nconvert('/mnt/data/figure-1.png', "));
}

/* --- terminals --- */

static const struct {
    const char *term, *window, *program;
    enum term_images want;
} terminals[] = {
    { "xterm-256color", NULL, NULL, TERM_IMAGES_NONE },
    { "xterm-kitty", NULL, NULL, TERM_IMAGES_KITTY },
    { "xterm-256color", "1", NULL, TERM_IMAGES_KITTY },
    { "xterm-256color", "", NULL, TERM_IMAGES_NONE },
    { "xterm-256color", NULL, "WezTerm", TERM_IMAGES_KITTY },
    { "xterm-256color", NULL, "Apple_Terminal", TERM_IMAGES_NONE },
    { "foot", NULL, NULL, TERM_IMAGES_SIXEL },
    { "foot-extra", NULL, NULL, TERM_IMAGES_SIXEL },
    { "mlterm-256color", NULL, NULL, TERM_IMAGES_SIXEL },
    { "screen-256color", "1", "WezTerm", TERM_IMAGES_NONE },
    { "tmux-256color", "1", NULL, TERM_IMAGES_NONE },
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
        if (hutch_term_images_detect() != terminals[i].want)
            fail_msg("terminal %zu is taken for another", i);
    }
}

static void test_names(void **state)
{
    enum term_images images = TERM_IMAGES_SIXEL;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_term_images_parse("kitty", &images, &err), 0);
    assert_int_equal(images, TERM_IMAGES_KITTY);
    assert_int_equal(hutch_term_images_parse("ansi", &images, &err), -1);
    assert_string_equal(err.msg, "'ansi' is no way to show images: expected kitty, sixel or none");
    assert_int_equal(images, TERM_IMAGES_KITTY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_loses_what_no_picture_needs),
        cmocka_unit_test(test_png_of_every_header),
        cmocka_unit_test(test_png_refused),
        cmocka_unit_test(test_kitty),
        cmocka_unit_test(test_sixels),
        cmocka_unit_test(test_sixel_code),
        cmocka_unit_test(test_terminals),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
