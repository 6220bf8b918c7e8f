/* body.h - the JSON of a request's body, as a tree of bounded size. */
#ifndef HUTCH_GATEWAY_BODY_H
#define HUTCH_GATEWAY_BODY_H

#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stddef.h>

/* A value takes some hundred bytes in the tree and two in the text: sixteen megabytes of zeros would be a gigabyte. */
#define BODY_MAX_VALUES 20000

/* As hutch_json_parse(), for what messages call "request"; also refuses many more than BODY_MAX_VALUES values and keys.
 * @text may be NULL where @len is 0. */
int hutch_body_parse(const char *text, size_t len, unsigned max_depth, struct json_doc *ret, struct hutch_err *err);

#endif
