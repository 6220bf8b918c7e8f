/* buffer.h - a text that grows.
 *
 * Once memory was short everything that follows is dropped, and taking the text fails: so a row of additions needs
 * one test. */
#ifndef HUTCH_TEXT_BUFFER_H
#define HUTCH_TEXT_BUFFER_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct text_buffer {
    char *data; /* owned; NUL-terminated once something was added, NULL before */
    size_t len, room;
    bool is_broken; /* memory was short */
};
#define TEXT_BUFFER_INIT { NULL, 0, 0, false }

void hutch_text_add(struct text_buffer *t, const char *data, size_t len);
void hutch_text_add_string(struct text_buffer *t, const char *text);
/* Where @len bytes can be written at the end; NULL when memory was short. What was written is then added by
 * hutch_text_extend(): at most as many bytes. */
char *hutch_text_reserve(struct text_buffer *t, size_t len);
void hutch_text_extend(struct text_buffer *t, size_t len);
/* At most 511 bytes, the rest is cut: for numbers and names that are known to be short. */
void hutch_text_addf(struct text_buffer *t, const char *fmt, ...) HUTCH_PRINTF(2, 3);
/* NUL-terminated; the caller's from here on. NULL when memory was short. @ret_len may be NULL. */
char *hutch_text_take(struct text_buffer *t, size_t *ret_len);
void hutch_text_done(struct text_buffer *t);

#endif
