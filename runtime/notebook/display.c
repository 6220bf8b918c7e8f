/* Outputs with a display id: a later display with that id changes what they show, also in cells that are done. */
#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <stdlib.h>
#include <string.h>

struct notebook_display {
    char *id;             /* owned */
    struct cJSON *output; /* the notebook's */
    struct cJSON *data, *metadata; /* owned; in the first with an id: what all of them are to show; NULL: nothing new */
};

void hutch_notebook_free_displays(struct notebook *nb)
{
    for (size_t i = 0; i < nb->n_displays; i++) {
        free(nb->displays[i].id);
        cJSON_Delete(nb->displays[i].data);
        cJSON_Delete(nb->displays[i].metadata);
    }
    free(nb->displays);
    nb->displays = NULL;
    nb->n_displays = 0;
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
        return refuse_memory(err);
    }
    cJSON_Delete(display->data);
    cJSON_Delete(display->metadata);
    display->data = new_data;
    display->metadata = new_metadata;
    nb->has_updates = true;
    return 0;
}

/* The bytes of a value in a file, near enough for a limit. SIZE_MAX: ENOMEM. */
static size_t count_bytes(const struct cJSON *value)
{
    size_t len;
    auto_free char *text = hutch_nbjson_print(value, NBJSON_COMPACT, &len);

    return text ? len : SIZE_MAX;
}

/* One update can be shown in many places, and hostile code could make a file of any size of that. */
static int show_update(struct notebook *nb, struct cJSON *output, const struct notebook_display *news, size_t size)
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
    set_member(output, "data", data);
    set_member(output, "metadata", metadata);
    return 0;
}

int hutch_notebook_show_updates(struct notebook *nb, struct hutch_err *err)
{
    if (!nb->has_updates)
        return 0;
    for (size_t first = 0, next; first < nb->n_displays; first = next) {
        struct notebook_display *news = &nb->displays[first];
        size_t size = news->data ? count_bytes(news->data) : 0, more = news->data ? count_bytes(news->metadata) : 0;

        if (size == SIZE_MAX || more == SIZE_MAX)
            return refuse_memory(err);
        size += more;
        for (next = first; next < nb->n_displays && strcmp(nb->displays[next].id, news->id) == 0; next++)
            if (news->data && show_update(nb, nb->displays[next].output, news, size) < 0)
                return refuse_memory(err);
        cJSON_Delete(news->data);
        cJSON_Delete(news->metadata);
        news->data = news->metadata = NULL;
    }
    nb->has_updates = false;
    return 0;
}

int hutch_notebook_take_displays(struct notebook *nb, struct cJSON *outputs, struct hutch_err *err)
{
    struct notebook_display *displays;
    struct cJSON *output;
    size_t n = 0, before = nb->n_displays;

    cJSON_ArrayForEach(output, outputs)
        n += get_text(get_member(output, "transient"), "display_id") != NULL;
    displays = n ? reallocarray(nb->displays, before + n, sizeof(*displays)) : nb->displays;
    if (n && !displays)
        return refuse_memory(err);
    nb->displays = displays;
    cJSON_ArrayForEach(output, outputs) {
        const char *id = get_text(get_member(output, "transient"), "display_id");
        char *copy = id ? strdup(id) : NULL;

        if (id && !copy)
            return refuse_memory(err);
        if (id)
            displays[nb->n_displays++] = (struct notebook_display){ .id = copy, .output = output };
        cJSON_DeleteItemFromObjectCaseSensitive(output, "transient");
    }
    if (n)
        qsort(displays, nb->n_displays, sizeof(*displays), compare_displays);
    return 0;
}
