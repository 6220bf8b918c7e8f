/* run_request.h - the JSON of POST /v1/run, made a hutch_request.
 *
 * Strict: a key that is not known, a wrong type, a NUL byte, half of a surrogate pair or deep nesting is refused in one
 * sentence that names the place. What is for the operator to choose (policy, image, network, directories of the host)
 * has no key. */
#ifndef HUTCH_GATEWAY_RUN_REQUEST_H
#define HUTCH_GATEWAY_RUN_REQUEST_H

#include "runtime/hutch.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stddef.h>

struct run_request {
    struct hutch_request request; /* without callbacks; its pointers are those of the fields below */
    struct json_doc doc;          /* owned */
    const char **args;            /* owned, the texts are the document's */
    const char **fetch, **data_targets; /* likewise */
    char **env;                   /* owned, with the texts */
    unsigned char *input;         /* owned; of stdin_base64 */
    char *id;                     /* owned; of a line of a batch, as JSON; NULL: it has none */
};

/* hutch_run_request_done() in any case. */
int hutch_run_request_parse(const char *text, size_t len, struct run_request *ret, struct hutch_err *err);
/* The same for a line of a batch, which may have an "id", a string or a whole number. On failure, too, that is there
 * where it could be read. */
int hutch_run_request_parse_line(const char *text, size_t len, struct run_request *ret, struct hutch_err *err);
void hutch_run_request_done(struct run_request *r);

#endif
