/* command.c - the tool run_command: a shell's command line beside the session's files.
 *
 * It is a process that a hidden cell starts and waits for, so it has the confinement and the limits of the session, and
 * takes turns with run_python. What the cell says of the exit code comes from the session's own interpreter: code that
 * forges it deceives its own session only. */
#include "runtime/mcp/cell.h"
#include "runtime/mcp/tool.h"

#include "runtime/mcp/session.h"
#include "runtime/text/base64.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <stdlib.h>
#include <string.h>

#define STATUS_TYPE "application/vnd.hutch.exit-code" /* of the display that tells it */
#define COMMAND_CONTEXT "hutch-commands"

/* A process group of its own, so that an interrupt ends all that the command has started. */
#define CELL_BEGIN                                                                                                  \
    "def run(text):\n"                                                                                              \
    "    import base64, os, signal, subprocess\n"                                                                   \
    "    child = subprocess.Popen(['/bin/sh', '-c', base64.b64decode(text)], stdin=subprocess.DEVNULL,\n"           \
    "                             cwd='" INSIDE_DATA_DIR "', start_new_session=True)\n"                             \
    "    try:\n"                                                                                                    \
    "        code = child.wait()\n"                                                                                 \
    "    except BaseException:\n"                                                                                   \
    "        os.killpg(child.pid, signal.SIGKILL)\n"                                                                \
    "        child.wait()\n"                                                                                        \
    "        raise\n"                                                                                               \
    "    get_ipython().display_pub.publish({'" STATUS_TYPE "': str(code if code >= 0 else 128 - code)})\n"          \
    "run('"
#define CELL_END "')\n"

enum { ARGUMENT_COMMAND, ARGUMENT_TIMEOUT, ARGUMENT_SESSION };

static const struct mcp_argument arguments[] = {
    [ARGUMENT_COMMAND] = { .name = "command", .type = MCP_STRING, .is_required = true,
                           .description = "A command line for /bin/sh. It has no input and no terminal." },
    [ARGUMENT_TIMEOUT] = MCP_TIMEOUT_ARGUMENT,
    [ARGUMENT_SESSION] = MCP_SESSION_ARGUMENT,
};

/* -1: it has not told one. */
static int find_exit_code(const struct mcp_shown *shown)
{
    struct json_walk walk = hutch_json_view_walk(hutch_json_view_get(shown->json, "outputs"));
    struct json_view output;
    int code = -1;

    while (walk.p && hutch_json_view_next(&walk, NULL, &output)) {
        struct json_view value = hutch_json_view_get(hutch_json_view_get(output, "data"), STATUS_TYPE);
        int64_t number;

        if (hutch_json_view_is_string(value) &&
            hutch_json_view_integer((struct json_view){ value.text + 1, value.len - 2 }, &number) && number >= 0 &&
            number <= 255)
            code = (int)number;
    }
    return code;
}

/* What it printed and how it ended, as a model reads it. */
static void add_text(struct mcp_result *r, const struct mcp_call *call, const struct hutch_cell_result *result,
                     const struct mcp_shown *shown, int code)
{
    struct text_buffer item = TEXT_BUFFER_INIT, end = TEXT_BUFFER_INIT;

    hutch_mcp_quote_excerpt(&item, shown->both.data, shown->both.len, hutch_mcp_max_text(call));
    if (shown->both.len > 0)
        hutch_mcp_add_quoted(r, &item);
    hutch_text_done(&item);
    if (result->message[0])
        hutch_text_addf(&end, "[%s]", result->message);
    else if (code >= 0)
        hutch_text_addf(&end, "[exit code %d]", code);
    else
        hutch_text_addf(&end, "[it could not be run to its end: %s: %s]",
                        result->error_name ? result->error_name : "no reason is known",
                        result->error_value ? result->error_value : "");
    hutch_mcp_add_text(r, end.data, end.len);
    hutch_text_done(&end);
}

static int make_result(const struct mcp_call *call, const struct hutch_cell_result *result, struct mcp_shown *shown,
                       struct mcp_result *ret)
{
    int code;

    if (hutch_mcp_shown_read(result, shown) < 0)
        return -1;
    code = find_exit_code(shown);
    ret->is_error = result->verdict != HUTCH_OK || code != 0;
    add_text(ret, call, result, shown, code);
    hutch_mcp_add_shown(ret, call, result, shown);
    if (code >= 0)
        hutch_text_addf(hutch_mcp_add_key(ret, "exit_code"), "%d", code);
    else
        hutch_mcp_add_member(ret, "exit_code", NULL);
    return 0;
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    (void)session;
    hutch_mcp_cell_answer(user, result, make_result);
}

static void begin(struct mcp_call *call)
{
    const struct mcp_value *values = call->arguments.values, *command = &values[ARGUMENT_COMMAND];
    size_t len;
    auto_free char *encoded = hutch_base64_encode(command->text, command->len, &len);
    struct text_buffer code = TEXT_BUFFER_INIT;
    struct hutch_cell cell;

    hutch_text_add_string(&code, CELL_BEGIN);
    hutch_text_add_string(&code, encoded ? encoded : "");
    hutch_text_add_string(&code, CELL_END);
    if (!encoded || code.is_broken) {
        hutch_text_done(&code);
        hutch_mcp_call_fail(call, "there was not enough memory for the command");
        return;
    }
    hutch_cell_init(&cell);
    cell.code = code.data;
    cell.context = COMMAND_CONTEXT;
    cell.silent = cell.no_history = 1;
    cell.on_result = on_result;
    hutch_mcp_cell_execute(call, &cell, &values[ARGUMENT_TIMEOUT]);
    hutch_text_done(&code);
}

const struct mcp_tool hutch_mcp_run_command = {
    .name = "run_command",
    .title = "Run a shell command",
    .description =
        "Runs a shell command line in the sandbox of run_python, in " INSIDE_DATA_DIR ", and returns what it "
        "prints and its exit code. The programs are those of the image: a shell, coreutils, text tools. There is no "
        "network, and nothing can be installed.",
    .arguments = arguments,
    .n_arguments = ARRAY_SIZE(arguments),
    .session_at = ARGUMENT_SESSION,
    .output_schema = "{\"type\":\"object\",\"properties\":{" MCP_SHOWN_SCHEMA
                     ",\"exit_code\":{\"type\":[\"integer\",\"null\"]}},\"required\":[" MCP_SHOWN_REQUIRED "]}",
    .annotations = "{\"readOnlyHint\":false,\"destructiveHint\":false,\"idempotentHint\":false,"
                   "\"openWorldHint\":false}",
    .is_cell = true,
    .begin = begin,
};
