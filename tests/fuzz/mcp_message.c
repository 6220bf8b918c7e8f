/* Lines of a client of the Model Context Protocol, in pieces. There is no engine: what would run code says so. Whatever
 * is answered is one line of JSON in UTF-8, and nothing is answered twice. */
#include "runtime/mcp/face.h"
#include "runtime/mcp/lines.h"
#include "runtime/mcp/rpc.h"
#include "runtime/mcp/server.h"
#include "runtime/text/utf8.h"

#include "tests/fuzz/fuzz.h"

#define MAX_LINE 8192

struct client {
    struct mcp_server *server;
    unsigned n_sent, n_ended;
    bool is_behind;
};

static void on_send(void *owner, void *exchange, int kind, const char *json, size_t len)
{
    struct client *c = owner;
    struct hutch_err err;
    struct json_view value;

    fuzz_check(exchange == owner);
    fuzz_check(!memchr(json, '\n', len) && hutch_utf8_is_valid(json, len));
    fuzz_check(hutch_rpc_check(json, len, &value, &err) == 0 && hutch_json_view_is_object(value));
    fuzz_check(hutch_rpc_get(value, "jsonrpc").text);
    fuzz_check(!hutch_rpc_get(value, "result").text != !hutch_rpc_get(value, "error").text);
    fuzz_check((kind == MCP_RESULT) == (hutch_rpc_get(value, "result").text != NULL) && kind != MCP_NOTIFICATION);
    c->n_sent++;
}

static void on_end(void *owner, void *exchange)
{
    struct client *c = owner;

    fuzz_check(exchange == owner);
    c->n_ended++;
    fuzz_check(c->n_sent <= c->n_ended + 1);
}

static bool is_behind(void *owner)
{
    return ((struct client *)owner)->is_behind;
}

static struct hutch_engine *no_engine(void *owner, struct hutch_err *err)
{
    (void)owner;
    hutch_err_set(err, 0, "there is no engine");
    return NULL;
}

static void on_fail(void *owner)
{
    (void)owner;
    fuzz_check(false);
}

static const struct mcp_transport transport = {
    .send = on_send, .end = on_end, .is_behind = is_behind, .engine = no_engine, .fail = on_fail,
};

static void on_line(void *owner, const char *line, size_t len)
{
    struct client *c = owner;

    fuzz_check(len > 0 && len <= MAX_LINE && !memchr(line, '\n', len));
    hutch_mcp_server_receive(c->server, c, line, len);
}

static void on_long(void *owner)
{
    struct client *c = owner;

    hutch_mcp_server_refuse_long(c->server, c);
}

static const struct line_events events = { on_line, on_long };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char opening[] = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":"
                                  "{\"protocolVersion\":\"2025-03-26\"}}";
    static const struct mcp_settings settings = { .data_dir = NULL };
    struct client client = { .is_behind = size & 1 };
    struct mcp_sessions sessions;
    struct lines lines;

    hutch_mcp_sessions_init(&sessions, &settings);
    client.server = hutch_mcp_server_create(&transport, &client, &hutch_mcp_usual_face, &sessions, "0");
    fuzz_check(client.server);
    hutch_lines_init(&lines, &events, &client, MAX_LINE);
    if (fuzz_byte(&data, &size) & 1) /* most of what there is comes after this */
        on_line(&client, opening, sizeof(opening) - 1);
    while (size > 0) {
        size_t len;
        char *piece = fuzz_piece(&data, &size, &len);

        fuzz_check(hutch_lines_feed(&lines, piece, len) == 0);
        free(piece);
    }
    hutch_mcp_server_deadline(client.server);
    client.is_behind = false;
    hutch_mcp_server_tick(client.server);
    hutch_mcp_server_lose_engine(client.server, "it is over");
    hutch_mcp_server_free(client.server);
    hutch_mcp_sessions_done(&sessions);
    hutch_lines_done(&lines);
    return 0;
}
