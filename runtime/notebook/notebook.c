#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#define MINOR_IDS 5 /* the first whose cells have ids */

static bool has_tag(const struct cJSON *cell, const char *tag)
{
    const struct cJSON *entry;

    cJSON_ArrayForEach(entry, get_member(get_member(cell, "metadata"), "tags"))
        if (cJSON_IsString(entry) && strcmp(entry->valuestring, tag) == 0)
            return true;
    return false;
}

/* ---- reading ---- */

/* What str.strip() of Python takes off. */
static bool is_blank(const char *text)
{
    static const char *const spaces[] = {
        " ", "\t", "\n", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\xc2\x85", "\u00a0", "\u1680",
        "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
        "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
    };

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
    cJSON_ArrayForEach(entry, get_member(cell, "attachments"))
        if (hutch_nbjson_join_bundle(entry) < 0)
            return -1;
    cJSON_ArrayForEach(entry, get_member(cell, "outputs"))
        if ((get_member(entry, "data") && hutch_nbjson_join_bundle(get_member(entry, "data")) < 0) ||
            hutch_nbjson_join_member(entry, "text") < 0)
            return -1;
    return 0;
}

static const char *check_source(const struct notebook_cell *cell)
{
    bool has_nul = strstr(cell->source, NBJSON_NUL) != NULL;

    return hutch_notebook_is_executed(cell) && has_nul ? "has a NUL character in its source" : NULL;
}

static int make_id(struct cJSON *cell, struct hutch_err *err)
{
    uint32_t number;
    char id[9];

    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return hutch_err_set(err, errno, "get a random number");
    snprintf(id, sizeof(id), "%08" PRIx32, number);
    set_member(cell, "id", cJSON_CreateString(id));
    return get_text(cell, "id") ? 0 : refuse_memory(err);
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

/* From 4.5 on every cell has an id of its own; nbformat makes those that are missing, and of equal ones keeps the
 * first. */
static int make_missing_ids(struct notebook *nb, struct hutch_err *err)
{
    auto_free struct id_place *places = calloc(nb->n_cells + 1, sizeof(*places));
    auto_free bool *is_taken = calloc(nb->n_cells + 1, sizeof(*is_taken));
    size_t n = 0;

    if (!places || !is_taken)
        return refuse_memory(err);
    for (size_t i = 0; i < nb->n_cells; i++)
        if (get_text(nb->cells[i].value, "id"))
            places[n++] = (struct id_place){ .id = get_text(nb->cells[i].value, "id"), .cell = i };
    qsort(places, n, sizeof(*places), compare_ids);
    for (size_t i = 1; i < n; i++)
        is_taken[places[i].cell] = strcmp(places[i].id, places[i - 1].id) == 0;
    for (size_t i = 0; i < nb->n_cells; i++)
        if ((is_taken[i] || !get_text(nb->cells[i].value, "id")) && make_id(nb->cells[i].value, err) < 0)
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
        return refuse_memory(err);
    cJSON_ArrayForEach(entry, nb->list)
        *cell++ = (struct notebook_cell){
            .value = entry,
            .source = get_text(entry, "source"),
            .is_code = strcmp(get_text(entry, "cell_type"), "code") == 0,
            .is_blank = is_blank(get_text(entry, "source")),
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
    const char *language = get_text(get_member(metadata, "kernelspec"), "language");

    if (!language)
        language = get_text(get_member(metadata, "language_info"), "name");
    if (language && strcasecmp(language, "python") != 0)
        return hutch_err_set(err, 0, "%s is written in '%.40s': only Python notebooks can be executed", what, language);
    return 0;
}

/* Upgrades a notebook of nbformat 3 first. */
static int check_version(const char *what, struct cJSON *root, int *ret_minor, struct hutch_err *err)
{
    int64_t major, minor;

    if (!cJSON_IsObject(root) || !hutch_nbjson_get_integer(get_member(root, "nbformat"), &major) ||
        !hutch_nbjson_get_integer(get_member(root, "nbformat_minor"), &minor))
        return hutch_err_set(err, 0, "%s is no notebook: it has no 'nbformat' and 'nbformat_minor'", what);
    if (major < 3)
        return hutch_err_set(err, 0,
                             "%s is of nbformat %" PRId64 ", which is older than 3: "
                             "convert it with 'jupyter nbconvert --to notebook'", what, major);
    if (major == 3) {
        if (hutch_notebook_upgrade(what, root, err) < 0)
            return -1;
        major = 4;
        minor = NOTEBOOK_MINOR_MAX;
    }
    if (major > 4 || minor < 0 || minor > NOTEBOOK_MINOR_MAX)
        return hutch_err_set(err, 0, "%s is of nbformat %" PRId64 ".%" PRId64 ": only 4.0 to 4.%d are known here", what,
                             major, minor, NOTEBOOK_MINOR_MAX);
    if (!cJSON_IsObject(get_member(root, "metadata")))
        return hutch_err_set(err, 0, "%s has no 'metadata'", what);
    if (!cJSON_IsArray(get_member(root, "cells")))
        return hutch_err_set(err, 0, "%s has no 'cells'", what);
    *ret_minor = (int)minor;
    return 0;
}

static int check_cells(const char *what, struct notebook *nb, struct hutch_err *err)
{
    struct cJSON *cell;
    size_t n = 0;

    cJSON_ArrayForEach(cell, nb->list) {
        const char *wrong = hutch_notebook_check_cell(cell);

        n++;
        if (wrong)
            return hutch_err_set(err, 0, "%s: cell %zu %s", what, n, wrong);
        if (n > NOTEBOOK_MAX_CELLS)
            return hutch_err_set(err, 0, "%s has more than %d cells", what, NOTEBOOK_MAX_CELLS);
        if (join_cell(cell) < 0)
            return refuse_memory(err);
        /* as nbformat does at reading and at writing */
        cJSON_DeleteItemFromObjectCaseSensitive(get_member(cell, "metadata"), "trusted");
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
    if (check_version(what, nb.root, &nb.minor, err) < 0) {
        hutch_notebook_done(&nb);
        return -1;
    }
    nb.list = get_member(nb.root, "cells");
    if (check_language(what, get_member(nb.root, "metadata"), err) < 0 ||
        check_cells(what, &nb, err) < 0 || (nb.minor >= MINOR_IDS && make_missing_ids(&nb, err) < 0)) {
        hutch_notebook_done(&nb);
        return -1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(transient); i++)
        cJSON_DeleteItemFromObjectCaseSensitive(get_member(nb.root, "metadata"), transient[i]);
    *ret = nb;
    return 0;
}

void hutch_notebook_done(struct notebook *nb)
{
    hutch_notebook_free_displays(nb);
    hutch_notebook_free_widgets(nb);
    free(nb->cells);
    cJSON_Delete(nb->root);
    *nb = (struct notebook)NOTEBOOK_INIT;
}

bool hutch_notebook_is_executed(const struct notebook_cell *cell)
{
    return cell->is_code && !cell->is_blank && !cell->is_skipped;
}

/* ---- changing ---- */

int hutch_notebook_put_cell(struct notebook *nb, size_t at, bool in_place, const char *source, const char *tag,
                            struct hutch_err *err)
{
    struct cJSON *cell = cJSON_CreateObject(), *metadata = cJSON_AddObjectToObject(cell, "metadata");
    struct cJSON *tags = cJSON_AddArrayToObject(metadata, "tags"), *name = cJSON_CreateString(tag);

    if (!cJSON_AddItemToArray(tags, name))
        cJSON_Delete(name);
    if (!cJSON_AddStringToObject(cell, "cell_type", "code") || !cJSON_AddNullToObject(cell, "execution_count") ||
        !cJSON_AddArrayToObject(cell, "outputs") || !cJSON_AddStringToObject(cell, "source", source) || !name ||
        !tags || (nb->minor >= MINOR_IDS && make_id(cell, err) < 0)) {
        cJSON_Delete(cell);
        return refuse_memory(err);
    }
    if (in_place) {
        cJSON_ReplaceItemViaPointer(nb->list, nb->cells[at].value, cell);
    } else {
        /* Behind the last, and then those that it precedes behind it: cJSON_InsertItemInArray() of 1.7.15 does
         * nothing but at the ends. */
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
    set_member(get_member(nb->root, "metadata"), "language_info", info);
    return 0;
}

int hutch_notebook_begin(struct notebook *nb, size_t cell, struct hutch_err *err)
{
    struct cJSON *value = nb->cells[cell].value, *outputs = cJSON_CreateArray(), *execution = cJSON_CreateObject();

    if (!outputs || !execution) {
        cJSON_Delete(outputs);
        cJSON_Delete(execution);
        return refuse_memory(err);
    }
    set_member(value, "outputs", outputs);
    set_member(get_member(value, "metadata"), "execution", execution);
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
    return cJSON_AddStringToObject(execution, key, text) ? 0 : refuse_memory(err);
}

int hutch_notebook_set_result(struct notebook *nb, size_t cell, const struct notebook_result *result,
                              struct hutch_err *err)
{
    struct cJSON *value = nb->cells[cell].value, *outputs;
    struct cJSON *execution = get_member(get_member(value, "metadata"), "execution");
    size_t len = strlen(result->outputs);
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;

    if (set_time(execution, "iopub.status.busy", result->t_busy, err) < 0 ||
        set_time(execution, "iopub.execute_input", result->t_input, err) < 0 ||
        set_time(execution, "shell.execute_reply", result->t_reply, err) < 0 ||
        set_time(execution, "iopub.status.idle", result->t_idle, err) < 0)
        return -1;
    if (result->execution_count > 0) {
        struct cJSON *count = cJSON_CreateNumber(result->execution_count);

        if (!count)
            return refuse_memory(err);
        set_member(value, "execution_count", count);
    }
    if (len > NOTEBOOK_MAX_OUTPUTS - nb->output_bytes)
        return hutch_notebook_add_error(nb, cell, "OutputLimit",
                                        "the notebook's outputs are too large: this cell's are left out", err);
    bounds.max_depth = 200; /* a cell's own bound is lower: the notebook has levels above it */
    if (hutch_nbjson_parse("the outputs of a cell", result->outputs, len, &bounds, &outputs, err) < 0)
        return -1;
    nb->output_bytes += len;
    set_member(value, "outputs", outputs);
    return hutch_notebook_take_displays(nb, outputs, err);
}

int hutch_notebook_add_error(struct notebook *nb, size_t cell, const char *name, const char *value,
                             struct hutch_err *err)
{
    struct cJSON *error = cJSON_CreateObject(), *traceback = cJSON_AddArrayToObject(error, "traceback");
    auto_free char *last = NULL;
    struct cJSON *line;

    if (asprintf(&last, "\033[0;31m%s\033[0m: %s", name, value) < 0)
        last = NULL;
    line = last ? cJSON_CreateString(last) : NULL;
    if (!cJSON_AddItemToArray(traceback, line))
        cJSON_Delete(line);
    if (!line || !traceback || !cJSON_AddStringToObject(error, "ename", name) ||
        !cJSON_AddStringToObject(error, "evalue", value) || !cJSON_AddStringToObject(error, "output_type", "error") ||
        !cJSON_AddItemToArray(get_member(nb->cells[cell].value, "outputs"), error)) {
        cJSON_Delete(error);
        return refuse_memory(err);
    }
    return 0;
}
