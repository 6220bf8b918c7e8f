/* calls.h - calls that the code of a cell makes to its caller, from their coming to their answer. All of it is bounded,
 * and ends with the cell. */
#ifndef HUTCH_SESSION_CALLS_H
#define HUTCH_SESSION_CALLS_H

#include "runtime/cell/feed.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CALLS_MAX 64 /* that wait for an answer; also of names that a cell may declare */
#define CALLS_MAX_NAME 64
#define CALLS_MAX_ANSWER (4u << 20) /* bytes of JSON */

struct cJSON;
struct hutch_cell;
struct session;

struct session_calls {
    struct {
        uint64_t id;     /* as the caller knows it: no other call of the session has it */
        int64_t inside;  /* as the interpreter does, which may say what it likes */
    } list[CALLS_MAX];
    unsigned n;
    uint64_t last_id;    /* stays from cell to cell */
};

/* @json of hutch_cell.calls as the interpreter is told, for the caller to delete: [[name, null, true or false]].
 * Errors: EINVAL, ENOMEM. */
int hutch_calls_read(const char *json, struct cJSON **ret, struct hutch_err *err);
/* A cell begins: none waits. */
void hutch_calls_begin(struct session *session);
/* CELL_CALL, in the cell @cell. */
void hutch_calls_hear(struct session *session, const struct hutch_cell *cell, const struct cell_event *event);
/* Answers @call; @json: NULL for null. Errors: ENOENT: no such call waits; EINVAL: that is no JSON; EAGAIN: the
 * interpreter has not read earlier answers yet. */
int hutch_calls_answer(struct session *session, uint64_t call, const char *json, bool is_error, struct hutch_err *err);

#endif
