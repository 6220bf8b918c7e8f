/* What of a model's call of a tool is taken, and what the model or the caller is told of the rest. */
#include "runtime/tools/call.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *text, *code, *want; /* the answer with the content "r" */
} calls[] = {
    { "{\"id\": \"a\", \"function\": {\"name\": \"run_python\", \"arguments\": \"{\\\"code\\\": \\\"p\\\"}\"}}", "p",
      "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"r\"}\n" },
    { "{\"type\": \"function_call\", \"call_id\": \"b\", \"name\": \"run_python\", \"arguments\": \"{\\\"input\\\": "
      "\\\"q\\\"}\"}", "q", "{\"type\":\"function_call_output\",\"call_id\":\"b\",\"output\":\"r\"}\n" },
    { "{\"type\": \"tool_use\", \"id\": \"c\", \"name\": \"run_python\", \"input\": {\"code\": \"s\"}}", "s",
      "{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":\"r\",\"is_error\":true}\n" },
    { "{\"functionCall\": {\"id\": \"d\", \"name\": \"run_python\", \"args\": {\"code\": \"t\"}}}", "t",
      "{\"functionResponse\":{\"id\":\"d\",\"name\":\"run_python\",\"response\":{\"error\":\"r\"}}}\n" },
};

static void test_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        struct text_buffer t = TEXT_BUFFER_INIT;
        struct tool_call call;
        struct hutch_err err;

        assert_int_equal(hutch_tool_call_parse(calls[i].text, strlen(calls[i].text), &call, &err), 0);
        assert_string_equal(call.trouble.msg, "");
        assert_string_equal(call.code.data, calls[i].code);
        hutch_tool_call_answer(&t, &call, "r", 1, true);
        assert_string_equal(t.data, calls[i].want);
        hutch_text_done(&t);
        hutch_tool_call_done(&call);
    }
}

static const struct {
    const char *text, *want; /* "request" at its begin: it is no call */
} refused[] = {
    { "", "request: the body is empty" },
    { "{\"type\": \"tool_use\"}", "request: the call has no name" },
    { "{\"type\": \"message\"}", "request: this is no call of a tool" },
    { "{\"function\": {\"name\": \"x\"}}", "there is no tool of this name; there are run_python, " },
    { "{\"function\": {\"name\": \"run_python\", \"arguments\": \"print(1)\"}}", "the arguments are no JSON: line 1" },
    { "{\"function\": {\"name\": \"run_python\"}}", "the arguments are to be an object with the text 'code'" },
    { "{\"function\": {\"name\": \"run_python\", \"arguments\": {\"code\": \"\\u0000\"}}}",
      "the program contains a NUL" },
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct tool_call call;
        struct hutch_err err = { .msg = "" };
        int rc = hutch_tool_call_parse(refused[i].text, strlen(refused[i].text), &call, &err);
        const char *message = rc < 0 ? err.msg : call.trouble.msg;

        print_message("  %s\n", message);
        assert_int_equal(rc < 0, strncmp(refused[i].want, "request", 7) == 0);
        if (strncmp(message, refused[i].want, strlen(refused[i].want)) != 0)
            fail_msg("not as wanted: %s", refused[i].want);
        hutch_tool_call_done(&call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_calls), cmocka_unit_test(test_refused) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
