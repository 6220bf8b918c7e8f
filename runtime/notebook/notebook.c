#include "runtime/notebook/notebook.h"

#include "sandbox/fd.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#define MINOR_MAX 5
#define MINOR_IDS 5 /* the first whose cells have ids */

struct notebook_display {
    char *id;             /* owned */
    struct cJSON *output; /* the notebook's */
    struct cJSON *data, *metadata; /* owned; in the first with an id: what all of them are to show; NULL: nothing new */
};

static int no_memory(struct hutch_err *err)
{
    return hutch_err_set(err, ENOMEM, "keep the notebook in memory");
}

static struct cJSON *member(const struct cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_of(const struct cJSON *object, const char *key)
{
    return cJSON_GetStringValue(member(object, key));
}

static void put(struct cJSON *object, const char *key, struct cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddItemToObject(object, key, value);
}

static bool has_tag(const struct cJSON *cell, const char *tag)
{
    const struct cJSON *entry;

    cJSON_ArrayForEach(entry, member(member(cell, "metadata"), "tags"))
        if (cJSON_IsString(entry) && strcmp(entry->valuestring, tag) == 0)
            return true;
    return false;
}

/* ---- reading ---- */

/* What str.strip() of Python takes off. */
static bool is_blank(const char *text)
{
    static const char *const spaces[] = { " ", "\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\xc2\x85", "\u00a0",
                                          "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",
                                          "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000" };

    while (*text) {
        size_t i = 0;

        while (i < ARRAY_SIZE(spaces) && strncmp(text, spaces[i], strlen(spaces[i])) != 0)
            i++;
        if (i == ARRAY_SIZE(spaces))
            return false;
        text += strlen(spaces[i]);
    }
    return true;
}

/* What nbformat has as an array of lines in the file, as one text. Attachments are of cells of any kind. */
static int join_cell(struct cJSON *cell)
{
    struct cJSON *entry;

    if (hutch_nbjson_join_member(cell, "source") < 0)
        return -1;
    cJSON_ArrayForEach(entry, member(cell, "attachments"))
        if (hutch_nbjson_join_bundle(entry) < 0)
            return -1;
    cJSON_ArrayForEach(entry, member(cell, "outputs"))
        if ((member(entry, "data") && hutch_nbjson_join_bundle(member(entry, "data")) < 0) || hutch_nbjson_join_member(entry, "text") < 0)
            return -1;
    return 0;
}

static const char *check_output(const struct cJSON *output)
{
    const char *type = text_of(output, "output_type");
    const struct cJSON *text = member(output, "text");

    if (!type)
        return "has an output without 'output_type'";
    if (strcmp(type, "stream") == 0 && (!text_of(output, "name") || (!cJSON_IsString(text) && !hutch_nbjson_is_lines(text))))
        return "has a stream without 'name' or 'text'";
    if ((strcmp(type, "display_data") == 0 || strcmp(type, "execute_result") == 0) && !cJSON_IsObject(member(output, "data")))
        return "has an output without 'data'";
    return NULL;
}

/* What is wrong with it, or NULL. */
static const char *check_cell(const struct cJSON *cell)
{
    const char *type = text_of(cell, "cell_type");
    const struct cJSON *source = member(cell, "source"), *attachments = member(cell, "attachments"), *entry;

    if (!cJSON_IsObject(cell))
        return "is no object";
    if (!type)
        return "has no 'cell_type'";
    if (!cJSON_IsObject(member(cell, "metadata")))
        return "has no 'metadata'";
    if (!cJSON_IsString(source) && !hutch_nbjson_is_lines(source))
        return "has no 'source' that is a text or a list of texts";
    if (member(cell, "id") && !text_of(cell, "id"))
        return "has an 'id' that is no text";
    if (attachments && !cJSON_IsObject(attachments))
        return "has 'attachments' that are no object";
    cJSON_ArrayForEach(entry, attachments)
        if (!cJSON_IsObject(entry))
            return "has an attachment that is no object";
    if (strcmp(type, "code") != 0)
        return NULL;
    if (!cJSON_IsArray(member(cell, "outputs")))
        return "has no 'outputs'";
    cJSON_ArrayForEach(entry, member(cell, "outputs")) {
        const char *wrong = check_output(entry);

        if (wrong)
            return wrong;
    }
    return NULL;
}

static const char *check_source(const struct notebook_cell *cell)
{
    return hutch_notebook_is_executed(cell) && strstr(cell->source, NBJSON_NUL) ? "has a NUL character in its source" : NULL;
}

static int new_id(struct cJSON *cell, struct hutch_err *err)
{
    uint32_t number;
    char id[9];

    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return hutch_err_set(err, errno, "get a random number");
    snprintf(id, sizeof(id), "%08" PRIx32, number);
    put(cell, "id", cJSON_CreateString(id));
    return text_of(cell, "id") ? 0 : no_memory(err);
}

struct id_place {
    const char *id;
    size_t cell;
};

static int compare_ids(const void *a, const void *b)
{
    const struct id_place *x = a, *y = b;
    int order = strcmp(x->id, y->id);

    return order ? order : (x->cell > y->cell) - (x->cell < y->cell);
}

/* From 4.5 on every cell has an id of its own; nbformat makes those that are missing, and of equal ones keeps the first. */
static int give_ids(struct notebook *nb, struct hutch_err *err)
{
    auto_free struct id_place *places = calloc(nb->n_cells + 1, sizeof(*places));
    auto_free bool *is_taken = calloc(nb->n_cells + 1, sizeof(*is_taken));
    size_t n = 0;

    if (!places || !is_taken)
        return no_memory(err);
    for (size_t i = 0; i < nb->n_cells; i++)
        if (text_of(nb->cells[i].value, "id"))
            places[n++] = (struct id_place){ .id = text_of(nb->cells[i].value, "id"), .cell = i };
    qsort(places, n, sizeof(*places), compare_ids);
    for (size_t i = 1; i < n; i++)
        is_taken[places[i].cell] = strcmp(places[i].id, places[i - 1].id) == 0;
    for (size_t i = 0; i < nb->n_cells; i++)
        if ((is_taken[i] || !text_of(nb->cells[i].value, "id")) && new_id(nb->cells[i].value, err) < 0)
            return -1;
    return 0;
}

/* Fills nb->cells from nb->list. */
static int list_cells(struct notebook *nb, struct hutch_err *err)
{
    size_t n = (size_t)cJSON_GetArraySize(nb->list);
    struct notebook_cell *cells = calloc(n + 1, sizeof(*cells)), *cell = cells;
    struct cJSON *entry;

    if (!cells)
        return no_memory(err);
    cJSON_ArrayForEach(entry, nb->list)
        *cell++ = (struct notebook_cell){
            .value = entry,
            .source = text_of(entry, "source"),
            .is_code = strcmp(text_of(entry, "cell_type"), "code") == 0,
            .is_blank = is_blank(text_of(entry, "source")),
            .may_raise = has_tag(entry, "raises-exception"),
            .is_skipped = has_tag(entry, "skip-execution"),
            .is_parameters = has_tag(entry, "parameters"),
            .is_injected = has_tag(entry, "injected-parameters"),
        };
    free(nb->cells);
    nb->cells = cells;
    nb->n_cells = n;
    return 0;
}

static int check_language(const char *what, const struct cJSON *metadata, struct hutch_err *err)
{
    const char *language = text_of(member(metadata, "kernelspec"), "language");

    if (!language)
        language = text_of(member(metadata, "language_info"), "name");
    if (language && strcasecmp(language, "python") != 0)
        return hutch_err_set(err, 0, "%s is written in '%.40s': only Python notebooks can be executed", what, language);
    return 0;
}

static int check_version(const char *what, const struct cJSON *root, int *ret_minor, struct hutch_err *err)
{
    int64_t major, minor;

    if (!cJSON_IsObject(root) || !hutch_nbjson_get_integer(member(root, "nbformat"), &major) ||
        !hutch_nbjson_get_integer(member(root, "nbformat_minor"), &minor))
        return hutch_err_set(err, 0, "%s is no notebook: it has no 'nbformat' and 'nbformat_minor'", what);
    if (major < 4)
        return hutch_err_set(err, 0, "%s is of nbformat %" PRId64 ", which is older than 4.0: convert it with 'jupyter nbconvert --to notebook'",
                             what, major);
    if (major > 4 || minor < 0 || minor > MINOR_MAX)
        return hutch_err_set(err, 0, "%s is of nbformat %" PRId64 ".%" PRId64 ": only 4.0 to 4.%d are known here", what, major, minor, MINOR_MAX);
    if (!cJSON_IsObject(member(root, "metadata")))
        return hutch_err_set(err, 0, "%s has no 'metadata'", what);
    if (!cJSON_IsArray(member(root, "cells")))
        return hutch_err_set(err, 0, "%s has no 'cells'", what);
    *ret_minor = (int)minor;
    return 0;
}

static int check_cells(const char *what, struct notebook *nb, struct hutch_err *err)
{
    struct cJSON *cell;
    size_t n = 0;

    cJSON_ArrayForEach(cell, nb->list) {
        const char *wrong = check_cell(cell);

        n++;
        if (wrong)
            return hutch_err_set(err, 0, "%s: cell %zu %s", what, n, wrong);
        if (n > NOTEBOOK_MAX_CELLS)
            return hutch_err_set(err, 0, "%s has more than %d cells", what, NOTEBOOK_MAX_CELLS);
        if (join_cell(cell) < 0)
            return no_memory(err);
        cJSON_DeleteItemFromObjectCaseSensitive(member(cell, "metadata"), "trusted"); /* as nbformat does at reading and at writing */
    }
    if (list_cells(nb, err) < 0)
        return -1;
    for (size_t i = 0; i < nb->n_cells; i++)
        if (check_source(&nb->cells[i]))
            return hutch_err_set(err, 0, "%s: cell %zu %s", what, i + 1, check_source(&nb->cells[i]));
    return 0;
}

int hutch_notebook_parse(const char *what, const char *text, size_t len, struct notebook *ret, struct hutch_err *err)
{
    static const char *const transient[] = { "orig_nbformat", "orig_nbformat_minor", "signature" };
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;
    struct notebook nb = NOTEBOOK_INIT;

    bounds.max_len = NOTEBOOK_MAX_BYTES;
    if (hutch_nbjson_parse(what, text, len, &bounds, &nb.root, err) < 0)
        return -1;
    nb.list = member(nb.root, "cells");
    if (check_version(what, nb.root, &nb.minor, err) < 0 || check_language(what, member(nb.root, "metadata"), err) < 0 ||
        check_cells(what, &nb, err) < 0 || (nb.minor >= MINOR_IDS && give_ids(&nb, err) < 0)) {
        hutch_notebook_done(&nb);
        return -1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(transient); i++)
        cJSON_DeleteItemFromObjectCaseSensitive(member(nb.root, "metadata"), transient[i]);
    *ret = nb;
    return 0;
}

void hutch_notebook_done(struct notebook *nb)
{
    for (size_t i = 0; i < nb->n_displays; i++) {
        free(nb->displays[i].id);
        cJSON_Delete(nb->displays[i].data);
        cJSON_Delete(nb->displays[i].metadata);
    }
    free(nb->displays);
    free(nb->cells);
    cJSON_Delete(nb->root);
    *nb = (struct notebook)NOTEBOOK_INIT;
}

bool hutch_notebook_is_executed(const struct notebook_cell *cell)
{
    return cell->is_code && !cell->is_blank && !cell->is_skipped;
}

/* ---- changing ---- */

int hutch_notebook_put_cell(struct notebook *nb, size_t at, bool in_place, const char *source, const char *tag, struct hutch_err *err)
{
    struct cJSON *cell = cJSON_CreateObject(), *metadata = cJSON_AddObjectToObject(cell, "metadata");
    struct cJSON *tags = cJSON_AddArrayToObject(metadata, "tags"), *name = cJSON_CreateString(tag);

    if (!cJSON_AddItemToArray(tags, name))
        cJSON_Delete(name);
    if (!cJSON_AddStringToObject(cell, "cell_type", "code") || !cJSON_AddNullToObject(cell, "execution_count") ||
        !cJSON_AddArrayToObject(cell, "outputs") || !cJSON_AddStringToObject(cell, "source", source) || !name || !tags ||
        (nb->minor >= MINOR_IDS && new_id(cell, err) < 0)) {
        cJSON_Delete(cell);
        return no_memory(err);
    }
    if (in_place) {
        cJSON_ReplaceItemViaPointer(nb->list, nb->cells[at].value, cell);
    } else {
        /* Behind the last, and then those that it precedes behind it: cJSON_InsertItemInArray() of 1.7.15 does nothing but at the ends. */
        cJSON_AddItemToArray(nb->list, cell);
        for (size_t i = at; i < nb->n_cells; i++)
            cJSON_AddItemToArray(nb->list, cJSON_DetachItemViaPointer(nb->list, nb->cells[i].value));
    }
    return list_cells(nb, err);
}

int hutch_notebook_set_language(struct notebook *nb, const char *json, struct hutch_err *err)
{
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;
    struct cJSON *info;

    bounds.max_depth = 8;
    if (hutch_nbjson_parse("language_info", json, strlen(json), &bounds, &info, err) < 0)
        return -1;
    put(member(nb->root, "metadata"), "language_info", info);
    return 0;
}

int hutch_notebook_begin(struct notebook *nb, size_t cell, struct hutch_err *err)
{
    struct cJSON *value = nb->cells[cell].value, *outputs = cJSON_CreateArray(), *execution = cJSON_CreateObject();

    if (!outputs || !execution) {
        cJSON_Delete(outputs);
        cJSON_Delete(execution);
        return no_memory(err);
    }
    put(value, "outputs", outputs);
    put(member(value, "metadata"), "execution", execution);
    return 0;
}

static int set_time(struct cJSON *execution, const char *key, double seconds, struct hutch_err *err)
{
    char text[48], whole[32];
    time_t second = (time_t)seconds;
    int micro = (int)((seconds - (double)second) * 1e6);
    struct tm tm;

    if (seconds <= 0)
        return 0;
    if (!gmtime_r(&second, &tm) || strftime(whole, sizeof(whole), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return hutch_err_set(err, EOVERFLOW, "write the time of a cell");
    snprintf(text, sizeof(text), "%s.%06dZ", whole, micro);
    return cJSON_AddStringToObject(execution, key, text) ? 0 : no_memory(err);
}

static int compare_displays(const void *a, const void *b)
{
    return strcmp(((const struct notebook_display *)a)->id, ((const struct notebook_display *)b)->id);
}

/* The first display with the id, or NULL. */
static struct notebook_display *find_display(const struct notebook *nb, const char *id)
{
    size_t low = 0, high = nb->n_displays;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(nb->displays[middle].id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < nb->n_displays && strcmp(nb->displays[low].id, id) == 0 ? &nb->displays[low] : NULL;
}

bool hutch_notebook_has_display(const struct notebook *nb, const char *id)
{
    return find_display(nb, id) != NULL;
}

int hutch_notebook_update(struct notebook *nb, const char *id, const struct cJSON *data, const struct cJSON *metadata,
                          struct hutch_err *err)
{
    struct notebook_display *display = find_display(nb, id);
    struct cJSON *new_data, *new_metadata;

    if (!display)
        return 0;
    new_data = cJSON_Duplicate(data, true);
    new_metadata = cJSON_Duplicate(metadata, true);
    if (!new_data || !new_metadata) {
        cJSON_Delete(new_data);
        cJSON_Delete(new_metadata);
        return no_memory(err);
    }
    cJSON_Delete(display->data);
    cJSON_Delete(display->metadata);
    display->data = new_data;
    display->metadata = new_metadata;
    nb->has_updates = true;
    return 0;
}

/* The bytes of a value in a file, near enough for a limit. SIZE_MAX: ENOMEM. */
static size_t size_of(const struct cJSON *value)
{
    size_t len;
    auto_free char *text = hutch_nbjson_print(value, NBJSON_COMPACT, &len);

    return text ? len : SIZE_MAX;
}

/* One update can be shown in many places, and hostile code could make a file of any size of that. */
static int show(struct notebook *nb, struct cJSON *output, const struct notebook_display *news, size_t size)
{
    struct cJSON *data, *metadata;

    if (size > NOTEBOOK_MAX_OUTPUTS - nb->output_bytes) {
        data = cJSON_CreateObject();
        metadata = cJSON_CreateObject();
        cJSON_AddStringToObject(data, "text/plain", "[output left out: the notebook's outputs are too large]");
    } else {
        metadata = cJSON_Duplicate(news->metadata, true);
        data = cJSON_Duplicate(news->data, true);
        nb->output_bytes += size;
    }
    if (!data || !metadata) {
        cJSON_Delete(data);
        cJSON_Delete(metadata);
        return -1;
    }
    put(output, "data", data);
    put(output, "metadata", metadata);
    return 0;
}

static int show_updates(struct notebook *nb, struct hutch_err *err)
{
    if (!nb->has_updates)
        return 0;
    for (size_t first = 0, next; first < nb->n_displays; first = next) {
        struct notebook_display *news = &nb->displays[first];
        size_t size = news->data ? size_of(news->data) : 0, more = news->data ? size_of(news->metadata) : 0;

        if (size == SIZE_MAX || more == SIZE_MAX)
            return no_memory(err);
        size += more;
        for (next = first; next < nb->n_displays && strcmp(nb->displays[next].id, news->id) == 0; next++)
            if (news->data && show(nb, nb->displays[next].output, news, size) < 0)
                return no_memory(err);
        cJSON_Delete(news->data);
        cJSON_Delete(news->metadata);
        news->data = news->metadata = NULL;
    }
    nb->has_updates = false;
    return 0;
}

/* Takes the display ids off a cell's outputs and remembers them. */
static int take_display_ids(struct notebook *nb, struct cJSON *outputs, struct hutch_err *err)
{
    struct notebook_display *displays;
    struct cJSON *output;
    size_t n = 0, before = nb->n_displays;

    cJSON_ArrayForEach(output, outputs)
        n += text_of(member(output, "transient"), "display_id") != NULL;
    displays = n ? reallocarray(nb->displays, before + n, sizeof(*displays)) : nb->displays;
    if (n && !displays)
        return no_memory(err);
    nb->displays = displays;
    cJSON_ArrayForEach(output, outputs) {
        const char *id = text_of(member(output, "transient"), "display_id");
        char *copy = id ? strdup(id) : NULL;

        if (id && !copy)
            return no_memory(err);
        if (id)
            displays[nb->n_displays++] = (struct notebook_display){ .id = copy, .output = output };
        cJSON_DeleteItemFromObjectCaseSensitive(output, "transient");
    }
    if (n)
        qsort(displays, nb->n_displays, sizeof(*displays), compare_displays);
    return 0;
}

int hutch_notebook_set_result(struct notebook *nb, size_t cell, const struct notebook_result *result, struct hutch_err *err)
{
    struct cJSON *value = nb->cells[cell].value, *execution = member(member(value, "metadata"), "execution"), *outputs;
    size_t len = strlen(result->outputs);
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;

    if (set_time(execution, "iopub.status.busy", result->t_busy, err) < 0 ||
        set_time(execution, "iopub.execute_input", result->t_input, err) < 0 ||
        set_time(execution, "shell.execute_reply", result->t_reply, err) < 0 ||
        set_time(execution, "iopub.status.idle", result->t_idle, err) < 0 || show_updates(nb, err) < 0)
        return -1;
    if (result->execution_count > 0) {
        struct cJSON *count = cJSON_CreateNumber(result->execution_count);

        if (!count)
            return no_memory(err);
        put(value, "execution_count", count);
    }
    if (len > NOTEBOOK_MAX_OUTPUTS - nb->output_bytes)
        return hutch_notebook_add_error(nb, cell, "OutputLimit", "the notebook's outputs are too large: this cell's are left out", err);
    bounds.max_depth = 200; /* a cell's own bound is lower: the notebook has levels above it */
    if (hutch_nbjson_parse("the outputs of a cell", result->outputs, len, &bounds, &outputs, err) < 0)
        return -1;
    nb->output_bytes += len;
    put(value, "outputs", outputs);
    return take_display_ids(nb, outputs, err);
}

int hutch_notebook_add_error(struct notebook *nb, size_t cell, const char *name, const char *value, struct hutch_err *err)
{
    struct cJSON *error = cJSON_CreateObject(), *traceback = cJSON_AddArrayToObject(error, "traceback");
    auto_free char *last = NULL;
    struct cJSON *line;

    if (asprintf(&last, "\033[0;31m%s\033[0m: %s", name, value) < 0)
        last = NULL;
    line = last ? cJSON_CreateString(last) : NULL;
    if (!cJSON_AddItemToArray(traceback, line))
        cJSON_Delete(line);
    if (!line || !traceback || !cJSON_AddStringToObject(error, "ename", name) || !cJSON_AddStringToObject(error, "evalue", value) ||
        !cJSON_AddStringToObject(error, "output_type", "error") ||
        !cJSON_AddItemToArray(member(nb->cells[cell].value, "outputs"), error)) {
        cJSON_Delete(error);
        return no_memory(err);
    }
    return 0;
}

/* ---- writing ---- */

static bool is_stream(const struct cJSON *output)
{
    const char *type = text_of(output, "output_type");

    return type && strcmp(type, "stream") == 0 && text_of(output, "text") && text_of(output, "name");
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

/* Streams of one name that follow each other become one: nbconvert does so with all code cells, also those that it did not execute. */
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
        for (end = output; end && is_stream(end) && strcmp(text_of(end, "name"), text_of(output, "name")) == 0; end = end->next)
            len += strlen(text_of(end, "text"));
        text = malloc(len + 1);
        if (!text)
            return -1;
        for (struct cJSON *part = output; part != end; part = next) {
            size_t n = strlen(text_of(part, "text"));

            memcpy(text + at, text_of(part, "text"), n);
            at += n;
            next = part->next;
            if (part != output)
                cJSON_Delete(cJSON_DetachItemViaPointer(outputs, part));
        }
        text[drop_overwritten(text, len)] = '\0';
        free(member(output, "text")->valuestring);
        member(output, "text")->valuestring = text;
        output = end;
    }
    return 0;
}

static int split_cell(const struct notebook_cell *cell)
{
    struct cJSON *entry;

    if (hutch_nbjson_split_member(cell->value, "source") < 0)
        return -1;
    cJSON_ArrayForEach(entry, member(cell->value, "attachments"))
        if (hutch_nbjson_split_bundle(entry) < 0)
            return -1;
    if (!cell->is_code)
        return 0;
    if (merge_streams(member(cell->value, "outputs")) < 0)
        return -1;
    cJSON_ArrayForEach(entry, member(cell->value, "outputs"))
        if (is_stream(entry) ? hutch_nbjson_split_member(entry, "text") < 0
                             : member(entry, "data") && hutch_nbjson_split_bundle(member(entry, "data")) < 0)
            return -1;
    return 0;
}

int hutch_notebook_print(struct notebook *nb, char **ret_text, size_t *ret_len, struct hutch_err *err)
{
    if (show_updates(nb, err) < 0)
        return -1;
    for (size_t i = 0; i < nb->n_cells; i++)
        if (split_cell(&nb->cells[i]) < 0)
            return no_memory(err);
    *ret_text = hutch_nbjson_print(nb->root, NBJSON_FILE, ret_len);
    return *ret_text ? 0 : no_memory(err);
}
