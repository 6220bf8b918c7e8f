#include "runtime/e2b/event.h"

#include "runtime/e2b/ascii.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"
#include "runtime/text/moment.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <string.h>

/* Types that a result has a key for. */
static const struct { const char *type, *key; } keys[] = {
    { "text/html", "html" },           { "text/markdown", "markdown" },
    { "image/svg+xml", "svg" },        { "image/png", "png" },
    { "image/jpeg", "jpeg" },          { "application/pdf", "pdf" },
    { "text/latex", "latex" },         { "application/json", "json" },
    { "application/javascript", "javascript" }, { "e2b/data", "data" },
    { "e2b/chart", "chart" },
};

static const char *key_of(struct json_view type)
{
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (hutch_json_view_is(type, keys[i].type))
            return keys[i].key;
    return NULL;
}

static void add_view(struct text_buffer *t, struct json_view value)
{
    hutch_e2b_ascii_add(t, value.text, value.len);
}

/* Without one pair of quotes around it: what Python shows of a text is the text. */
static bool add_plain(struct text_buffer *t, struct json_view value)
{
    auto_free char *text = NULL;
    const char *begin;
    struct hutch_err err;
    size_t len;

    if (!hutch_json_view_is_string(value) || hutch_json_view_text(value, &text, &len, &err) < 0)
        return false;
    begin = text;
    if (len >= 2 && text[0] == text[len - 1] && (text[0] == '\'' || text[0] == '"')) {
        begin++;
        len -= 2;
    }
    hutch_text_add_string(t, ",\"text\":");
    hutch_e2b_ascii_quote(t, begin, len);
    return true;
}

static bool add_result(struct text_buffer *t, struct json_view output, bool is_main)
{
    struct json_view data = hutch_json_view_get(output, "data"), type, value;
    struct json_walk walk = hutch_json_view_walk(data);
    bool has_extra = false;

    if (!hutch_json_view_is_object(data))
        return false;
    hutch_text_addf(t, "{\"type\":\"result\",\"is_main_result\":%s", is_main ? "true" : "false");
    while (hutch_json_view_next(&walk, &type, &value)) {
        const char *key = key_of(type);

        if (hutch_json_view_is(type, "text/plain")) {
            if (!add_plain(t, value))
                return false;
        } else if (key) {
            hutch_text_addf(t, ",\"%s\":", key);
            add_view(t, value);
        }
    }
    hutch_text_add_string(t, ",\"extra\":{");
    walk = hutch_json_view_walk(data);
    while (hutch_json_view_next(&walk, &type, &value)) {
        if (hutch_json_view_is(type, "text/plain") || key_of(type))
            continue;
        hutch_text_add_string(t, has_extra ? "," : "");
        add_view(t, type);
        hutch_text_add_string(t, ":");
        add_view(t, value);
        has_extra = true;
    }
    hutch_text_add_string(t, "}}\n");
    return true;
}

static bool add_exception(struct text_buffer *t, struct json_view output)
{
    struct json_view name = hutch_json_view_get(output, "ename"), value = hutch_json_view_get(output, "evalue");
    struct json_view traceback = hutch_json_view_get(output, "traceback"), key, line;
    struct json_walk walk = hutch_json_view_walk(traceback);
    struct text_buffer lines = TEXT_BUFFER_INIT;
    struct hutch_err err;

    if (!hutch_json_view_is_string(name) || !hutch_json_view_is_string(value) || !hutch_json_view_is_array(traceback))
        return false;
    while (hutch_json_view_next(&walk, &key, &line)) {
        auto_free char *text = NULL;
        size_t len;

        if (hutch_json_view_is_string(line) && hutch_json_view_text(line, &text, &len, &err) == 0)
            hutch_text_add(&lines, text, len);
    }
    hutch_text_add_string(t, "{\"type\":\"error\",\"name\":");
    add_view(t, name);
    hutch_text_add_string(t, ",\"value\":");
    add_view(t, value);
    hutch_text_add_string(t, ",\"traceback\":");
    hutch_e2b_ascii_quote(t, lines.data ? lines.data : "", lines.len);
    hutch_text_add_string(t, "}\n");
    hutch_text_done(&lines);
    return true;
}

bool hutch_e2b_event_add(struct text_buffer *t, const struct hutch_output *output)
{
    struct json_view value;
    struct hutch_err err;
    bool is_fine = true;

    if (output->kind != HUTCH_DISPLAY && output->kind != HUTCH_VALUE && output->kind != HUTCH_ERROR_OUTPUT)
        return true; /* E2B has no updates */
    if (hutch_json_view_check("output", 1, 1, output->json, strlen(output->json), &value, &err) < 0)
        return false;
    if (output->kind == HUTCH_ERROR_OUTPUT)
        is_fine = add_exception(t, value);
    else
        is_fine = add_result(t, value, output->kind == HUTCH_VALUE);
    return is_fine && !t->is_broken;
}

void hutch_e2b_event_add_text(struct text_buffer *t, int stream, const char *data, size_t len)
{
    if (len == 0)
        return;
    hutch_text_addf(t, "{\"type\":\"%s\",\"text\":", stream == 1 ? "stdout" : "stderr");
    hutch_e2b_ascii_quote(t, data, len);
    hutch_text_add_string(t, ",\"timestamp\":");
    hutch_moment_add(t, hutch_clock_unix(), 6);
    hutch_text_add_string(t, "}\n");
}

void hutch_e2b_event_add_error(struct text_buffer *t, const char *name, const char *value,
                               const char *message)
{
    hutch_text_addf(t, "{\"type\":\"error\",\"name\":\"%s\",\"value\":", name);
    hutch_e2b_ascii_quote(t, value, strlen(value));
    hutch_text_add_string(t, ",\"traceback\":");
    hutch_e2b_ascii_quote(t, message, strlen(message));
    hutch_text_add_string(t, "}\n");
}
