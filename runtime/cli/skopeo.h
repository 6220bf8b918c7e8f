/* skopeo.h - fetches an image by skopeo(1), which knows registries, their passwords and proxies, and other tools'
 * stores. */
#ifndef HUTCH_CLI_SKOPEO_H
#define HUTCH_CLI_SKOPEO_H

#include "runtime/cli/child.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_work;

#define SKOPEO_MAX_WORDS CHILD_MAX_WORDS

struct skopeo_copy {
    const char *source;         /* TRANSPORT:REFERENCE */
    const char *arch, *variant; /* of the platform; "": no variant in particular */
    const char *authfile;       /* NULL: where skopeo looks by itself */
    bool is_insecure;           /* a registry without TLS, or with a certificate that nobody vouches for */
    bool is_shown;              /* its progress, on standard error */
    uint64_t timeout_ms;        /* for messages */
    double until;               /* a moment of hutch_clock_ms() */
    uint64_t max_bytes;         /* on the disk meanwhile */
    bool (*is_interrupted)(void);
};

/* Writes the image into a fresh directory in @work, as skopeo's dir: has it: *@ret_path, which the caller frees. When
 * this returns no process of it is left; when the caller is killed, skopeo is, too, and @work is locked until it ended.
 * Errors: 0 (no skopeo; what skopeo says), ENOENT (it says that there is none for this platform), ECANCELED
 * (interrupted), ETIMEDOUT, EFBIG. What an earlier try has left in @work goes. */
int hutch_skopeo_copy(const struct skopeo_copy *copy, const struct store_work *work, char **ret_path,
                      struct hutch_err *err);

/* The last line of what skopeo wrote to standard error, without the time and level that its log has around it; of a
 * long one the end, where the cause is. "" when there is none. */
void hutch_skopeo_last_words(const char *text, size_t len, char ret[SKOPEO_MAX_WORDS + 1]);

#endif
