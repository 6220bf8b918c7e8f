#include "runtime/text/json_view.h"

#include "runtime/text/json_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hutch_json_view_scan(struct json_scan *s, struct json_view *ret)
{
    enum json_token token = hutch_json_scan_next(s);
    const char *from = s->token;

    while (token > JSON_END)
        token = hutch_json_scan_next(s);
    if (token < 0)
        return -1;
    *ret = (struct json_view){ from, (size_t)(s->token + s->token_len - from) };
    return 0;
}

int hutch_json_view_check(const char *what, uint64_t line, uint64_t column, const char *text, size_t len,
                          struct json_view *ret, struct hutch_err *err)
{
    struct json_scan s = { .what = what, .text = text, .len = len, .line = line, .column = column, .err = err,
                           .flags = JSON_TAKES_NAN | JSON_TAKES_SURROGATES, .max_depth = JSON_SCAN_MAX_DEPTH };

    return hutch_json_view_scan(&s, ret);
}

bool hutch_json_view_is_object(struct json_view value)
{
    return value.text && *value.text == '{';
}

bool hutch_json_view_is_array(struct json_view value)
{
    return value.text && *value.text == '[';
}

bool hutch_json_view_is_string(struct json_view value)
{
    return value.text && *value.text == '"';
}

bool hutch_json_view_is_null(struct json_view value)
{
    return !value.text || *value.text == 'n';
}

/* Looked at byte by byte, before the rest is searched: many escaped quotes stand close to each other. */
#define NEAR 16

/* Past a string that was checked before: up to the quote that has an even number of backslashes before it. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++;;) {
        const char *near = end - p > NEAR ? p + NEAR : end, *quote, *before;

        for (; p < near; p++) {
            if (*p == '"')
                return p + 1;
            p += *p == '\\';
        }
        quote = before = memchr(p, '"', (size_t)(end - p));
        while (before > p && before[-1] == '\\')
            before--;
        p = quote + 1;
        if ((quote - before) % 2 == 0)
            return p;
    }
}

/* Past a value that was checked before. Needs no recursion: brackets outside of strings are in balance. */
static const char *skip_value(const char *p, const char *end)
{
    unsigned depth = 0;

    do {
        if (*p == '"') {
            p = skip_string(p, end);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (depth) {
            p++;
        } else {
            while (p < end && !strchr(",]} \t\r\n", *p))
                p++;
        }
    } while (depth && p < end);
    return p;
}

struct json_walk hutch_json_view_walk(struct json_view container)
{
    if (!hutch_json_view_is_object(container) && !hutch_json_view_is_array(container))
        return (struct json_walk){ NULL, NULL, false };
    return (struct json_walk){ container.text + 1, container.text + container.len - 1, *container.text == '{' };
}

static const char *skip_any(const char *p, const char *end, const char *skipped)
{
    while (p < end && *p && strchr(skipped, *p))
        p++;
    return p;
}

bool hutch_json_view_next(struct json_walk *walk, struct json_view *ret_key, struct json_view *ret_value)
{
    const char *p = skip_any(walk->p, walk->end, ", \t\r\n"), *from;

    if (p == walk->end)
        return false;
    if (walk->is_object) {
        from = p;
        p = skip_value(p, walk->end);
        if (ret_key)
            *ret_key = (struct json_view){ from, (size_t)(p - from) };
        p = skip_any(p, walk->end, ": \t\r\n");
    }
    from = p;
    p = skip_value(p, walk->end);
    *ret_value = (struct json_view){ from, (size_t)(p - from) };
    walk->p = p;
    return true;
}

size_t hutch_json_view_count(struct json_view container)
{
    struct json_walk walk = hutch_json_view_walk(container);
    struct json_view value;
    size_t n = 0;

    while (hutch_json_view_next(&walk, NULL, &value))
        n++;
    return n;
}

struct json_view hutch_json_view_get(struct json_view object, const char *key)
{
    struct json_walk walk = hutch_json_view_walk(object);
    struct json_view name, value, found = JSON_VIEW_NONE;
    size_t len = strlen(key);

    while (walk.is_object && hutch_json_view_next(&walk, &name, &value))
        if (name.len == len + 2 && memcmp(name.text + 1, key, len) == 0)
            found = value;
    return found;
}

int hutch_json_view_text(struct json_view value, char **ret, size_t *ret_len, struct hutch_err *err)
{
    char *text = malloc(value.len);
    size_t len;

    if (!text)
        return hutch_err_set(err, ENOMEM, "read a text of %zu bytes", value.len);
    len = hutch_json_scan_unescape(value.text, value.len, "", 1, text);
    *ret = text;
    if (ret_len)
        *ret_len = len;
    return 0;
}

bool hutch_json_view_integer(struct json_view value, int64_t *ret)
{
    char text[24], *end;

    if (!value.text || value.len >= sizeof(text) || (*value.text != '-' && !(*value.text >= '0' && *value.text <= '9')))
        return false;
    memcpy(text, value.text, value.len);
    text[value.len] = '\0';
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

bool hutch_json_view_is(struct json_view value, const char *text)
{
    size_t len = strlen(text);

    return hutch_json_view_is_string(value) && value.len == len + 2 && memcmp(value.text + 1, text, len) == 0;
}
