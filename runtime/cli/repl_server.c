#include "runtime/cli/repl_server.h"

#include "runtime/cli/local_server.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/settings.h"
#include "runtime/gateway/local_peer.h"
#include "runtime/repl/host.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <inttypes.h>
#include <stdlib.h>

#define IDLE_MS (30ull * 24 * 3600 * 1000) /* its user may come back after days */

static int write_head(const struct run_opts *opts, const char *home, const char *data, uint64_t wall_ms,
                      struct repl_server *ret, struct hutch_err *err)
{
    auto_free char *settings = hutch_settings_line(opts, home, false);
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!settings)
        return hutch_err_set(err, 0, "the options, or what is installed, ask for more than a server can be asked for");
    hutch_text_addf(&t, "\r\n" LOCAL_WALL ": %" PRIu64 "\r\n" LOCAL_SETTINGS ": ", wall_ms);
    hutch_text_add_string(&t, settings);
    if (data)
        hutch_local_server_add_path(&t, LOCAL_DATA, data);
    ret->head = hutch_text_take(&t, NULL);
    return ret->head ? 0 : hutch_err_set(err, ENOMEM, "ask the server");
}

static int write_body(const struct run_opts *opts, struct repl_server *ret, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_text;
    int rc;

    hutch_text_addf(&t, "{\"idle_ms\":%llu,\"lifetime_ms\":%llu", IDLE_MS, IDLE_MS);
    is_text = hutch_local_server_add_env(&t, &opts->env);
    rc = hutch_local_server_add_limits(&t, opts, 1u << LIMIT_WALL, err); /* which is said by a header */
    hutch_text_add_string(&t, "}");
    ret->body = hutch_text_take(&t, NULL);
    if (rc == 0 && !is_text)
        rc = hutch_err_set(err, 0, "the variables are no text, or one is there twice");
    return rc == 0 && !ret->body ? hutch_err_set(err, ENOMEM, "ask the server") : rc;
}

struct host *hutch_repl_server_host(const struct run_opts *opts, const char *home, const char *data, uint64_t wall_ms,
                                    struct repl_server *ret, struct hutch_err *err)
{
    struct host_server_way way = { .connect = hutch_local_server_connect };

    if (write_head(opts, home, data, wall_ms, ret, err) < 0 || write_body(opts, ret, err) < 0)
        return NULL;
    way.open_head = ret->head;
    way.open_body = ret->body;
    return hutch_host_of_server(&way, err);
}

void hutch_repl_server_done(struct repl_server *server)
{
    free(server->head);
    free(server->body);
    *server = (struct repl_server)REPL_SERVER_INIT;
}
