/* The scanner below all readers of JSON: the tokens of a text, what its flags take, and the words it refuses with. */
#include "runtime/text/json_scan.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct json_scan scan_of(const char *text, size_t len, unsigned flags, struct hutch_err *err)
{
    return (struct json_scan){ .what = "x", .text = text, .len = len, .line = 1, .column = 1, .flags = flags,
                               .max_depth = 20, .err = err };
}

static enum json_token scan_all(struct json_scan *s)
{
    enum json_token token;

    while ((token = hutch_json_scan_next(s)) > JSON_END)
        ;
    return token;
}

static void test_tokens(void **state)
{
    static const char text[] = " {\"a\\n\" : [1, -2.5e3 ,\"x\"], \"\":{}, \"b\":[null,true,false,NaN]} ";
    static const struct {
        enum json_token token;
        const char *spelled;
        unsigned depth; /* after it */
        bool is_float;
    } want[] = {
        { JSON_OBJECT, "{", 1, false },    { JSON_KEY, "\"a\\n\"", 1, false }, { JSON_ARRAY, "[", 2, false },
        { JSON_NUMBER, "1", 2, false },    { JSON_NUMBER, "-2.5e3", 2, true }, { JSON_STRING, "\"x\"", 2, false },
        { JSON_CLOSE, "]", 1, false },     { JSON_KEY, "\"\"", 1, false },     { JSON_OBJECT, "{", 2, false },
        { JSON_CLOSE, "}", 1, false },     { JSON_KEY, "\"b\"", 1, false },    { JSON_ARRAY, "[", 2, false },
        { JSON_NULL, "null", 2, false },   { JSON_TRUE, "true", 2, false },    { JSON_FALSE, "false", 2, false },
        { JSON_NUMBER, "NaN", 2, true },   { JSON_CLOSE, "]", 1, false },      { JSON_CLOSE, "}", 0, false },
    };
    struct hutch_err err = { 0 };
    struct json_scan s = scan_of(text, strlen(text), JSON_TAKES_NAN, &err);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_int_equal(hutch_json_scan_next(&s), want[i].token);
        assert_int_equal(s.token_len, strlen(want[i].spelled));
        assert_memory_equal(s.token, want[i].spelled, s.token_len);
        assert_int_equal(s.depth, want[i].depth);
        if (want[i].token == JSON_NUMBER)
            assert_int_equal(s.is_float, want[i].is_float);
    }
    assert_int_equal(hutch_json_scan_next(&s), JSON_END);
    assert_int_equal(hutch_json_scan_next(&s), JSON_END); /* and again */
}

static void test_flags(void **state)
{
    static const struct {
        unsigned flags;
        const char *text, *message; /* NULL: it is taken */
    } cases[] = {
        { 0, "NaN", "expected a value" },
        { 0, "-Infinity", "line 1, column 2: expected a digit" },
        { JSON_TAKES_NAN, "[NaN,Infinity,-Infinity]", NULL },
        { JSON_TAKES_NAN, "-NaN", "expected a digit" },
        { JSON_TAKES_NAN, "nan", "expected a value" },
        { 0, "\"\\ud83d\\ude00\"", NULL },
        { 0, "\"\\ud83d\"", "half a surrogate pair in a string" },
        { 0, "\"\\ud83d\\u0041\"", "half a surrogate pair in a string" },
        { 0, "\"\\ud83d\\ud8\"", "half a surrogate pair in a string" },
        { 0, "\"\\ude00\"", "half a surrogate pair in a string" },
        { JSON_TAKES_SURROGATES, "\"\\ud83d\\u0041\\ude00\"", NULL },
        { JSON_TAKES_SURROGATES, "\"\\ud83d\\ud8\"", "expected four hexadecimal digits after \\u" },
        { JSON_TAKES_SURROGATES, "\"\xed\xa0\x80\"", "a byte that is not UTF-8" }, /* only as an escape */
        { 0, "\"\\u0000\x7f\"", NULL },
        { JSON_NO_CONTROL, "\"\\u0000\"", "\\u0000 in a string" },
        { JSON_NO_CONTROL, "\"\x7f\"", "a control character in a string" },
        { JSON_NO_CONTROL, "{\"\\u0000\":1}", "\\u0000 in a string" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { 0 };
        struct json_scan s = scan_of(cases[i].text, strlen(cases[i].text), cases[i].flags, &err);
        bool is_taken = scan_all(&s) == JSON_END;

        if (is_taken != (cases[i].message == NULL) || (!is_taken && !strstr(err.msg, cases[i].message)))
            fail_msg("%s: %s", cases[i].text, is_taken ? "it was taken" : err.msg);
    }
}

/* Where readers would differ if each had a scanner: every error has one sentence, and columns count characters. */
static void test_sentences(void **state)
{
    static const struct { const char *text, *message; } cases[] = {
        { "", "x: line 1, column 1: the text ends where a value should stand" },
        { "[", "x: line 1, column 2: the text ends where a value should stand" },
        { "[1", "x: line 1, column 3: the text ends within an array" },
        { "{", "x: line 1, column 2: the text ends within an object" },
        { "{\"a\":1,", "x: line 1, column 8: the text ends within an object" },
        { "{\"a\"", "x: line 1, column 5: expected ':' after a key" },
        { "{\"a\":1]", "x: line 1, column 7: expected ',' or '}'" },
        { "[1}", "x: line 1, column 3: expected ',' or ']'" },
        { "{1:1}", "x: line 1, column 2: expected a key in double quotes" },
        { "[\n\"\xc3\xa4\xf0\x9f\x98\x80\" 1]", "x: line 2, column 6: expected ',' or ']'" },
        { "\"\xc3\xa4\\x\"", "x: line 1, column 4: unknown escape in a string" },
        { "\"\\", "x: line 1, column 3: unknown escape in a string" },
        { "-01", "x: line 1, column 3: a number cannot start with 0 and go on" },
        { "1e+", "x: line 1, column 4: expected a digit" },
        { "tru", "x: line 1, column 1: expected a value" },
        { "[]]", "x: line 1, column 3: something follows the end of the value" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { 0 };
        struct json_scan s = scan_of(cases[i].text, strlen(cases[i].text), 0, &err);

        assert_int_equal(scan_all(&s), JSON_ERROR);
        assert_string_equal(err.msg, cases[i].message);
    }
}

static void test_depth(void **state)
{
    struct hutch_err err = { 0 };
    char deep[2 * JSON_SCAN_MAX_DEPTH + 1];
    struct json_scan s;

    (void)state;
    /* Objects and arrays in turn, so that each level's bracket has to be remembered. */
    for (unsigned depth = 0, at = 0; depth < 20; depth++)
        at += (unsigned)sprintf(deep + at, "%s", depth % 2 ? "{\"\":" : "[");
    for (unsigned depth = 20; depth-- > 0;)
        strcat(deep, depth == 19 ? "0}" : depth % 2 ? "}" : "]");
    s = scan_of(deep, strlen(deep), 0, &err);
    assert_int_equal(scan_all(&s), JSON_END);
    memset(deep, '[', sizeof(deep));
    s = scan_of(deep, sizeof(deep), 0, &err);
    assert_int_equal(scan_all(&s), JSON_ERROR);
    assert_string_equal(err.msg, "x: line 1, column 21: nested too deeply");
    s = scan_of(deep, sizeof(deep), 0, &err);
    s.max_depth = JSON_SCAN_MAX_DEPTH;
    assert_int_equal(scan_all(&s), JSON_ERROR);
    assert_string_equal(err.msg, "x: line 1, column 201: nested too deeply");
}

static void test_unescape(void **state)
{
    static const char token[] = "\"a\\u0000\\ud83d\\ude00\\ud83d\\n\xc3\xa4\\\"\"";
    char to[sizeof(token)];

    (void)state;
    assert_int_equal(hutch_json_scan_unescape(token, strlen(token), "", 1, to), 13);
    assert_memory_equal(to, "a\0\xf0\x9f\x98\x80\xed\xa0\xbd\n\xc3\xa4\"", 14);
    assert_int_equal(hutch_json_scan_unescape(token, strlen(token), "\xc0\x80", 2, to), 14);
    assert_memory_equal(to, "a\xc0\x80\xf0\x9f\x98\x80\xed\xa0\xbd\n\xc3\xa4\"", 15);
}

/* Any cut and any changed byte of a good text is taken or refused, never read beyond: the sanitizers watch. */
static void test_broken_texts_do_no_harm(void **state)
{
    static const char good[] =
        "{\"a\":[1,-2e-3,{\"b\":\"\\u00e4\\ud83d\\ude00\xc3\xa4\"}],\"c\":null,\"d\":[true,NaN]}";
    static const unsigned flags[] = { 0, JSON_NO_CONTROL, JSON_TAKES_NAN | JSON_TAKES_SURROGATES };

    (void)state;
    for (size_t f = 0; f < ARRAY_SIZE(flags); f++)
        for (size_t len = 0; len < sizeof(good) - 1; len++)
            for (unsigned flip = 0; flip < 256; flip++) {
                auto_free char *copy = malloc(len + !len); /* to the byte, so that a read behind the end shows */
                struct hutch_err err = { 0 };
                struct json_scan s = scan_of(copy, len, flags[f], &err);

                assert_non_null(copy);
                memcpy(copy, good, len);
                if (len > 0)
                    copy[len - 1] = (char)(copy[len - 1] ^ (int)flip);
                assert_true(scan_all(&s) <= JSON_END);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_unescape),
        cmocka_unit_test(test_broken_texts_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
