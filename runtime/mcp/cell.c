#include "runtime/mcp/cell.h"

#include "runtime/mcp/session.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILES 65536 /* bytes of a list of files in a result */

/* --- the begin -------------------------------------------------------------------------------------------------- */

static void on_output(void *user, uint64_t session, const struct hutch_output *output)
{
    struct mcp_call *call = user;

    (void)session;
    if (output->kind == HUTCH_STREAM)
        hutch_mcp_call_output(call, output->stream, output->text, output->text_len);
}

void hutch_mcp_cell_execute(struct mcp_call *call, struct hutch_cell *cell, const struct mcp_value *timeout)
{
    struct hutch_err err = { 0 };
    struct hutch_engine *engine = hutch_mcp_call_engine(call, &err);
    const struct mcp_account *account = call->session->sessions->account;
    struct hutch_limits limits = { .size = sizeof(limits) };
    struct hutch_error error;

    if (timeout->is_set)
        cell->timeout_ms = (uint64_t)(timeout->number * 1000);
    cell->on_output = on_output;
    cell->user = call;
    if (engine && account)
        account->policy(call->session->sessions->owner, &limits);
    else if (engine)
        hutch_engine_get_limits(engine, &limits);
    if (!engine)
        hutch_mcp_call_fail(call, "%s", err.msg);
    else if (limits.wall_ms && cell->timeout_ms > limits.wall_ms)
        hutch_mcp_call_fail(call, "'timeout' has to be %g seconds at most, which is the limit of this server",
                            (double)limits.wall_ms / 1000);
    else if (hutch_session_execute(engine, call->session->id, cell, &error) < 0)
        hutch_mcp_call_fail(call, "%s", error.message);
}

/* --- what was shown --------------------------------------------------------------------------------------------- */

static int add_stream(struct mcp_shown *shown, struct json_view output)
{
    struct json_view text = hutch_json_view_get(output, "text");
    unsigned stream = hutch_json_view_is(hutch_json_view_get(output, "name"), "stderr");
    auto_free char *data = NULL;
    struct hutch_err err;
    size_t len;

    if (!hutch_json_view_is_string(text))
        return 0;
    if (hutch_json_view_text(text, &data, &len, &err) < 0)
        return -1;
    hutch_text_add(&shown->streams[stream], data, len);
    hutch_text_add(&shown->both, data, len);
    return 0;
}

int hutch_mcp_shown_read(const struct hutch_cell_result *result, struct mcp_shown *ret)
{
    struct json_view output;
    struct json_walk walk;
    struct hutch_err err;

    ret->text = hutch_cell_result_to_json(result);
    if (!ret->text || hutch_json_view_check("result", 1, 1, ret->text, strlen(ret->text), &ret->json, &err) < 0)
        return -1;
    walk = hutch_json_view_walk(hutch_json_view_get(ret->json, "outputs"));
    while (walk.p && hutch_json_view_next(&walk, NULL, &output))
        if (hutch_json_view_is(hutch_json_view_get(output, "output_type"), "stream") && add_stream(ret, output) < 0)
            return -1;
    return ret->streams[0].is_broken || ret->streams[1].is_broken || ret->both.is_broken ? -1 : 0;
}

void hutch_mcp_shown_done(struct mcp_shown *shown)
{
    free(shown->text);
    shown->text = NULL;
    hutch_text_done(&shown->streams[0]);
    hutch_text_done(&shown->streams[1]);
    hutch_text_done(&shown->both);
}

size_t hutch_mcp_budget(const struct mcp_call *call)
{
    const struct mcp_settings *settings = call->session->sessions->settings;

    return settings->budget ? settings->budget : MCP_TOKENS;
}

/* A token is four characters of ASCII, as hutch_cell_result_to_text() has it. */
size_t hutch_mcp_max_text(const struct mcp_call *call)
{
    return 4 * hutch_mcp_budget(call);
}

/* Their first ones, as far as they are not too many. */
static bool add_list(struct text_buffer *t, struct json_view list)
{
    struct json_walk walk = hutch_json_view_walk(list);
    size_t before = t->len;
    struct json_view entry;
    bool is_cut = false;

    hutch_text_add_string(t, "[");
    while (walk.p && !is_cut && hutch_json_view_next(&walk, NULL, &entry)) {
        is_cut = t->len - before + entry.len > MAX_FILES;
        if (is_cut)
            break;
        if (t->len > 0 && t->data[t->len - 1] != '[')
            hutch_text_add_string(t, ",");
        hutch_text_add(t, entry.text, entry.len);
    }
    hutch_text_add_string(t, "]");
    return is_cut;
}

static bool add_files(struct mcp_result *r, struct json_view files)
{
    static const char *const keys[] = { "added", "modified", "deleted" };
    struct text_buffer *t = hutch_mcp_add_key(r, "files");
    bool is_cut = false;

    hutch_text_add_string(t, "{");
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        hutch_text_addf(t, "%s\"%s\":", i ? "," : "", keys[i]);
        is_cut |= add_list(t, hutch_json_view_get(files, keys[i]));
    }
    hutch_text_add_string(t, "}");
    return is_cut;
}

void hutch_mcp_add_shown(struct mcp_result *r, const struct mcp_call *call, const struct hutch_cell_result *result,
                         const struct mcp_shown *shown)
{
    static const char *const names[] = { "stdout", "stderr" };
    bool is_cut = result->truncated;

    hutch_mcp_add_member(r, "status", r->is_error && result->verdict == HUTCH_OK ? "error"
                                                                               : hutch_verdict_text(result->verdict));
    for (unsigned i = 0; i < 2; i++)
        is_cut |= hutch_mcp_quote_excerpt(hutch_mcp_add_key(r, names[i]), shown->streams[i].data,
                                          shown->streams[i].len, hutch_mcp_max_text(call));
    hutch_mcp_add_member(r, "message", result->message[0] ? result->message : NULL);
    is_cut |= add_files(r, hutch_json_view_get(shown->json, "files"));
    hutch_mcp_add_flag(r, "truncated", is_cut);
    hutch_mcp_add_flag(r, "fresh", result->is_fresh || call->session->loss != MCP_LOST_NOTHING);
    hutch_mcp_add_flag(r, "interpreter_died", result->interpreter_died);
    hutch_text_addf(hutch_mcp_add_key(r, "execution_time_ms"), "%.0f", result->run_ms);
    hutch_mcp_add_member(r, "session_id", call->session->handle);
}

/* --- the end ---------------------------------------------------------------------------------------------------- */

void hutch_mcp_cell_answer(struct mcp_call *call, const struct hutch_cell_result *result, mcp_make_result *make)
{
    struct mcp_shown shown = MCP_SHOWN_INIT;
    struct mcp_result r = MCP_RESULT_INIT;
    const struct mcp_sessions *sessions = call->session->sessions;
    bool has_result;

    if (sessions->account && sessions->account->count_cell)
        sessions->account->count_cell(sessions->owner, result);
    has_result = call->is_cancelled || make(call, result, &shown, &r) == 0;
    hutch_mcp_shown_done(&shown);
    if (has_result) {
        hutch_mcp_call_answer(call, &r);
    } else {
        hutch_mcp_result_done(&r);
        hutch_mcp_call_fail(call, "there was not enough memory for the result");
    }
}
