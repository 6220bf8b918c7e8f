/* ascii.h - JSON in ASCII alone. E2B's clients decode each piece that the network brings by itself, and split lines at
 * characters that Unicode has for it. */
#ifndef HUTCH_E2B_ASCII_H
#define HUTCH_E2B_ASCII_H

#include <stddef.h>

struct text_buffer;

/* @json: one value, well-formed. What is not ASCII stands in strings, and is escaped. */
void hutch_e2b_ascii_add(struct text_buffer *t, const char *json, size_t len);
/* Any bytes as a string. */
void hutch_e2b_ascii_quote(struct text_buffer *t, const char *data, size_t len);

#endif
