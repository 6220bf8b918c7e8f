/* A notebook of nbformat 3, as IPython wrote them until 2014, as nbformat 5.5 upgrades it to 4.5: the cells of its
 * worksheets are one list, headings and HTML are markdown, and outputs go by the names that they have since. */
#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_LEVEL 64                /* of a heading; there are six */
#define MAX_JSON ((size_t)16 << 20) /* bytes of JSON in texts that become values: these take far more memory */

struct upgrade {
    const char *what;
    size_t json_left;
};

/* @value, which may be NULL for want of memory, becomes the member @key. */
static int put(struct cJSON *object, const char *key, struct cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    if (value && cJSON_AddItemToObject(object, key, value))
        return 0;
    cJSON_Delete(value);
    return -1;
}

/* The member @from of @object becomes @to's member @key. Where there is none, @otherwise does, which may be NULL. */
static int move(struct cJSON *object, const char *from, struct cJSON *to, const char *key, struct cJSON *otherwise)
{
    struct cJSON *value = cJSON_DetachItemFromObjectCaseSensitive(object, from);

    if (value) {
        cJSON_Delete(otherwise);
        return put(to, key, value);
    }
    return otherwise ? put(to, key, otherwise) : 0;
}

static bool ends_line(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r');
}

/* A list of lines as one text. Old ones are without their ends, which the first line tells. */
static int join(struct cJSON *object, const char *key)
{
    struct cJSON *lines = get_member(object, key), *line;

    if (!cJSON_IsArray(lines) || !hutch_nbjson_is_lines(lines))
        return 0;
    if (lines->child && !ends_line(lines->child->valuestring)) {
        cJSON_ArrayForEach(line, lines) {
            char *longer;

            if (!line->next)
                break;
            if (asprintf(&longer, "%s\n", line->valuestring) < 0)
                return -1;
            cJSON_free(line->valuestring);
            line->valuestring = longer;
        }
    }
    return hutch_nbjson_join_member(object, key);
}

/* ---- outputs ---- */

static const struct {
    const char *old, *type;
    bool is_lines;
} types[] = {
    { "text", "text/plain", true },
    { "html", "text/html", true },
    { "svg", "image/svg+xml", true },
    { "png", "image/png", false },
    { "jpeg", "image/jpeg", false },
    { "latex", "text/latex", true },
    { "json", "application/json", true },
    { "javascript", "application/javascript", true },
};

/* What a key has become, or is already; NULL: it is another one. */
static const char *type_of(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(types[i].old, key) == 0 || strcmp(types[i].type, key) == 0)
            return types[i].type;
    return NULL;
}

/* A new object with @from's members under their new names; those that @but names stay. Only a type can be there twice,
 * by its old name and by its new one: put() looks for it, and would take quadratic time for all. NULL: ENOMEM. */
static struct cJSON *take_members(struct cJSON *from, const char *const *but)
{
    struct cJSON *to = cJSON_CreateObject(), *member = from ? from->child : NULL, *next;

    for (; to && member; member = next) {
        bool stays = false;
        const char *type;

        next = member->next;
        for (size_t i = 0; but && but[i]; i++)
            stays = stays || strcmp(but[i], member->string) == 0;
        if (stays)
            continue;
        type = type_of(member->string);
        cJSON_DetachItemViaPointer(from, member);
        if (!type) {
            cJSON_AddItemToArray(to, member); /* with its key */
        } else if (put(to, type, member) < 0) {
            cJSON_Delete(to);
            return NULL;
        }
    }
    return to;
}

/* JSON was a text. What is none stays one. */
static int parse_json(struct upgrade *upgrade, struct cJSON *data)
{
    const char *text = get_text(data, "application/json");
    size_t len = text ? strlen(text) : 0;
    struct cJSON *value;
    struct hutch_err err;

    if (!text || len > upgrade->json_left ||
        hutch_nbjson_parse("output", text, len, &NBJSON_NOTEBOOK, &value, &err) < 0)
        return 0;
    upgrade->json_left -= len;
    return put(data, "application/json", value);
}

static int upgrade_bundle(struct upgrade *upgrade, struct cJSON *output)
{
    static const char *const others[] = { "output_type", "execution_count", "metadata", NULL };
    struct cJSON *old = cJSON_DetachItemFromObjectCaseSensitive(output, "metadata");
    struct cJSON *metadata = take_members(cJSON_IsObject(old) ? old : NULL, NULL), *data;

    cJSON_Delete(old);
    if (put(output, "metadata", metadata) < 0)
        return -1;
    data = take_members(output, others);
    if (put(output, "data", data) < 0)
        return -1;
    return parse_json(upgrade, data);
}

static int upgrade_output(struct upgrade *upgrade, struct cJSON *output)
{
    const char *type = get_text(output, "output_type");

    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i].is_lines && join(output, types[i].old) < 0)
            return -1;
    if (!type)
        return 0;
    if (strcmp(type, "pyerr") == 0)
        return put(output, "output_type", cJSON_CreateString("error"));
    if (strcmp(type, "stream") == 0)
        return move(output, "stream", output, "name", cJSON_CreateString("stdout"));
    if (strcmp(type, "display_data") == 0)
        return upgrade_bundle(upgrade, output);
    if (strcmp(type, "pyout") != 0)
        return 0;
    if (put(output, "output_type", cJSON_CreateString("execute_result")) < 0 ||
        move(output, "prompt_number", output, "execution_count", cJSON_CreateNull()) < 0)
        return -1;
    return upgrade_bundle(upgrade, output);
}

/* ---- cells ---- */

/* How many bytes at the end of a line end it, of what str.splitlines() of Python takes for that. */
static size_t end_of(const char *line, size_t len)
{
    static const char *const ends[] = { "\r\n", "\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e",
                                        "\xc2\x85", "\u2028", "\u2029" };

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        size_t n = strlen(ends[i]);

        if (len >= n && memcmp(line + len - n, ends[i], n) == 0)
            return n;
    }
    return 0;
}

/* A heading of markdown is one line. */
static int upgrade_heading(struct cJSON *cell)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    struct cJSON *lines, *line;
    int64_t level = 1;
    int rc;

    hutch_nbjson_get_integer(get_member(cell, "level"), &level);
    cJSON_DeleteItemFromObjectCaseSensitive(cell, "level");
    if (put(cell, "cell_type", cJSON_CreateString("markdown")) < 0)
        return -1;
    if (!get_text(cell, "source"))
        return 0;
    lines = hutch_nbjson_split_lines(get_member(cell, "source"));
    if (!lines)
        return -1;
    for (int64_t i = 0; i < MAX_LEVEL && (i == 0 || i < level); i++)
        hutch_text_add_string(&text, "#");
    if (!lines->child)
        hutch_text_add_string(&text, " ");
    cJSON_ArrayForEach(line, lines) {
        size_t len = strlen(line->valuestring);

        hutch_text_add_string(&text, " ");
        hutch_text_add(&text, line->valuestring, len - end_of(line->valuestring, len));
    }
    cJSON_Delete(lines);
    rc = text.is_broken ? -1 : put(cell, "source", cJSON_CreateString(text.data));
    hutch_text_done(&text);
    return rc;
}

static int upgrade_code(struct upgrade *upgrade, struct cJSON *cell)
{
    struct cJSON *output;

    cJSON_DeleteItemFromObjectCaseSensitive(cell, "language");
    if (move(cell, "collapsed", get_member(cell, "metadata"), "collapsed", NULL) < 0 ||
        move(cell, "input", cell, "source", cJSON_CreateString("")) < 0 || join(cell, "source") < 0 ||
        move(cell, "prompt_number", cell, "execution_count", cJSON_CreateNull()) < 0)
        return -1;
    cJSON_ArrayForEach(output, get_member(cell, "outputs"))
        if (cJSON_IsObject(output) && upgrade_output(upgrade, output) < 0)
            return -1;
    return 0;
}

/* What is no cell stays as it is: hutch_notebook_check_cell() says what is wrong with it. */
static int upgrade_cell(struct upgrade *upgrade, struct cJSON *cell)
{
    const char *type = get_text(cell, "cell_type");

    if (!type)
        return 0;
    if (!get_member(cell, "metadata") && put(cell, "metadata", cJSON_CreateObject()) < 0)
        return -1;
    if (strcmp(type, "code") == 0)
        return upgrade_code(upgrade, cell);
    if (join(cell, "source") < 0)
        return -1;
    if (strcmp(type, "heading") == 0)
        return upgrade_heading(cell);
    return strcmp(type, "html") == 0 ? put(cell, "cell_type", cJSON_CreateString("markdown")) : 0;
}

/* ---- all of it ---- */

static int take_cells(struct upgrade *upgrade, struct cJSON *from, struct cJSON *to, struct hutch_err *err)
{
    struct cJSON *cell;

    while ((cell = cJSON_DetachItemFromArray(from, 0))) {
        const char *language = get_text(cell, "language");

        if (language && strcasecmp(language, "python") != 0) {
            hutch_err_set(err, 0, "%s is written in '%.40s': only Python notebooks can be executed", upgrade->what,
                          language);
            cJSON_Delete(cell);
            return -1;
        }
        if (upgrade_cell(upgrade, cell) < 0 || !cJSON_AddItemToArray(to, cell)) {
            cJSON_Delete(cell);
            return refuse_memory(err);
        }
    }
    return 0;
}

int hutch_notebook_upgrade(const char *what, struct cJSON *root, struct hutch_err *err)
{
    struct upgrade upgrade = { .what = what, .json_left = MAX_JSON };
    struct cJSON *sheets = get_member(root, "worksheets"), *cells, *sheet, *metadata = get_member(root, "metadata");

    if (!cJSON_IsArray(sheets))
        return hutch_err_set(err, 0, "%s has no 'worksheets'", what);
    cells = cJSON_CreateArray();
    if (put(root, "cells", cells) < 0)
        return refuse_memory(err);
    cJSON_ArrayForEach(sheet, sheets) {
        if (!cJSON_IsArray(get_member(sheet, "cells")))
            return hutch_err_set(err, 0, "%s has a worksheet without 'cells'", what);
        if (take_cells(&upgrade, get_member(sheet, "cells"), cells, err) < 0)
            return -1;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(root, "worksheets");
    cJSON_DeleteItemFromObjectCaseSensitive(metadata, "name");
    if (put(root, "nbformat", cJSON_CreateNumber(4)) < 0 ||
        put(root, "nbformat_minor", cJSON_CreateNumber(NOTEBOOK_MINOR_MAX)) < 0)
        return refuse_memory(err);
    return 0;
}
