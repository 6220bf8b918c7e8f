/* extend.h - makes an extended image: a layer is built in a sandbox of its own, on the image that it is for, and put
 * into the store. */
#ifndef HUTCH_CLI_EXTEND_H
#define HUTCH_CLI_EXTEND_H

#include "rootfs/store.h"
#include "runtime/cli/extend_request.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

struct extend_job {
    const struct store *store;    /* that of @home, which gets the layer and the image */
    const char *home;
    const char *image;            /* what is extended, in whichever store */
    const char *name;             /* what to call it; NULL: it stays without a name */
    const struct extend_request *request;
    uint64_t max_bytes, max_entries, timeout_ms;
    bool quiet;
    bool (*is_interrupted)(void);
    store_progress_fn *progress;
    void *ctx;
};

/* The image that the request was answered with before, or a new one; *@ret_is_new says which. Of several processes that
 * want the same, one makes it. Nothing is left when it fails.
 * Errors: 0 (what the builder says), ECANCELED (interrupted), ETIMEDOUT, ENOENT (no such image), those of unpacking. */
int hutch_extend(const struct extend_job *job, char ret_hex[DIGEST_HEX + 1], bool *ret_is_new, struct hutch_err *err);

#endif
