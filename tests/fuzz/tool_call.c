/* A model's call of a tool, and the answer to it. The first byte chooses between a whole call and arguments alone. */
#include "runtime/tools/call.h"

#include "tests/fuzz/fuzz.h"

static void check_answer(const struct tool_call *call)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_tool_call_answer(&t, call, "a\xff\"", 3, true);
    fuzz_check(!t.is_broken && t.len >= 3);
    hutch_text_done(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_bare = fuzz_byte(&data, &size) % 4 == 0;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */
    struct tool_call call;
    struct hutch_err err = { .msg = "" };
    int rc;

    fuzz_check(text);
    memcpy(text, data, size);
    rc = is_bare ? hutch_tool_call_parse_bare(hutch_tool_find("run_python", 10), text, size, &call, &err)
                 : hutch_tool_call_parse(text, size, &call, &err);
    fuzz_check_err(rc, &err);
    if (rc == 0) {
        fuzz_check(call.trouble.msg[0] || (call.tool && call.code.data && strlen(call.code.data) == call.code.len));
        fuzz_check(is_bare == (call.kind == TOOL_CALL_BARE));
        check_answer(&call);
    }
    hutch_tool_call_done(&call);
    return 0;
}
