#include "runtime/cell/frame.h"

#include "runtime/cell/frames.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <string.h>

static const struct nbjson_bounds frame_bounds = {
    .max_len = CELL_MAX_FRAME, .max_depth = 100, .max_nodes = 100000, .raw_depth = 2, .is_strict = true,
};

enum member_type { IS_TEXT, IS_OBJECT, IS_TEXTS, IS_BOOL, IS_INTEGER, MAY_BE_TEXT, MAY_BE_INTEGER, IS_LIST };

#define MAX_TEXT (64u << 10) /* bytes of a prompt, or of what an error came from */

/* What a frame must have; what is not here is not looked at. */
static const struct { const char *is, *key; enum member_type type; } members[] = {
    { "ready", "language_info", IS_OBJECT },
    { "begin", "id", MAY_BE_INTEGER },
    { "begin", "count", MAY_BE_INTEGER },
    { "flush", "stream", MAY_BE_INTEGER },
    { "display", "data", IS_OBJECT },
    { "display", "metadata", IS_OBJECT },
    { "display", "id", MAY_BE_TEXT },
    { "update", "data", IS_OBJECT },
    { "update", "metadata", IS_OBJECT },
    { "update", "id", IS_TEXT },
    { "result", "data", IS_OBJECT },
    { "result", "metadata", IS_OBJECT },
    { "result", "id", MAY_BE_TEXT },
    { "result", "count", IS_INTEGER },
    { "error", "ename", IS_TEXT },
    { "error", "evalue", IS_TEXT },
    { "error", "traceback", IS_TEXTS },
    { "clear", "wait", IS_BOOL },
    { "widget", "id", IS_TEXT },
    { "widget", "state", IS_OBJECT },
    { "widget", "buffers", IS_LIST },
    { "input", "prompt", IS_TEXT },
    { "input", "password", IS_BOOL },
    { "call", "id", IS_INTEGER },
    { "call", "name", IS_TEXT },
    { "call", "args", IS_TEXT },
    { "done", "id", MAY_BE_INTEGER },
    { "done", "status", IS_TEXT },
    { "done", "count", MAY_BE_INTEGER },
    { "done", "line", MAY_BE_INTEGER },
    { "done", "cause", MAY_BE_TEXT },
    { "done", "value", MAY_BE_TEXT },
};

const struct cJSON *hutch_cell_frame_get(const struct cJSON *frame, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(frame, key);
}

const char *hutch_cell_frame_kind(const struct cJSON *frame)
{
    return hutch_cell_frame_get(frame, "is")->valuestring;
}

static bool has_type(const cJSON *value, enum member_type type)
{
    int64_t number;

    switch (type) {
    case IS_TEXT: return cJSON_IsString(value);
    case IS_OBJECT: return cJSON_IsObject(value);
    case IS_TEXTS: return cJSON_IsArray(value) && hutch_nbjson_is_lines(value);
    case IS_LIST: return cJSON_IsArray(value);
    case IS_BOOL: return cJSON_IsBool(value);
    case IS_INTEGER: return hutch_nbjson_get_integer(value, &number) && number >= 0;
    case MAY_BE_TEXT: return value == NULL || cJSON_IsNull(value) || cJSON_IsString(value);
    case MAY_BE_INTEGER: return value == NULL || cJSON_IsNull(value) || has_type(value, IS_INTEGER);
    }
    return false;
}

int hutch_cell_frame_parse(const char *text, size_t len, struct cJSON **ret, struct hutch_err *err)
{
    cJSON *frame = NULL;
    const cJSON *is;
    bool needs_number = false;
    int64_t n;

    if (hutch_nbjson_parse("frame", text, len, &frame_bounds, &frame, err) < 0)
        return -1;
    is = hutch_cell_frame_get(frame, "is");
    if (!cJSON_IsObject(frame) || !cJSON_IsString(is)) {
        cJSON_Delete(frame);
        return hutch_err_set(err, 0, "frame: expected an object with the text \"is\"");
    }
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (strcmp(members[i].is, is->valuestring) != 0)
            continue;
        needs_number = true;
        if (!has_type(hutch_cell_frame_get(frame, members[i].key), members[i].type)) {
            hutch_err_set(err, 0, "frame: \"%s\" has no good \"%s\"", members[i].is, members[i].key);
            cJSON_Delete(frame);
            return -1;
        }
    }
    if (!hutch_nbjson_get_integer(hutch_cell_frame_get(frame, "n"), &n))
        n = hutch_cell_frame_get(frame, "n") != NULL ? -1 : 0;
    if (n < 0 || n > UINT32_MAX || (n == 0 && needs_number)) {
        hutch_err_set(err, 0, "frame: \"%.40s\" has no good \"n\"", is->valuestring);
        cJSON_Delete(frame);
        return -1;
    }
    *ret = frame;
    return 0;
}

int64_t hutch_cell_frame_integer(const struct cJSON *frame, const char *key, int64_t otherwise)
{
    int64_t value;

    return hutch_nbjson_get_integer(hutch_cell_frame_get(frame, key), &value) ? value : otherwise;
}

char *hutch_cell_frame_text(const struct cJSON *frame, const char *key)
{
    const cJSON *value = hutch_cell_frame_get(frame, key);
    char *text = cJSON_IsString(value) ? hutch_nbjson_c_text(value) : NULL;

    if (text != NULL)
        text[hutch_utf8_cut(text, strlen(text), MAX_TEXT)] = '\0';
    return text;
}
