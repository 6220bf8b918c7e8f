/* json.h - strict reading of the JSON files that people write: a tree of cJSON's, and errors that name the place.
 *
 * cJSON is lenient (raw control characters, "01", a string cut at \u0000, equal keys, 1000 levels), and the reader of a
 * security policy must not be. The text is therefore scanned first (json_scan.h), and objects are read through a table
 * of the keys they may have. Errors read "WHAT: at $.path[2].key: expected …, got …". */
#ifndef HUTCH_TEXT_JSON_H
#define HUTCH_TEXT_JSON_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* Doubles hold every whole number up to here, so cJSON's numbers are exact up to here. */
#define JSON_U64_MAX (1ull << 53)

/* A parsed document. */
struct json_doc {
    char *what;         /* owned; how messages name it: "policy 'x.json'" */
    struct cJSON *root; /* owned */
};
#define JSON_DOC_INIT { .what = NULL, .root = NULL }

/* Checks and parses @len bytes. Errors, all with line and column: not JSON, a byte that is not UTF-8, NUL or a control
 * character in a string, more than @max_depth (at most 64) levels, anything after the value. */
int hutch_json_parse(const char *what, const char *text, size_t len, unsigned max_depth, struct json_doc *ret,
                     struct hutch_err *err);
/* The same for a regular file of at most @max_bytes; messages call it "KIND 'PATH'". */
int hutch_json_load(const char *kind, const char *path, size_t max_bytes, unsigned max_depth, struct json_doc *ret,
                    struct hutch_err *err);
void hutch_json_done(struct json_doc *doc);

/* One value and where it stands. Lives on the reader's stack, the parents further up on it. */
struct json_node {
    const char *what;
    const struct json_node *parent; /* NULL: the root, "$" */
    const char *key;                /* in an object; NULL in an array */
    size_t index;                   /* in an array */
    const struct cJSON *value;
};
struct json_node hutch_json_root(const struct json_doc *doc);

typedef int json_read_fn(const struct json_node *node, void *context, struct hutch_err *err);

/* One key that an object may have. */
struct json_field {
    const char *key;
    json_read_fn *read; /* NULL: any value, ignored */
    bool is_required;
};

/* Reads an object through @fields, in the order of the table. Errors: not an object, a key twice, a key that is not in
 * the table, a required key missing, and what a reader says. */
int hutch_json_object(const struct json_node *node, const struct json_field *fields, size_t n_fields, void *context,
                      struct hutch_err *err);
/* Reads an object with free keys, at most @max of them, no key twice: @read once for each, which finds the name in
 * node->key. */
int hutch_json_map(const struct json_node *node, size_t max, json_read_fn *read, void *context, struct hutch_err *err);
/* Reads an array of at most @max elements. */
int hutch_json_array(const struct json_node *node, size_t max, json_read_fn *read, void *context,
                     struct hutch_err *err);

/* The text stays the document's. */
int hutch_json_string(const struct json_node *node, size_t max_len, const char **ret, struct hutch_err *err);
/* A whole number @min..@max; @max at most JSON_U64_MAX. */
int hutch_json_u64(const struct json_node *node, uint64_t min, uint64_t max, uint64_t *ret, struct hutch_err *err);
int hutch_json_bool(const struct json_node *node, bool *ret, struct hutch_err *err);
bool hutch_json_is_null(const struct json_node *node);
bool hutch_json_is_string(const struct json_node *node);
bool hutch_json_is_number(const struct json_node *node);
double hutch_json_number(const struct json_node *node);

/* "WHAT: at PATH: expected FMT, got VALUE". Returns -1; errnum is 0. */
int hutch_json_expected(const struct json_node *node, struct hutch_err *err, const char *fmt, ...) HUTCH_PRINTF(3, 4);
/* "WHAT: at PATH: FMT". Returns -1; errnum is 0. */
int hutch_json_refuse(const struct json_node *node, struct hutch_err *err, const char *fmt, ...) HUTCH_PRINTF(3, 4);

#endif
