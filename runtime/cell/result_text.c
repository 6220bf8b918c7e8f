#include "runtime/cell/result_text.h"

#include "runtime/text/nbimage.h"
#include "runtime/cell/model_text.h"
#include "runtime/cell/result_json.h"
#include "runtime/data/changes.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void format_size(char buf[40], uint64_t bytes)
{
    if (bytes < 1000)
        snprintf(buf, 40, "%" PRIu64 " B", bytes);
    else if (bytes < 1000000)
        snprintf(buf, 40, "%" PRIu64 " kB", (bytes + 500) / 1000);
    else
        snprintf(buf, 40, "%" PRIu64 ".%" PRIu64 " MB", bytes / 1000000, bytes / 100000 % 10);
}

/* ---- outputs ---- */

static void begin_line(struct text_buffer *to)
{
    if (to->len > 0 && to->data[to->len - 1] != '\n')
        hutch_text_add_string(to, "\n");
}

static bool is_of_type(const cJSON *output, const char *type)
{
    const char *is = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(output, "output_type"));

    return is != NULL && strcmp(is, type) == 0;
}

/* What has no telling text: its types, and how large they are. */
static void add_types(struct text_buffer *to, const cJSON *data)
{
    const cJSON *item;
    bool is_first = true;

    hutch_text_add_string(to, "[");
    cJSON_ArrayForEach(item, data) {
        char size[40];

        if (strcmp(item->string, "text/plain") == 0)
            continue;
        format_size(size, item->valuestring != NULL ? strlen(item->valuestring) : 0);
        if (!is_first)
            hutch_text_add_string(to, "; ");
        is_first = false;
        hutch_cell_text_add_clean(to, item->string, strnlen(item->string, 100));
        hutch_text_add_string(to, ", ");
        hutch_text_add_string(to, size);
    }
    hutch_text_add_string(to, "]");
}

/* Markdown and LaTeX, where there are, say more than plain text; tables in HTML have their plain text. An object of
 * IPython's own says in plain text only what it is called. */
static void add_bundle(struct text_buffer *to, const cJSON *data)
{
    static const char *const types[] = { "text/markdown", "text/latex", "text/plain" };
    static const char object[] = "<IPython.core.display.";
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(data, "application/json");

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        size_t len = 0;
        auto_free char *text = hutch_cell_member_text(data, types[i], &len);

        if (text == NULL || (i == 2 && strncmp(text, object, strlen(object)) == 0 && data->child->next != NULL))
            continue;
        hutch_cell_text_add_clean(to, text, len);
        return;
    }
    if (json != NULL) {
        size_t len = 0;
        auto_free char *text = hutch_nbjson_print(json, NBJSON_COMPACT, &len);

        if (text != NULL)
            hutch_cell_text_add_clean(to, text, len);
    } else if (data != NULL && data->child != NULL) {
        add_types(to, data);
    }
}

static void add_image(struct text_buffer *to, const char *mime, const char *image, unsigned n)
{
    char name[NBIMAGE_NAME_SIZE], sides[NBIMAGE_SIDES_SIZE], size[40];
    size_t len = strlen(image);

    hutch_nbimage_name(name, n, mime);
    hutch_nbimage_sides(sides, mime, image);
    format_size(size, strcmp(mime, "image/svg+xml") == 0 ? len : len / 4 * 3);
    hutch_text_addf(to, "[image: %s, %s%s]", name, sides, size);
}

/* At the cost of at most @budget. */
static void add_output(struct text_buffer *to, const cJSON *output, int count, unsigned *n_images, uint64_t budget)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(output, "data");
    const char *image, *mime = hutch_nbimage_find(output, &image);
    struct text_buffer text = TEXT_BUFFER_INIT;

    if (is_of_type(output, "stream")) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(output, "name"));
        size_t len = 0;
        auto_free char *said = hutch_cell_member_text(output, "text", &len);

        if (name != NULL && strcmp(name, "stderr") == 0)
            hutch_text_add_string(&text, "[stderr]\n");
        if (said != NULL)
            hutch_cell_text_add_clean(&text, said, len);
    } else {
        if (is_of_type(output, "execute_result") && count > 0)
            hutch_text_addf(&text, "Out[%d]: ", count);
        if (mime != NULL)
            add_image(&text, mime, image, ++*n_images);
        else
            add_bundle(&text, data);
    }
    begin_line(to);
    if (text.len > 0)
        hutch_cell_text_add_shortened(to, text.data, text.len, budget);
    to->is_broken = to->is_broken || text.is_broken;
    hutch_text_done(&text);
}

#define LEAST_SHARED 1000 /* quarters; half of less would be too little for anything */

static void add_outputs(struct text_buffer *to, const struct hutch_cell_result *result, const cJSON *outputs,
                        uint64_t budget)
{
    unsigned n_images = 0;
    const cJSON *output;

    if (budget > LEAST_SHARED)
        budget /= 2; /* of each: leaves some to the others */
    cJSON_ArrayForEach(output, outputs)
        if (!is_of_type(output, "error"))
            add_output(to, output, result->execution_count, &n_images, budget);
}

/* ---- what else there is to say ---- */

/* The line number @line of @code, without the white space around it. */
static void add_code_line(struct text_buffer *to, const char *code, int line)
{
    const char *end;

    for (int i = 1; i < line && code != NULL; i++) {
        code = strchr(code, '\n');
        code = code != NULL ? code + 1 : NULL;
    }
    if (code == NULL)
        return;
    code += strspn(code, " \t");
    end = strchrnul(code, '\n');
    while (end > code && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    if (end == code)
        return;
    hutch_text_add_string(to, ": ");
    hutch_cell_text_add_clean(to, code, (size_t)(end - code));
}

/* "A, because of B"; the same twice is said once. */
static void add_cause(struct text_buffer *to, const char *cause)
{
    static const char because[] = ", because of ";
    size_t len = strlen(cause), half = len > strlen(because) ? (len - strlen(because)) / 2 : 0;

    if (half > 0 && len == 2 * half + strlen(because) && strncmp(cause + half, because, strlen(because)) == 0 &&
        memcmp(cause, cause + len - half, half) == 0)
        len = half;
    hutch_cell_text_add_clean(to, cause, len);
}

/* "line 3: df['x'] -> KeyError: 'x'" */
static void add_error(struct text_buffer *to, const struct hutch_cell_result *result,
                      const struct hutch_cell_details *details)
{
    if (result->error_name == NULL)
        return;
    begin_line(to);
    if (result->error_line > 0) {
        hutch_text_addf(to, "line %d", result->error_line);
        add_code_line(to, details->code, result->error_line);
        hutch_text_add_string(to, " -> ");
    }
    if (details->cause != NULL) {
        add_cause(to, details->cause);
        return;
    }
    hutch_cell_text_add_clean(to, result->error_name, strlen(result->error_name));
    if (result->error_value != NULL && result->error_value[0] != '\0') {
        hutch_text_add_string(to, ": ");
        hutch_cell_text_add_clean(to, result->error_value, strlen(result->error_value));
    }
}

static void add_message(struct text_buffer *to, const struct hutch_cell_result *result)
{
    if (result->message == NULL || result->message[0] == '\0')
        return;
    begin_line(to);
    hutch_text_addf(to, "[%s: ", hutch_verdict_text(result->verdict));
    hutch_cell_text_add_clean(to, result->message, strlen(result->message));
    hutch_text_add_string(to, "]");
}

#define MAX_FILES 20 /* of each kind; there may be a hundred thousand */

/* A name may have any bytes. */
static void add_name(struct text_buffer *to, const char *path)
{
    struct text_buffer clean = TEXT_BUFFER_INIT;

    hutch_cell_text_add_clean(&clean, path, strlen(path));
    for (size_t i = 0; i < clean.len; i++)
        if (clean.data[i] == '\n' || clean.data[i] == '\t')
            clean.data[i] = '?';
    if (clean.len > 0)
        hutch_cell_text_add_shortened(to, clean.data, clean.len, 400);
    hutch_text_done(&clean);
}

static bool is_hidden(const char *path)
{
    return path[0] == '.' || strstr(path, "/.") != NULL;
}

/* Hidden files, and those in hidden directories, come last: a cache, as that of a compiler, has thousands, and sorts
 * before what the program was for. */
static void add_changes(struct text_buffer *to, const char *verb, const struct file_change_list *list, bool has_size,
                        bool *is_first)
{
    size_t n = 0;

    if (list->n == 0)
        return;
    hutch_text_addf(to, "%s%s ", *is_first ? "[files: " : "; ", verb);
    *is_first = false;
    for (size_t i = 0; i < 2 * list->n && n < MAX_FILES; i++) {
        const size_t at = i % list->n;
        char size[40];

        if (is_hidden(list->items[at].path) != (i >= list->n))
            continue;
        if (n++ > 0)
            hutch_text_add_string(to, ", ");
        add_name(to, list->items[at].path);
        format_size(size, list->items[at].size);
        if (has_size)
            hutch_text_addf(to, " (%s)", size);
    }
    if (list->n > MAX_FILES)
        hutch_text_addf(to, " and %zu more", list->n - MAX_FILES);
}

static void add_files(struct text_buffer *to, const struct hutch_cell_details *details)
{
    bool is_first = true;

    if (details->files == NULL)
        return;
    begin_line(to);
    add_changes(to, "added", &details->files->added, true, &is_first);
    add_changes(to, "modified", &details->files->modified, true, &is_first);
    add_changes(to, "deleted", &details->files->deleted, false, &is_first);
    if (!is_first)
        hutch_text_add_string(to, "]");
}

static void drop_newlines(struct text_buffer *text)
{
    while (text->len > 0 && text->data[text->len - 1] == '\n')
        text->len--;
}

/* What is always told, each part at most at its share of @budget. */
static void add_end(struct text_buffer *to, const struct hutch_cell_result *result,
                    const struct hutch_cell_details *details, uint64_t budget)
{
    struct text_buffer error = TEXT_BUFFER_INIT, message = TEXT_BUFFER_INIT, files = TEXT_BUFFER_INIT;
    struct { struct text_buffer *text; uint64_t budget; } parts[] = {
        { &error, budget / 2 }, { &message, budget / 8 }, { &files, budget / 8 },
    };

    add_error(&error, result, details);
    add_message(&message, result);
    add_files(&files, details);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        begin_line(to);
        drop_newlines(parts[i].text);
        if (parts[i].text->len > 0)
            hutch_cell_text_add_shortened(to, parts[i].text->data, parts[i].text->len,
                                          parts[i].budget > 0 ? parts[i].budget - 1 : 0);
        to->is_broken = to->is_broken || parts[i].text->is_broken;
        hutch_text_done(parts[i].text);
    }
    drop_newlines(to);
}

char *hutch_cell_result_to_text(const struct hutch_cell_result *result, size_t budget)
{
    static const struct hutch_cell_details nothing = { .code = NULL };
    const struct hutch_cell_details *details = result->internal != NULL ? result->internal : &nothing;
    size_t tokens = budget == 0 ? CELL_TEXT_DEFAULT_BUDGET : budget < SIZE_MAX / 8 ? budget : SIZE_MAX / 8;
    uint64_t quarters = 4 * (uint64_t)tokens;
    struct text_buffer body = TEXT_BUFFER_INIT, end = TEXT_BUFFER_INIT, text = TEXT_BUFFER_INIT;
    cJSON *outputs = hutch_cell_parse_outputs(result);
    uint64_t left;

    if (outputs == NULL)
        return NULL;
    add_end(&end, result, details, quarters);
    left = quarters - hutch_cell_text_cost(end.data, end.len);
    left -= end.len > 0 && left > 0; /* the newline before it */
    add_outputs(&body, result, outputs, left);
    cJSON_Delete(outputs);
    drop_newlines(&body);
    if (body.len == 0 && end.len == 0)
        hutch_text_addf(&body, "[no output]");
    if (body.len > 0)
        hutch_cell_text_add_shortened(&text, body.data, body.len, left);
    if (end.len > 0) {
        begin_line(&text);
        hutch_text_add(&text, end.data, end.len);
    }
    text.is_broken = text.is_broken || body.is_broken || end.is_broken;
    hutch_text_done(&body);
    hutch_text_done(&end);
    return hutch_text_take(&text, NULL);
}
