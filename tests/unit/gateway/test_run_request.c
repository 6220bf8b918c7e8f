/* What of a POST /v1/run becomes a hutch_request, and in which words the rest is refused. */
#include "runtime/gateway/run_request.h"

#include "runtime/gateway/body.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_all_fields(void **state)
{
    static const char text[] =
        "{\"code\": \"p\", \"language\": \"sh\", \"name\": \"a.sh\", \"args\": [\"x\", \"\"], "
        "\"env\": {\"A\": \"b=c\", \"D\": \"\"}, \"stdin\": \"in\", \"rich\": false, "
        "\"limits\": {\"wall_ms\": 1, \"cpu_ms\": 2, \"memory_bytes\": 3, \"pids\": 4, \"cpus\": 5, "
        "\"output_bytes\": 6, \"data_bytes\": 7, \"data_files\": 8, \"file_bytes\": 9}}";
    struct run_request r;
    struct hutch_err err;
    const struct hutch_request *q = &r.request;

    (void)state;
    assert_int_equal(hutch_run_request_parse(text, strlen(text), &r, &err), 0);
    assert_int_equal(q->size, sizeof(*q));
    assert_string_equal(q->code, "p");
    assert_int_equal(q->code_len, 1);
    assert_string_equal(q->language, "sh");
    assert_string_equal(q->name, "a.sh");
    assert_string_equal(q->args[0], "x");
    assert_string_equal(q->args[1], "");
    assert_null(q->args[2]);
    assert_string_equal(q->env[0], "A=b=c");
    assert_string_equal(q->env[1], "D=");
    assert_null(q->env[2]);
    assert_int_equal(q->input_len, 2);
    assert_memory_equal(q->input, "in", 2);
    assert_false(q->rich);
    assert_true(q->wall_ms == 1 && q->cpu_ms == 2 && q->memory_bytes == 3 && q->pids == 4 && q->cpus == 5);
    assert_true(q->output_bytes == 6 && q->data_bytes == 7 && q->data_files == 8 && q->file_bytes == 9);
    hutch_run_request_done(&r);
}

static void test_least(void **state)
{
    static const char text[] = "{\"code\": \"\", \"stdin_base64\": \"AP8=\"}";
    struct run_request r;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_run_request_parse(text, strlen(text), &r, &err), 0);
    assert_string_equal(r.request.code, "");
    assert_null(r.request.args);
    assert_null(r.request.env);
    assert_null(r.request.policy);
    assert_int_equal(r.request.input_len, 2);
    assert_memory_equal(r.request.input, "\0\xff", 2);
    hutch_run_request_done(&r);
}

static const struct {
    const char *text, *want;
} refused[] = {
    { "", "request: the body is empty, and is to be a JSON object" },
    { "{}", "request: at $: the key \"code\" is missing" },
    { "{\"code\": \"1\", \"data_dir\": \"/\"}", "request: at $.data_dir: unknown key" },
    { "{\"code\": \"1\", \"args\": {}}", "request: at $.args: expected an array, got an object" },
    { "{\"code\": \"1\", \"env\": []}", "request: at $.env: expected an object, got an array of 0" },
    { "{\"code\": \"1\", \"env\": {\"\": \"\"}}", "request: at $.env[\"\"]: a variable's name is not empty" },
    { "{\"code\": \"1\", \"env\": {\"A\": 1}}", "request: at $.env.A: expected a string, got 1" },
    { "{\"code\": \"1\", \"limits\": {\"cpus\": 0.5}}", "request: at $.limits.cpus: expected a whole number" },
    { "{\"code\": \"1\", \"rich\": 1}", "request: at $.rich: expected true or false, got 1" },
    { "{\"code\": \"1\", \"stdin_base64\": \"A\"}", "request: at $.stdin_base64: this is not base64" },
    { "{\"code\": \"1\", \"args\": [[[[[1]]]]]}", "request: line 1, column" },
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct run_request r;
        struct hutch_err err = { .msg = "" };

        assert_int_equal(hutch_run_request_parse(refused[i].text, strlen(refused[i].text), &r, &err), -1);
        print_message("  %s\n", err.msg);
        if (strncmp(err.msg, refused[i].want, strlen(refused[i].want)) != 0)
            fail_msg("not as wanted: %s", refused[i].want);
        hutch_run_request_done(&r);
    }
}

/* No tree is made of a body that is all commas. */
static void test_many_values(void **state)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct json_doc doc = JSON_DOC_INIT;
    struct hutch_err err;

    (void)state;
    hutch_text_add_string(&t, "[0");
    for (int i = 0; i < 3 * BODY_MAX_VALUES; i++)
        hutch_text_add_string(&t, ",0");
    hutch_text_add_string(&t, "]");
    assert_false(t.is_broken);
    assert_int_equal(hutch_body_parse(t.data, t.len, 4, &doc, &err), -1);
    assert_non_null(strstr(err.msg, "more values than any request has"));
    hutch_text_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fields), cmocka_unit_test(test_least), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
