#include "runtime/gateway/outputs.h"

void hutch_outputs_add_inner(struct text_buffer *t, struct json_view text)
{
    if (hutch_json_view_is_string(text))
        hutch_text_add(t, text.text + 1, text.len - 2);
}

void hutch_outputs_add_stream(struct text_buffer *t, struct json_view outputs, const char *name)
{
    struct json_walk walk = hutch_json_view_walk(outputs);
    struct json_view output;

    hutch_text_add_string(t, "\"");
    while (hutch_json_view_next(&walk, NULL, &output))
        if (hutch_json_view_is(hutch_json_view_get(output, "output_type"), "stream") &&
            hutch_json_view_is(hutch_json_view_get(output, "name"), name))
            hutch_outputs_add_inner(t, hutch_json_view_get(output, "text"));
    hutch_text_add_string(t, "\"");
}

struct json_view hutch_outputs_last(struct json_view outputs, const char *type)
{
    struct json_walk walk = hutch_json_view_walk(outputs);
    struct json_view output, found = JSON_VIEW_NONE;

    while (hutch_json_view_next(&walk, NULL, &output))
        if (hutch_json_view_is(hutch_json_view_get(output, "output_type"), type))
            found = output;
    return found;
}
