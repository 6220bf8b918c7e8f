/* serve_engine.h - what only the configuration of `hutch serve` can say of the engine: zygotes, pools of other
 * policies, layouts; and which policy tokens and formats have. */
#ifndef HUTCH_CLI_SERVE_ENGINE_H
#define HUTCH_CLI_SERVE_ENGINE_H

#include "runtime/gateway/policies.h"
#include "runtime/hutch.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define SERVE_MAX_ZYGOTES 32
#define SERVE_MAX_POOLS 32

struct serve_engine {
    struct hutch_zygote zygotes[SERVE_MAX_ZYGOTES]; /* texts are the document's, the lists of modules owned */
    size_t n_zygotes;
    struct hutch_pool pools[SERVE_MAX_POOLS];       /* texts are the document's */
    size_t n_pools;
    unsigned layouts;
    struct policy_rule policies[POLICIES_MAX];      /* likewise */
    size_t n_policies;
};

/* Reads one key of the configuration, which is @node's. 0: it is none of these; 1: it was read. */
int hutch_serve_engine_read(struct serve_engine *e, const struct json_node *node, struct hutch_err *err);
void hutch_serve_engine_done(struct serve_engine *e);

void hutch_serve_engine_set(const struct serve_engine *e, struct hutch_engine_options *options);
void hutch_serve_engine_print(FILE *to, const struct serve_engine *e);
/* The first of the keys that a server which runs cannot change and that differs between documents; NULL: none does. */
const char *hutch_serve_engine_differs(const struct json_doc *before, const struct json_doc *now, size_t *at);

#endif
