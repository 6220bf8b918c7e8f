/* cell_outputs.h - the outputs of one cell as nbclient and nbconvert 6.5 leave them in a notebook, bounded.
 *
 * Streams of the same name that follow each other are one output, and text that was overwritten after a carriage return is gone;
 * clear_output() drops, or drops when the next output comes; a display with an id replaces the data of all earlier ones with that id.
 * Costs are linear in what is put in, memory in what is kept. */
#ifndef HUTCH_CELL_OUTPUTS_H
#define HUTCH_CELL_OUTPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct cell_outputs;

#define CELL_MAX_OUTPUTS 10000
#define CELL_ERROR_RESERVE (1u << 20) /* an error is kept beyond the limit, up to here; a longer traceback is left out */

/* @max_bytes: of text and data together; 0: no limit. Beyond, text is cut and displays become a text that says so. NULL: ENOMEM. */
struct cell_outputs *hutch_cell_outputs_new(uint64_t max_bytes);
void hutch_cell_outputs_free(struct cell_outputs *o); /* NULL is fine */
void hutch_cell_outputs_set_limit(struct cell_outputs *o, uint64_t max_bytes);

/* Valid UTF-8, for @stream 1 or 2. How many of its bytes were kept: fewer when the limit was reached. @ret_notice: a text for stderr that
 * was put behind it and says so, once; else NULL. */
size_t hutch_cell_outputs_add_text(struct cell_outputs *o, int stream, const char *text, size_t len, const char **ret_notice);

/* @output: {"data", "metadata", "output_type": …} as nbformat has it, taken over in any case. @display_id may be NULL. What was added,
 * as JSON, with "transient": {"display_id": …} when it has an id; the list's, until it is changed. It is not the same when there was no
 * room. NULL: it was left out, or ENOMEM. */
const char *hutch_cell_outputs_add_display(struct cell_outputs *o, struct cJSON *output, const char *display_id);
/* {"ename", "evalue", "output_type", "traceback"}; likewise. */
const char *hutch_cell_outputs_add_error(struct cell_outputs *o, struct cJSON *output);
/* Both are objects and stay the caller's. */
void hutch_cell_outputs_update(struct cell_outputs *o, const char *display_id, const struct cJSON *data, const struct cJSON *metadata);
void hutch_cell_outputs_clear(struct cell_outputs *o, bool wait);

/* JSON array on one line, for the caller to free; outputs with a display id have it as "transient": {"display_id": …}, which is to be
 * taken off before they are stored. NULL: ENOMEM, also when an output could not be kept for that. */
char *hutch_cell_outputs_json(const struct cell_outputs *o, size_t *ret_len);
bool hutch_cell_outputs_is_truncated(const struct cell_outputs *o);
/* What the streams say, one after the other as they are in the list; NUL-terminated, for the caller to free. NULL: ENOMEM. */
char *hutch_cell_outputs_text(const struct cell_outputs *o, int stream, size_t *ret_len);

/* The last error among them; NULL, NULL: none. All NUL-terminated, each for the caller to free; 0, -1 on ENOMEM. */
struct cell_error {
    char *name, *value;
    char *traceback;      /* without colours; lines joined as a terminal shows them */
    char *traceback_ansi;
};
#define CELL_ERROR_INIT { .name = NULL }
int hutch_cell_outputs_error(const struct cell_outputs *o, struct cell_error *ret);
void hutch_cell_error_done(struct cell_error *error);

#endif
