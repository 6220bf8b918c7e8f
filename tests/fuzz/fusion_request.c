/* The JSON of SandboxFusion's requests. The first byte chooses which. */
#include "runtime/fusion/request.h"

#include "tests/fuzz/fuzz.h"

static void check_text(const struct fusion_text *text)
{
    fuzz_check(text->data ? text->data[text->len] == '\0' : text->len == 0);
}

static void check(const struct fusion_request *r, bool is_run, size_t size)
{
    fuzz_check(is_run ? r->code.data && !r->cells : r->cells && !r->code.data);
    check_text(&r->code);
    check_text(&r->language);
    check_text(&r->input);
    fuzz_check(r->n_cells <= FUSION_MAX_CELLS && r->n_files <= FUSION_MAX_FILES && r->n_fetch <= FUSION_MAX_FETCH);
    for (size_t i = 0; i < r->n_cells; i++)
        check_text(&r->cells[i]);
    for (size_t i = 0; i < r->n_files; i++) {
        fuzz_check(strncmp(r->files[i].path, "./", 2) != 0 && strlen(r->files[i].path) <= size);
        fuzz_check(r->files[i].data ? r->files[i].len <= size : r->trouble.msg[0]);
    }
    for (size_t i = 0; i < r->n_fetch; i++)
        fuzz_check(r->fetch[i][0] && strncmp(hutch_fusion_request_name(r->fetch[i]), "./", 2) != 0);
    fuzz_check(r->memory_bytes % (1u << 20) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_run = fuzz_byte(&data, &size) % 4 != 0;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */
    struct fusion_request r;
    struct hutch_err err = { .msg = "" };
    int rc;

    fuzz_check(text);
    memcpy(text, data, size);
    rc = is_run ? hutch_fusion_request_parse_run(text, size, &r, &err)
                : hutch_fusion_request_parse_cells(text, size, &r, &err);
    fuzz_check_err(rc, &err);
    if (rc == 0)
        check(&r, is_run, size);
    hutch_fusion_request_done(&r);
    return 0;
}
