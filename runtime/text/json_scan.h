/* json_scan.h - a JSON text token by token, as RFC 8259 has it: what is taken, and in which words the rest is
 * refused.
 *
 * Three readers stand on it: json.h (policies, strict, with the place of every value), json_view.h (text looked at
 * in place) and nbjson.h (notebooks, exact). It takes no memory and does not recurse, so no text can exhaust the
 * stack. */
#ifndef HUTCH_TEXT_JSON_SCAN_H
#define HUTCH_TEXT_JSON_SCAN_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_SCAN_MAX_DEPTH 200

#define JSON_TAKES_NAN        (1u << 0) /* NaN, Infinity and -Infinity, which Python's json module writes */
#define JSON_TAKES_SURROGATES (1u << 1) /* half of a surrogate pair, which it writes too */
#define JSON_NO_CONTROL       (1u << 2) /* neither \u0000 nor DEL: strings become C strings, and words of messages */

enum json_token {
    JSON_ERROR = -1,
    JSON_END,    /* of the text; the value was whole */
    JSON_OBJECT, /* up to its JSON_CLOSE come pairs of JSON_KEY and a value */
    JSON_ARRAY,
    JSON_CLOSE,
    JSON_KEY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_NULL,
    JSON_TRUE,
    JSON_FALSE,
};

struct json_scan {
    /* Set by the caller; all else begins as zeros. */
    const char *what; /* how messages name the text */
    const char *text; /* @len bytes, not owned, not NUL-terminated */
    size_t len;
    uint64_t line, column; /* where the text begins, from 1; columns count characters */
    unsigned flags;        /* JSON_TAKES_NAN, … */
    unsigned max_depth;    /* levels of arrays and objects, at most JSON_SCAN_MAX_DEPTH */
    struct hutch_err *err;

    /* The last token: its bytes, a string's or key's with the quotes. */
    const char *token;
    size_t token_len;
    bool is_float;  /* a number with fraction or exponent, or NaN and the like */
    unsigned depth; /* arrays and objects that are open */

    /* The scanner's own. */
    size_t at;
    enum { JSON_AT_VALUE, JSON_AT_FIRST, JSON_AT_KEY, JSON_AFTER_VALUE } state;
    uint8_t is_object[JSON_SCAN_MAX_DEPTH / 8]; /* one bit for each level */
};

/* Errors: not JSON, a byte that is not UTF-8, nested too deeply, something after the value. */
enum json_token hutch_json_scan_next(struct json_scan *s);

/* Refuses the text in the caller's words, at the place that was reached: "WHAT: line L, column C: WHY". Returns
 * JSON_ERROR. */
enum json_token hutch_json_scan_refuse(const struct json_scan *s, const char *why);

/* The text of a token that was a string or key, NUL-terminated, into @to: @len bytes suffice, as no escape is
 * shorter than what it stands for. U+0000 becomes the @nul_len bytes (1 or 2) of @nul, half of a surrogate pair
 * three bytes, as Python's "surrogatepass" has it. Returns the length. */
size_t hutch_json_scan_unescape(const char *token, size_t len, const char *nul, size_t nul_len, char *to);

#endif
