/* output_tail.h - the last that a process has written while nobody listened: pieces of its two streams, in their
 * order. */
#ifndef HUTCH_GATEWAY_OUTPUT_TAIL_H
#define HUTCH_GATEWAY_OUTPUT_TAIL_H

#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_TAIL_MAX (64u << 10) /* bytes, with four for each piece */

struct output_tail {
    struct text_buffer pieces; /* owned; from @start on */
    size_t start, last;        /* last: where the newest piece begins */
    uint64_t n_dropped;        /* bytes of output that found no room */
};
#define OUTPUT_TAIL_INIT { .pieces = TEXT_BUFFER_INIT, .start = 0, .last = 0, .n_dropped = 0 }

/* What it has of memory, in bytes. */
size_t hutch_output_tail_size(const struct output_tail *tail);

/* @stream: 1 or 2. The oldest goes where there is no room; what finds no memory is dropped, too. */
void hutch_output_tail_add(struct output_tail *tail, int stream, const char *data, size_t len);

/* The oldest piece that is left, until hutch_output_tail_pop() or _add(). False: there is none. */
bool hutch_output_tail_first(const struct output_tail *tail, int *ret_stream, const char **ret_data, size_t *ret_len);
void hutch_output_tail_pop(struct output_tail *tail);

void hutch_output_tail_done(struct output_tail *tail);

#endif
