/* path_answer.h - what came from inside about a path, put together: sandbox/path_wire.h.
 *
 * All of it is hostile: its amount is bounded by what was asked for, and no path of a list leads out of its
 * directory. */
#ifndef HUTCH_SESSION_PATH_ANSWER_H
#define HUTCH_SESSION_PATH_ANSWER_H

#include "runtime/hutch.h"
#include "sandbox/err.h"
#include "sandbox/path_wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct path_chunk;

struct path_answer {
    bool is_list;
    uint32_t depth, max_entries; /* of a list */
    bool is_over;
    bool truncated, existed;
    enum path_step step; /* of what has failed … */
    int errnum;          /* … and why; 0: nothing has */
    struct hutch_path_entry *entries; /* owned; their texts are the chunks'. Of a list: sorted when it is over */
    size_t n, room, names;
    struct path_chunk *chunks; /* owned */
};

/* For an answer to @order. */
void hutch_path_answer_init(struct path_answer *answer, const struct path_order *order);
/* One packet of it. -1: it is not as it is sent by anything of ours, or ENOMEM. Not after is_over or a failure. */
int hutch_path_answer_take(struct path_answer *answer, const void *packet, size_t len, struct hutch_err *err);
void hutch_path_answer_done(struct path_answer *answer);

#endif
