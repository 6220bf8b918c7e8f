#include "runtime/cell/result_text.h"

#include "runtime/text/ansi.h"
#include "runtime/text/base64.h"
#include "runtime/cell/result_json.h"
#include "runtime/data/changes.h"
#include "sandbox/fd.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- images ---- */

static const struct { const char *mime, *ending; } images[] = {
    { "image/png", "png" },   { "image/jpeg", "jpg" },    { "image/gif", "gif" },
    { "image/webp", "webp" }, { "image/svg+xml", "svg" },
};

const char *hutch_cell_image(const struct cJSON *output, const char **ret_data)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(output, "data");

    for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
        const cJSON *image = cJSON_GetObjectItemCaseSensitive(data, images[i].mime);

        if (cJSON_IsString(image)) {
            *ret_data = image->valuestring;
            return images[i].mime;
        }
    }
    return NULL;
}

void hutch_cell_image_name(char name[CELL_IMAGE_NAME_SIZE], unsigned n, const char *mime)
{
    const char *ending = "image";

    for (size_t i = 0; i < ARRAY_SIZE(images); i++)
        if (strcmp(mime, images[i].mime) == 0)
            ending = images[i].ending;
    snprintf(name, CELL_IMAGE_NAME_SIZE, "figure-%u.%s", n, ending);
}

/* "640x480, " of a PNG's header; else nothing. */
static void format_sides(char buf[40], const char *mime, const char *base64)
{
    size_t len = 0;
    auto_free unsigned char *head = NULL;

    buf[0] = '\0';
    if (strcmp(mime, "image/png") != 0 || strlen(base64) < 32)
        return;
    /* 24 bytes: signature, length and name of the first chunk, width, height */
    head = hutch_base64_decode(base64, 32, &len);
    if (head == NULL || len < 24 || memcmp(head, "\x89PNG\r\n\x1a\n", 8) != 0)
        return;
    snprintf(buf, 40, "%ux%u, ",
             (unsigned)head[16] << 24 | (unsigned)head[17] << 16 | (unsigned)head[18] << 8 | head[19],
             (unsigned)head[20] << 24 | (unsigned)head[21] << 16 | (unsigned)head[22] << 8 | head[23]);
}

static void format_size(char buf[40], uint64_t bytes)
{
    if (bytes < 1000)
        snprintf(buf, 40, "%" PRIu64 " B", bytes);
    else if (bytes < 1000000)
        snprintf(buf, 40, "%" PRIu64 " kB", (bytes + 500) / 1000);
    else
        snprintf(buf, 40, "%" PRIu64 ".%" PRIu64 " MB", bytes / 1000000, bytes / 100000 % 10);
}

/* ---- characters, and what they cost ---- */

/* Of a character of so many bytes. */
static uint64_t char_cost(size_t len)
{
    return len == 1 ? 1 : len < 4 ? 4 : 8;
}

/* The length of the character that begins at @text, in valid UTF-8. */
static size_t char_len(const char *text)
{
    unsigned char c = (unsigned char)*text;

    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

uint64_t hutch_cell_text_cost(const char *text, size_t len)
{
    uint64_t cost = 0;

    for (size_t i = 0, step; i < len; i += step) {
        step = char_len(text + i);
        cost += char_cost(step);
    }
    return cost;
}

static uint32_t code_point(const char *text, size_t len)
{
    uint32_t code = (unsigned char)text[0] & (0xffu >> (len + 1));

    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)text[i] & 63);
    return code;
}

/* Characters that are not seen: controls, marks that turn the direction of writing, spaces of no width, and tags, in
 * which orders to a model can be hidden. Joiners stay, as scripts and emoji need them. */
static bool is_invisible(uint32_t code)
{
    return (code >= 0x7f && code < 0xa0) || code == 0x200b || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || (code >= 0xe0000 && code < 0xe0100);
}

/* Adds any bytes as text that can be shown. */
static void add_clean(struct text_buffer *to, const char *text, size_t len)
{
    size_t from = 0;

    for (size_t i = 0, step; i < len; i += step) {
        enum utf8_kind kind;
        unsigned char c = (unsigned char)text[i];

        step = 1;
        if ((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t')
            continue;
        step = c == 0x1b ? hutch_ansi_len(text + i, len - i) : hutch_utf8_next(text + i, len - i, &kind);
        if (c >= 0x80 && kind == UTF8_CHAR && !is_invisible(code_point(text + i, step)))
            continue;
        hutch_text_add(to, text + from, i - from);
        if (c >= 0x80 && kind != UTF8_CHAR)
            hutch_text_add(to, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
        from = i + step;
    }
    hutch_text_add(to, text + from, len - from);
}

/* ---- leaving out the middle ---- */

/* How many bytes from the beginning cost at most @budget. */
static size_t head_len(const char *text, size_t len, uint64_t budget)
{
    size_t i = 0;

    while (i < len) {
        size_t step = char_len(text + i);
        uint64_t cost = char_cost(step);

        if (cost > budget)
            break;
        budget -= cost;
        i += step;
    }
    return i;
}

/* How many bytes at the end do. */
static size_t tail_len(const char *text, size_t len, uint64_t budget)
{
    size_t i = len;

    while (i > 0) {
        size_t at = i - 1;
        uint64_t cost;

        while ((text[at] & 0xc0) == 0x80)
            at--;
        cost = char_cost(i - at);
        if (cost > budget)
            break;
        budget -= cost;
        i = at;
    }
    return len - i;
}

static size_t count_chars(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

static size_t count_lines(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

/* What a note that something is missing costs at most, in quarters: "[… 18446744073709551615 characters left out
 * …]", and a newline. Where that would be most of the text it is "[…]". */
#define MAX_NOTE 60
#define SHORT_NOTE "[…]"
#define SHORT_NOTE_COST 7

/* @text, or its beginning and end, at the cost of at most @budget. */
static void add_shortened(struct text_buffer *to, const char *text, size_t len, uint64_t budget)
{
    size_t head = head_len(text, len, budget), tail;
    bool has_lines, is_short = budget < 2 * MAX_NOTE;
    const char *line;
    char note[80];

    if (head == len || budget < 3 * SHORT_NOTE_COST) { /* no room for saying that something is missing */
        hutch_text_add(to, text, head);
        return;
    }
    budget -= is_short ? SHORT_NOTE_COST : MAX_NOTE;
    head = head_len(text, len, budget / 2);
    tail = tail_len(text, len, budget - budget / 2);
    /* at line ends, unless that takes away more than half */
    line = memrchr(text, '\n', head);
    has_lines = line != NULL && (size_t)(line + 1 - text) >= head / 2;
    if (has_lines)
        head = (size_t)(line + 1 - text);
    line = memchr(text + len - tail, '\n', tail);
    if (line != NULL && (size_t)(text + len - (line + 1)) >= tail / 2 && line + 1 < text + len)
        tail = (size_t)(text + len - (line + 1));
    else
        has_lines = false;
    hutch_text_add(to, text, head);
    if (is_short)
        strcpy(note, has_lines ? SHORT_NOTE "\n" : SHORT_NOTE);
    else if (has_lines)
        snprintf(note, sizeof(note), "[… %zu lines left out …]\n", count_lines(text + head, len - head - tail));
    else
        snprintf(note, sizeof(note), "[… %zu characters left out …]", count_chars(text + head, len - head - tail));
    hutch_text_add(to, note, strlen(note));
    hutch_text_add(to, text + len - tail, tail);
}

/* ---- outputs ---- */

static void begin_line(struct text_buffer *to)
{
    if (to->len > 0 && to->data[to->len - 1] != '\n')
        hutch_text_add(to, "\n", 1);
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

    hutch_text_add(to, "[", 1);
    cJSON_ArrayForEach(item, data) {
        char size[40];

        if (strcmp(item->string, "text/plain") == 0)
            continue;
        format_size(size, item->valuestring != NULL ? strlen(item->valuestring) : 0);
        if (!is_first)
            hutch_text_add(to, "; ", 2);
        is_first = false;
        add_clean(to, item->string, strnlen(item->string, 100));
        hutch_text_add(to, ", ", 2);
        hutch_text_add(to, size, strlen(size));
    }
    hutch_text_add(to, "]", 1);
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
        add_clean(to, text, len);
        return;
    }
    if (json != NULL) {
        size_t len = 0;
        auto_free char *text = hutch_nbjson_print(json, NBJSON_COMPACT, &len);

        if (text != NULL)
            add_clean(to, text, len);
    } else if (data != NULL && data->child != NULL) {
        add_types(to, data);
    }
}

static void add_image(struct text_buffer *to, const char *mime, const char *image, unsigned n)
{
    char name[CELL_IMAGE_NAME_SIZE], sides[40], size[40];
    size_t len = strlen(image);

    hutch_cell_image_name(name, n, mime);
    format_sides(sides, mime, image);
    format_size(size, strcmp(mime, "image/svg+xml") == 0 ? len : len / 4 * 3);
    hutch_text_addf(to, "[image: %s, %s%s]", name, sides, size);
}

/* At the cost of at most @budget. */
static void add_output(struct text_buffer *to, const cJSON *output, int count, unsigned *n_images, uint64_t budget)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(output, "data");
    const char *image, *mime = hutch_cell_image(output, &image);
    struct text_buffer text = TEXT_BUFFER_INIT;

    if (is_of_type(output, "stream")) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(output, "name"));
        size_t len = 0;
        auto_free char *said = hutch_cell_member_text(output, "text", &len);

        if (name != NULL && strcmp(name, "stderr") == 0)
            hutch_text_add(&text, "[stderr]\n", 9);
        if (said != NULL)
            add_clean(&text, said, len);
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
        add_shortened(to, text.data, text.len, budget);
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
    hutch_text_add(to, ": ", 2);
    add_clean(to, code, (size_t)(end - code));
}

/* "A, because of B"; the same twice is said once. */
static void add_cause(struct text_buffer *to, const char *cause)
{
    static const char because[] = ", because of ";
    size_t len = strlen(cause), half = len > strlen(because) ? (len - strlen(because)) / 2 : 0;

    if (half > 0 && len == 2 * half + strlen(because) && strncmp(cause + half, because, strlen(because)) == 0 &&
        memcmp(cause, cause + len - half, half) == 0)
        len = half;
    add_clean(to, cause, len);
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
        hutch_text_add(to, " -> ", 4);
    }
    if (details->cause != NULL) {
        add_cause(to, details->cause);
        return;
    }
    add_clean(to, result->error_name, strlen(result->error_name));
    if (result->error_value != NULL && result->error_value[0] != '\0') {
        hutch_text_add(to, ": ", 2);
        add_clean(to, result->error_value, strlen(result->error_value));
    }
}

static void add_message(struct text_buffer *to, const struct hutch_cell_result *result)
{
    if (result->message == NULL || result->message[0] == '\0')
        return;
    begin_line(to);
    hutch_text_addf(to, "[%s: ", hutch_verdict_text(result->verdict));
    add_clean(to, result->message, strlen(result->message));
    hutch_text_add(to, "]", 1);
}

#define MAX_FILES 20 /* of each kind; there may be a hundred thousand */

/* A name may have any bytes. */
static void add_name(struct text_buffer *to, const char *path)
{
    struct text_buffer clean = TEXT_BUFFER_INIT;

    add_clean(&clean, path, strlen(path));
    for (size_t i = 0; i < clean.len; i++)
        if (clean.data[i] == '\n' || clean.data[i] == '\t')
            clean.data[i] = '?';
    if (clean.len > 0)
        add_shortened(to, clean.data, clean.len, 400);
    hutch_text_done(&clean);
}

static void add_changes(struct text_buffer *to, const char *verb, const struct file_change_list *list, bool has_size,
                        bool *is_first)
{
    if (list->n == 0)
        return;
    hutch_text_addf(to, "%s%s ", *is_first ? "[files: " : "; ", verb);
    *is_first = false;
    for (size_t i = 0; i < list->n && i < MAX_FILES; i++) {
        char size[40];

        if (i > 0)
            hutch_text_add(to, ", ", 2);
        add_name(to, list->items[i].path);
        format_size(size, list->items[i].size);
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
        hutch_text_add(to, "]", 1);
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
            add_shortened(to, parts[i].text->data, parts[i].text->len, parts[i].budget > 0 ? parts[i].budget - 1 : 0);
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
        add_shortened(&text, body.data, body.len, left);
    if (end.len > 0) {
        begin_line(&text);
        hutch_text_add(&text, end.data, end.len);
    }
    text.is_broken = text.is_broken || body.is_broken || end.is_broken;
    hutch_text_done(&body);
    hutch_text_done(&end);
    return hutch_text_take(&text, NULL);
}
