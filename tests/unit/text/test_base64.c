/* test_base64.c - bytes as text and back. */
#include "runtime/text/base64.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* RFC 4648, section 10. */
static const struct {
    const char *bytes, *text;
} pairs[] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" },
              { "fooba", "Zm9vYmE=" },
              { "foobar", "Zm9vYmFy" }, { "\xff\xfe\xfd", "//79" }, { "\xfb\xef", "++8=" } };

static const char *const refused[] = { "Z", "Zg", "Zg=", "Zg===", "Z===", "====", "Zh==", "Zm9=", "Zg==Zg==", "Zm 9v",
                                       "Zm9v\r", "Zm9\xc3\xa9",
                                       "Zm-_", "=Zm9", "Zg=a" };

static void test_pairs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        size_t text_len, len;
        auto_free char *text = hutch_base64_encode(pairs[i].bytes, strlen(pairs[i].bytes), &text_len);
        auto_free unsigned char *bytes = hutch_base64_decode(pairs[i].text, strlen(pairs[i].text), &len);

        assert_string_equal(text, pairs[i].text);
        assert_int_equal(text_len, strlen(text));
        assert_non_null(bytes);
        assert_int_equal(len, strlen(pairs[i].bytes));
        assert_memory_equal(bytes, pairs[i].bytes, len);
    }
}

static void test_line_ends(void **state)
{
    static const char text[] = "Zm9v\nYm\r\nFy\n";
    size_t len;
    auto_free unsigned char *bytes = hutch_base64_decode(text, strlen(text), &len);

    (void)state;
    assert_non_null(bytes);
    assert_int_equal(len, 6);
    assert_memory_equal(bytes, "foobar", 6);
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        size_t len = 77;

        errno = 0;
        if (hutch_base64_decode(refused[i], strlen(refused[i]), &len) || errno != EINVAL || len != 77)
            fail_msg("'%s' is not refused", refused[i]);
    }
}

static void test_every_byte(void **state)
{
    unsigned char all[256];
    size_t text_len, len;

    (void)state;
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (unsigned char)i;
    for (size_t n = 0; n <= sizeof(all); n++) {
        auto_free char *text = hutch_base64_encode(all, n, &text_len);
        auto_free unsigned char *bytes = hutch_base64_decode(text, text_len, &len);

        assert_int_equal(len, n);
        assert_memory_equal(bytes, all, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_every_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
