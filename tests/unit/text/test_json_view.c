/* JSON looked at in place: what is taken and refused, and how values are found. */
#include "runtime/text/buffer.h"
#include "runtime/text/json_scan.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_takes_what_python_writes(void **state)
{
    static const char *const texts[] = {
        "{}", "[]", " [1, 2] \n", "\"\"", "-0.5e+10", "NaN", "-Infinity", "[Infinity]",
        "\"\\ud800\"", "\"\\u0000\"", "\"\x7f\"",
        "{\"a\": {\"b\": [null, true, false]}}", "\"\xc3\xa9\xf0\x9f\x98\x80\"",
        "123456789012345678901234567890123456789012345678901",
    };
    struct json_view value;
    struct hutch_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (hutch_json_view_check("x", 1, 1, texts[i], strlen(texts[i]), &value, &err) < 0)
            fail_msg("%s: %s", texts[i], err.msg);
}

static void test_refuses_with_line_and_column(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "x: line 7, column 3: the text ends where a value should stand" },
        { "{\"a\": 1", "x: line 7, column 10: the text ends within an object" },
        { "[1\n 2]", "x: line 8, column 2: expected ',' or ']'" },
        { "[1,]", "x: line 7, column 6: expected a value" },
        { "{a: 1}", "x: line 7, column 4: expected a key in double quotes" },
        { "{\"a\" 1}", "x: line 7, column 8: expected ':' after a key" },
        { "\"\n\"", "x: line 7, column 4: a control character in a string" },
        { "\"\\x\"", "x: line 7, column 5: unknown escape in a string" },
        { "\"\\u12\"", "x: line 7, column 8: expected four hexadecimal digits after \\u" },
        { "\"abc", "x: line 7, column 7: the string does not end" },
        { "\"\xff\"", "x: line 7, column 4: a byte that is not UTF-8" },
        { "\"\xc0\x80\"", "x: line 7, column 4: a byte that is not UTF-8" }, /* an overlong NUL */
        { "01", "x: line 7, column 4: a number cannot start with 0 and go on" },
        { "1 2", "x: line 7, column 5: something follows the end of the value" },
        { "nul", "x: line 7, column 3: expected a value" },
        { "-", "x: line 7, column 4: expected a digit" },
        { "1.", "x: line 7, column 5: expected a digit" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_view value;
        struct hutch_err err;

        if (hutch_json_view_check("x", 7, 3, cases[i].text, strlen(cases[i].text), &value, &err) == 0)
            fail_msg("'%s' was taken", cases[i].text);
        assert_string_equal(err.msg, cases[i].message);
    }
}

static void test_nesting_is_bounded(void **state)
{
    struct json_view value;
    struct hutch_err err;
    char deep[100000];

    (void)state;
    memset(deep, '[', sizeof(deep));
    assert_int_equal(hutch_json_view_check("x", 1, 1, deep, sizeof(deep), &value, &err), -1);
    assert_non_null(strstr(err.msg, "nested too deeply"));
    memset(deep + JSON_SCAN_MAX_DEPTH, ']', JSON_SCAN_MAX_DEPTH);
    assert_int_equal(hutch_json_view_check("x", 1, 1, deep, 2 * JSON_SCAN_MAX_DEPTH, &value, &err), 0);
}

static struct json_view parse(const char *text)
{
    struct json_view value;
    struct hutch_err err;

    if (hutch_json_view_check("x", 1, 1, text, strlen(text), &value, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    return value;
}

static void assert_spelled(struct json_view value, const char *text)
{
    if (value.len != strlen(text) || memcmp(value.text, text, value.len) != 0)
        fail_msg("got '%.*s', wanted '%s'", (int)value.len, value.text, text);
}

static void test_values_are_found_in_place(void **state)
{
    struct json_view root =
        parse(" { \"a\" : [ 1 , \"x]\\\"}\" , {\"b\":2} ] ,\"b\":-3,\"n\":null,\"a\\\\\":5,\"b\": 4 } ");
    struct json_walk walk = hutch_json_view_walk(hutch_json_view_get(root, "a"));
    struct json_view key, value;
    int64_t number;

    (void)state;
    assert_int_equal(hutch_json_view_count(root), 5);
    assert_spelled(hutch_json_view_get(root, "b"), "4"); /* the last one of two */
    assert_true(hutch_json_view_integer(hutch_json_view_get(root, "b"), &number));
    assert_int_equal(number, 4);
    assert_true(hutch_json_view_is_null(hutch_json_view_get(root, "n")));
    assert_true(hutch_json_view_is_null(hutch_json_view_get(root, "missing")));
    assert_null(hutch_json_view_get(root, "missing").text);
    assert_true(hutch_json_view_next(&walk, &key, &value));
    assert_spelled(value, "1");
    assert_true(hutch_json_view_next(&walk, &key, &value));
    assert_spelled(value, "\"x]\\\"}\"");
    assert_true(hutch_json_view_next(&walk, &key, &value));
    assert_spelled(value, "{\"b\":2}");
    assert_false(hutch_json_view_next(&walk, &key, &value));
    walk = hutch_json_view_walk(parse("7"));
    assert_false(hutch_json_view_next(&walk, &key, &value));
    assert_false(hutch_json_view_integer(parse("1.5"), &number));
    assert_false(hutch_json_view_integer(parse("99999999999999999999"), &number));
    assert_false(hutch_json_view_integer(parse("\"1\""), &number));
}

static void test_text(void **state)
{
    static const struct {
        const char *spelled, *text;
        size_t len;
    } cases[] = {
        { "\"\"", "", 0 },
        { "\"a\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "a\n\t\"\\/\b\f\r", 9 },
        { "\"\\u00e9\\u20ac\\ud83d\\ude00\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9 },
        { "\"a\\u0000b\"", "a\0b", 3 },
        { "\"\\ud800x\"", "\xed\xa0\x80x", 4 },              /* half a pair stays what it is */
        { "\"\\ud800\\ud800\"", "\xed\xa0\x80\xed\xa0\x80", 6 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *text = NULL;
        struct hutch_err err;
        size_t len;

        assert_int_equal(hutch_json_view_text(parse(cases[i].spelled), &text, &len, &err), 0);
        assert_int_equal(len, cases[i].len);
        assert_memory_equal(text, cases[i].text, len + 1);
    }
}

static void test_quoted_text_is_valid_again(void **state)
{
    static const char bytes[] = "a\"\\\n\r\t\b\f\x01\x7f\xff\xc3\xa9\xc2\x9b\xe2\x80\xae\xe2\x82";
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *text = NULL;

    (void)state;
    hutch_json_quote(&t, bytes, sizeof(bytes)); /* the NUL too */
    text = hutch_text_take(&t, NULL);
    assert_string_equal(text,
                        "\"a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u007f"
                        "\xef\xbf\xbd\xc3\xa9\\u009b\\u202e\xef\xbf\xbd\\u0000\"");
    parse(text);
}

/* Texts of pieces whose spelling is known, longer than what is quoted at a time: each piece falls on each place. */
static void test_drawn_texts_come_back(void **state)
{
    static const struct {
        const char *text, *spelled;
    } pieces[] = {
        { "\"", "\\\"" }, { "\\", "\\\\" }, { "\n", "\\n" }, { "\x01", "\\u0001" }, { "\x7f", "\\u007f" },
        { "\xc3\xa9", "\xc3\xa9" }, { "\xe2\x80\xae", "\\u202e" }, { "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
    };
    unsigned seed = 20240310;

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct text_buffer want = TEXT_BUFFER_INIT, bytes = TEXT_BUFFER_INIT, quoted = TEXT_BUFFER_INIT;
        struct json_walk walk;
        struct json_view key, value;
        struct hutch_err err;
        auto_free char *text = NULL;
        int64_t number = 0;
        size_t len;

        hutch_text_add_string(&want, "[\"");
        while (bytes.len < 10000) {
            const char *plain = "The quick brown fox jumps over the lazy dog; 0123456789";
            size_t piece = (size_t)rand_r(&seed) % ARRAY_SIZE(pieces), n = (size_t)rand_r(&seed) % 40;

            if (round % 2)
                n = n > 36 ? n : 0; /* many escapes beside each other */
            hutch_text_add(&bytes, plain, n);
            hutch_text_add(&want, plain, n);
            hutch_text_add_string(&bytes, pieces[piece].text);
            hutch_text_add_string(&want, pieces[piece].spelled);
        }
        hutch_text_add_string(&want, "\",7]");
        hutch_text_add_string(&quoted, "[");
        hutch_json_quote(&quoted, bytes.data, bytes.len);
        hutch_text_add_string(&quoted, ",7]");
        assert_string_equal(quoted.data, want.data);
        walk = hutch_json_view_walk(parse(quoted.data));
        assert_true(hutch_json_view_next(&walk, &key, &value));
        assert_int_equal(hutch_json_view_text(value, &text, &len, &err), 0);
        assert_int_equal(len, bytes.len);
        assert_memory_equal(text, bytes.data, len);
        assert_true(hutch_json_view_next(&walk, &key, &value) && hutch_json_view_integer(value, &number));
        assert_int_equal(number, 7);
        hutch_text_done(&want);
        hutch_text_done(&bytes);
        hutch_text_done(&quoted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_python_writes),
        cmocka_unit_test(test_refuses_with_line_and_column),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_values_are_found_in_place),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_quoted_text_is_valid_again),
        cmocka_unit_test(test_drawn_texts_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
