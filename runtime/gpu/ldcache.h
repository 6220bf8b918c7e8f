/* ldcache.h - ld.so.cache: which libraries the host's dynamic linker knows, by the names that programs ask for.
 *
 * The format is glibc's, sysdeps/generic/dl-cache.h: "glibc-ld.so.cache1.1", by itself (glibc 2.32 and later) or behind
 * the table of the old format. Every number in it is checked against the length. */
#ifndef HUTCH_GPU_LDCACHE_H
#define HUTCH_GPU_LDCACHE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define LDCACHE_MAX_BYTES (16u << 20)

struct ldcache {
    char  *data; /* owned */
    size_t len;
    size_t header, n; /* where the table's header is; entries behind it */
};
#define LDCACHE_INIT { .data = NULL }

/* Takes @data over, of malloc(3), on success. Messages call it @what. */
int hutch_ldcache_parse(const char *what, char *data, size_t len, struct ldcache *ret, struct hutch_err *err);
void hutch_ldcache_done(struct ldcache *cache);

/* The next library of this machine's kind from the entry *@at on, which moves behind it: the name that it is asked for
 * by ("libc.so.6") and its path, both in the cache. False at the end. */
bool hutch_ldcache_next(const struct ldcache *cache, size_t *at, const char **ret_name, const char **ret_path);

#endif
