/* host.h - what the room of a format may ask of the server that it is a part of. */
#ifndef HUTCH_GATEWAY_HOST_H
#define HUTCH_GATEWAY_HOST_H

#include "runtime/text/ids.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct exchange;
struct hutch_cell_result;
struct hutch_engine;
struct hutch_limits;
struct hutch_result;
struct server;
struct token;

/* NULL: it can run nothing any more. */
struct hutch_engine *hutch_server_engine(const struct server *s);
/* What the operator says of requests of @token in @format, and what these may ask for at most, whose size is set; NULL:
 * as the engine's is. Either of both tells the same of an exchange. */
const char *hutch_server_policy(const struct server *s, const struct token *token, const char *format,
                                struct hutch_limits *limits);
const char *hutch_exchange_policy(const struct exchange *x, struct hutch_limits *limits);
/* A name for what a format keeps between requests, by which any worker finds it: place.h. */
int hutch_server_make_id(const struct server *s, char ret[ID_LEN + 1], struct hutch_err *err);
/* The name that what @x makes is to have: by another worker, or by a proxy that the operator trusts with it. 1: it is
 * in @ret; 0: none was given, so one is to be made; -1: it is none. */
int hutch_exchange_given_id(const struct exchange *x, char ret[ID_LEN + 1], struct hutch_err *err);
/* Of hutch. */
const char *hutch_server_version(const struct server *s);
/* What runs may end, and nothing new begins. */
bool hutch_server_is_draining(const struct server *s);
/* For /metrics. @format: its name. */
void hutch_server_count_run(struct server *s, const char *format, const struct hutch_result *result);
void hutch_server_count_cell(struct server *s, const char *format, const struct hutch_cell_result *result);
/* Sends what was answered, as the last act of an engine's callback: the engine takes the sandbox apart before its
 * dispatch returns, and the client need not wait for that. What the caller has may be freed by it. */
void hutch_server_send(struct server *s);
/* What the format of the exchange keeps. */
void *hutch_server_state(const struct exchange *x);

/* How many sessions one token may have open, so that no other one is kept out. */
unsigned hutch_server_session_share(const struct server *s);
/* How many it has. Those that a format finds by names of its own are in token->n_sessions, which the format counts. */
unsigned hutch_server_session_count(const struct server *s, const struct token *token);

#endif
