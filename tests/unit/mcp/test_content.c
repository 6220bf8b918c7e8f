/* test_content.c - what a result is made of: texts that are cut in the middle, images that are some, and the whole. */
#include "runtime/mcp/content.h"

#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct { const char *label, *text, *want; size_t max; bool is_cut; } excerpts[] = {
    { "short", "abc", "\"abc\"", 3, false },
    { "empty", "", "\"\"", 0, false },
    { "control characters", "a\n\x1b", "\"a\\n\\u001b\"", 8, false },
    { "long", "aaaabbbbcccc", "\"aa\\n[... 8 bytes are left out ...]\\ncc\"", 4, true },
    { "within a character", "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac",
      "\"\xe2\x82\xac\\n[... 3 bytes are left out ...]\\n\xe2\x82\xac\"", 6, true },
};

static void test_excerpts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(excerpts); i++) {
        struct text_buffer t = TEXT_BUFFER_INIT;

        print_message("  %s\n", excerpts[i].label);
        assert_int_equal(hutch_mcp_quote_excerpt(&t, excerpts[i].text, strlen(excerpts[i].text), excerpts[i].max),
                         excerpts[i].is_cut);
        assert_string_equal(t.data, excerpts[i].want);
        hutch_text_done(&t);
    }
}

/* However it is cut, it is UTF-8 and near its bound, also where the text is no text at all. */
static void test_excerpts_of_anything(void **state)
{
    char text[100];

    (void)state;
    for (unsigned seed = 0; seed < 200; seed++)
        for (size_t max = 0; max < sizeof(text); max += 7) {
            struct text_buffer t = TEXT_BUFFER_INIT;

            for (size_t i = 0; i < sizeof(text); i++)
                text[i] = (char)((i * i + seed) * 2654435761u >> 13);
            hutch_mcp_quote_excerpt(&t, text, sizeof(text), max);
            assert_true(hutch_utf8_is_valid(t.data, t.len));
            assert_true(t.len <= 6 * (max + 8) + 60);
            hutch_text_done(&t);
        }
}

static void add_image(struct mcp_result *r, const char *begin, size_t begin_len, size_t len)
{
    unsigned char *data = calloc(1, len ? len : 1);

    memcpy(data, begin, begin_len < len ? begin_len : len);
    hutch_mcp_add_image(r, "figure-1.png", data, len);
    free(data);
}

#define PNG "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"

static void test_images(void **state)
{
    struct mcp_result r = MCP_RESULT_INIT;

    (void)state;
    add_image(&r, PNG, 16, 16); /* nothing behind the header */
    add_image(&r, "<svg>", 5, 50);
    add_image(&r, "", 0, 0);
    add_image(&r, "RIFF0000WEBX", 12, 40);
    assert_int_equal(r.n_images, 0);
    assert_null(strstr(r.content.data, "\"image\""));
    add_image(&r, PNG, 16, 33);
    add_image(&r, "\xff\xd8\xff\xe0", 4, 40);
    add_image(&r, "RIFF0000WEBP", 12, 40);
    add_image(&r, "GIF89a", 6, 40);
    assert_int_equal(r.n_images, 4);
    for (size_t i = 0; i < 4; i++) {
        static const char *const types[] = { "image/png", "image/jpeg", "image/webp", "image/gif" };

        assert_non_null(strstr(r.content.data, types[i]));
    }
    hutch_mcp_result_done(&r);
}

static void test_bounds_of_images(void **state)
{
    struct mcp_result r = MCP_RESULT_INIT;

    (void)state;
    add_image(&r, PNG, 16, MCP_MAX_IMAGE_BYTES + 1);
    assert_int_equal(r.n_images, 0);
    assert_non_null(strstr(r.content.data, "4 MiB"));
    add_image(&r, PNG, 16, MCP_MAX_IMAGE_BYTES);
    assert_int_equal(r.n_images, 1);
    add_image(&r, PNG, 16, 40);
    assert_int_equal(r.n_images, 1);
    hutch_mcp_result_done(&r);
    r = (struct mcp_result)MCP_RESULT_INIT;
    for (int i = 0; i < MCP_MAX_IMAGES + 3; i++)
        add_image(&r, PNG, 16, 40);
    assert_int_equal(r.n_images, MCP_MAX_IMAGES);
    assert_non_null(strstr(r.content.data, "more than 16"));
    hutch_mcp_result_done(&r);
}

static void test_the_whole(void **state)
{
    struct mcp_result r = MCP_RESULT_INIT;
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)state;
    hutch_mcp_result_write(&r, &t);
    assert_string_equal(t.data, "\"content\":[],\"isError\":false");
    t.len = 0;
    hutch_mcp_add_text(&r, "", 0);
    hutch_mcp_add_string(&r, "a");
    hutch_mcp_add_blob(&r, "d/\xc3\xa9 %.bin", (const unsigned char *)"\0", 1);
    hutch_mcp_add_member(&r, "x", "y");
    hutch_mcp_add_member(&r, "n", NULL);
    hutch_mcp_add_flag(&r, "f", true);
    r.is_error = true;
    hutch_mcp_result_write(&r, &t);
    assert_string_equal(t.data,
                        "\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"resource\",\"resource\":{\"uri\":"
                        "\"file:///mnt/data/d/%C3%A9%20%25.bin\",\"mimeType\":\"application/octet-stream\",\"blob\":"
                        "\"AA==\"}}],\"structuredContent\":{\"x\":\"y\",\"n\":null,\"f\":true},\"isError\":true");
    hutch_text_done(&t);
    hutch_mcp_result_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_excerpts), cmocka_unit_test(test_excerpts_of_anything), cmocka_unit_test(test_images),
        cmocka_unit_test(test_bounds_of_images), cmocka_unit_test(test_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
