/* instant.c - the floor below `hutch serve`: the same server with one route more, whose handler answers at once with a
 * result of the usual size. What a request takes here is HTTP; the engine has no part in it.
 *
 *     instant SOCKET IMAGE */
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/server.h"
#include "sandbox/fd.h"
#include "sandbox/rlimits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_LEN 1920 /* the result of a hello */

static void answer_at_once(struct exchange *x)
{
    static const char begin[] = "{\"version\":1,\"verdict\":\"ok\",\"stdout\":\"hello\\n\",\"rest\":\"";
    static const char end[] = "\"}\n";
    char *body = malloc(ANSWER_LEN);

    if (body) {
        memset(body, '.', ANSWER_LEN);
        memcpy(body, begin, sizeof(begin) - 1);
        memcpy(body + ANSWER_LEN - (sizeof(end) - 1), end, sizeof(end) - 1);
    }
    hutch_exchange_answer(x, 200, "application/json", body, ANSWER_LEN);
}

static const struct route routes[] = { { "POST", "/instant", ROUTE_JSON, false, answer_at_once, NULL, NULL } };
static const struct format instant = { .name = "instant", .routes = routes, .n_routes = ARRAY_SIZE(routes) };

int main(int argc, char **argv)
{
    static const struct format *const formats[] = { &instant, NULL };
    static const char *const no_hosts[] = { NULL };
    struct hutch_engine_options engine;
    struct server_options options = {
        .engine = &engine, .known_formats = formats, .version = "0", .hosts = no_hosts, .origins = no_hosts,
        .max_body = SERVER_BODY_USUAL, .max_connections = SERVER_MAX_CONNECTIONS, .request_ms = SERVER_REQUEST_MS,
        .idle_ms = SERVER_IDLE_MS, .drain_ms = 1000,
    };
    char listen[256];
    const char *const addresses[] = { listen, NULL };
    struct hutch_err err = { 0 };

    if (argc != 3) {
        fprintf(stderr, "usage: instant SOCKET IMAGE\n");
        return 2;
    }
    snprintf(listen, sizeof(listen), "unix:%s", argv[1]);
    options.listen = addresses;
    hutch_engine_options_init(&engine);
    engine.image = argv[2];
    hutch_rlimits_raise_open_files();
    if (hutch_server_run(&options, &err) == 0)
        return 0;
    fprintf(stderr, "instant: %s\n", err.msg);
    return 1;
}
