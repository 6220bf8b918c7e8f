#include "runtime/repl/copy.h"

#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdlib.h>

#define PIECE (256u << 10)

int hutch_repl_copy(int from_fd, int to_fd, uint64_t max_bytes, bool (*is_called_off)(void *user), void *user,
                    uint64_t *ret_bytes, struct hutch_err *err)
{
    auto_free char *buf = malloc(PIECE);

    *ret_bytes = 0;
    while (buf) {
        uint64_t left = max_bytes - *ret_bytes;
        ssize_t n = TEMP_FAILURE_RETRY(read(from_fd, buf, left < PIECE ? (size_t)left + 1 : PIECE));
        bool has_more = n > 0 && (uint64_t)n > left;

        if (n <= 0)
            return n == 0 ? 0 : hutch_err_set(err, errno, "read the file");
        if (hutch_fd_write_all(to_fd, buf, has_more ? (size_t)left : (size_t)n) < 0)
            return hutch_err_set(err, errno, "write the file");
        *ret_bytes += has_more ? left : (uint64_t)n;
        if (has_more)
            return hutch_err_say(err, EFBIG, "the file has more than %" PRIu64 " bytes", max_bytes);
        if (is_called_off && is_called_off(user))
            return hutch_err_set(err, EINTR, "copy it");
    }
    return hutch_err_set(err, ENOMEM, "copy a file");
}
