#include "netns.h"

#include "fd.h"

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
