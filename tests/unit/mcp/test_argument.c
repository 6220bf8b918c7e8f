/* test_argument.c - the arguments of a tool: what is read, in which sentence the rest is refused, and that the schema
 * says the same. */
#include "runtime/mcp/argument.h"

#include "runtime/mcp/rpc.h"
#include "runtime/mcp/face.h"
#include "runtime/mcp/tool.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const kinds[] = { "one", "two", NULL };
static const struct mcp_argument rows[] = {
    { .name = "text", .type = MCP_STRING, .is_required = true, .description = "A text." },
    { .name = "number", .type = MCP_NUMBER, .min = 0.5, .max = 10, .description = "A number." },
    { .name = "count", .type = MCP_INTEGER, .min = 0, .max = 9007199254740991.0, .description = "A count." },
    { .name = "kind", .type = MCP_STRING, .values = kinds, .description = "One of two." },
};

static const struct { const char *json, *error; } cases[] = {
    { "{\"text\":\"a\"}", NULL },
    { "{\"text\":\"\",\"number\":0.5,\"count\":9007199254740991,\"kind\":\"two\"}", NULL },
    { "{\"t\\u0065xt\":\"a\",\"number\":1e1,\"count\":3.0}", NULL },
    { "{\"text\":\"a\",\"number\":null,\"kind\":null}", NULL },
    { "{}", "'text' is missing: A text." },
    { "{\"text\":null}", "'text' has to be a string" },
    { "{\"text\":[\"a\"]}", "'text' has to be a string" },
    { "{\"text\":\"a\\u0000\"}", "'text' has a NUL character in it" },
    { "{\"text\":\"a\",\"text\":\"b\"}", "'text' is there twice" },
    { "{\"text\":\"a\",\"more\":1}", "there is no argument \"more\"" },
    { "{\"text\":\"a\",\"number\":0.4}", "'number' has to be between 0.5 and 10" },
    { "{\"text\":\"a\",\"number\":1e999}", "'number' has to be between 0.5 and 10" },
    { "{\"text\":\"a\",\"number\":\"1\"}", "'number' has to be a number" },
    { "{\"text\":\"a\",\"number\":true}", "'number' has to be a number" },
    { "{\"text\":\"a\",\"count\":1.5}", "'count' has to be a whole number" },
    { "{\"text\":\"a\",\"count\":-1}", "'count' has to be between 0 and 9007199254740991" },
    { "{\"text\":\"a\",\"kind\":\"three\"}", "'kind' has to be \"one\" or \"two\"" },
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct mcp_arguments arguments;
        struct hutch_err err = { .msg = "" };
        struct json_view value;
        int rc;

        print_message("  %s\n", cases[i].json);
        if (hutch_rpc_check(cases[i].json, strlen(cases[i].json), &value, &err) < 0)
            continue;
        rc = hutch_mcp_arguments_read(value, rows, ARRAY_SIZE(rows), &arguments, &err);
        assert_int_equal(rc, cases[i].error ? -1 : 0);
        assert_string_equal(err.msg, cases[i].error ? cases[i].error : "");
        hutch_mcp_arguments_done(&arguments);
    }
}

static void test_schema(void **state)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)state;
    hutch_mcp_write_schema(&t, rows, ARRAY_SIZE(rows));
    assert_string_equal(t.data,
                        "{\"type\":\"object\",\"properties\":"
                        "{\"text\":{\"type\":\"string\",\"description\":\"A text.\"},"
                        "\"number\":{\"type\":\"number\",\"minimum\":0.5,\"maximum\":10,\"description\":\"A number.\"},"
                        "\"count\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9007199254740991,"
                        "\"description\":\"A count.\"},\"kind\":{\"type\":\"string\",\"enum\":[\"one\",\"two\"],"
                        "\"description\":\"One of two.\"}},\"required\":[\"text\"],\"additionalProperties\":false}");
    hutch_text_done(&t);
}

/* Every tool is described by valid JSON, has room for its arguments, and has a session at the place that it says. */
static void test_tools(void **state)
{
    (void)state;
    const struct mcp_face *const faces[] = { &hutch_mcp_usual_face, &hutch_mcp_usual_face, &hutch_mcp_usual_face,
                                             &hutch_mcp_usual_face, &hutch_mcp_usual_face, &hutch_mcp_python_face };

    for (size_t i = 0; i < ARRAY_SIZE(faces); i++) {
        const struct mcp_tool *tool = faces[i] == &hutch_mcp_python_face ? faces[i]->tools[0] : faces[i]->tools[i];
        struct text_buffer t = TEXT_BUFFER_INIT;
        struct json_view value;
        struct hutch_err err;

        assert_ptr_equal(hutch_mcp_tool_find(faces[i], tool->name), tool);
        assert_true(tool->n_arguments <= MCP_NO_ARGUMENT);
        if (tool->session_at != MCP_NO_ARGUMENT)
            assert_string_equal(tool->arguments[tool->session_at].name, "session_id");
        hutch_mcp_tool_write(tool, &t);
        assert_int_equal(hutch_rpc_check(t.data, t.len, &value, &err), 0);
        assert_true(hutch_json_view_is_object(hutch_rpc_get(value, "inputSchema")));
        assert_int_equal(hutch_json_view_is_object(hutch_rpc_get(value, "outputSchema")), tool->output_schema != NULL);
        assert_true(hutch_json_view_is_object(hutch_rpc_get(value, "annotations")));
        hutch_text_done(&t);
    }
    assert_null(hutch_mcp_usual_face.tools[5]);
    assert_null(hutch_mcp_python_face.tools[1]);
    assert_null(hutch_mcp_tool_find(&hutch_mcp_usual_face, "run"));
    assert_null(hutch_mcp_tool_find(&hutch_mcp_usual_face, ""));
    assert_null(hutch_mcp_tool_find(&hutch_mcp_python_face, "run_python"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_schema), cmocka_unit_test(test_tools),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
