/* contexts.h - which contexts the interpreter of a session has: as far as cells have begun in them. */
#ifndef HUTCH_SESSION_CONTEXTS_H
#define HUTCH_SESSION_CONTEXTS_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CONTEXTS_MAIN "main" /* is always there */
#define CONTEXTS_MAX  16     /* with that one; as MAX in rootfs/python/zygote/contexts.py */
#define CONTEXTS_MAX_NAME 64

struct context {
    char name[CONTEXTS_MAX_NAME + 1];
    int64_t count;   /* of its last cell that counted; 0: none */
    char *directory; /* owned; the last that a cell asked for; NULL: none has */
};
struct contexts {
    struct context list[CONTEXTS_MAX];
    unsigned n;      /* 0 is as good as "main" alone */
};

/* A cell has begun in it: it is there from now on. Without memory its directory is not known. */
void hutch_contexts_note(struct contexts *contexts, const char *name, int64_t count, const char *directory);
bool hutch_contexts_has(const struct contexts *contexts, const char *name);
/* It begins anew, with no cell. */
void hutch_contexts_reset(struct contexts *contexts, const char *name);
void hutch_contexts_drop(struct contexts *contexts, const char *name);
/* @ret is empty before. -1: ENOMEM, and it is empty still. */
int hutch_contexts_copy(const struct contexts *contexts, struct contexts *ret, struct hutch_err *err);
void hutch_contexts_done(struct contexts *contexts); /* none but "main" is left; fine twice */

#endif
