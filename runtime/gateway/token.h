/* token.h - who may ask: tokens by their hashes, from a file of the operator's.
 *
 * A line of the file is NAME, the SHA-256 of a token in 64 hexadecimal digits, and perhaps a weight; empty lines and
 * those that begin with '#' do not count. So nobody learns a token from the file, the server's memory or its log. */
#ifndef HUTCH_GATEWAY_TOKEN_H
#define HUTCH_GATEWAY_TOKEN_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_NAME_MAX 64
#define TOKEN_HASH_SIZE 32
#define TOKEN_MAX_LEN 4096 /* of what a client sends */
#define TOKEN_WEIGHT_MAX 100

struct token {
    char name[TOKEN_NAME_MAX + 1]; /* [A-Za-z0-9_.-]; for log and metrics */
    unsigned char hash[TOKEN_HASH_SIZE];
    unsigned weight;               /* 1 to TOKEN_WEIGHT_MAX: turns that its runs have for one of a token of weight 1 */
    unsigned n_runs;               /* that it has handed in and that are not over */
    unsigned n_sessions;           /* open ones, of formats that have names of their own for them */
    size_t n_held;                 /* bytes of memory for its requests and answers */
    bool is_retired;               /* the file has it no more; what it owns still names it */
};

struct tokens {
    struct token **rows; /* owned; a token stays where it is for as long as the server lives */
    size_t n;
};
#define TOKENS_INIT { NULL, 0 }

/* Errors, with the line: what is no such line, a name or hash that is there twice, no token at all; a file that others
 * may write. */
int hutch_tokens_load(const char *path, struct tokens *ret, struct hutch_err *err);
/* Reads the file again. A token that is in it as before stays the same one; one that is not is found no more. On
 * failure nothing has changed. */
int hutch_tokens_reload(struct tokens *tokens, const char *path, struct hutch_err *err);
/* The same of text; @what names it in messages. */
int hutch_tokens_parse(const char *what, const char *text, size_t len, struct tokens *ret, struct hutch_err *err);
void hutch_tokens_done(struct tokens *tokens);

/* By which the engine knows it: hutch_request.tenant. 0 for NULL, where nobody has to say who asks. */
uint64_t hutch_token_tenant(const struct token *token);

/* The token of an Authorization header ("Bearer TOKEN"), NULL when there is none. Takes the same time for each. */
struct token *hutch_tokens_find(const struct tokens *tokens, const char *authorization);
/* The same of a header that has the token alone. */
struct token *hutch_tokens_find_plain(const struct tokens *tokens, const char *token);

#endif
