/* digest.h - SHA-256, the name of everything in an image. */
#ifndef HUTCH_DIGEST_H
#define HUTCH_DIGEST_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define DIGEST_HEX 64 /* characters, without the terminating NUL */

struct digest {
    struct evp_md_ctx_st *ctx; /* owned */
};
#define DIGEST_INIT { .ctx = NULL }

int hutch_digest_start(struct digest *d, struct hutch_err *err);
int hutch_digest_update(struct digest *d, const void *data, size_t len, struct hutch_err *err);
/* Lower-case hexadecimal. The object can be started again. */
int hutch_digest_finish(struct digest *d, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err);
void hutch_digest_done(struct digest *d);

/* All at once. */
int hutch_digest_of(const void *data, size_t len, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err);

/* The two below are here and not in digest.c, which brings libcrypto along: finding an image takes no hash. */

/* True for exactly 64 lower-case hexadecimal digits. */
static inline bool hutch_digest_is_hex(const char *text)
{
    return strlen(text) == DIGEST_HEX && strspn(text, "0123456789abcdef") == DIGEST_HEX;
}

/* Takes "sha256:" and 64 lower-case digits apart. False for anything else, other algorithms included. */
static inline bool hutch_digest_parse(const char *text, char ret_hex[DIGEST_HEX + 1])
{
    static const char prefix[] = "sha256:";

    if (strncmp(text, prefix, strlen(prefix)) != 0 || !hutch_digest_is_hex(text + strlen(prefix)))
        return false;
    memcpy(ret_hex, text + strlen(prefix), DIGEST_HEX + 1);
    return true;
}

#endif
