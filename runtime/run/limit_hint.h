/* limit_hint.h - says, for a human, which limit a program that ended with an error may have run into.
 *
 * The kernel counts processes; of descriptors, files and refused memory it tells nobody but the program. What the
 * program says of it is text: good enough for a "may", and never for a verdict. */
#ifndef HUTCH_RUN_LIMIT_HINT_H
#define HUTCH_RUN_LIMIT_HINT_H

#include "sandbox/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMIT_HINT_TEXTS 3 /* that are looked through: stderr, an exception's text and its traceback */
#define LIMIT_HINT_MAX   8192 /* bytes at the end of each, as nothing else is looked at */

struct limit_hint {
    const uint64_t *limits;    /* LIMIT_COUNT; 0: none, of which nothing is said */
    bool was_pids_reached;     /* as many were alive at once as the limit lets through */
    bool is_data_full;         /* /mnt/data has room for no more */
    struct { const char *data; size_t len; } texts[LIMIT_HINT_TEXTS]; /* any bytes; NULL: none */
};

/* An exception as texts 1 and 2; @value and @traceback may be NULL, and stay the caller's. */
void hutch_limit_hint_set_exception(struct limit_hint *hint, const char *value, const char *traceback);

/* Writes one clause for each limit, at most two of them, with its value and what raises it; "" for none. */
void hutch_limit_hint_write(const struct limit_hint *hint, char *ret, size_t room);

#endif
