#include "runtime/cell/display.h"

#include "runtime/text/nbjson.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hutch_cell_display_free(struct cell_display *display)
{
    if (display == NULL)
        return;
    free(display->id);
    free(display->data);
    free(display->metadata);
    free(display);
}

struct cell_display *hutch_cell_display_new(const struct cJSON *data, const struct cJSON *metadata)
{
    struct cell_display *display = calloc(1, sizeof(*display));

    if (display == NULL)
        return NULL;
    display->data = hutch_nbjson_print(data, NBJSON_COMPACT, NULL);
    display->metadata = hutch_nbjson_print(metadata, NBJSON_COMPACT, NULL);
    if (display->data == NULL || display->metadata == NULL) {
        hutch_cell_display_free(display);
        return NULL;
    }
    display->len = strlen(display->data) + strlen(display->metadata);
    return display;
}

int hutch_cell_display_omit(struct cell_display *display, uint64_t limit)
{
    char notice[140];

    snprintf(notice, sizeof(notice), "{\"text/plain\":\"[output of %zu bytes left out: more than %" PRIu64 "]\"}",
             display->len, limit);
    free(display->data);
    free(display->metadata);
    display->data = strdup(notice);
    display->metadata = strdup("{}");
    display->len = 0;
    return display->data != NULL && display->metadata != NULL ? 0 : -1;
}

void hutch_cell_display_replace(struct cell_display *display, struct cell_display *with)
{
    char *data = display->data, *metadata = display->metadata;

    display->data = with->data;
    display->metadata = with->metadata;
    display->len = with->len;
    with->data = data;
    with->metadata = metadata;
    hutch_cell_display_free(with);
}

/* ---- those with an id ---- */

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct cell_display *)a)->id, ((const struct cell_display *)b)->id);
}

struct cell_display *hutch_cell_display_find(void *const *ids, char *id)
{
    const struct cell_display key = { .id = id };
    struct cell_display *const *found = tfind(&key, ids, compare_ids);

    return found != NULL ? *found : NULL;
}

int hutch_cell_display_insert(void **ids, struct cell_display *display)
{
    return tsearch(display, ids, compare_ids) != NULL ? 0 : -1;
}

static void free_node(void *display)
{
    hutch_cell_display_free(display);
}

void hutch_cell_display_free_all(void **ids)
{
    tdestroy(*ids, free_node);
    *ids = NULL;
}
