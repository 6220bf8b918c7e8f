/* Widgets: what is known of each one's model at the end becomes the notebook's metadata, as nbclient writes it. */
#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#define STATE_TYPE "application/vnd.jupyter.widget-state+json"
#define MAX_DEPTH 90 /* of what is told of a widget: a notebook has levels above it, and 100 in all when it is read */
#define DEEPEST   200 /* of what can be told at all */

struct notebook_widget {
    char *id;   /* owned */
    char *told; /* owned: {"buffers": […], "id": …, "state": {…}} */
    size_t len;
};

static void free_widget(void *node)
{
    struct notebook_widget *widget = node;

    free(widget->id);
    free(widget->told);
    free(widget);
}

void hutch_notebook_free_widgets(struct notebook *nb)
{
    tdestroy(nb->widgets, free_widget);
    nb->widgets = NULL;
}

static int compare_widgets(const void *a, const void *b)
{
    return strcmp(((const struct notebook_widget *)a)->id, ((const struct notebook_widget *)b)->id);
}

static struct notebook_widget *find_widget(const struct notebook *nb, char *id)
{
    const struct notebook_widget key = { .id = id };
    void *node = tfind(&key, &nb->widgets, compare_widgets);

    return node ? *(struct notebook_widget **)node : NULL;
}

static int parse_told(const char *told, size_t len, unsigned max_depth, unsigned raw_depth, struct cJSON **ret,
                      struct hutch_err *err)
{
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;

    bounds.max_depth = max_depth;
    bounds.raw_depth = raw_depth;
    return hutch_nbjson_parse("the state of a widget", told, len, &bounds, ret, err);
}

static struct notebook_widget *make_widget(struct notebook *nb, const char *id)
{
    struct notebook_widget *widget = calloc(1, sizeof(*widget));

    if (widget)
        widget->id = strdup(id);
    if (!widget || !widget->id || !tsearch(widget, &nb->widgets, compare_widgets)) {
        if (widget)
            free_widget(widget);
        return NULL;
    }
    nb->n_widgets++;
    return widget;
}

/* There is a later state than the one that is known, and it cannot be had. */
static void lose_widget(struct notebook *nb, char *id)
{
    struct notebook_widget *widget = find_widget(nb, id);

    nb->has_lost_widgets = true;
    if (!widget)
        return;
    tdelete(widget, &nb->widgets, compare_widgets);
    nb->n_widgets--;
    nb->widget_bytes -= widget->len;
    free_widget(widget);
}

static int keep_widget(struct notebook *nb, char *id, const char *told, size_t len, struct hutch_err *err)
{
    struct notebook_widget *widget = find_widget(nb, id);
    size_t others = nb->widget_bytes - (widget ? widget->len : 0);
    char *copy;

    if (len > NOTEBOOK_MAX_WIDGET_BYTES - others || (!widget && nb->n_widgets == NOTEBOOK_MAX_WIDGETS)) {
        lose_widget(nb, id);
        return 0;
    }
    copy = strdup(told);
    if (copy && !widget)
        widget = make_widget(nb, id);
    if (!copy || !widget) {
        free(copy);
        return refuse_memory(err);
    }
    free(widget->told);
    widget->told = copy;
    widget->len = len;
    nb->widget_bytes = others + len;
    return 0;
}

int hutch_notebook_set_widget(struct notebook *nb, const char *told, struct hutch_err *err)
{
    struct hutch_err why = { 0 };
    size_t len = strlen(told);
    struct cJSON *root, *id;
    int rc = parse_told(told, len, MAX_DEPTH, 1, &root, &why);
    bool is_too_deep = rc < 0 && why.errnum != ENOMEM;

    if (is_too_deep) /* then only its id is wanted */
        rc = parse_told(told, len, DEEPEST, 1, &root, &why);
    if (rc < 0) {
        nb->has_lost_widgets = true;
        return why.errnum == ENOMEM ? refuse_memory(err) : 0;
    }
    id = get_member(root, "id");
    if (cJSON_IsString(id) && (cJSON_IsTrue(get_member(root, "lost")) || is_too_deep))
        lose_widget(nb, id->valuestring);
    else if (cJSON_IsString(id))
        rc = keep_widget(nb, id->valuestring, told, len, err);
    cJSON_Delete(root);
    return rc;
}

/* ---- the metadata ---- */

struct writing {
    struct cJSON *models;
    struct hutch_err *err;
    bool is_failed;
};

/* @key of @model is what @name of its state is, or null. */
static bool name_model(struct cJSON *model, const char *key, const struct cJSON *state, const char *name)
{
    const struct cJSON *value = get_member(state, name);
    struct cJSON *copy = value ? cJSON_Duplicate(value, true) : cJSON_CreateNull();

    if (cJSON_AddItemToObject(model, key, copy))
        return true;
    cJSON_Delete(copy);
    return false;
}

static int add_model(struct cJSON *models, const struct notebook_widget *widget, struct hutch_err *err)
{
    struct cJSON *told, *state, *buffers, *model;
    struct hutch_err why = { 0 };
    bool is_complete;

    if (parse_told(widget->told, widget->len, MAX_DEPTH, 0, &told, &why) < 0) /* it was checked when it came */
        return why.errnum == ENOMEM ? refuse_memory(err) : 0;
    state = get_member(told, "state");
    buffers = get_member(told, "buffers");
    if (!get_member(state, "_model_name")) { /* no model: some other comm */
        cJSON_Delete(told);
        return 0;
    }
    model = cJSON_AddObjectToObject(models, widget->id);
    is_complete = name_model(model, "model_name", state, "_model_name") &&
                  name_model(model, "model_module", state, "_model_module") &&
                  name_model(model, "model_module_version", state, "_model_module_version") &&
                  cJSON_AddItemToObject(model, "state", cJSON_DetachItemViaPointer(told, state)) &&
                  (!cJSON_IsArray(buffers) || !buffers->child ||
                   cJSON_AddItemToObject(model, "buffers", cJSON_DetachItemViaPointer(told, buffers)));
    cJSON_Delete(told);
    return is_complete ? 0 : refuse_memory(err);
}

static void write_widget(const void *node, VISIT visit, void *context)
{
    struct writing *writing = context;

    if (visit == preorder || visit == endorder || writing->is_failed) /* each inner node is visited three times */
        return;
    if (add_model(writing->models, *(struct notebook_widget *const *)node, writing->err) < 0)
        writing->is_failed = true;
}

int hutch_notebook_write_widgets(struct notebook *nb, struct hutch_err *err)
{
    struct cJSON *widgets, *told, *models;
    struct writing writing = { .err = err };

    if (!nb->widgets)
        return 0;
    widgets = cJSON_CreateObject();
    told = cJSON_AddObjectToObject(widgets, STATE_TYPE);
    models = cJSON_AddObjectToObject(told, "state");
    if (!models || !cJSON_AddNumberToObject(told, "version_major", 2) ||
        !cJSON_AddNumberToObject(told, "version_minor", 0)) {
        cJSON_Delete(widgets);
        return refuse_memory(err);
    }
    writing.models = models;
    twalk_r(nb->widgets, write_widget, &writing);
    if (writing.is_failed) {
        cJSON_Delete(widgets);
        return -1;
    }
    set_member(get_member(nb->root, "metadata"), "widgets", widgets);
    return 0;
}
