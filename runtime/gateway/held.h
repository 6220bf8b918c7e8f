/* held.h - the memory that requests, answers and output take together, and what part of it is one token's. */
#ifndef HUTCH_GATEWAY_HELD_H
#define HUTCH_GATEWAY_HELD_H

#include <stdbool.h>
#include <stddef.h>

struct server;
struct token;

/* @token may be NULL. Where there are several, one has half of the memory at most: the others' streams go on. */
bool hutch_held_has_room(const struct server *s, const struct token *token, size_t len);
void hutch_held_add(struct server *s, struct token *token, size_t len);
void hutch_held_remove(struct server *s, struct token *token, size_t len);

#endif
