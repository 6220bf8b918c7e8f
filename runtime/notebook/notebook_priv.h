/* notebook_priv.h - what the files of a notebook share: members of its objects, the upgrade, checks,
 * displays with an id, and widgets. */
#ifndef HUTCH_NOTEBOOK_NOTEBOOK_PRIV_H
#define HUTCH_NOTEBOOK_NOTEBOOK_PRIV_H

#include "runtime/notebook/notebook.h"

#include <cjson/cJSON.h>
#include <errno.h>

static inline int refuse_memory(struct hutch_err *err)
{
    return hutch_err_set(err, ENOMEM, "keep the notebook in memory");
}

static inline struct cJSON *get_member(const struct cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static inline const char *get_text(const struct cJSON *object, const char *key)
{
    return cJSON_GetStringValue(get_member(object, key));
}

static inline void set_member(struct cJSON *object, const char *key, struct cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddItemToObject(object, key, value);
}

#define NOTEBOOK_MINOR_MAX 5

/* Makes a notebook of nbformat 3 one of 4.5, but for the ids of its cells. Its cells are not checked. */
int hutch_notebook_upgrade(const char *what, struct cJSON *root, struct hutch_err *err);

/* What is wrong with a cell, as nbformat has it: "has no 'metadata'"; NULL: nothing. */
const char *hutch_notebook_check_cell(const struct cJSON *cell);

/* Takes the display ids off a cell's new outputs and remembers them. */
int hutch_notebook_take_displays(struct notebook *nb, struct cJSON *outputs, struct hutch_err *err);
/* Outputs show what they were told by hutch_notebook_update(). */
int hutch_notebook_show_updates(struct notebook *nb, struct hutch_err *err);
void hutch_notebook_free_displays(struct notebook *nb);

/* Widgets that were told of become the notebook's metadata; without any, what it has stays. */
int hutch_notebook_write_widgets(struct notebook *nb, struct hutch_err *err);
void hutch_notebook_free_widgets(struct notebook *nb);

#endif
