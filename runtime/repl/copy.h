/* copy.h - copies a file into a session or out of it, which can be called off. */
#ifndef HUTCH_REPL_COPY_H
#define HUTCH_REPL_COPY_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

/* What @from_fd holds from its position on goes to @to_fd, at most @max_bytes. @is_called_off is asked after each
 * piece; NULL: it is not. *@ret_bytes is told on failure, too. Errors: EFBIG when there is more than that, EINTR when
 * it was called off. */
int hutch_repl_copy(int from_fd, int to_fd, uint64_t max_bytes, bool (*is_called_off)(void *user), void *user,
                    uint64_t *ret_bytes, struct hutch_err *err);

#endif
