/* test_result_text.c - the result of a cell as JSON, and as text for a language model. */
#include "runtime/text/ansi.h"
#include "runtime/cell/result_json.h"
#include "runtime/text/nbimage.h"
#include "runtime/cell/model_text.h"
#include "runtime/cell/result_text.h"
#include "runtime/data/changes.h"
#include "sandbox/fd.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 640 by 480, and no picture */
#define PNG "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAAAElFTkSuQmCC\\n"

static struct hutch_cell_result plain(const char *outputs)
{
    return (struct hutch_cell_result){ .size = sizeof(struct hutch_cell_result), .verdict = HUTCH_OK,
                                       .execution_count = 7, .message = "",
                                       .outputs = outputs, .cpu_user_ms = HUTCH_UNKNOWN, .cpu_system_ms = HUTCH_UNKNOWN,
                                       .memory_peak_bytes = HUTCH_UNKNOWN };
}

/* ---- JSON ---- */

static void test_json(void **state)
{
    struct hutch_cell_result result =
        plain("[{\"data\":{\"application/json\":{\"b\":1.50,\"a\":[]},\"text/plain\":\"3\\u0000\"},"
              "\"execution_count\":7,\"metadata\":{},"
              "\"output_type\":\"execute_result\",\"transient\":{\"display_id\":\"x\"}}]");
    auto_free char *got = NULL;

    (void)state;
    result.queued_ms = 0.5;
    result.run_ms = 1234.5678;
    result.t_busy = 1700000000.25;
    result.cpu_user_ms = 12;
    got = hutch_cell_result_to_json(&result);
    assert_string_equal(got, "{\"version\":1,\"verdict\":\"ok\",\"message\":null,\"execution_count\":7,"
                             "\"value\":\"3\\u0000\",\"value_json\":null,"
                             "\"outputs\":[{\"data\":{\"application/json\":{\"b\":1.50,\"a\":[]},"
                             "\"text/plain\":\"3\\u0000\"},"
                             "\"execution_count\":7,\"metadata\":{},\"output_type\":\"execute_result\"}],"
                             "\"truncated\":false,\"error\":null,"
                             "\"interrupted\":false,\"interpreter_died\":false,\"fresh\":false,\"files\":null,"
                             "\"timings_ms\":{\"queued\":0.500,\"run\":1234.568},"
                             "\"times\":{\"busy\":1700000000.250000,\"input\":null,\"reply\":null,\"idle\":null},"
                             "\"usage\":{\"cpu_user_ms\":12,\"cpu_system_ms\":null,\"memory_peak_bytes\":null}}");
}

static void test_json_of_error(void **state)
{
    struct file_change added[] = { { .path = "a\xff.png", .size = 23000, .mime = "image/png" } },
        deleted[] = { { .path = "old" } };
    struct file_changes files = { .added = { added, 1, 1 }, .deleted = { deleted, 1, 1 } };
    struct hutch_cell_details details = { .code = "x", .cause = "E, because of F", .files = &files,
                                          .directory = "/home/x" };
    struct hutch_cell_result result = plain("[]");
    auto_free char *got = NULL;
    cJSON *root;

    (void)state;
    result.verdict = HUTCH_TIMEOUT;
    result.message = "it took 3 s";
    result.error_name = "E";
    result.error_value = "";
    result.error_traceback = "t\n";
    result.error_traceback_ansi = "\x1b[0mt\n";
    result.error_line = 3;
    result.interpreter_died = 1;
    result.execution_count = 0;
    result.internal = &details;
    got = hutch_cell_result_to_json(&result);
    assert_non_null(strstr(got, "\"verdict\":\"timeout\",\"message\":\"it took 3 s\",\"execution_count\":null,"
                                "\"value\":null"));
    assert_non_null(strstr(got, "\"error\":{\"name\":\"E\",\"value\":\"\",\"line\":3,\"cause\":\"E, because of F\","
                                "\"traceback\":\"t\\n\","
                                "\"traceback_ansi\":\"\\u001b[0mt\\n\"}"));
    assert_non_null(strstr(got, "\"files\":{\"directory\":\"/home/x\",\"added\":[{\"path\":\"a\xef\xbf\xbd.png\""));
    assert_non_null(strstr(got, "\"interpreter_died\":true"));
    root = cJSON_Parse(got);
    assert_non_null(root);
    cJSON_Delete(root);
}

/* ---- text ---- */

#define STREAM(name, text) "{\"name\":\"" name "\",\"output_type\":\"stream\",\"text\":\"" text "\"}"
#define SHOWN(data) "{\"data\":{" data "},\"metadata\":{},\"output_type\":\"display_data\"}"
#define VALUE(data) "{\"data\":{" data "},\"execution_count\":7,\"metadata\":{},\"output_type\":\"execute_result\"}"

static const struct { const char *label, *outputs, *want; } texts[] = {
    { "nothing", "[]", "[no output]" },
    { "stream", "[" STREAM("stdout", "a\\nb\\n") "]", "a\nb" },
    { "stderr", "[" STREAM("stdout", "a") "," STREAM("stderr", "w\\n") "," STREAM("stdout", "b\\n") "]",
      "a\n[stderr]\nw\nb" },
    { "value", "[" VALUE("\"text/plain\":\"3\"") "]", "Out[7]: 3" },
    { "table", "[" VALUE("\"text/html\":\"<table>\",\"text/plain\":\"   a\\n0  1\"") "]", "Out[7]:    a\n0  1" },
    { "markdown", "[" SHOWN("\"text/markdown\":\"# T\",\"text/plain\":\"<IPython.core.display.Markdown object>\"") "]",
      "# T" },
    { "latex", "[" VALUE("\"text/latex\":\"$x^2$\",\"text/plain\":\"x**2\"") "]", "Out[7]: $x^2$" },
    { "html only", "[" SHOWN("\"text/html\":\"<b>x</b>\",\"text/plain\":\"<IPython.core.display.HTML object>\"") "]",
      "[text/html, 8 B]" },
    { "json", "[" SHOWN("\"application/json\":{\"a\":[1]},\"text/plain\":\"<IPython.core.display.JSON object>\"") "]",
      "{\"a\":[1]}" },
    { "lines", "[" SHOWN("\"text/plain\":[\"a\\n\",\"b\"]") "]", "a\nb" },
    { "odd value", "[" SHOWN("\"text/plain\":3,\"x/y\":{\"a\":1}") "]", "[x/y, 7 B]" },
    { "images",
      "[" SHOWN("\"image/png\":\"" PNG "\",\"text/plain\":\"<Figure>\"") "," SHOWN("\"image/jpeg\":\"AAAA\"") ","
                VALUE("\"image/svg+xml\":\"<svg/>\"") "]",
      "[image: figure-1.png, 640x480, 45 B]\n[image: figure-2.jpg, 3 B]\nOut[7]: [image: figure-3.svg, 6 B]" },
    { "no picture", "[" SHOWN("\"image/png\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"") "]",
      "[image: figure-1.png, 30 B]" },
    { "colours", "[" STREAM("stdout", "\\u001b[31mred\\u001b[0m \\u001b]0;t\\u0007x\\n") "]", "red x" },
    { "controls", "[" STREAM("stdout", "a\\u0000b\\u0008c\\u007fd\\u009be\\r\\nf\\tg\\u202eh\\ufeffi") "]",
      "abcde\nf\tghi" },
    { "hidden", "[" STREAM("stdout", "x\\udb40\\udc41\\udb40\\udc42y\\u200bz") "]", "xyz" },
    { "joiners", "[" STREAM("stdout", "\\u0dc1\\u0dca\\u200d\\u0dbb") "]",
      "\xe0\xb7\x81\xe0\xb7\x8a\xe2\x80\x8d\xe0\xb6\xbb" },
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct hutch_cell_result result = plain(texts[i].outputs);
        auto_free char *got = hutch_cell_result_to_text(&result, 0);

        if (got == NULL || strcmp(got, texts[i].want) != 0)
            fail_msg("%s: %s", texts[i].label, got);
    }
}

static void test_error_text(void **state)
{
    struct hutch_cell_details details = { .code = "import os\n\n  df['x']  \nend" };
    struct hutch_cell_result result = plain("[" STREAM("stdout",
                                                       "before\\n") ",{\"ename\":\"KeyError\",\"evalue\":\"'x'\","
                                                                    "\"output_type\":\"error\","
                                            "\"traceback\":[\"long\"]}," STREAM("stderr", "after\\n") "]");
    char *got;

    (void)state;
    result.verdict = HUTCH_ERROR;
    result.error_name = "KeyError";
    result.error_value = "'x'";
    result.error_line = 3;
    result.internal = &details;
    got = hutch_cell_result_to_text(&result, 0);
    assert_string_equal(got, "before\n[stderr]\nafter\nline 3: df['x'] -> KeyError: 'x'");
    free(got);
    details.cause = "ValueError: bad, because of KeyError: 'x'";
    result.error_line = 9; /* it has not so many */
    got = hutch_cell_result_to_text(&result, 0);
    assert_string_equal(got, "before\n[stderr]\nafter\nline 9 -> ValueError: bad, because of KeyError: 'x'");
    free(got);
    details.cause = "KeyError: 'x', because of KeyError: 'x'";
    got = hutch_cell_result_to_text(&result, 0);
    assert_string_equal(got, "before\n[stderr]\nafter\nline 9 -> KeyError: 'x'");
    free(got);
    details.cause = NULL;
    result.error_line = 0;
    result.error_value = "";
    result.outputs = "[]";
    got = hutch_cell_result_to_text(&result, 0);
    assert_string_equal(got, "KeyError");
    free(got);
}

static void test_message_and_files(void **state)
{
    struct file_change added[] = { { .path = "a\n.png", .size = 23456 }, { .path = "b", .size = 1234567 } },
        deleted[] = { { .path = "old" } };
    struct file_change many[50];
    struct file_changes files = { .added = { added, 2, 2 }, .deleted = { deleted, 1, 1 } };
    struct hutch_cell_details details = { .files = &files };
    struct hutch_cell_result result = plain("[]");
    char *got;

    (void)state;
    result.verdict = HUTCH_OUT_OF_MEMORY;
    result.message = "the interpreter\x1b[2J was ended";
    result.internal = &details;
    got = hutch_cell_result_to_text(&result, 0);
    assert_string_equal(got, "[out_of_memory: the interpreter was ended]\n[files: added a?.png (23 kB), b (1.2 MB); "
                             "deleted old]");
    free(got);
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = (struct file_change){ .path = "f", .size = 1 };
    files = (struct file_changes){ .modified = { many, ARRAY_SIZE(many), ARRAY_SIZE(many) } };
    result.message = "";
    got = hutch_cell_result_to_text(&result, 0);
    assert_true(strncmp(got, "[files: modified f (1 B), f", 27) == 0);
    assert_non_null(strstr(got, "f (1 B) and 30 more]"));
    free(got);
    /* Hidden files come last in the text, although their names sort first. */
    for (size_t i = 0; i < ARRAY_SIZE(many) - 2; i++)
        many[i].path = i % 2 ? ".cache/x" : "m/.git/x";
    many[48].path = "m/main";
    many[49].path = "m/main.go";
    got = hutch_cell_result_to_text(&result, 0);
    assert_true(strncmp(got, "[files: modified m/main (1 B), m/main.go (1 B), m/.git/x (1 B), .cache/x", 71) == 0);
    assert_non_null(strstr(got, "(1 B) and 30 more]"));
    free(got);
}

static void test_long_text(void **state)
{
    struct text_buffer json = TEXT_BUFFER_INIT;
    struct hutch_cell_result result;
    char *got;

    (void)state;
    hutch_text_addf(&json, "[{\"name\":\"stdout\",\"output_type\":\"stream\",\"text\":\"");
    for (int i = 0; i < 10000; i++)
        hutch_text_addf(&json, "line %d\\n", i);
    hutch_text_addf(&json, "\"}," VALUE("\"text/plain\":\"42\"") "]");
    result = plain(json.data);
    got = hutch_cell_result_to_text(&result, 200);
    assert_true(strncmp(got, "line 0\nline 1\n", 14) == 0);
    assert_non_null(strstr(got, " lines left out …]\nline "));
    assert_non_null(strstr(got, "\nline 9999\nOut[7]: 42"));
    assert_true(hutch_cell_text_cost(got, strlen(got)) <= 800);
    assert_true(strlen(got) > 300);
    free(got);
    got = hutch_cell_result_to_text(&result, 50);
    assert_true(strncmp(got, "line 0\nline 1\n", 14) == 0);
    assert_non_null(strstr(got, " lines left out …]\nline "));
    assert_non_null(strstr(got, "\nOut[7]: 42"));
    assert_true(hutch_cell_text_cost(got, strlen(got)) <= 200);
    free(got);
    got = hutch_cell_result_to_text(&result, 15);
    assert_string_equal(got, "line 0\nline 1\nline 2\n[…]\nline 9998\nline 9999\nOut[7]: 42");
    free(got);
    hutch_text_done(&json);
    /* one line */
    hutch_text_addf(&json, "[{\"name\":\"stdout\",\"output_type\":\"stream\",\"text\":\"");
    for (int i = 0; i < 10000; i++)
        hutch_text_addf(&json, "漢%d", i % 10);
    hutch_text_addf(&json, "\"}]");
    result = plain(json.data);
    got = hutch_cell_result_to_text(&result, 200);
    assert_non_null(strstr(got, " characters left out …]"));
    assert_true(hutch_cell_text_cost(got, strlen(got)) <= 800);
    free(got);
    hutch_text_done(&json);
}

static void test_cost(void **state)
{
    static const char text[] = "abcdä漢😀";

    (void)state;
    assert_int_equal(hutch_cell_text_cost(text, strlen(text)), 4 + 4 + 4 + 8);
}

/* ---- any result and any budget ---- */

static uint64_t random_state = 88172645463325252ull;

static uint32_t below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static void add_random_text(struct text_buffer *to, uint32_t n)
{
    static const char *const parts[] = { "word ", "\n", "漢字", "😀", "\x1b[31m", "\x1b]0;", "\x1b", "\xe2\x80\xae", "ä",
                                         "\r", "\t", "0123456789",
                                         "\xf3\xa0\x81\x81", "\xc2\x9b", "[…", "line\n" };

    while (n-- > 0) {
        const char *part = parts[below(ARRAY_SIZE(parts))];

        hutch_text_add(to, part, strlen(part));
    }
}

static void add_random_outputs(struct text_buffer *to)
{
    static const char *const forms[] = {
        "{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":",
            "{\"output_type\":\"stream\",\"name\":\"stderr\",\"text\":",
        "{\"output_type\":\"display_data\",\"data\":{\"text/plain\":",      "{\"output_type\":\"display_data\","
                                                                            "\"data\":{\"image/png\":",
        "{\"output_type\":\"execute_result\",\"data\":{\"text/latex\":",    "{\"output_type\":\"display_data\","
                                                                            "\"data\":{\"text/html\":",
    };

    hutch_text_add(to, "[", 1);
    for (uint32_t n = below(8); n > 0; n--) {
        struct text_buffer text = TEXT_BUFFER_INIT;
        uint32_t form = below(ARRAY_SIZE(forms));

        add_random_text(&text, below(below(4) ? 20 : 1000));
        hutch_text_add(to, forms[form], strlen(forms[form]));
        hutch_json_quote(to, text.data, text.len);
        hutch_text_addf(to, form < 2 ? "}%s" : "}}%s", n > 1 ? "," : "");
        hutch_text_done(&text);
    }
    hutch_text_add(to, "]", 1);
}

static void check_shown(const char *text, size_t budget)
{
    size_t len = strlen(text);

    assert_true(hutch_utf8_is_valid(text, len));
    if (hutch_cell_text_cost(text, len) > 4 * (uint64_t)budget)
        fail_msg("%zu tokens: %llu quarters: %s", budget, (unsigned long long)hutch_cell_text_cost(text, len), text);
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\n' && text[i] != '\t') || text[i] == 0x7f)
            fail_msg("a control character: %s", text);
    assert_null(strstr(text, "\xe2\x80\xae"));
    assert_null(strstr(text, "\xc2\x9b"));
    assert_null(strstr(text, "\xf3\xa0\x81\x81"));
}

static void test_random(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) {
        struct text_buffer json = TEXT_BUFFER_INIT, value = TEXT_BUFFER_INIT, code = TEXT_BUFFER_INIT;
        struct file_change added[30];
        struct file_changes files = { .added = { added, below(30), 30 } };
        struct hutch_cell_details details = { .files = below(2) ? &files : NULL };
        struct hutch_cell_result result;
        size_t budget = 1 + below(below(2) ? 30 : 3000);
        auto_free char *got = NULL;

        add_random_outputs(&json);
        add_random_text(&value, below(below(3) ? 5 : 500));
        add_random_text(&code, below(100));
        hutch_text_add(&value, "", 0);
        hutch_text_add(&code, "", 0);
        for (size_t k = 0; k < files.added.n; k++)
            added[k] = (struct file_change){ .path = below(2) ? "name" : value.data, .size = below(1u << 30) };
        result = plain(json.data);
        result.internal = &details;
        details.code = code.data;
        if (below(2)) {
            result.error_name = "E";
            result.error_value = value.data;
            result.error_line = (int)below(10);
        }
        if (below(2))
            result.message = value.data;
        got = hutch_cell_result_to_text(&result, budget);
        assert_non_null(got);
        check_shown(got, budget);
        hutch_text_done(&json);
        hutch_text_done(&value);
        hutch_text_done(&code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),      cmocka_unit_test(test_json_of_error), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_error_text), cmocka_unit_test(test_message_and_files), cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_cost),      cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
