/* A notebook's text: streams merged, and strings split into lines, as nbconvert and nbformat write them. */
#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/nbjson.h"

#include <stdlib.h>
#include <string.h>

static bool is_stream(const struct cJSON *output)
{
    const char *type = get_text(output, "output_type");

    return type && strcmp(type, "stream") == 0 && get_text(output, "text") && get_text(output, "name");
}

static bool is_same_stream(const struct cJSON *a, const struct cJSON *b)
{
    return is_stream(a) && is_stream(b) && strcmp(get_text(a, "name"), get_text(b, "name")) == 0;
}

/* nbconvert: re.sub(".*\r(?=[^\n])", "", text). Returns the length that is left. */
static size_t drop_overwritten(char *text, size_t len)
{
    size_t to = 0;

    for (size_t line = 0, end; line < len; line = end) {
        const char *newline = memchr(text + line, '\n', len - line);
        size_t start = line;

        end = newline ? (size_t)(newline - text) + 1 : len;
        for (size_t i = end; i-- > line;)
            if (text[i] == '\r' && i + 1 < len && text[i + 1] != '\n') {
                start = i + 1;
                break;
            }
        memmove(text + to, text + start, end - start);
        to += end - start;
    }
    return to;
}

/* Streams of one name that follow each other become one: nbconvert does so with all code cells, also those that it
 * did not execute. */
static int merge_streams(struct cJSON *outputs)
{
    struct cJSON *output = outputs->child;

    while (output) {
        struct cJSON *next = output->next, *end;
        size_t len = 0, at = 0;
        char *text;

        if (!is_stream(output)) {
            output = next;
            continue;
        }
        for (end = output; end && is_same_stream(end, output); end = end->next)
            len += strlen(get_text(end, "text"));
        text = malloc(len + 1);
        if (!text)
            return -1;
        for (struct cJSON *part = output; part != end; part = next) {
            size_t n = strlen(get_text(part, "text"));

            memcpy(text + at, get_text(part, "text"), n);
            at += n;
            next = part->next;
            if (part != output)
                cJSON_Delete(cJSON_DetachItemViaPointer(outputs, part));
        }
        text[drop_overwritten(text, len)] = '\0';
        free(get_member(output, "text")->valuestring);
        get_member(output, "text")->valuestring = text;
        output = end;
    }
    return 0;
}

static int split_cell(const struct notebook_cell *cell)
{
    struct cJSON *entry;

    if (hutch_nbjson_split_member(cell->value, "source") < 0)
        return -1;
    cJSON_ArrayForEach(entry, get_member(cell->value, "attachments"))
        if (hutch_nbjson_split_bundle(entry) < 0)
            return -1;
    if (!cell->is_code)
        return 0;
    if (merge_streams(get_member(cell->value, "outputs")) < 0)
        return -1;
    cJSON_ArrayForEach(entry, get_member(cell->value, "outputs"))
        if (is_stream(entry) ? hutch_nbjson_split_member(entry, "text") < 0
                             : get_member(entry, "data") && hutch_nbjson_split_bundle(get_member(entry, "data")) < 0)
            return -1;
    return 0;
}

int hutch_notebook_print(struct notebook *nb, char **ret_text, size_t *ret_len, struct hutch_err *err)
{
    if (hutch_notebook_show_updates(nb, err) < 0 || hutch_notebook_write_widgets(nb, err) < 0)
        return -1;
    for (size_t i = 0; i < nb->n_cells; i++)
        if (split_cell(&nb->cells[i]) < 0)
            return refuse_memory(err);
    *ret_text = hutch_nbjson_print(nb->root, NBJSON_FILE, ret_len);
    return *ret_text ? 0 : refuse_memory(err);
}
