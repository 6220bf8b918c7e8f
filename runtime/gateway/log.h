/* log.h - one JSON object on a line for each request and each event of the server, on standard error.
 *
 * Nothing of what code or clients say gets in: no output, environment, header, path with its identifiers, or token; and
 * no code, unless the operator asks for its beginning. A reader of the log that does not read costs lines, which are
 * counted, and never holds the server. */
#ifndef HUTCH_GATEWAY_LOG_H
#define HUTCH_GATEWAY_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATEWAY_LOG_PROGRAM_MAX 1000 /* bytes of it, as it stands in a line */

struct gateway_log {
    int fd;         /* not owned; -1: no log */
    uint64_t n_lost;
};

/* A request that is over. */
struct gateway_log_request {
    const char *method, *route; /* of the table, not what the client sent; NULL: no route has it */
    const char *token;          /* its name; NULL: nobody has to say */
    const char *code;           /* of the error; NULL: none */
    const char *program;        /* the beginning of what it has run; NULL: it is not to be there */
    unsigned status;            /* 0: no answer was begun */
    double ms;
    uint64_t bytes_in, bytes_out;
    bool is_gone;               /* the client left before its answer was complete */
};
void hutch_gateway_log_request(struct gateway_log *log, const struct gateway_log_request *request);

/* {"time": …, "event": @event, @key: @text}; @key NULL: without it. */
void hutch_gateway_log_event(struct gateway_log *log, const char *event, const char *key, const char *text);

#endif
