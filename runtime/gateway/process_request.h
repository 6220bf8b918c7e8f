/* process_request.h - the JSON about processes: how one is begun, its input, signals and size; and the text messages of
 * a WebSocket. As strict as run_request.h. */
#ifndef HUTCH_GATEWAY_PROCESS_REQUEST_H
#define HUTCH_GATEWAY_PROCESS_REQUEST_H

#include "runtime/hutch.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct process_request {
    struct hutch_process_options options; /* its pointers are those of the fields below */
    bool ends_with_client;
    struct json_doc doc;                  /* owned */
    const char **args;                    /* owned */
    char **env;                           /* owned */
};

/* hutch_process_request_done() in any case. */
int hutch_process_request_parse(const char *text, size_t len, struct process_request *ret, struct hutch_err *err);
void hutch_process_request_done(struct process_request *r);

/* {"data": TEXT} or {"data_base64": …}: some bytes, for the caller to free. */
int hutch_input_request_parse(const char *text, size_t len, char **ret, size_t *ret_len, struct hutch_err *err);
/* {"signal": "TERM"}, "SIGTERM" or 15. */
int hutch_signal_request_parse(const char *text, size_t len, int *ret, struct hutch_err *err);
/* {"rows": 24, "cols": 80} */
int hutch_size_request_parse(const char *text, size_t len, unsigned *ret_rows, unsigned *ret_cols,
                             struct hutch_err *err);

enum control_type { CONTROL_RESIZE, CONTROL_SIGNAL, CONTROL_CLOSE_STDIN };

struct control_message {
    enum control_type type;
    unsigned rows, cols; /* CONTROL_RESIZE */
    int signal;          /* CONTROL_SIGNAL */
};

/* {"type": "resize", "rows": 24, "cols": 80}, {"type": "signal", "signal": "INT"}, {"type": "close_stdin"} */
int hutch_control_message_parse(const char *text, size_t len, struct control_message *ret, struct hutch_err *err);

#endif
