/* What of the bodies of Azure's dynamic sessions is taken. */
#include "runtime/azure/request.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PART(file) "Content-Disposition: form-data; name=\"file\"; filename" file "\r\n\r\n"

static const struct {
    const char *body, *name, *data; /* name NULL: it is refused */
} uploads[] = {
    { "--b\r\n" PART("=\"a.csv\"") "x\r\n--b--\r\n", "d/a.csv", "x" },
    { "--b\r\n" PART("=\"/mnt/data/s/a%22%C3%A4\"") "\r\n--b--\r\n", "d/s/a\"\xc3\xa4", "" },
    { "--b\r\n" PART("=\"100%\"") "x\r\n--b--\r\n", "d/100%", "x" },
    { "--b\r\n" PART("*=utf-8''%C3%A4") "x\r\n--b--\r\n", "d/\xc3\xa4", "x" },
    { "--b\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nv\r\n--b\r\n" PART("=\"a\"") "x\r\n--b--", "d/a", "x" },
    { "--b\r\n" PART("=\"a\"") "x", NULL, NULL },
    { "--b\r\n" PART("=\"\"") "x\r\n--b--\r\n", NULL, NULL },
    { "b\r\n" PART("=\"a\"") "x\r\n--b--\r\n", NULL, NULL },
    { "", NULL, NULL },
};

static void test_uploads(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(uploads); i++) {
        struct azure_upload upload;
        struct hutch_err err;
        int rc = hutch_azure_upload_parse(uploads[i].body, strlen(uploads[i].body), "/mnt/data/d/", &upload, &err);

        print_message("  %zu: %s\n", i, rc < 0 ? err.msg : upload.name);
        assert_int_equal(rc, uploads[i].name ? 0 : -1);
        if (rc == 0) {
            assert_string_equal(upload.name, uploads[i].name);
            assert_int_equal(upload.len, strlen(uploads[i].data));
            assert_memory_equal(upload.data, uploads[i].data, upload.len);
        }
        free(upload.name);
    }
}

static void test_execution(void **state)
{
    static const char text[] = "{\"properties\": {\"codeInputType\": \"InlineBase64\", \"executionType\": "
                               "\"ASYNCHRONOUS\", \"code\": \"cHJpbnQ=\", \"timeoutInSeconds\": 1.5}}";
    struct azure_request r;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_azure_request_parse(text, strlen(text), &r, &err), 0);
    assert_string_equal(r.code, "print");
    assert_true(r.is_async && r.timeout_ms == 1500 && !r.command);
    hutch_azure_request_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_uploads), cmocka_unit_test(test_execution) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
