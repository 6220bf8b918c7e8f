#include "runtime/e2b/filter.h"

#include "runtime/gateway/uri.h"
#include "runtime/text/json_view.h"
#include "sandbox/fd.h"

#include <string.h>

/* Clients encode keys and values, and then their list. */
static char *decode_twice(const char *text, size_t len, struct hutch_err *err)
{
    auto_free char *once = hutch_uri_decode(text, len, err);

    return once ? hutch_uri_decode(once, strlen(once), err) : NULL;
}

/* Whether @metadata has the one that @pair is, "KEY=VALUE" with both encoded. */
static bool has_pair(const char *metadata, const char *pair, size_t len)
{
    size_t key_len = strcspn(pair, "=") < len ? strcspn(pair, "=") : len;
    struct hutch_err err;
    auto_free char *key = decode_twice(pair, key_len, &err);
    auto_free char *value = key_len < len ? decode_twice(pair + key_len + 1, len - key_len - 1, &err) : strdup("");
    struct json_view object = { metadata, strlen(metadata) }, name, text;
    struct json_walk walk = hutch_json_view_walk(object);

    while (key && value && hutch_json_view_next(&walk, &name, &text)) {
        auto_free char *has_key = NULL, *has_value = NULL;
        size_t n;

        if (hutch_json_view_text(name, &has_key, &n, &err) == 0 &&
            hutch_json_view_text(text, &has_value, &n, &err) == 0 &&
            strcmp(has_key, key) == 0 && strcmp(has_value, value) == 0)
            return true;
    }
    return false;
}

bool hutch_e2b_filter_metadata(const char *metadata, const char *wanted)
{
    while (wanted && *wanted) {
        size_t len = strcspn(wanted, "&");

        if (len > 0 && !has_pair(metadata, wanted, len))
            return false;
        wanted += len + (wanted[len] == '&');
    }
    return true;
}

bool hutch_e2b_filter_state(const char *wanted, const char *state)
{
    size_t len = strlen(state);

    for (const char *p = wanted; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == len && strncmp(p, state, len) == 0)
            return true;
    return !wanted;
}
