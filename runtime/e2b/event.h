/* event.h - the lines of an answer to /execute, made of what a cell shows. */
#ifndef HUTCH_E2B_EVENT_H
#define HUTCH_E2B_EVENT_H

#include <stdbool.h>
#include <stddef.h>

struct hutch_output;
struct text_buffer;

/* Adds a line for @output, an object of nbformat's: a display, a value, an error; nothing for what E2B does not know.
 * False: it is not as nbformat has it, or memory was short. */
bool hutch_e2b_event_add(struct text_buffer *t, const struct hutch_output *output);

/* A line of stdout (1) or stderr (2). */
void hutch_e2b_event_add_text(struct text_buffer *t, int stream, const char *data, size_t len);
/* A line for an error that no code of Python has raised; @message stands for a traceback. */
void hutch_e2b_event_add_error(struct text_buffer *t, const char *name, const char *value, const char *message);

#endif
