#include "sandbox/netns.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int hutch_netns_loopback_up(struct hutch_err *err)
{
    auto_fd fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

    if (fd < 0)
        return hutch_err_set(err, errno, "open a socket to bring up loopback");
    if (ioctl(fd, SIOCSIFFLAGS, &req) < 0)
        return hutch_err_set(err, errno, "bring up the loopback interface");
    return 0;
}

int hutch_netns_bound_buffers(struct hutch_err *err)
{
    /* per network namespace since Linux 4.15 */
    static const char *const files[] = { "tcp_rmem", "tcp_wmem" };
    auto_fd dirfd = open("/proc/sys/net/ipv4", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dirfd < 0) /* a kernel without IPv4 */
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "open '/proc/sys/net/ipv4'");
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (hutch_fd_write_file_at(dirfd, files[i], NETNS_TCP_BUFFERS, err) < 0)
            return -1;
    return 0;
}
