/* The strict reader of JSON: what is refused, in which words, and how places are named. */
#include "runtime/text/json.h"

#include "sandbox/fd.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ' stands for ". */
static int parse(const char *text, struct json_doc *doc, struct hutch_err *err)
{
    auto_free char *json = strdup(text);

    assert_non_null(json);
    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    return hutch_json_parse("file 'x'", json, strlen(json), 4, doc, err);
}

static void test_text(void **state)
{
    static const struct {
        const char *text;
        const char *want; /* NULL: fine */
    } cases[] = {
        { "{}", NULL },
        { " [ 1 , -2.5e+3, true, false, null, 'x' ] \n", NULL },
        { "'\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \\u00e4 \\ud83d\\ude00 \\n\\\\'", NULL },
        { "[[[[1]]]]", NULL },
        { "", "file 'x': line 1, column 1: the text ends where a value should stand" },
        { "  \n ", "file 'x': line 2, column 2: the text ends where a value should stand" },
        { "{} {}", "file 'x': line 1, column 4: something follows the end of the value" },
        { "{}x", "file 'x': line 1, column 3: something follows the end of the value" },
        { "// comment\n{}", "file 'x': line 1, column 1: expected a value" },
        { "{'a':1,}", "file 'x': line 1, column 8: expected a key in double quotes" },
        { "[1,]", "file 'x': line 1, column 4: expected a value" },
        { "[1 2]", "file 'x': line 1, column 4: expected ',' or ']'" },
        { "{'a' 1}", "file 'x': line 1, column 6: expected ':' after a key" },
        { "{'a':1 'b':2}", "file 'x': line 1, column 8: expected ',' or '}'" },
        { "{a:1}", "file 'x': line 1, column 2: expected a key in double quotes" },
        { "{\n 'a': tru\n}", "file 'x': line 2, column 7: expected a value" },
        { "{'a':", "file 'x': line 1, column 6: the text ends where a value should stand" },
        { "[[[[[1]]]]]", "file 'x': line 1, column 5: nested too deeply" },
        { "01", "file 'x': line 1, column 2: a number cannot start with 0 and go on" },
        { "+1", "file 'x': line 1, column 1: expected a value" },
        { ".5", "file 'x': line 1, column 1: expected a value" },
        { "1.", "file 'x': line 1, column 3: expected a digit" },
        { "1e", "file 'x': line 1, column 3: expected a digit" },
        { "-", "file 'x': line 1, column 2: expected a digit" },
        { "NaN", "file 'x': line 1, column 1: expected a value" },
        /* cJSON would copy the first 63 digits and go on */
        { "11111111111111111111111111111111111111111", "file 'x': line 1, column 42: a number with too many digits" },
        { "'abc", "file 'x': line 1, column 5: the string does not end" },
        { "'a\nb'", "file 'x': line 1, column 3: a control character in a string" },
        { "'a\x7f'", "file 'x': line 1, column 3: a control character in a string" },
        { "'\\x'", "file 'x': line 1, column 3: unknown escape in a string" },
        { "'\\u00g0'", "file 'x': line 1, column 6: expected four hexadecimal digits after \\u" },
        { "'/etc/x\\u0000.json'", "file 'x': line 1, column 14: \\u0000 in a string" },
        { "'\\ud83d'", "file 'x': line 1, column 8: half a surrogate pair in a string" },
        { "'\\ude00'", "file 'x': line 1, column 8: half a surrogate pair in a string" },
        { "'\\ud83d\\u0041'", "file 'x': line 1, column 14: half a surrogate pair in a string" },
        { "'\xff'", "file 'x': line 1, column 2: a byte that is not UTF-8" },
        { "'\xc0\xaf'", "file 'x': line 1, column 2: a byte that is not UTF-8" },     /* "/" in too many bytes */
        { "'\xed\xa0\x80'", "file 'x': line 1, column 2: a byte that is not UTF-8" }, /* a surrogate */
        { "'\xf4\x90\x80\x80'", "file 'x': line 1, column 2: a byte that is not UTF-8" },
        { "'\xe2\x82", "file 'x': line 1, column 2: a byte that is not UTF-8" },
        { "\xef\xbb\xbf{}", "file 'x': line 1, column 1: a byte order mark: save the file as UTF-8 without one" },
        { "\xff\xfe{", "file 'x': line 1, column 1: a byte order mark: save the file as UTF-8 without one" },
        { "[\xef\xbb\xbf", "file 'x': line 1, column 2: a byte order mark: save the file as UTF-8 without one" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { .msg = "" };
        struct json_doc doc = JSON_DOC_INIT;
        int rc = parse(cases[i].text, &doc, &err);

        if (!cases[i].want) {
            if (rc != 0)
                fail_msg("%s: %s", cases[i].text, err.msg);
            hutch_json_done(&doc);
        } else if (rc != -1 || strcmp(err.msg, cases[i].want) != 0 || err.errnum != 0) {
            fail_msg("%s: got %d '%s', wanted '%s'", cases[i].text, rc, err.msg, cases[i].want);
        }
    }
}

static void test_nul_byte_in_the_text(void **state)
{
    static const char text[] = "{}\0{}";
    struct json_doc doc = JSON_DOC_INIT;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_json_parse("file 'x'", text, sizeof(text) - 1, 4, &doc, &err), -1);
    assert_string_equal(err.msg, "file 'x': line 1, column 3: something follows the end of the value");
}

/* Any cut and any flipped byte of a good text is read or refused, never more: valgrind and the sanitizers watch. */
static void test_broken_texts_do_no_harm(void **state)
{
    static const char good[] = "{\"a\":[1,2.5e-3,{\"b\":\"\\u00e4\\ud83d\\ude00\xc3\xa4\"}],\"c\":null,\"d\":true}";

    (void)state;
    for (size_t cut = 0; cut < sizeof(good) - 1; cut++) {
        auto_free char *copy = malloc(cut ? cut : 1); /* to the byte, so that a read behind the end shows */
        struct json_doc doc = JSON_DOC_INIT;
        struct hutch_err err;

        assert_non_null(copy);
        memcpy(copy, good, cut);
        assert_int_equal(hutch_json_parse("x", copy, cut, 8, &doc, &err), -1);
    }
    for (size_t at = 0; at < sizeof(good) - 1; at++)
        for (unsigned flip = 1; flip < 256; flip++) {
            auto_free char *copy = strdup(good);
            struct json_doc doc = JSON_DOC_INIT;
            struct hutch_err err;

            assert_non_null(copy);
            copy[at] = (char)(copy[at] ^ (int)flip);
            if (hutch_json_parse("x", copy, sizeof(good) - 1, 8, &doc, &err) == 0)
                hutch_json_done(&doc);
        }
}

/* ---- objects ---- */

struct point {
    uint64_t x;
    const char *name;
    bool is_set;
    size_t n_seen;
};

static int read_x(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, 100, &((struct point *)context)->x, err);
}

static int read_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, 5, &((struct point *)context)->name, err);
}

static int read_is_set(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_bool(node, &((struct point *)context)->is_set, err);
}

static int count_element(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t ignored;

    ((struct point *)context)->n_seen++;
    return hutch_json_u64(node, 0, JSON_U64_MAX, &ignored, err);
}

static int read_list(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_array(node, 3, count_element, context, err);
}

static int read_map(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_map(node, 3, count_element, context, err);
}

static void test_objects(void **state)
{
    static const struct json_field fields[] = {
        { "x", read_x, true }, { "name", read_name, false }, { "set", read_is_set, false },
        { "list", read_list, false }, { "map", read_map, false }, { "any", NULL, false },
    };
    static const struct {
        const char *text;
        const char *want; /* NULL: fine */
    } cases[] = {
        { "{'x':5,'name':'abcde','set':true,'list':[1,2,3],'map':{'a':1,'b c':2},'any':[[]]}", NULL },
        { "{'x':1e2}", NULL },
        { "[]", "file 'x': at $: expected an object, got an array of 0" },
        { "{}", "file 'x': at $: the key \"x\" is missing" },
        { "{'x':5,'y':6}", "file 'x': at $.y: unknown key; known here: x, name, set, list, map, any" },
        { "{'x':5,'X':6}", "file 'x': at $.X: unknown key; known here: x, name, set, list, map, any" },
        { "{'x':5,'x':6}", "file 'x': at $.x: this key is there twice" },
        { "{'x':5,'\\u0078':6}", "file 'x': at $.x: this key is there twice" },
        { "{'x':0}", "file 'x': at $.x: expected a whole number 1..100, got 0" },
        { "{'x':101}", "file 'x': at $.x: expected a whole number 1..100, got 101" },
        { "{'x':-1}", "file 'x': at $.x: expected a whole number 1..100, got -1" },
        { "{'x':1.5}", "file 'x': at $.x: expected a whole number 1..100, got 1.5" },
        { "{'x':1e999}", "file 'x': at $.x: expected a whole number 1..100, got inf" },
        { "{'x':'5'}", "file 'x': at $.x: expected a whole number 1..100, got \"5\"" },
        { "{'x':null}", "file 'x': at $.x: expected a whole number 1..100, got null" },
        { "{'x':{}}", "file 'x': at $.x: expected a whole number 1..100, got an object" },
        { "{'x':5,'name':7}", "file 'x': at $.name: expected a string, got 7" },
        { "{'x':5,'name':'abcdef'}", "file 'x': at $.name: longer than 5 bytes" },
        { "{'x':5,'set':'yes'}", "file 'x': at $.set: expected true or false, got \"yes\"" },
        { "{'x':5,'set':1}", "file 'x': at $.set: expected true or false, got 1" },
        { "{'x':5,'list':7}", "file 'x': at $.list: expected an array, got 7" },
        { "{'x':5,'list':[1,2,true]}",
          "file 'x': at $.list[2]: expected a whole number 0..9007199254740992, got true" },
        { "{'x':5,'list':[1,2,3,4]}", "file 'x': at $.list: more than 3 entries" },
        { "{'x':5,'list':[9007199254740994]}",
          "file 'x': at $.list[0]: expected a whole number 0..9007199254740992, got 9007199254740994" },
        { "{'x':5,'map':{'a':1,'a':2}}", "file 'x': at $.map.a: this key is there twice" },
        { "{'x':5,'map':{'b c':'x'}}",
          "file 'x': at $.map[\"b c\"]: expected a whole number 0..9007199254740992, got \"x\"" },
        { "{'x':5,'map':{'':'x'}}",
          "file 'x': at $.map[\"\"]: expected a whole number 0..9007199254740992, got \"x\"" },
        { "{'x':5,'map':{'a':1,'b':1,'c':1,'d':1}}", "file 'x': at $.map: more than 3 entries" },
        { "{'x':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}",
          "file 'x': at $.x: expected a whole number 1..100, got "
          "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"\xe2\x80\xa6" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_doc doc = JSON_DOC_INIT;
        struct hutch_err err = { .msg = "" };
        struct point point = { 0 };
        struct json_node root;
        int rc;

        if (parse(cases[i].text, &doc, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err.msg);
        root = hutch_json_root(&doc);
        rc = hutch_json_object(&root, fields, ARRAY_SIZE(fields), &point, &err);
        if (cases[i].want ? rc != -1 || strcmp(err.msg, cases[i].want) != 0 : rc != 0)
            fail_msg("%s: got %d '%s', wanted '%s'", cases[i].text, rc, err.msg, cases[i].want ? cases[i].want
                                                                                               : "success");
        if (i == 0) {
            assert_int_equal(point.x, 5);
            assert_string_equal(point.name, "abcde");
            assert_true(point.is_set);
            assert_int_equal(point.n_seen, 5);
        }
        hutch_json_done(&doc);
        hutch_json_done(&doc); /* twice is fine */
    }
}

/* More keys than fit the small table that is looked at without allocating. */
static void test_many_keys(void **state)
{
    static const struct json_field fields[] = { { "x", read_x, true } };
    char text[1024] = "{";
    struct json_doc doc = JSON_DOC_INIT;
    struct json_node root;
    struct point point;
    struct hutch_err err;

    (void)state;
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "'k%d':1,", i);
    strcat(text, "'k7':1}");
    assert_int_equal(parse(text, &doc, &err), 0);
    root = hutch_json_root(&doc);
    assert_int_equal(hutch_json_object(&root, fields, 1, &point, &err), -1);
    assert_string_equal(err.msg, "file 'x': at $.k7: this key is there twice");
    hutch_json_done(&doc);
}

/* ---- files ---- */

static void test_files(void **state)
{
    char dir[] = "/tmp/hutch-test-json.XXXXXX", path[64], want[160];
    struct json_doc doc = JSON_DOC_INIT;
    struct hutch_err err;
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/f", dir);

    assert_int_equal(hutch_json_load("policy", path, 100, 4, &doc, &err), -1);
    snprintf(want, sizeof(want), "open policy '%s': No such file or directory", path);
    assert_string_equal(err.msg, want);

    assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not wait for a writer */
    assert_int_equal(hutch_json_load("policy", path, 100, 4, &doc, &err), -1);
    snprintf(want, sizeof(want), "policy '%s' is not a regular file", path);
    assert_string_equal(err.msg, want);
    assert_int_equal(unlink(path), 0);

    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"x\":%100d}", 1);
    fclose(file);
    assert_int_equal(hutch_json_load("policy", path, 100, 4, &doc, &err), -1);
    snprintf(want, sizeof(want), "policy: read '%s' (the limit is 100 bytes): File too large", path);
    assert_string_equal(err.msg, want);

    file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"x\":}", file);
    fclose(file);
    assert_int_equal(hutch_json_load("policy", path, 100, 4, &doc, &err), -1);
    snprintf(want, sizeof(want), "policy '%s': line 1, column 6: expected a value", path);
    assert_string_equal(err.msg, want);
    assert_int_equal(unlink(path), 0);

    assert_int_equal(hutch_json_load("policy", dir, 100, 4, &doc, &err), -1);
    snprintf(want, sizeof(want), "policy '%s' is not a regular file", dir);
    assert_string_equal(err.msg, want);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_nul_byte_in_the_text),
        cmocka_unit_test(test_broken_texts_do_no_harm),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
