/* outputs.h - the outputs of one cell as nbclient and nbconvert 6.5 leave them in a notebook, bounded.
 *
 * Streams of the same name that follow each other are one output, and text that was overwritten after a carriage
 * return is gone; clear_output() drops, or drops when the next output comes; a display with an id replaces what all
 * earlier ones with that id show. Costs are linear in what is put in, memory in what is kept. */
#ifndef HUTCH_CELL_OUTPUTS_H
#define HUTCH_CELL_OUTPUTS_H

#include "runtime/cell/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct cell_outputs;

#define CELL_MAX_OUTPUTS 10000
#define CELL_ERROR_RESERVE (1u << 20) /* errors are kept beyond the limit, up to here */

enum cell_outputs_limit { CELL_OUTPUTS_NO_LIMIT, CELL_OUTPUTS_BYTES, CELL_OUTPUTS_NUMBER };

/* @max_bytes: of text and data together; 0: no limit. Beyond, text is cut and displays become a text that says so.
 * NULL: ENOMEM. */
struct cell_outputs *hutch_cell_outputs_new(uint64_t max_bytes);
void hutch_cell_outputs_free(struct cell_outputs *o); /* NULL is fine */

/* Valid UTF-8, for @stream 1 or 2. How many of its bytes were kept: fewer when the limit was reached. @ret_notice:
 * NULL, or the text that was put on stderr to say so, once (static until the next call). */
size_t hutch_cell_outputs_add_text(struct cell_outputs *o, int stream, const char *text, size_t len,
                                   const char **ret_notice);

/* nbformat's "data" and "metadata", objects that stay the caller's; @id a string or NULL. All of these return what
 * was added as JSON, with "transient": {"display_id": …} where it has an id: the list's, until its next call. It
 * says that something was left out when there was no room. NULL: there is no room even for that, or no memory. */
const char *hutch_cell_outputs_add_display(struct cell_outputs *o, const struct cJSON *data,
                                           const struct cJSON *metadata, const struct cJSON *id);
const char *hutch_cell_outputs_add_value(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                         const struct cJSON *id, int64_t count);
/* Two strings and an array of strings. */
const char *hutch_cell_outputs_add_error(struct cell_outputs *o, const struct cJSON *ename, const struct cJSON *evalue,
                                         const struct cJSON *traceback);
/* Returns {"data", "id", "metadata"}, whether or not there is such an id here. */
const char *hutch_cell_outputs_update(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                      const struct cJSON *id);
/* The state of a widget, an object, with its buffers, an array: {"buffers", "id", "state"}, which is not kept here. All
 * of a cell are bounded as its outputs are, but for themselves; where there is no room it is lost. */
const char *hutch_cell_outputs_add_widget(struct cell_outputs *o, const struct cJSON *id, const struct cJSON *state,
                                          const struct cJSON *buffers);
/* It was too large, and what is known of it is not true any more: {"id", "lost": true}. The outputs are truncated. */
const char *hutch_cell_outputs_lose_widget(struct cell_outputs *o, const struct cJSON *id);
void hutch_cell_outputs_clear(struct cell_outputs *o, bool wait);

/* JSON array on one line, for the caller to free; outputs with a display id have it as "transient": {"display_id": …},
 * which is to be taken off before they are stored. NULL: ENOMEM, now or when something was to be kept. */
char *hutch_cell_outputs_json(const struct cell_outputs *o, size_t *ret_len);
/* The last output was @bytes long, and its sender has left it out. */
void hutch_cell_outputs_note_omitted(struct cell_outputs *o, uint64_t bytes);
/* Which limit was reached first. */
enum cell_outputs_limit hutch_cell_outputs_reached(const struct cell_outputs *o);
/* Something that belongs here was lost for lack of memory: the list is as good as none. */
void hutch_cell_outputs_break(struct cell_outputs *o);
/* Something is missing: a limit was reached, or the sender has left out what was too long for one message. */
bool hutch_cell_outputs_is_truncated(const struct cell_outputs *o);
/* What one stream says, in the order of the list; NUL-terminated, for the caller to free. NULL: ENOMEM. */
char *hutch_cell_outputs_text(const struct cell_outputs *o, int stream, size_t *ret_len);

/* The last error in the list. -1: ENOMEM, @ret untouched. */
int hutch_cell_outputs_error(const struct cell_outputs *o, struct cell_error *ret);

#endif
