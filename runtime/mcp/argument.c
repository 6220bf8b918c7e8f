#include "runtime/mcp/argument.h"

#include "runtime/mcp/rpc.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[] = { [MCP_STRING] = "string", [MCP_NUMBER] = "number", [MCP_INTEGER] = "integer" };

/* --- the schema ------------------------------------------------------------------------------------------------- */

static void write_property(struct text_buffer *t, const struct mcp_argument *row)
{
    hutch_text_addf(t, "\"%s\":{\"type\":\"%s\"", row->name, type_names[row->type]);
    if (row->type != MCP_STRING)
        hutch_text_addf(t, ",\"minimum\":%.16g,\"maximum\":%.16g", row->min, row->max);
    if (row->values) {
        hutch_text_add_string(t, ",\"enum\":[");
        for (size_t i = 0; row->values[i]; i++)
            hutch_text_addf(t, "%s\"%s\"", i ? "," : "", row->values[i]);
        hutch_text_add_string(t, "]");
    }
    hutch_text_add_string(t, ",\"description\":");
    hutch_json_quote(t, row->description, strlen(row->description));
    hutch_text_add_string(t, "}");
}

void hutch_mcp_write_schema(struct text_buffer *t, const struct mcp_argument *rows, size_t n)
{
    bool has_required = false;

    hutch_text_add_string(t, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < n; i++) {
        hutch_text_add_string(t, i ? "," : "");
        write_property(t, &rows[i]);
    }
    hutch_text_add_string(t, "},\"required\":[");
    for (size_t i = 0; i < n; i++)
        if (rows[i].is_required) {
            hutch_text_addf(t, "%s\"%s\"", has_required ? "," : "", rows[i].name);
            has_required = true;
        }
    hutch_text_add_string(t, "],\"additionalProperties\":false}");
}

/* --- values ----------------------------------------------------------------------------------------------------- */

static int read_string(const struct mcp_argument *row, struct json_view value, struct mcp_value *ret,
                       struct hutch_err *err)
{
    size_t i = 0;

    if (!hutch_json_view_is_string(value))
        return hutch_err_set(err, 0, "'%s' has to be a string", row->name);
    if (hutch_json_view_text(value, &ret->text, &ret->len, err) < 0)
        return -1;
    if (memchr(ret->text, '\0', ret->len))
        return hutch_err_set(err, 0, "'%s' has a NUL character in it", row->name);
    while (row->values && row->values[i] && strcmp(row->values[i], ret->text) != 0)
        i++;
    if (row->values && !row->values[i])
        return hutch_err_set(err, 0, "'%s' has to be \"%s\" or \"%s\"", row->name, row->values[0], row->values[1]);
    return 0;
}

static int read_number(const struct mcp_argument *row, struct json_view value, struct mcp_value *ret,
                       struct hutch_err *err)
{
    char text[64], *end = text;

    if (value.len < sizeof(text) && strchr("-0123456789", *value.text)) {
        memcpy(text, value.text, value.len);
        text[value.len] = '\0';
        ret->number = strtod(text, &end);
    }
    if (end == text || *end != '\0')
        return hutch_err_set(err, 0, "'%s' has to be a number", row->name);
    if (!(ret->number >= row->min && ret->number <= row->max))
        return hutch_err_set(err, 0, "'%s' has to be between %.16g and %.16g", row->name, row->min, row->max);
    if (row->type == MCP_INTEGER && ret->number != (double)(int64_t)ret->number) /* at most 2^53 by its row */
        return hutch_err_set(err, 0, "'%s' has to be a whole number", row->name);
    return 0;
}

static const struct mcp_argument *find_row(struct json_view key, const struct mcp_argument *rows, size_t n)
{
    char name[64];

    if (!hutch_rpc_text(key, name, sizeof(name)))
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

int hutch_mcp_arguments_read(struct json_view object, const struct mcp_argument *rows, size_t n,
                             struct mcp_arguments *ret, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(object);
    struct json_view key, value;

    *ret = (struct mcp_arguments){ 0 };
    while (walk.is_object && hutch_json_view_next(&walk, &key, &value)) {
        const struct mcp_argument *row = find_row(key, rows, n);
        struct mcp_value *to;

        if (!row)
            return hutch_err_set(err, 0, "there is no argument %.*s", (int)(key.len < 80 ? key.len : 80), key.text);
        to = &ret->values[row - rows];
        if (to->is_set)
            return hutch_err_set(err, 0, "'%s' is there twice", row->name);
        if (hutch_json_view_is_null(value) && !row->is_required)
            continue; /* as some models write what they leave out */
        to->is_set = true;
        if ((row->type == MCP_STRING ? read_string : read_number)(row, value, to, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++)
        if (rows[i].is_required && !ret->values[i].is_set)
            return hutch_err_set(err, 0, "'%s' is missing: %s", rows[i].name, rows[i].description);
    return 0;
}

void hutch_mcp_arguments_done(struct mcp_arguments *arguments)
{
    for (size_t i = 0; i < MCP_MAX_ARGUMENTS; i++)
        free(arguments->values[i].text);
    *arguments = (struct mcp_arguments){ 0 };
}
