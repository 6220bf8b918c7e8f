/* Outputs with a display id: a later display with that id changes what they show, also in cells that are done.
 *
 * Each step costs the same however many displays there are: ids are found in a tree, and outputs are changed once, when
 * the notebook is written. */
#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

struct notebook_display {
    char *id;                      /* owned */
    struct cJSON **outputs;        /* owned; what they point to is the notebook's */
    size_t n_outputs, room;
    size_t n_stale;                /* how many of the first outputs are to show the news; 0: there are none */
    struct cJSON *data, *metadata; /* owned: the news, or NULL */
    size_t size;                   /* of the news, as counted in output_bytes */
};

static void free_display(void *node)
{
    struct notebook_display *display = node;

    free(display->id);
    free(display->outputs);
    cJSON_Delete(display->data);
    cJSON_Delete(display->metadata);
    free(display);
}

void hutch_notebook_free_displays(struct notebook *nb)
{
    tdestroy(nb->displays, free_display);
    nb->displays = NULL;
}

static int compare_displays(const void *a, const void *b)
{
    return strcmp(((const struct notebook_display *)a)->id, ((const struct notebook_display *)b)->id);
}

static struct notebook_display *find_display(const struct notebook *nb, const char *id)
{
    const struct notebook_display key = { .id = (char *)id };
    void *node = tfind(&key, &nb->displays, compare_displays);

    return node ? *(struct notebook_display **)node : NULL;
}

bool hutch_notebook_has_display(const struct notebook *nb, const char *id)
{
    return find_display(nb, id) != NULL;
}

/* The bytes of a value in a file, near enough for a limit. SIZE_MAX: ENOMEM. */
static size_t count_bytes(const struct cJSON *value)
{
    size_t len;
    auto_free char *text = hutch_nbjson_print(value, NBJSON_COMPACT, &len);

    return text ? len : SIZE_MAX;
}

/* What is to be shown of an update: hostile code could make a file of any size of them. */
static int take_news(struct notebook *nb, const struct cJSON *data, const struct cJSON *metadata,
                     struct notebook_display *news)
{
    size_t size = count_bytes(data), more = count_bytes(metadata);

    if (size == SIZE_MAX || more == SIZE_MAX)
        return -1;
    size += more;
    if (size > NOTEBOOK_MAX_OUTPUTS - nb->output_bytes) {
        size = 0;
        news->data = cJSON_CreateObject();
        news->metadata = cJSON_CreateObject();
        cJSON_AddStringToObject(news->data, "text/plain", "[output left out: the notebook's outputs are too large]");
    } else {
        news->data = cJSON_Duplicate(data, true);
        news->metadata = cJSON_Duplicate(metadata, true);
    }
    if (!news->data || !news->metadata) {
        cJSON_Delete(news->data);
        cJSON_Delete(news->metadata);
        return -1;
    }
    news->size = size;
    nb->output_bytes += size;
    return 0;
}

int hutch_notebook_update(struct notebook *nb, const char *id, const struct cJSON *data, const struct cJSON *metadata,
                          struct hutch_err *err)
{
    struct notebook_display *display = find_display(nb, id), news = { .id = NULL };

    if (!display)
        return 0;
    nb->output_bytes -= display->size; /* those before were never shown */
    display->size = 0;
    if (take_news(nb, data, metadata, &news) < 0)
        return refuse_memory(err);
    cJSON_Delete(display->data);
    cJSON_Delete(display->metadata);
    display->data = news.data;
    display->metadata = news.metadata;
    display->size = news.size;
    display->n_stale = display->n_outputs;
    return 0;
}

struct showing {
    struct notebook *nb;
    bool is_failed;
};

static void show_news(const void *node, VISIT visit, void *context)
{
    struct notebook_display *display = *(struct notebook_display *const *)node;
    struct showing *showing = context;

    if (visit == preorder || visit == endorder) /* each inner node is visited three times */
        return;
    if (display->n_stale == 0)
        return;
    for (size_t i = 1; i < display->n_stale; i++) {
        struct notebook_display copy = { .id = NULL };

        if (take_news(showing->nb, display->data, display->metadata, &copy) < 0) {
            showing->is_failed = true;
            return;
        }
        set_member(display->outputs[i], "data", copy.data);
        set_member(display->outputs[i], "metadata", copy.metadata);
    }
    set_member(display->outputs[0], "data", display->data);
    set_member(display->outputs[0], "metadata", display->metadata);
    display->data = display->metadata = NULL;
    display->n_stale = 0;
    display->size = 0; /* it stays counted: the first output shows it */
}

int hutch_notebook_show_updates(struct notebook *nb, struct hutch_err *err)
{
    struct showing showing = { .nb = nb };

    twalk_r(nb->displays, show_news, &showing);
    return showing.is_failed ? refuse_memory(err) : 0;
}

static struct notebook_display *make_display(struct notebook *nb, const char *id)
{
    struct notebook_display *display = calloc(1, sizeof(*display));

    if (display)
        display->id = strdup(id);
    if (!display || !display->id || !tsearch(display, &nb->displays, compare_displays)) {
        if (display)
            free_display(display);
        return NULL;
    }
    return display;
}

static int add_output(struct notebook *nb, const char *id, struct cJSON *output)
{
    struct notebook_display *display = find_display(nb, id);

    if (!display)
        display = make_display(nb, id);
    if (!display)
        return -1;
    if (display->n_outputs == display->room) {
        size_t room = display->room ? 2 * display->room : 1;
        struct cJSON **outputs = reallocarray(display->outputs, room, sizeof(struct cJSON *));

        if (!outputs)
            return -1;
        display->outputs = outputs;
        display->room = room;
    }
    display->outputs[display->n_outputs++] = output;
    return 0;
}

int hutch_notebook_take_displays(struct notebook *nb, struct cJSON *outputs, struct hutch_err *err)
{
    struct cJSON *output;

    cJSON_ArrayForEach(output, outputs) {
        const char *id = get_text(get_member(output, "transient"), "display_id");

        if (id && add_output(nb, id, output) < 0)
            return refuse_memory(err);
        cJSON_DeleteItemFromObjectCaseSensitive(output, "transient");
    }
    return 0;
}
