/* policies.h - which policy the requests of a token or format have, where the operator says so. */
#ifndef HUTCH_GATEWAY_POLICIES_H
#define HUTCH_GATEWAY_POLICIES_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stddef.h>

#define POLICIES_MAX 256

struct formats;
struct tokens;

/* What the operator says: of a token or of a format, by its name. The other one is NULL. */
struct policy_rule {
    const char *token, *format;
    const char *policy; /* name or path */
};

struct policies {
    struct policy_row {
        char *token, *format, *policy; /* owned */
        struct hutch_limits limits;    /* what a request may ask for at most */
    } *rows;                           /* owned */
    size_t n;
};
#define POLICIES_INIT { NULL, 0 }

/* In the place of those that were set before. Errors, and nothing has changed: a policy that cannot be read, a token or
 * format that the server does not know. */
int hutch_policies_set(struct policies *p, const struct policy_rule *rules, size_t n, struct hutch_engine *engine,
                       const struct tokens *tokens, const struct formats *formats, struct hutch_err *err);
void hutch_policies_done(struct policies *p);

/* A token's comes before a format's. @token: NULL: nobody has to say who asks. NULL: they have the engine's. */
const struct policy_row *hutch_policies_find(const struct policies *p, const char *token, const char *format);

#endif
