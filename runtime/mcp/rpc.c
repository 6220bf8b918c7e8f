#include "runtime/mcp/rpc.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_scan.h"
#include "runtime/text/json_write.h"

#include <string.h>

/* An escape is at most six bytes for one, so a text that is longer when it is written is longer when it is read. */
#define ESCAPED 6

int hutch_rpc_check(const char *text, size_t len, struct json_view *ret, struct hutch_err *err)
{
    struct json_scan s = { .what = "message", .text = text, .len = len, .line = 1, .column = 1, .err = err,
                           .max_depth = RPC_MAX_DEPTH };

    return hutch_json_view_scan(&s, ret);
}

bool hutch_rpc_text(struct json_view value, char *to, size_t size)
{
    char text[ESCAPED * 256 + 2];
    size_t len;

    if (!hutch_json_view_is_string(value) || value.len > sizeof(text) || size > sizeof(text) / ESCAPED)
        return false;
    len = hutch_json_scan_unescape(value.text, value.len, "", 1, text);
    if (len >= size || memchr(text, '\0', len))
        return false;
    memcpy(to, text, len + 1);
    return true;
}

static bool is_key(struct json_view written, const char *key)
{
    char text[RPC_MAX_METHOD + 1];

    if (!memchr(written.text, '\\', written.len))
        return hutch_json_view_is(written, key);
    return hutch_rpc_text(written, text, sizeof(text)) && strcmp(text, key) == 0;
}

struct json_view hutch_rpc_get(struct json_view object, const char *key)
{
    struct json_walk walk = hutch_json_view_walk(object);
    struct json_view name, value, found = JSON_VIEW_NONE;

    while (walk.is_object && hutch_json_view_next(&walk, &name, &value))
        if (is_key(name, key))
            found = value;
    return found;
}

/* --- ids -------------------------------------------------------------------------------------------------------- */

bool hutch_rpc_is_id(struct json_view value)
{
    if (value.len > RPC_MAX_ID)
        return false;
    if (hutch_json_view_is_string(value))
        return true;
    if (!value.text || !strchr("-0123456789", *value.text))
        return false;
    for (size_t i = 1; i < value.len; i++)
        if (value.text[i] < '0' || value.text[i] > '9')
            return false; /* a fraction, or an exponent */
    return true;
}

bool hutch_rpc_is_same_id(struct json_view a, struct json_view b)
{
    char texts[2][RPC_MAX_ID];
    size_t len;

    if (!hutch_rpc_is_id(a) || !hutch_rpc_is_id(b))
        return false;
    if (*a.text != '"' || *b.text != '"')
        return a.len == b.len && memcmp(a.text, b.text, a.len) == 0;
    len = hutch_json_scan_unescape(a.text, a.len, "", 1, texts[0]);
    return hutch_json_scan_unescape(b.text, b.len, "", 1, texts[1]) == len && memcmp(texts[0], texts[1], len) == 0;
}

/* --- messages --------------------------------------------------------------------------------------------------- */

enum member { MEMBER_VERSION, MEMBER_ID, MEMBER_METHOD, MEMBER_PARAMS, MEMBER_RESULT, MEMBER_ERROR, MEMBER_COUNT };
static const char *const members[MEMBER_COUNT] = { "jsonrpc", "id", "method", "params", "result", "error" };

/* Which of the members has @key; MEMBER_COUNT: none, and it is ignored. */
static enum member find_member(struct json_view key)
{
    unsigned m = 0;

    while (m < MEMBER_COUNT && !is_key(key, members[m]))
        m++;
    return (enum member)m;
}

static int refuse(struct hutch_err *err, const char *why)
{
    hutch_err_set(err, 0, "%s", why);
    return RPC_INVALID_REQUEST;
}

int hutch_rpc_read(struct json_view value, struct rpc_message *ret, struct hutch_err *err)
{
    struct json_view found[MEMBER_COUNT] = { JSON_VIEW_NONE }, key, member;
    struct json_walk walk = hutch_json_view_walk(value);
    const char *twice = NULL;

    *ret = (struct rpc_message){ .kind = RPC_NOTIFICATION };
    if (!hutch_json_view_is_object(value))
        return refuse(err, "a message is a JSON object");
    while (hutch_json_view_next(&walk, &key, &member)) {
        enum member m = find_member(key);

        if (m == MEMBER_COUNT)
            continue;
        if (found[m].text)
            twice = members[m]; /* readers differ in which of the two they take */
        found[m] = member;
    }
    if (found[MEMBER_ID].text && hutch_rpc_is_id(found[MEMBER_ID]))
        ret->id = found[MEMBER_ID];
    if (twice) {
        hutch_err_set(err, 0, "'%s' is there twice", twice);
        return RPC_INVALID_REQUEST;
    }
    if (!hutch_json_view_is(found[MEMBER_VERSION], "2.0"))
        return refuse(err, "'jsonrpc' has to be \"2.0\"");
    if (!found[MEMBER_METHOD].text && (found[MEMBER_RESULT].text || found[MEMBER_ERROR].text)) {
        ret->kind = RPC_ANSWER;
        return 0;
    }
    if (!hutch_json_view_is_string(found[MEMBER_METHOD]))
        return refuse(err, "'method' has to be a string");
    if (found[MEMBER_ID].text && !ret->id.text)
        return refuse(err, "'id' has to be a string or a whole number, of at most 256 bytes");
    if (!hutch_rpc_text(found[MEMBER_METHOD], ret->method, sizeof(ret->method)))
        strcpy(ret->method, "?"); /* no method has this name */
    ret->kind = ret->id.text ? RPC_REQUEST : RPC_NOTIFICATION;
    ret->params = found[MEMBER_PARAMS];
    if (ret->params.text && !hutch_json_view_is_object(ret->params)) {
        hutch_err_set(err, 0, "'params' has to be an object");
        return RPC_INVALID_PARAMS;
    }
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

static void begin_answer(struct text_buffer *t, struct json_view id, const char *member)
{
    hutch_text_add_string(t, "{\"jsonrpc\":\"2.0\"");
    if (id.text) {
        hutch_text_add_string(t, ",\"id\":");
        hutch_text_add(t, id.text, id.len);
    }
    hutch_text_addf(t, ",\"%s\":", member);
}

void hutch_rpc_begin_result(struct text_buffer *t, struct json_view id)
{
    begin_answer(t, id, "result");
}

void hutch_rpc_write_error(struct text_buffer *t, struct json_view id, int code, const char *message,
                           const char *data)
{
    begin_answer(t, id, "error");
    hutch_text_addf(t, "{\"code\":%d,\"message\":", code);
    hutch_json_quote(t, message, strlen(message));
    if (data) {
        hutch_text_add_string(t, ",\"data\":");
        hutch_text_add_string(t, data);
    }
    hutch_text_add_string(t, "}}");
}
