/* test_nbjson.c - notebooks' JSON, byte for byte as Python writes it: fixed cases here, random ones against python3
 * itself. */
#include "sandbox/fd.h"
#include "runtime/text/nbjson.h"
#include "tests/unit/place.h"

#include <cjson/cJSON.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char *rewrite(const char *text, size_t len, const struct nbjson_bounds *bounds, enum nbjson_form form,
                     struct hutch_err *err)
{
    cJSON *root = NULL;
    char *again;

    if (hutch_nbjson_parse("x", text, len, bounds, &root, err) < 0) {
        assert_null(root);
        return NULL;
    }
    again = hutch_nbjson_print(root, form, NULL);
    assert_non_null(again);
    cJSON_Delete(root);
    return again;
}

/* ---- fixed cases ---- */

static const struct { const char *text, *compact; } same_value[] = {
    { " {} ", "{}" }, { "[]", "[]" }, { "null", "null" }, { "[true,false]", "[true,false]" },
    { "{\"b\":1,\"a\":[{},[]]}", "{\"a\":[{},[]],\"b\":1}" },
    /* numbers: Python's int and float */
    { "1.0", "1.0" }, { "1e5", "100000.0" }, { "1.50", "1.5" }, { "1E400", "Infinity" }, { "-1e400", "-Infinity" },
        { "1e16", "1e+16" },
    { "1e15", "1000000000000000.0" }, { "123456789012345678901234567890", "123456789012345678901234567890" },
    { "-0", "0" },
    { "-0.0", "-0.0" }, { "0.0001", "0.0001" }, { "0.00001", "1e-05" }, { "1.5e-7", "1.5e-07" }, { "0.1", "0.1" },
    { "5e-324", "5e-324" }, { "1e-400", "0.0" }, { "1.7976931348623157e308", "1.7976931348623157e+308" },
    { "2.2250738585072014e-308", "2.2250738585072014e-308" }, { "9007199254740993.0", "9007199254740992.0" },
    { "0.30000000000000004", "0.30000000000000004" }, { "5.684341886080802e-14", "5.684341886080802e-14" },
    { "123456.789e3", "123456789.0" }, { "[NaN,Infinity,-Infinity]", "[NaN,Infinity,-Infinity]" }, { "-12", "-12" },
    /* strings */
    { "\"\\u00e4\\ud83d\\ude00\\/\"", "\"ä😀/\"" }, { "\"\\u0000\\u001F\\u007f\x7f\"", "\"\\u0000\\u001f\x7f\x7f\"" },
    { "\"\\b\\f\\n\\r\\t\\\"\\\\\"", "\"\\b\\f\\n\\r\\t\\\"\\\\\"" }, { "\"\\u2028\"", "\"\xe2\x80\xa8\"" },
    /* keys: the last of equal ones, sorted by code point and not by UTF-16 unit, U+0000 first */
    { "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}" }, { "{\"\":0,\"\\u0000\":1,\"\\u0001\":2,\"\\u0000a\":3}",
      "{\"\":0,\"\\u0000\":1,\"\\u0000a\":3,\"\\u0001\":2}" },
    { "{\"\\ud83d\\ude00\":1,\"\\uffee\":2,\"z\":3}", "{\"z\":3,\"\xef\xbf\xae\":2,\"😀\":1}" },
    { "{\"ab\":1,\"a\":2,\"B\":3}", "{\"B\":3,\"a\":2,\"ab\":1}" },
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(same_value); i++) {
        struct hutch_err err = { 0 };
        auto_free char *got = rewrite(same_value[i].text, strlen(same_value[i].text), &NBJSON_NOTEBOOK, NBJSON_COMPACT,
                                      &err);

        if (got == NULL)
            fail_msg("%s: %s", same_value[i].text, err.msg);
        assert_string_equal(got, same_value[i].compact);
    }
}

static void test_file_form(void **state)
{
    static const char text[] = "{\"b\":[1,{\"x\":[]}],\"a\":{}}";
    struct hutch_err err = { 0 };
    auto_free char *got = rewrite(text, strlen(text), &NBJSON_NOTEBOOK, NBJSON_FILE, &err);

    (void)state;
    assert_string_equal(got, "{\n \"a\": {},\n \"b\": [\n  1,\n  {\n   \"x\": []\n  }\n ]\n}\n");
}

static const struct { const char *text, *message; } broken[] = {
    { "", "line 1, column 1: the text ends where a value should stand" },
    { "{\"a\": 1,\n \"ä\": tru}", "line 2, column 7: expected a value" },
    { "[1,]", "line 1, column 4: expected a value" },
    { "{\"a\":1,}", "line 1, column 8: expected a key in double quotes" },
    { "{\"a\" 1}", "line 1, column 6: expected ':' after a key" }, { "[1 2]", "line 1, column 4: expected ',' or ']'" },
    { "{\"a\":1", "line 1, column 7: the text ends within an object" },
    { "01", "a number cannot start with 0 and go on" },
    { "1.", "line 1, column 3: expected a digit" }, { "1e+", "expected a digit" }, { "-", "expected a digit" },
    { "+1", "expected a value" },
    { ".5", "expected a value" }, { "1 1", "line 1, column 3: something follows the end of the value" },
    { "\"a", "the string does not end" }, { "\"a\\\"", "the string does not end" },
    { "\"\t\"", "a control character in a string" },
    { "\"\\x\"", "unknown escape in a string" }, { "\"\\u12g4\"", "expected four hexadecimal digits after \\u" },
    { "\"\\ud800\"", "half a surrogate pair" }, { "\"\\ud800\\u0041\"", "half a surrogate pair" },
    { "\"\\udc00\"", "half a surrogate pair" },
    { "\"\\ud800\\ud", "half a surrogate pair" },
    { "\"\xff\"", "a byte that is not UTF-8" }, { "\"\xc0\x80\"", "a byte that is not UTF-8" },
    { "\"\xed\xa0\x80\"", "a byte that is not UTF-8" },
    { "\"\xe2\x82", "a byte that is not UTF-8" }, { "\xef\xbb\xbf{}", "line 1, column 1: a byte order mark" },
    { "'a'", "expected a value" },
    { "nul", "expected a value" }, { "[\xc2\xa0]", "expected a value" },
};

static void test_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
        size_t len = strlen(broken[i].text);
        auto_free char *copy = malloc(len + 1); /* without a terminator: a byte too many is seen by AddressSanitizer */
        struct hutch_err err = { 0 };

        memcpy(copy, broken[i].text, len);
        assert_null(rewrite(copy, len, &NBJSON_NOTEBOOK, NBJSON_COMPACT, &err));
        if (strstr(err.msg, broken[i].message) == NULL)
            fail_msg("%s: %s", broken[i].text, err.msg);
    }
}

static void test_bounds(void **state)
{
    const struct nbjson_bounds small = { .max_len = 20, .max_depth = 3, .max_nodes = 5 };
    const struct nbjson_bounds strict = { .max_len = 1000, .max_depth = 9, .max_nodes = 99, .is_strict = true };
    static const struct { bool is_strict; const char *text, *message; } cases[] = {
        { false, "[[[1]]]", NULL }, { false, "[[[[]]]]", "nested too deeply" }, { false, "[1,2,3,4]", NULL },
        { false, "[1,2,3,4,5]", "more values than allowed" }, { false, "[                  ]", NULL },
        { false, "[                   ]", "21 bytes are more than 20" }, { true, "[1e308]", NULL },
        { true, "[1e309]", "too large" },
        { true, "NaN", "expected a value" }, { true, "[-Infinity]", "expected a digit" },
        { true, "Infinity", "expected a value" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { 0 };
        auto_free char *got = rewrite(cases[i].text, strlen(cases[i].text), cases[i].is_strict ? &strict : &small,
                                      NBJSON_COMPACT, &err);

        if ((got == NULL) != (cases[i].message != NULL) || (got == NULL && strstr(err.msg, cases[i].message) == NULL))
            fail_msg("%s: %s %s", cases[i].text, got ? got : "", err.msg);
    }
}

/* A million arrays do not become a million nodes, and are checked nevertheless. */
static void test_raw(void **state)
{
    const struct nbjson_bounds bounds = { .max_len = 1000, .max_depth = 5, .max_nodes = 6, .raw_depth = 2,
                                          .is_strict = true };
    static const char text[] = "{\"d\":{\"b\":[1, [2],\"\\u0000\"],\"a\":{\"y\":1,\"x\":2.50}},\"c\":\"é\",\"b\":[1]}";
    struct hutch_err err = { 0 };
    auto_free char *got = rewrite(text, strlen(text), &bounds, NBJSON_COMPACT, &err);
    static const char *const bad[] = { "[[[1,]]]", "[[[NaN]]]", "[[[\"\xff\"]]]", "[[[[[[]]]]]]", "[[{1:2}]]" };

    (void)state;
    assert_null(got); /* a value too many: the root, d, b, a, c, b, 1 */
    assert_non_null(strstr(err.msg, "more values"));
    got = rewrite(text, strlen(text), &(struct nbjson_bounds){ 1000, 5, 7, 2, true }, NBJSON_COMPACT, &err);
    assert_string_equal(got, "{\"b\":[1],\"c\":\"é\",\"d\":{\"a\":{\"y\":1,\"x\":2.50},\"b\":[1, [2],\"\\u0000\"]}}");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_null(rewrite(bad[i], strlen(bad[i]), &bounds, NBJSON_COMPACT, &err));
}

static void test_cjson_items(void **state)
{
    cJSON *root = cJSON_CreateObject();
    auto_free char *got = NULL;
    int64_t value;

    (void)state;
    cJSON_AddItemToObject(root, "z", cJSON_CreateNumber(3));
    cJSON_AddItemToObject(root, "y", cJSON_CreateNumber(0.1));
    cJSON_AddItemToObject(root, "x", cJSON_CreateString("a\xff\"b"));
    cJSON_AddItemToObject(root, "w", cJSON_CreateNumber(-0x1p53));
    cJSON_AddItemToObject(root, "v", cJSON_CreateRaw("[1]"));
    cJSON_AddItemToObject(root, "u", hutch_nbjson_string("a\0\xe2\x82" "b", 5));
    cJSON_AddItemToObject(root, "t", cJSON_CreateNumber(1e300));
    got = hutch_nbjson_print(root, NBJSON_COMPACT, NULL);
    assert_string_equal(got, "{\"t\":1e+300,\"u\":\"a\\u0000\xef\xbf\xbd" "b\",\"v\":[1],\"w\":-9007199254740992,"
                                                                          "\"x\":\"a\xef\xbf\xbd\\\"b\","
                             "\"y\":0.1,\"z\":3}");
    assert_true(hutch_nbjson_get_integer(cJSON_GetObjectItem(root, "w"), &value) && value == -(1ll << 53));
    assert_true(hutch_nbjson_get_integer(cJSON_GetObjectItem(root, "z"), &value) && value == 3);
    assert_false(hutch_nbjson_get_integer(cJSON_GetObjectItem(root, "y"), &value));
    assert_false(hutch_nbjson_get_integer(cJSON_GetObjectItem(root, "x"), &value));
    assert_false(hutch_nbjson_get_integer(NULL, &value));
    cJSON_Delete(root);
}

static void test_integers(void **state)
{
    static const struct { const char *text; bool is_integer; int64_t value; } cases[] = {
        { "4", true, 4 }, { "-7", true, -7 }, { "9223372036854775807", true, INT64_MAX },
            { "9223372036854775808", false, 0 },
        { "4.0", false, 0 }, { "4e0", false, 0 }, { "NaN", false, 0 }, { "\"4\"", false, 0 }, { "null", false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { 0 };
        cJSON *root = NULL;
        int64_t value = 0;

        assert_int_equal(hutch_nbjson_parse("x", cases[i].text, strlen(cases[i].text), &NBJSON_NOTEBOOK, &root, &err),
                         0);
        assert_int_equal(hutch_nbjson_get_integer(root, &value), cases[i].is_integer);
        assert_int_equal(value, cases[i].value);
        cJSON_Delete(root);
    }
}

/* The text of what a hostile notebook has is never longer than it looks. */
static void test_text(void **state)
{
    static const char json[] = "\"a\\u0000b\\u0000\"";
    struct hutch_err err = { 0 };
    cJSON *root = NULL;
    size_t len = 99;
    char *text;

    (void)state;
    assert_int_equal(hutch_nbjson_parse("x", json, strlen(json), &NBJSON_NOTEBOOK, &root, &err), 0);
    text = hutch_nbjson_text(root, &len);
    assert_int_equal(len, 4);
    assert_memory_equal(text, "a\0b\0", 5);
    free(text);
    cJSON_Delete(root);
}

static const struct { const char *text, *lines; } line_cases[] = {
    { "\"\"", "[]" }, { "\"a\"", "[\"a\"]" }, { "\"a\\n\"", "[\"a\\n\"]" }, { "\"a\\nb\"", "[\"a\\n\",\"b\"]" },
    { "\"\\r\\n\\n\\r\"", "[\"\\r\\n\",\"\\n\",\"\\r\"]" }, { "\"a\\u000bb\\u000cc\\u001cd\\u001de\\u001ef\\u001fg\"",
      "[\"a\\u000b\",\"b\\f\",\"c\\u001c\",\"d\\u001d\",\"e\\u001e\",\"f\\u001fg\"]" },
    { "\"a\\u0085b\\u2028c\\u2029d\"", "[\"a\xc2\x85\",\"b\xe2\x80\xa8\",\"c\xe2\x80\xa9\",\"d\"]" },
    { "\"\\u0000\\n\\u0000\"", "[\"\\u0000\\n\",\"\\u0000\"]" },
    { "\"\xc2\x84\xe2\x80\xaa\"", "[\"\xc2\x84\xe2\x80\xaa\"]" },
};

static void test_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(line_cases); i++) {
        cJSON *text = NULL, *lines, *joined;
        struct hutch_err err = { 0 };
        auto_free char *got = NULL;

        assert_int_equal(hutch_nbjson_parse("x", line_cases[i].text, strlen(line_cases[i].text), &NBJSON_NOTEBOOK,
                                            &text, &err), 0);
        lines = hutch_nbjson_split_lines(text);
        got = hutch_nbjson_print(lines, NBJSON_COMPACT, NULL);
        assert_string_equal(got, line_cases[i].lines);
        joined = hutch_nbjson_join_lines(lines);
        assert_string_equal(joined->valuestring, text->valuestring);
        cJSON_Delete(text);
        cJSON_Delete(lines);
        cJSON_Delete(joined);
    }
}

static void test_bundles(void **state)
{
    static const char json[] = "{\"text/plain\":\"a\\nb\",\"image/svg+xml\":\"<svg>\\n\","
                               "\"application/javascript\":\"x\\n\","
                               "\"image/png\":\"AA\\n\",\"application/json\":[\"a\\n\",\"b\"],"
                               "\"application/vnd.x+json\":\"a\\nb\","
                               "\"text/html\":[\"a\\n\",\"b\"],\"application/pdf\":[\"A\\n\",\"B\"],\"text/x\":[1],"
                               "\"text/y\":[]}";
    static const char split[] = "{\"application/javascript\":[\"x\\n\"],\"application/json\":[\"a\\n\",\"b\"],"
                                "\"application/pdf\":[\"A\\n\",\"B\"],"
                                "\"application/vnd.x+json\":\"a\\nb\",\"image/png\":\"AA\\n\","
                                "\"image/svg+xml\":[\"<svg>\\n\"],"
                                "\"text/html\":[\"a\\n\",\"b\"],\"text/plain\":[\"a\\n\",\"b\"],\"text/x\":[1],"
                                "\"text/y\":[]}";
    static const char joined[] = "{\"application/javascript\":\"x\\n\",\"application/json\":[\"a\\n\",\"b\"],"
                                 "\"application/pdf\":\"A\\nB\","
                                 "\"application/vnd.x+json\":\"a\\nb\",\"image/png\":\"AA\\n\","
                                 "\"image/svg+xml\":\"<svg>\\n\","
                                 "\"text/html\":\"a\\nb\",\"text/plain\":\"a\\nb\",\"text/x\":[1],\"text/y\":\"\"}";
    struct hutch_err err = { 0 };
    cJSON *data = NULL;
    char *got;

    (void)state;
    assert_int_equal(hutch_nbjson_parse("x", json, strlen(json), &NBJSON_NOTEBOOK, &data, &err), 0);
    assert_int_equal(hutch_nbjson_split_bundle(data), 0);
    got = hutch_nbjson_print(data, NBJSON_COMPACT, NULL);
    assert_string_equal(got, split);
    free(got);
    assert_int_equal(hutch_nbjson_join_bundle(data), 0);
    got = hutch_nbjson_print(data, NBJSON_COMPACT, NULL);
    assert_string_equal(got, joined);
    free(got);
    assert_int_equal(hutch_nbjson_split_member(data, "text/plain"), 0);
    assert_true(cJSON_IsArray(cJSON_GetObjectItem(data, "text/plain")));
    assert_int_equal(hutch_nbjson_split_member(data, "none"), 0);
    assert_int_equal(hutch_nbjson_join_member(data, "text/plain"), 0);
    assert_string_equal(cJSON_GetObjectItem(data, "text/plain")->valuestring, "a\nb");
    cJSON_Delete(data);
}

/* ---- random cases, against Python ---- */

static uint64_t random_state = 88172645463325252ull;

static uint32_t below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static void put_random_string(FILE *to)
{
    static const char *const parts[] = { "a", "Z", "\\n", "\\r", "\\u0000", "\\u001f", "\\u0085", "\\u2028", "é", "漢",
                                         "😀", "\\ud83d\\ude00",
                                         "\\/", "\\\"", "\\\\", "\x7f", "\\uFFFF", "\\ue000", "\\b", "\\f", "\\t",
                                         "\\u0041", " ", "\xc2\x85" };

    fputc('"', to);
    for (uint32_t n = below(5); n > 0; n--)
        fputs(parts[below(ARRAY_SIZE(parts))], to);
    fputc('"', to);
}

static void put_random_double(FILE *to)
{
    uint64_t high = below(1u << 31), middle = below(1u << 31);
    union { uint64_t bits; double value; } number = { .bits = high << 33 ^ middle << 12 ^ below(1u << 31) };

    switch (below(4)) {
    /* powers of two, where the neighbours are not as far on either side */
    case 0: number.value = ldexp(1, (int)below(2140) - 1080); break;
    case 1: number.value = (double)below(100000) / 1000; break;
    default: break;
    }
    if (!isfinite(number.value))
        number.value = 0;
    fprintf(to, below(2) ? "%.17g" : "%.25e", number.value);
}

static void put_random_number(FILE *to)
{
    if (below(2)) {
        put_random_double(to);
        return;
    }
    if (below(2))
        fputc('-', to);
    if (!below(6)) {
        fputc('0', to);
    } else {
        fprintf(to, "%u", 1 + below(below(3) ? 100 : 1u << 31));
        for (uint32_t n = below(8) ? 0 : below(30); n > 0; n--)
            fprintf(to, "%u", below(10));
    }
    if (below(2)) {
        fputc('.', to);
        for (uint32_t n = 1 + below(20); n > 0; n--)
            fprintf(to, "%u", below(10));
    }
    if (!below(3))
        fprintf(to, "%c%s%u", below(2) ? 'e' : 'E', &"+\0-\0\0"[2 * below(3)], below(below(10) ? 30 : 400));
}

static void put_random_value(FILE *to, unsigned depth)
{
    static const char *const words[] = { "null", "true", "false", "NaN", "Infinity", "-Infinity", "{}", "[]", " { } ",
                                         "[\n]" };
    uint32_t kind = below(depth > 5 ? 3 : 6);

    if (kind == 0) {
        fputs(words[below(ARRAY_SIZE(words))], to);
    } else if (kind == 1) {
        put_random_string(to);
    } else if (kind == 2) {
        put_random_number(to);
    } else {
        bool is_object = kind < 5;

        fputs(is_object ? "{" : "[", to);
        for (uint32_t n = 1 + below(6); n > 0; n--) {
            if (is_object) {
                put_random_string(to);
                fputs(below(2) ? ":" : " :\t", to);
            }
            put_random_value(to, depth + 1);
            fputs(n == 1 ? below(2) ? "" : "\r\n" : below(2) ? "," : " ,\n ", to);
        }
        fputs(is_object ? "}" : "]", to);
    }
}

#define N_RANDOM 4000

static const char python[] =
    "import json, sys\n"
    "for line in sys.stdin.buffer.read().decode().split('\\x1e')[:-1]:\n"
    "    sys.stdout.buffer.write((json.dumps(json.loads(line), indent=1, sort_keys=True, ensure_ascii=False) + "
    "'\\n\\x1e').encode())\n";

static void test_as_python(void **state)
{
    struct place *p = *state;
    char command[200], *line = NULL;
    size_t room = 0;
    FILE *given, *got;

    if (access("/usr/bin/python3", X_OK) != 0)
        skip();
    put(p->data, "as.py", python);
    given = fdopen(openat(p->data, "given", O_RDWR | O_CREAT | O_CLOEXEC, 0600), "w+");
    for (int i = 0; i < N_RANDOM; i++) {
        put_random_value(given, 0);
        fputc(0x1e, given);
    }
    rewind(given);
    snprintf(command, sizeof(command), "cd %s/data && /usr/bin/python3 -I as.py <given >got", p->path);
    assert_int_equal(system(command), 0);
    got = fdopen(openat(p->data, "got", O_RDONLY | O_CLOEXEC), "r");
    for (int i = 0; i < N_RANDOM; i++) {
        ssize_t len = getdelim(&line, &room, 0x1e, given);
        auto_free char *ours = NULL, *text = strndup(line, (size_t)len - 1);
        struct hutch_err err = { 0 };

        ours = rewrite(text, (size_t)len - 1, &NBJSON_NOTEBOOK, NBJSON_FILE, &err);
        if (ours == NULL)
            fail_msg("%s: %s", text, err.msg);
        len = getdelim(&line, &room, 0x1e, got);
        assert_true(len > 0);
        line[len - 1] = '\0';
        if (strcmp(line, ours) != 0)
            fail_msg("%s\nis here %s\nand with Python %s", text, ours, line);
    }
    fclose(given);
    fclose(got);
    free(line);
}

/* ---- mutations: no byte behind the text is read, and what is taken is taken again as it was written ---- */

#define N_MUTATIONS 100000

static void test_mutations(void **state)
{
    static const struct nbjson_bounds bounds = { .max_len = 4096, .max_depth = 20, .max_nodes = 200 },
        raw = { 4096, 20, 200, 2, true };
    unsigned taken = 0;

    (void)state;
    for (int i = 0; i < N_MUTATIONS; i++) {
        struct hutch_err err = { 0 };
        char *text = NULL, *first, *second;
        size_t len = 0;
        FILE *f = open_memstream(&text, &len);

        put_random_value(f, 2);
        fclose(f);
        for (uint32_t n = below(3); n > 0 && len > 0; n--) {
            static const char odd[] = "\"\\{}[]:,0eE.-\x00\xff\xc0\x80";

            switch (below(4)) {
            case 0: text[below((uint32_t)len)] ^= (char)(1 << below(8)); break;
            case 1: len = below((uint32_t)len + 1); break;
            case 2: text[below((uint32_t)len)] = odd[below(sizeof(odd))]; break;
            default: memmove(text, text + 1, --len); break;
            }
        }
        text = realloc(text, len + !len); /* its end is the end */
        first = rewrite(text, len, below(2) ? &bounds : &raw, NBJSON_FILE, &err);
        free(text);
        if (first == NULL) {
            assert_true(strncmp(err.msg, "x: ", 3) == 0);
            continue;
        }
        taken++;
        second = rewrite(first, strlen(first), &NBJSON_NOTEBOOK, NBJSON_FILE, &err);
        if (second == NULL)
            fail_msg("%s: %s", first, err.msg);
        text = rewrite(second, strlen(second), &NBJSON_NOTEBOOK, NBJSON_FILE, &err);
        assert_string_equal(second, text);
        free(text);
        free(first);
        free(second);
    }
    assert_in_range(taken, N_MUTATIONS / 10, N_MUTATIONS * 9 / 10);
}

/* A program that the library is part of may have set a locale with another point. */
static void test_locale(void **state)
{
    struct place *p = *state;
    char command[200];

    snprintf(command, sizeof(command), "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", p->path, p->path);
    if (system(command) == -1 || setenv("LOCPATH", p->path, 1) < 0 || setlocale(LC_ALL, "de_DE.UTF-8") == NULL)
        skip(); /* no sources of locales here */
    snprintf(command, sizeof(command), "%.1f", 0.5);
    assert_string_equal(command, "0,5");
    test_values(NULL);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_file_form), cmocka_unit_test(test_broken),
        cmocka_unit_test(test_bounds),    cmocka_unit_test(test_raw),       cmocka_unit_test(test_cjson_items),
        cmocka_unit_test(test_integers),  cmocka_unit_test(test_text),      cmocka_unit_test(test_lines),
        cmocka_unit_test(test_bundles),
        cmocka_unit_test_setup_teardown(test_as_python, place_set_up, place_tear_down),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test_setup_teardown(test_locale, place_set_up, place_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
