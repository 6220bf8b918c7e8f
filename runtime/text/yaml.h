/* yaml.h - YAML of the kind that programs write, as JSON text.
 *
 * Block mappings and block sequences of plain, single-quoted and double-quoted scalars, each on one line, with comments
 * and one "---" at the beginning. What else YAML has is refused, with the line: anchors, aliases, tags, flow
 * collections but for empty ones, block scalars, keys of another kind, a second document. For json.h, which checks the
 * rest, two equal keys among it. */
#ifndef HUTCH_TEXT_YAML_H
#define HUTCH_TEXT_YAML_H

#include "sandbox/err.h"

#include <stddef.h>

#define YAML_MAX_DEPTH 32

/* @ret is NUL-terminated and the caller's to free. Messages call the text @what. Errors: 0, ENOMEM. */
int hutch_yaml_to_json(const char *what, const char *text, size_t len, char **ret, size_t *ret_len,
                       struct hutch_err *err);

#endif
