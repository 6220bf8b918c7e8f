/* nbjson.h - JSON exactly as nbformat reads and writes notebooks, on cJSON trees.
 *
 * What cJSON's own parser and printer would lose is kept: a tree that was parsed here and is printed here comes out
 * as Python's
 *     json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False)
 * would write it, number for number and byte for byte. For that,
 * - a number carries its token in valuestring, as Python's repr() has it ("1e5" is "100000.0", integers of any size
 *   stay); valueint and valuedouble are set as ever. Replace such a number rather than setting it;
 * - U+0000 within a string or key is the two bytes of NBJSON_NUL, which no UTF-8 text has otherwise.
 *   hutch_nbjson_text() and hutch_nbjson_string() convert; what prints or compares through nbjson
 *   need not;
 * - of equal keys the last wins, as with Python.
 * Trees may be changed with cJSON's functions and are freed with cJSON_Delete(). Items made by those print as
 * expected, cJSON_Raw items as they stand. */
#ifndef HUTCH_TEXT_NBJSON_H
#define HUTCH_TEXT_NBJSON_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct text_buffer;

#define NBJSON_NUL "\xc0\x80"

struct nbjson_bounds {
    size_t max_len;     /* bytes of text */
    unsigned max_depth; /* levels of arrays and objects; at most 200 */
    size_t max_nodes;   /* values in the tree: a node takes 64 bytes where its text takes two */
    unsigned raw_depth; /* arrays and objects with this many around them are checked, but stay text (cJSON_Raw, as
                         * written) instead of becoming nodes; 0: none */
    bool is_strict;     /* refuse NaN, Infinity and numbers beyond a double, which Python's json takes */
};
/* A notebook, or a list of outputs. */
#define NBJSON_NOTEBOOK ((struct nbjson_bounds){ .max_len = (size_t)1 << 30, .max_depth = 100, .max_nodes = 16u << 20 })

/* @ret is the caller's. Errors name @what, and line and column (from 1, in characters): not JSON, not UTF-8, half a
 * surrogate pair, a byte order mark, anything after the value, a bound exceeded; ENOMEM. */
int hutch_nbjson_parse(const char *what, const char *text, size_t len, const struct nbjson_bounds *bounds,
                       struct cJSON **ret, struct hutch_err *err);

enum nbjson_form {
    NBJSON_COMPACT, /* one line, "," and ":", no newline at the end */
    NBJSON_FILE     /* as nbformat writes files: one space a level, a newline at the end */
};
/* NUL-terminated UTF-8, for the caller to free; @ret_len may be NULL. Keys sorted, by code point. NULL: ENOMEM. */
char *hutch_nbjson_print(const struct cJSON *value, enum nbjson_form form, size_t *ret_len);

/* The same, at the end of @to, which is broken on ENOMEM. */
void hutch_nbjson_add(struct text_buffer *to, const struct cJSON *value, enum nbjson_form form);

/* The text of a string with real NUL bytes, NUL-terminated, for the caller to free; NULL: ENOMEM. */
char *hutch_nbjson_text(const struct cJSON *string, size_t *ret_len);
/* The same as a C string: U+FFFD instead of NUL. */
char *hutch_nbjson_c_text(const struct cJSON *string);
/* A string of any bytes: each ill-formed part of a UTF-8 sequence becomes U+FFFD. NULL: ENOMEM. */
struct cJSON *hutch_nbjson_string(const char *text, size_t len);
/* A number written without fraction and exponent, within int64_t; false when @value is something else, or NULL. */
bool hutch_nbjson_get_integer(const struct cJSON *value, int64_t *ret);

/* ---- multi-line strings: an array of lines in the file, one string in memory ---- */

/* A new array of @string's lines with their ends, as str.splitlines(True); the empty string has none. NULL: ENOMEM. */
struct cJSON *hutch_nbjson_split_lines(const struct cJSON *string);
/* A new string of the parts; of a string a copy. NULL: ENOMEM, or @value is neither a string nor an array of strings
 * only, which hutch_nbjson_is_lines() tells apart. */
struct cJSON *hutch_nbjson_join_lines(const struct cJSON *value);
bool hutch_nbjson_is_lines(const struct cJSON *value);
/* Replaces the member @key of @object by its lines, or by the joined string; others than strings, or than arrays of
 * strings, and a key that is not there, stay as they are. -1: ENOMEM. */
int hutch_nbjson_split_member(struct cJSON *object, const char *key);
int hutch_nbjson_join_member(struct cJSON *object, const char *key);
/* The same for what nbformat splits and joins in an output's "data" or an attachment: text types, JavaScript and SVG
 * are split; all but JSON types are joined. -1: ENOMEM. */
int hutch_nbjson_split_bundle(struct cJSON *data);
int hutch_nbjson_join_bundle(struct cJSON *data);

#endif
