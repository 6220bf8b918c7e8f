#include "runtime/gateway/notify.h"

#include "sandbox/fd.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

void hutch_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    auto_fd fd = -1;

    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(address.sun_path))
        return;
    strcpy(address.sun_path, path);
    if (path[0] == '@') /* an abstract name: unix(7) */
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}
