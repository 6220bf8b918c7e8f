#include "runtime/engine/zygote_proc.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/proc_number.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_files(pid_t pid, int *fds, size_t n, struct hutch_err *err)
{
    static const char *const names[OWN_PROC_FILES] = OWN_PROC_NAMES;
    auto_fd pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd end = { .fd = pidfd, .events = POLLIN };
    pid_t number;

    if (pidfd < 0)
        return hutch_err_set(err, errno, "hold the zygote");
    if (hutch_proc_number(pidfd, &number, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        char path[48];

        snprintf(path, sizeof(path), "/proc/%d/%s", number, names[i]);
        fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0)
            return hutch_err_set(err, errno, "open the zygote's '%s' in /proc", names[i]);
    }
    /* As long as it lives the number is its own. */
    if (poll(&end, 1, 0) != 0)
        return hutch_err_set(err, ESRCH, "hold the zygote");
    return 0;
}

int hutch_zygote_proc_send(struct link *link, pid_t pid, struct hutch_err *err)
{
    static const struct zygote_request request = { .what = ZYGOTE_PROC };
    /* Who opens the last decides whether it shows physical addresses: proc(5), pagemap. */
    size_t n = OWN_PROC_FILES - hutch_caps_has_effective(CAP_SYS_ADMIN);
    int fds[OWN_PROC_FILES] = { -1, -1, -1, -1 };
    int rc = open_files(pid, fds, n, err);

    _Static_assert(OWN_PROC_FILES == 4, "all are unset at first");
    if (rc == 0)
        rc = hutch_link_send(link, &request, sizeof(request), NULL, 0, fds, n, err);
    for (size_t i = 0; i < OWN_PROC_FILES; i++)
        hutch_fd_closep(&fds[i]);
    return rc;
}
