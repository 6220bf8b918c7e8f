/* test_png.c - PNG images of hostile code: what is one is decoded whole, what is broken or too large is refused, and
 * nothing is read beyond the end. */
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

/* --- files, made chunk by chunk; the picture is "compressed" by deflate's blocks of plain bytes --- */

struct png {
    unsigned char *data;
    size_t len, room;
};

static void add_bytes(struct png *png, const void *data, size_t len)
{
    if (png->len + len > png->room) {
        png->room = 2 * (png->len + len);
        png->data = realloc(png->data, png->room);
        assert_non_null(png->data);
    }
    memcpy(png->data + png->len, data, len);
    png->len += len;
}

static void put_u32(unsigned char *to, uint32_t n)
{
    to[0] = (unsigned char)(n >> 24);
    to[1] = (unsigned char)(n >> 16);
    to[2] = (unsigned char)(n >> 8);
    to[3] = (unsigned char)n;
}

static uint32_t get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
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
    unsigned char number[4];
    size_t start;

    put_u32(number, (uint32_t)len);
    add_bytes(png, number, 4);
    start = png->len;
    add_bytes(png, type, 4);
    add_bytes(png, data, len);
    put_u32(number, crc_of(png->data + start, png->len - start));
    add_bytes(png, number, 4);
}

static void begin_png(struct png *png, uint32_t width, uint32_t height, unsigned depth, unsigned colour_type)
{
    unsigned char header[13] = { 0 };

    png->len = 0;
    add_bytes(png, "\x89PNG\r\n\x1a\n", 8);
    put_u32(header, width);
    put_u32(header + 4, height);
    header[8] = (unsigned char)depth;
    header[9] = (unsigned char)colour_type;
    add_chunk(png, "IHDR", header, sizeof(header));
}

static void add_picture(struct png *png, const unsigned char *rows, size_t len)
{
    struct png z = { NULL, 0, 0 };
    uint32_t a = 1, b = 0;
    unsigned char number[4];

    add_bytes(&z, "\x78\x01", 2);
    for (size_t at = 0; at < len || at == 0;) {
        size_t n = len - at < 65535 ? len - at : 65535;
        const unsigned char head[] = { at + n == len, n & 0xff, (unsigned char)(n >> 8), ~n & 0xff,
                                       (unsigned char)(~n >> 8) };

        add_bytes(&z, head, sizeof(head));
        add_bytes(&z, rows + at, n);
        at += n;
        if (n == 0)
            break;
    }
    for (size_t i = 0; i < len; i++) {
        a = (a + rows[i]) % 65521;
        b = (b + a) % 65521;
    }
    put_u32(number, b << 16 | a);
    add_bytes(&z, number, 4);
    add_chunk(png, "IDAT", z.data, z.len);
    add_chunk(png, "IEND", "", 0);
    free(z.data);
}

static int decode(const struct png *png, struct png_image *ret, struct hutch_err *err)
{
    auto_free unsigned char *exact = malloc(png->len); /* so that the sanitizers see a byte too many */

    assert_non_null(exact);
    memcpy(exact, png->data, png->len);
    *err = (struct hutch_err){ .errnum = -1 };
    return hutch_png_decode(exact, png->len, ret, err);
}

static void refuse(const struct png *png, const char *says)
{
    struct png_image image;
    struct hutch_err err;

    assert_int_equal(decode(png, &image, &err), -1);
    assert_null(image.pixels);
    assert_in_range((uint64_t)image.width * image.height, 0, PNG_MAX_PIXELS);
    assert_int_equal(err.errnum, 0);
    if (strncmp(err.msg, says, strlen(says)) != 0)
        fail_msg("'%s' instead of '%s'", err.msg, says);
}

/* --- what is decoded --- */

static void test_there_and_back(void **state)
{
    static const uint32_t sizes[][2] = { { 1, 1 }, { 1, 300 }, { 300, 1 }, { 17, 5 }, { 640, 480 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct png_image image = { .width = sizes[i][0], .height = sizes[i][1] }, back;
        size_t n = (size_t)4 * image.width * image.height;
        auto_free unsigned char *file = NULL;
        struct png png = { NULL, 0, 0 };
        struct hutch_err err;

        image.pixels = malloc(n);
        assert_non_null(image.pixels);
        for (size_t at = 0; at < n; at++)
            image.pixels[at] = (unsigned char)(at * 31 + at / 256);
        assert_int_equal(hutch_png_encode(&image, &file, &png.len, &err), 0);
        png.data = file;
        assert_memory_equal(file, "\x89PNG\r\n\x1a\n", 8);
        assert_int_equal(decode(&png, &back, &err), 0);
        assert_int_equal(back.width, image.width);
        assert_int_equal(back.height, image.height);
        assert_memory_equal(back.pixels, image.pixels, n);
        hutch_png_image_done(&image);
        hutch_png_image_done(&back);
        hutch_png_image_done(&back);
    }
}

/* A row of two pixels of each kind that there is: its filter, and at most 16 bytes. */
static void test_every_header(void **state)
{
    static const unsigned char row[17] = { 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    static const unsigned samples[] = { 1, 0, 3, 1, 2, 0, 4 };
    struct png png = { NULL, 0, 0 };

    (void)state;
    for (unsigned type = 0; type < 9; type++)
        for (unsigned depth = 0; depth < 40; depth++) {
            bool is_power = depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
            bool want = is_power && (type == 0 || (type == 3 && depth <= 8) ||
                                     ((type == 2 || type == 4 || type == 6) && depth >= 8));
            struct png_image image;
            struct hutch_err err;
            size_t bits = want ? 2 * samples[type] * depth : 8;
            int rc;

            begin_png(&png, 2, 1, depth, type);
            if (type == 3)
                add_chunk(&png, "PLTE", "\1\2\3\4\5\6", 6);
            if (type == 3)
                add_chunk(&png, "tRNS", "\x80\x90", 2);
            add_picture(&png, type == 3 ? (const unsigned char[]){ 0, depth == 8 ? 1 : 0, 1 } : row,
                        1 + (bits + 7) / 8);
            rc = decode(&png, &image, &err);
            if ((rc == 0) != want)
                fail_msg("colour type %u, depth %u should %s", type, depth, want ? "be fine" : "be refused");
            if (rc < 0)
                continue;
            assert_int_equal(image.width, 2);
            if (type == 3 && depth == 8)
                assert_memory_equal(image.pixels, "\4\5\6\x90\4\5\6\x90", 8);
            else if (type != 3)
                assert_int_equal(image.pixels[0], 0xff);
            hutch_png_image_done(&image);
        }
    free(png.data);
}

/* Chunks that no picture needs are not in what goes out; a picture in one large chunk is fine. */
static void test_a_picture_among_others(void **state)
{
    enum { SIDE = 900 };
    struct png png = { NULL, 0, 0 }, again = { NULL, 0, 0 };
    size_t n = (size_t)SIDE * (1 + 4 * SIDE);
    auto_free unsigned char *rows = calloc(1, n), *file = NULL;
    struct png_image image;
    struct hutch_err err;

    (void)state;
    assert_non_null(rows);
    begin_png(&png, SIDE, SIDE, 8, 6);
    add_chunk(&png, "tEXt", "Comment\0\x1b]0;x\a", 13);
    add_picture(&png, rows, n);
    add_bytes(&png, "\x1b[2Jbehind", 10);
    assert_int_equal(decode(&png, &image, &err), 0);
    assert_int_equal(hutch_png_encode(&image, &file, &again.len, &err), 0);
    assert_null(memmem(file, again.len, "Comment", 7));
    assert_null(memmem(file, again.len, "behind", 6));
    assert_in_range(again.len, 60, 100000);
    hutch_png_image_done(&image);
    free(png.data);
}

/* --- what is not --- */

static void test_refused(void **state)
{
    static const char text[] = "GIF89a, or something else that has more bytes than a header";
    static const unsigned char rows[] = { 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6 };
    auto_free unsigned char *long_text = calloc(1, 3u << 20);
    struct png png = { NULL, 0, 0 };
    struct png_image image;
    struct hutch_err err;

    (void)state;
    assert_non_null(long_text);
    add_bytes(&png, text, sizeof(text));
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 0, 1, 8, 2);
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, UINT32_MAX, UINT32_MAX, 8, 2);
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, INT32_MAX, INT32_MAX, 16, 6);
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 16000, 16000, 8, 2);
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is too large to be shown: 16000 x 16000 pixels");
    begin_png(&png, PNG_MAX_SIDE + 1, 1, 8, 2);
    refuse(&png, "it is too large to be shown: 16385 x 1 pixels");
    begin_png(&png, 2, 2, 8, 2);
    add_chunk(&png, "IEND", "", 0);
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 2, 3, 8, 2); /* a row is missing */
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is a broken PNG image: ");
    assert_int_equal(decode(&png, &image, &err), -1);
    assert_int_equal(image.width * image.height, 6);
    begin_png(&png, 2, 2, 8, 3);
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 2, 2, 8, 3);
    add_chunk(&png, "PLTE", "ab", 2);
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 2, 2, 8, 2);
    add_chunk(&png, "EVIL", "x", 1);
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 2, 2, 8, 2);
    add_chunk(&png, "tEXt", long_text, 3u << 20);
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 2, 2, 8, 2);
    for (int i = 0; i < 2000; i++)
        add_chunk(&png, "tEXt", "a\0b", 3);
    add_picture(&png, rows, sizeof(rows));
    refuse(&png, "it is a broken PNG image: ");
    begin_png(&png, 2, 2, 8, 2);
    add_bytes(&png, "\xff\xff\xff\xffIDATxxxxxxxx", 16); /* a length beyond the end */
    refuse(&png, "it is a broken PNG image: ");
    free(png.data);
}

/* Whatever it is, the answer is a picture with all of its pixels or a reason. */
static void check_answer(const struct png *png)
{
    struct png_image image;
    struct hutch_err err;

    if (decode(png, &image, &err) < 0) {
        assert_int_equal(err.errnum, 0);
        assert_true(strncmp(err.msg, "it is ", 6) == 0);
        return;
    }
    assert_in_range(image.width, 1, PNG_MAX_SIDE);
    assert_in_range(image.height, 1, PNG_MAX_SIDE);
    assert_in_range((uint64_t)image.width * image.height, 1, PNG_MAX_PIXELS);
    for (size_t i = 0, sum = 0; i < (size_t)4 * image.width * image.height; i++) {
        sum += image.pixels[i];
        assert_true(sum <= 255 * (i + 1));
    }
    hutch_png_image_done(&image);
}

/* Checksums that are right, where the chunks still are chunks: what is behind them gets its turn. */
static void mend_checksums(struct png *png)
{
    for (size_t at = 8; at + 12 <= png->len;) {
        uint32_t len = get_u32(png->data + at);

        if (len > png->len - at - 12)
            return;
        put_u32(png->data + at + 8 + len, crc_of(png->data + at + 4, len + 4));
        at += len + 12;
    }
}

static void make_seed(struct png *png, unsigned kind)
{
    unsigned char rows[256];

    for (size_t i = 0; i < sizeof(rows); i++)
        /* filters at the beginning of rows of 4 RGB pixels */
        rows[i] = i % 13 ? (unsigned char)(i * 7) : (unsigned char)(i / 13 % 5);
    begin_png(png, 4, 5, 8, kind == 1 ? 3 : 2);
    if (kind == 2)
        png->data[8 + 8 + 12] = 1; /* interlaced */
    add_chunk(png, "gAMA", "\0\0\xb1\x8f", 4);
    if (kind == 1)
        add_chunk(png, "PLTE", "\1\2\3\4\5\6", 6);
    add_chunk(png, "tRNS", "\0\1\0\2\0\3", kind == 1 ? 2 : 6);
    add_chunk(png, "tEXt", "Title\0a picture", 15);
    add_picture(png, rows, kind == 1 ? 25 : 65);
    mend_checksums(png);
}

static void test_anything(void **state)
{
    struct png seed = { NULL, 0, 0 }, png = { NULL, 0, 0 };
    unsigned random = 20240229;

    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        make_seed(&seed, kind);
        for (size_t len = 1; len < seed.len - 12; len++) { /* without the end mark there is still a picture */
            png.len = 0;
            add_bytes(&png, seed.data, len);
            check_answer(&png);
        }
        for (size_t i = 0; i < 20000; i++) {
            png.len = 0;
            add_bytes(&png, seed.data, seed.len);
            for (unsigned n = rand_r(&random) % 4 + 1; n > 0; n--)
                png.data[8 + (unsigned)rand_r(&random) % (png.len - 8)] = (unsigned char)(rand_r(&random) >> 4);
            if (i % 8)
                mend_checksums(&png);
            check_answer(&png);
        }
    }
    free(seed.data);
    free(png.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_every_header),
        cmocka_unit_test(test_a_picture_among_others),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_anything),
    };

    return cmocka_run_group_tests_name("png", tests, NULL, NULL);
}
