/* display.h - what a display shows: nbformat's data and metadata, shared by all outputs of a cell that have its id.
 *
 * Those show the same because each of them replaces what the others do. */
#ifndef HUTCH_CELL_DISPLAY_H
#define HUTCH_CELL_DISPLAY_H

#include <stddef.h>
#include <stdint.h>

struct cJSON;

struct cell_display {
    char *id;              /* owned; as JSON; NULL: none, and one output */
    char *data, *metadata; /* owned; JSON */
    size_t len;            /* of both */
    size_t n_outputs;
};

/* Without an id, and in no output. NULL: ENOMEM. */
struct cell_display *hutch_cell_display_new(const struct cJSON *data, const struct cJSON *metadata);
void hutch_cell_display_free(struct cell_display *display); /* NULL is fine */
/* Shows instead that more than @limit bytes were left out. @len is 0 then: notices are bounded by the number of
 * outputs. -1: ENOMEM. */
int hutch_cell_display_omit(struct cell_display *display, uint64_t limit);
/* Shows what @with did, which is freed. */
void hutch_cell_display_replace(struct cell_display *display, struct cell_display *with);

/* Those with an id, in a tree of tsearch(3): hashes of hostile ids would collide. NULL: empty. */
struct cell_display *hutch_cell_display_find(void *const *ids, char *id); /* NULL: there is none */
int hutch_cell_display_insert(void **ids, struct cell_display *display);  /* which the tree owns then. -1: ENOMEM */
void hutch_cell_display_free_all(void **ids);

#endif
