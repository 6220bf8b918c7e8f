/* outputs.h - the outputs of a cell, as nbformat has them, in the pieces that wire formats have. */
#ifndef HUTCH_GATEWAY_OUTPUTS_H
#define HUTCH_GATEWAY_OUTPUTS_H

#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"

/* A JSON string: all that was printed to @name, "stdout" or "stderr". */
void hutch_outputs_add_stream(struct text_buffer *t, struct json_view outputs, const char *name);

/* The same without its quotes; such texts, one after the other, are one text. Nothing, where @text is no string. */
void hutch_outputs_add_inner(struct text_buffer *t, struct json_view text);

/* The last output of @type, "error" or "execute_result"; none where there is none. */
struct json_view hutch_outputs_last(struct json_view outputs, const char *type);

#endif
