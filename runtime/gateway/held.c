#include "runtime/gateway/held.h"

#include "runtime/gateway/server_priv.h"

bool hutch_held_has_room(const struct server *s, const struct token *token, size_t len)
{
    return s->n_held + len <= SERVER_MAX_HELD &&
           (!token || s->tokens.n < 2 || token->n_held + len <= SERVER_MAX_HELD / 2);
}

void hutch_held_add(struct server *s, struct token *token, size_t len)
{
    s->n_held += len;
    if (token)
        token->n_held += len;
}

void hutch_held_remove(struct server *s, struct token *token, size_t len)
{
    s->n_held -= len;
    if (token)
        token->n_held -= len;
}
