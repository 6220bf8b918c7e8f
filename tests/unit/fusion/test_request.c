/* What of SandboxFusion's requests is taken, and in which words the rest is refused. */
#include "runtime/fusion/request.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_all_keys(void **state)
{
    static const char text[] =
        "{\"code\": \"a\\u0000b\", \"language\": \"R\", \"compile_timeout\": 10, \"run_timeout\": \"0.0005\", "
        "\"memory_limit_MB\": 2, \"stdin\": \"\\u0000\", \"files\": {\"././d/a\": \"AP8=\", \"n\": null, "
        "\"x/IGNORE_THIS_FILE\": \"?\", \"/mnt/data/b\": \"\"}, \"fetch_files\": [\"./x\", \"y\"], "
        "\"unknown\": {\"code\": 1}}";
    struct fusion_request r;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_fusion_request_parse_run(text, strlen(text), &r, &err), 0);
    assert_int_equal(r.code.len, 3);
    assert_memory_equal(r.code.data, "a\0b", 4);
    assert_string_equal(r.language.data, "R");
    assert_int_equal(r.input.len, 1);
    assert_true(r.compile_ms == 10000 && r.run_ms == 1 && r.memory_bytes == 2u << 20);
    assert_int_equal(r.n_files, 2);
    assert_string_equal(r.files[0].path, "d/a");
    assert_int_equal(r.files[0].len, 2);
    assert_memory_equal(r.files[0].data, "\0\xff", 2);
    assert_string_equal(r.files[1].path, "/mnt/data/b");
    assert_int_equal(r.n_fetch, 2);
    assert_string_equal(r.fetch[0], "./x");
    assert_string_equal(hutch_fusion_request_name(r.fetch[0]), "x");
    assert_null(r.fetch[2]);
    assert_string_equal(r.trouble.msg, "");
    hutch_fusion_request_done(&r);
}

static void test_least(void **state)
{
    static const char text[] = "{\"code\": \"1\", \"code\": \"\", \"language\": null, \"memory_limit_MB\": -1, "
                               "\"files\": {\"a\": \"?\"}}";
    struct fusion_request r;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_fusion_request_parse_run(text, strlen(text), &r, &err), 0);
    assert_string_equal(r.code.data, "");
    assert_null(r.language.data);
    assert_true(r.compile_ms == 0 && r.run_ms == 0 && r.memory_bytes == 0 && !r.fetch);
    assert_string_equal(r.trouble.msg, "the file 'a' is not base64");
    hutch_fusion_request_done(&r);
}

static void test_cells(void **state)
{
    static const char text[] = "{\"cells\": [\"a = 1\", \"\"], \"cell_timeout\": 0, \"total_timeout\": 45, "
                               "\"kernel\": \"python3\"}";
    struct fusion_request r;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_fusion_request_parse_cells(text, strlen(text), &r, &err), 0);
    assert_int_equal(r.n_cells, 2);
    assert_string_equal(r.cells[0].data, "a = 1");
    assert_true(r.total_ms == 45000);
    hutch_fusion_request_done(&r);
}

static const struct {
    const char *text, *want;
} refused[] = {
    { "", "request: the body is empty" },
    { "[]", "request: Input should be a valid dictionary" },
    { "{}", "request: code: Field required" },
    { "{\"code\": null}", "request: code: Input should be a valid string" },
    { "{\"code\": \"1\", \"run_timeout\": 0}", "request: run_timeout: Input should be greater than 0" },
    { "{\"code\": \"1\", \"run_timeout\": \"0x10\"}", "request: run_timeout: Input should be a valid number" },
    { "{\"code\": \"1\", \"run_timeout\": \"\"}", "request: run_timeout: Input should be a valid number" },
    { "{\"code\": \"1\", \"run_timeout\": [1]}", "request: run_timeout: Input should be a valid number" },
    { "{\"code\": \"1\", \"run_timeout\": 1e10}", "request: run_timeout: Input should be less" },
    { "{\"code\": \"1\", \"memory_limit_MB\": 1.5}", "request: memory_limit_MB: Input should be a valid integer" },
    { "{\"code\": \"1\", \"files\": {\"a\": {}}}", "request: files: Input should be a valid string" },
    { "{\"code\": \"1\", \"files\": {\"\": \"\"}}", "request: files: a path is not empty, and has no NUL" },
    { "{\"code\": \"1\", \"fetch_files\": [\"a\", 1]}", "request: fetch_files: Input should be a valid string" },
    { "{\"code\": \"\\udc00\"}", "request: line 1" },
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct fusion_request r;
        struct hutch_err err = { .msg = "" };

        assert_int_equal(hutch_fusion_request_parse_run(refused[i].text, strlen(refused[i].text), &r, &err), -1);
        print_message("  %s\n", err.msg);
        if (strncmp(err.msg, refused[i].want, strlen(refused[i].want)) != 0)
            fail_msg("not as wanted: %s", refused[i].want);
        hutch_fusion_request_done(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys),
        cmocka_unit_test(test_least),
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
