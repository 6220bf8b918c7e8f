/* test_yaml.c - which YAML becomes which JSON, and what is refused. */
#include "runtime/text/yaml.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_what_is_read(void **state)
{
    static const struct { const char *text, *json; } cases[] = {
        { "a: b", "{\"a\":\"b\"}" },
        { "---\n# remark\na: b\n\nc:   d  # remark\n", "{\"a\":\"b\",\"c\":\"d\"}" },
        { "a:\r\n- b\r\n", "{\"a\":[\"b\"]}" },
        { "a:\n- b\n- c\nd: e", "{\"a\":[\"b\",\"c\"],\"d\":\"e\"}" }, /* as far left as its key: nvidia-ctk's way */
        { "a:\n  - b\n  - c", "{\"a\":[\"b\",\"c\"]}" },
        { "a:\n- p: 1\n  q: 2\n- p: 3", "{\"a\":[{\"p\":1,\"q\":2},{\"p\":3}]}" },
        { "- - a\n  - b\n- c", "[[\"a\",\"b\"],\"c\"]" },
        { "-\n  a: b\n-\n- c", "[{\"a\":\"b\"},null,\"c\"]" },
        { "a:\n  b:\n    c: d\n  e: f", "{\"a\":{\"b\":{\"c\":\"d\"},\"e\":\"f\"}}" },
        { "a:\nb: ~\nc: null\nd: true", "{\"a\":null,\"b\":null,\"c\":null,\"d\":true}" },
        { "a: 0\nb: -7\nc: 0666\nd: 0.5.0\ne: 1.5\nf: 123456789012345678",
          "{\"a\":0,\"b\":-7,\"c\":\"0666\",\"d\":\"0.5.0\",\"e\":\"1.5\",\"f\":\"123456789012345678\"}" },
        { "a: \"0\"\nb: '0'\nc: 'it''s'\nd: \"x\\\"\\n\"",
          "{\"a\":\"0\",\"b\":\"0\",\"c\":\"it's\",\"d\":\"x\\\"\\n\"}" },
        { "a: ''\nb: \"\"", "{\"a\":\"\",\"b\":\"\"}" },
        { "a: x::/y\nb: c#d\ne: '# no remark'", "{\"a\":\"x::/y\",\"b\":\"c#d\",\"e\":\"# no remark\"}" },
        { "\"a: b\": c\n'd': e", "{\"a: b\":\"c\",\"d\":\"e\"}" },
        { "a: {}\nb: []", "{\"a\":{},\"b\":[]}" },
        { "a: \"\\u0041\"", "{\"a\":\"\\u0041\"}" },
        { "text", "\"text\"" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *json = NULL;
        struct hutch_err err;
        size_t len;

        if (hutch_yaml_to_json("text", cases[i].text, strlen(cases[i].text), &json, &len, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err.msg);
        assert_string_equal(json, cases[i].json);
        assert_int_equal(len, strlen(json));
    }
}

static void test_what_is_refused(void **state)
{
    static const struct { const char *text, *why; } cases[] = {
        { "", "nothing in it" },
        { "# remark\n---\n", "nothing in it" },
        { "a: &b c", "line 1: something other than" },
        { "a: *b", "something other than" },
        { "a: !!str b", "something other than" },
        { "a: [b]", "something other than" },
        { "a: {b: c}", "something other than" },
        { "a: |\n  b", "line 1: something other than" },
        { "a: >\n  b", "something other than" },
        { "a: - b", "something other than" },
        { "? a\n: b", "something other than" },
        { "a: b: c", "a mapping where a text is expected" },
        { "a: b\n\tc: d", "line 2: a tab in the indentation" },
        { "a: \"b", "without its closing quote" },
        { "a: 'b", "without its closing quote" },
        { "a: \"", "without its closing quote" },
        { "a: 'b' 'c'", "behind its closing quote" },
        { "a: \"b\" \"c\"", "behind its closing quote" },
        { "a: \"\\x41\"", "an escape that JSON has not got" },
        { "a: \"b\\\"", "an escape that JSON has not got" },
        { "a: b\n  c: d", "line 2: a line that belongs to nothing above it" },
        { "a: b\n---\nc: d", "line 2: a key and ':' are expected" },
        { "a: b\nc", "line 2: a key and ':' are expected" },
        { "a: b\n- c", "line 2: a line that belongs to nothing above it" },
        { "&a b: c", "a key of another kind" },
        { "{a: b}", "a key of another kind" },
    };
    char deep[300], nul[] = "a: b\0c";
    auto_free char *json = NULL;
    struct hutch_err err;
    size_t len;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (hutch_yaml_to_json("text", cases[i].text, strlen(cases[i].text), &json, &len, &err) == 0)
            fail_msg("%s: taken as %s", cases[i].text, json);
        if (!strstr(err.msg, cases[i].why) || strncmp(err.msg, "text: ", 6) != 0)
            fail_msg("%s: %s", cases[i].text, err.msg);
    }
    for (size_t i = 0; i < 148; i++)
        memcpy(deep + 2 * i, "- ", 2);
    strcpy(deep + 296, "a");
    assert_int_equal(hutch_yaml_to_json("text", deep, strlen(deep), &json, &len, &err), -1);
    assert_non_null(strstr(err.msg, "too many levels"));
    assert_int_equal(hutch_yaml_to_json("text", nul, sizeof(nul) - 1, &json, &len, &err), -1);
    assert_non_null(strstr(err.msg, "NUL"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_refused),
    };

    return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
