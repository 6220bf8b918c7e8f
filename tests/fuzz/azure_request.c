/* What is asked of Azure's dynamic sessions. The first byte chooses between an execution and a file. */
#include "runtime/azure/request.h"

#include "tests/fuzz/fuzz.h"

static void parse_execution(const char *text, size_t size)
{
    struct azure_request r;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_azure_request_parse(text, size, &r, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || !r.code != !r.command);
    hutch_azure_request_done(&r);
}

static void parse_upload(const char *text, size_t size)
{
    struct azure_upload upload;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_azure_upload_parse(text, size, "/mnt/data/d", &upload, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || (upload.name[0] && upload.data >= text && upload.data + upload.len <= text + size));
    free(upload.name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_upload = fuzz_byte(&data, &size) % 2 == 0;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */

    fuzz_check(text);
    memcpy(text, data, size);
    if (is_upload)
        parse_upload(text, size);
    else
        parse_execution(text, size);
    return 0;
}
