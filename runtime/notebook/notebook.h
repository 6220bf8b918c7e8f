/* notebook.h - a notebook file: read, given outputs, and written as nbformat would.
 *
 * nbformat 4.0 to 4.5, kept in its version, and 3, which is upgraded to 4.5. What is in it and not known here stays; a
 * cell has an id from 4.5 on. A notebook is a foreign file, and its outputs are foreign too: every shape is checked.
 * Sources: the schemas of nbformat 5.5, and nbclient 0.7. */
#ifndef HUTCH_NOTEBOOK_NOTEBOOK_H
#define HUTCH_NOTEBOOK_NOTEBOOK_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

#define NOTEBOOK_MAX_BYTES ((size_t)256 << 20) /* of a file */
#define NOTEBOOK_MAX_CELLS 100000
#define NOTEBOOK_MAX_OUTPUTS ((size_t)512 << 20) /* bytes that the executed cells together may show */
#define NOTEBOOK_MAX_WIDGETS 10000
#define NOTEBOOK_MAX_WIDGET_BYTES ((size_t)64 << 20) /* of the state of all widgets together */

struct notebook_cell {
    struct cJSON *value; /* the notebook's */
    const char *source;  /* likewise; NUL-terminated UTF-8 without NULs when it is to be executed */
    bool is_code, is_blank;
    bool may_raise, is_skipped, is_parameters, is_injected; /* by its tags */
};

struct notebook {
    struct cJSON *root;           /* owned; strings of several lines are one string */
    struct cJSON *list;           /* root's "cells" */
    int minor;                    /* nbformat_minor */
    struct notebook_cell *cells;  /* owned, one for each */
    size_t n_cells;
    void *displays;               /* owned: a tree (tsearch(3)) of the display ids that outputs have */
    void *widgets;                /* owned: a tree (tsearch(3)) of what is known of them */
    size_t n_widgets, widget_bytes;
    bool has_lost_widgets;        /* there was more than the limits, here or of a cell */
    size_t output_bytes;          /* of the outputs, and of the updates that they do not show yet */
};
#define NOTEBOOK_INIT { .root = NULL }

/* @what: how messages call it. Errors: where it is not JSON, with line and column; which cell is not as nbformat has
 * it; another version or language; ENOMEM. @ret is untouched on failure. */
int hutch_notebook_parse(const char *what, const char *text, size_t len, struct notebook *ret, struct hutch_err *err);
void hutch_notebook_done(struct notebook *nb);

/* Code that is to be executed: no cell of text, nothing blank, nothing that is tagged "skip-execution". */
bool hutch_notebook_is_executed(const struct notebook_cell *cell);

/* Puts a new code cell in front of the cell @at, which may be n_cells, or in its place. */
int hutch_notebook_put_cell(struct notebook *nb, size_t at, bool in_place, const char *source, const char *tag,
                            struct hutch_err *err);

/* @json: {"name": "python", …} as a kernel tells it. */
int hutch_notebook_set_language(struct notebook *nb, const char *json, struct hutch_err *err);

/* A cell is about to be executed: what it showed before is gone. */
int hutch_notebook_begin(struct notebook *nb, size_t cell, struct hutch_err *err);

struct notebook_result {
    int execution_count; /* 0: unknown */
    const char *outputs; /* JSON array of outputs, the display id of one as "transient": {"display_id": …} */
    double t_busy, t_input, t_reply, t_idle; /* seconds since 1970; 0: it did not get there */
};
int hutch_notebook_set_result(struct notebook *nb, size_t cell, const struct notebook_result *result,
                              struct hutch_err *err);
/* One more output: what ended the cell from outside. */
int hutch_notebook_add_error(struct notebook *nb, size_t cell, const char *name, const char *value,
                             struct hutch_err *err);

/* A display has come with an id that outputs of executed cells have: those show it. Costs one copy, as they are changed
 * when the notebook is printed. */
bool hutch_notebook_has_display(const struct notebook *nb, const char *id);
int hutch_notebook_update(struct notebook *nb, const char *id, const struct cJSON *data, const struct cJSON *metadata,
                          struct hutch_err *err);

/* The state of a widget, as HUTCH_WIDGET tells it. What is over a limit is left out, with what was known before. */
int hutch_notebook_set_widget(struct notebook *nb, const char *told, struct hutch_err *err);

/* The text of the file, for the caller to free. The last thing that is done with it: strings are split into lines. */
int hutch_notebook_print(struct notebook *nb, char **ret_text, size_t *ret_len, struct hutch_err *err);

#endif
