/* session_request.h - the JSON of requests about sessions: their options, their cells, which checkpoint or branch. As
 * strict as run_request.h. */
#ifndef HUTCH_GATEWAY_SESSION_REQUEST_H
#define HUTCH_GATEWAY_SESSION_REQUEST_H

#include "runtime/hutch.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>

struct session_request {
    struct hutch_session_options options; /* its pointers are those of the fields below */
    struct json_doc doc;                  /* owned */
    char **env;                           /* owned */
    const char **data_targets;            /* owned, the texts are the document's */
};

/* An empty body asks for what is usual. hutch_session_request_done() in any case. */
int hutch_session_request_parse(const char *text, size_t len, struct session_request *ret, struct hutch_err *err);
void hutch_session_request_done(struct session_request *r);

struct cell_request {
    struct hutch_cell cell; /* its pointers are those of the fields below */
    struct json_doc doc;    /* owned */
    char **env;             /* owned */
    char *calls;            /* owned */
};

/* hutch_cell_request_done() in any case. */
int hutch_cell_request_parse(const char *text, size_t len, struct cell_request *ret, struct hutch_err *err);
void hutch_cell_request_done(struct cell_request *r);

struct input_reply {
    const char *text;       /* the document's; NULL: the end of the input */
    struct json_doc doc;    /* owned */
};

/* {"text": TEXT or null}. hutch_input_reply_done() in any case. */
int hutch_input_reply_parse(const char *text, size_t len, struct input_reply *ret, struct hutch_err *err);
void hutch_input_reply_done(struct input_reply *r);

struct question_request {
    struct hutch_question question; /* its pointers are the document's; its kind is not said */
    struct json_doc doc;            /* owned */
};

/* hutch_question_request_done() in any case. */
int hutch_question_request_parse(const char *text, size_t len, struct question_request *ret, struct hutch_err *err);
void hutch_question_request_done(struct question_request *r);

/* When a session ends: @ret_idle_ms and @ret_lifetime_ms, 0 where it is not said. */
int hutch_lifetime_request_parse(const char *text, size_t len, uint64_t *ret_idle_ms, uint64_t *ret_lifetime_ms,
                                 struct hutch_err *err);

/* {@key: NUMBER}, of which there is just this one. */
int hutch_number_request_parse(const char *text, size_t len, const char *key, uint64_t *ret, struct hutch_err *err);

#endif
