/* server_cell.h - a cell that a server executes: its request, and the events of its stream as hutch.h has them. */
#ifndef HUTCH_REPL_SERVER_CELL_H
#define HUTCH_REPL_SERVER_CELL_H

#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct server_cell {
    struct hutch_cell cell; /* whose callbacks hear of it; its texts are not looked at any more */
    bool has_result;        /* on_result was called */
};

/* The JSON of the request, with what a prompt asks for. */
void hutch_server_cell_write(const struct hutch_cell *cell, struct text_buffer *to);
/* One event. What is none that is known, or is malformed, is passed over. */
void hutch_server_cell_take(struct server_cell *c, struct json_view event, struct json_view data);
/* The stream is over: a cell without a result gets one that says so. @why: NULL when it ended as it should. */
void hutch_server_cell_end(struct server_cell *c, const struct hutch_err *why);

#endif
