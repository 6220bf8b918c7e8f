/* test_sixel.c - pictures as sixels: read back as a terminal does, they are the picture, and nothing else is
 * written. */
#include "runtime/term/sixel.h"

#include "runtime/term/png.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a terminal shows. */
struct screen {
    int width, height;
    unsigned char *rgb; /* owned; 0..100 each */
};

static long take_number(const char **p)
{
    char *end;
    long n = strtol(*p, &end, 10);

    assert_ptr_not_equal(end, *p);
    *p = end;
    return n;
}

/* Sets six pixels in @colour, each @times to the right. */
static void set_pixels(struct screen *screen, int *x, int y, char sixel, long times, const unsigned char colour[3])
{
    assert_in_range(sixel, '?', '~');
    for (; times > 0; times--, ++*x)
        for (int i = 0; i < 6; i++)
            if ((sixel - '?') >> i & 1) {
                assert_in_range(*x, 0, screen->width - 1);
                assert_in_range(y + i, 0, screen->height - 1);
                memcpy(screen->rgb + 3 * ((y + i) * screen->width + *x), colour, 3);
            }
}

static struct screen show(const char *text, size_t len, int width, int height)
{
    struct screen screen = { .width = width, .height = height, .rgb = malloc((size_t)(3 * width * height)) };
    unsigned char colours[SIXEL_COLOURS][3];
    long colour = 0;
    const char *p = text + 7, *end = text + len - 2;
    int x = 0, y = 0;

    assert_non_null(screen.rgb);
    memset(screen.rgb, 255, (size_t)(3 * width * height)); /* nowhere painted */
    assert_memory_equal(text, "\x1bP0;1q", 6);
    assert_memory_equal(end, "\x1b\\", 2);
    for (p = text + 6; p < end;) {
        char c = *p++;

        if (c == '#') {
            colour = take_number(&p);
            assert_in_range(colour, 0, SIXEL_COLOURS - 1);
            for (int i = -1; *p == ';'; i++) {
                long n;

                p++;
                n = take_number(&p);
                assert_in_range(n, 0, 100);
                if (i < 0)
                    assert_int_equal(n, 2);
                else
                    colours[colour][i] = (unsigned char)n;
            }
        } else if (c == '$') {
            x = 0;
        } else if (c == '-') {
            x = 0;
            y += 6;
        } else if (c == '!') {
            long n = take_number(&p);

            set_pixels(&screen, &x, y, *p++, n, colours[colour]);
        } else {
            set_pixels(&screen, &x, y, c, 1, colours[colour]);
        }
    }
    assert_ptr_equal(p, end);
    return screen;
}

static void make_image(struct png_image *image, uint32_t width, uint32_t height)
{
    *image = (struct png_image){ .width = width, .height = height, .pixels = calloc((size_t)width * height, 4) };
    assert_non_null(image->pixels);
}

static void set_pixel(struct png_image *image, uint32_t x, uint32_t y, uint32_t rgba)
{
    unsigned char *p = image->pixels + 4 * ((size_t)y * image->width + x);

    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(rgba >> (24 - 8 * i));
}

static void expect_near(const struct screen *screen, int x, int y, int red, int green, int blue, int most)
{
    const unsigned char *p = screen->rgb + 3 * (y * screen->width + x);
    const int want[] = { red, green, blue };

    for (int i = 0; i < 3; i++)
        if (abs(p[i] - want[i] * 100 / 255) > most)
            fail_msg("at %d, %d: %u %u %u instead of %d %d %d in 255ths", x, y, p[0], p[1], p[2], red, green, blue);
}

/* --- tests --- */

static void test_few_colours_are_exact(void **state)
{
    static const uint32_t colours[] = { 0xffffffff, 0x000000ff, 0x1f77b4ff, 0xff7f0eff,
                                        0x2ca02cff, 0xd62728ff, 0x00000080 };
    struct png_image image;
    struct screen screen;
    auto_free char *text = NULL;
    size_t len;

    (void)state;
    make_image(&image, 31, 20);
    for (uint32_t y = 0; y < 20; y++)
        for (uint32_t x = 0; x < 31; x++)
            set_pixel(&image, x, y, colours[(x / 3 + y) % 7]);
    text = hutch_sixel_encode(&image, &len);
    assert_non_null(text);
    screen = show(text, len, 31, 20);
    for (uint32_t y = 0; y < 20; y++)
        for (uint32_t x = 0; x < 31; x++) {
            uint32_t c = colours[(x / 3 + y) % 7];

            if ((c & 0xff) == 0x80) /* half of black on white paper */
                expect_near(&screen, (int)x, (int)y, 127, 127, 127, 1);
            else
                expect_near(&screen, (int)x, (int)y, c >> 24, c >> 16 & 0xff, c >> 8 & 0xff, 1);
        }
    free(screen.rgb);
    hutch_png_image_done(&image);
}

static void test_many_colours_are_near(void **state)
{
    struct png_image image;
    struct screen screen;
    auto_free char *text = NULL;
    size_t len;

    (void)state;
    make_image(&image, 256, 256);
    for (uint32_t y = 0; y < 256; y++)
        for (uint32_t x = 0; x < 256; x++)
            set_pixel(&image, x, y, x << 24 | y << 16 | 0x40ff);
    text = hutch_sixel_encode(&image, &len);
    assert_non_null(text);
    screen = show(text, len, 256, 256);
    for (uint32_t y = 0; y < 256; y++)
        for (uint32_t x = 0; x < 256; x++)
            expect_near(&screen, (int)x, (int)y, (int)x, (int)y, 0x40, 16);
    free(screen.rgb);
    hutch_png_image_done(&image);
}

/* Whatever the sides are, the picture fits, and every pixel of it is painted. */
static void test_sizes(void **state)
{
    static const struct {
        uint32_t from[2];
        int to[2];
    } rows[] = {
        { { 1, 1 }, { 1, 1 } },        { { 1000, 7 }, { 1000, 7 } },  { { 1001, 5 }, { 1000, 4 } },
        { { 2, 16384 }, { 1, 1000 } }, { { 16384, 1 }, { 1000, 1 } }, { { 4000, 3000 }, { 1000, 750 } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct png_image image;
        struct screen screen;
        size_t len;
        char *text;

        make_image(&image, rows[i].from[0], rows[i].from[1]);
        memset(image.pixels, 0x60, (size_t)4 * image.width * image.height);
        text = hutch_sixel_encode(&image, &len);
        assert_non_null(text);
        screen = show(text, len, rows[i].to[0], rows[i].to[1]);
        for (int at = 0; at < 3 * screen.width * screen.height; at++)
            assert_in_range(screen.rgb[at], 0, 100);
        free(screen.rgb);
        free(text);
        hutch_png_image_done(&image);
    }
}

/* The longest text that there can be is bounded by the sides and the colours. */
static void test_noise(void **state)
{
    struct png_image image;
    struct screen screen;
    auto_free char *text = NULL;
    unsigned random = 20240229;
    size_t len;

    (void)state;
    make_image(&image, 1000, 1000);
    for (size_t i = 0; i < 4000000; i++)
        image.pixels[i] = i % 4 == 3 ? 255 : (unsigned char)(rand_r(&random) >> 4);
    text = hutch_sixel_encode(&image, &len);
    assert_non_null(text);
    assert_in_range(len, 1000000, 12000000);
    screen = show(text, len, 1000, 1000);
    free(screen.rgb);
    hutch_png_image_done(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_colours_are_exact),
        cmocka_unit_test(test_many_colours_are_near),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_noise),
    };

    return cmocka_run_group_tests_name("sixel", tests, NULL, NULL);
}
