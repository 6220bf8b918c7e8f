#include "runtime/gateway/local_peer.h"

#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/uri.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"
#include "sandbox/installed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

bool hutch_local_peer_is_claimed(const struct exchange *x)
{
    return hutch_exchange_header(x, LOCAL_SETTINGS) != NULL;
}

/* Its process, where that is one of this user's that executes `hutch`; else 0. */
static pid_t find_peer(const struct exchange *x)
{
    static const char *const below[] = { "hutch" };
    auto_free char *program = NULL;
    char own[PATH_MAX], path[48];
    struct stat wanted, found;
    struct ucred peer;
    socklen_t len = sizeof(peer);
    struct hutch_err err;

    if (x->is_inner) /* another worker is this user's, too */
        return 0;
    if (x->connection->is_tcp || getsockopt(x->connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
        peer.pid <= 0 || peer.uid != geteuid())
        return 0;
    if (!hutch_installed_program(own) || hutch_installed_find(own, below, ARRAY_SIZE(below), &program, &err) < 0 ||
        !program)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)peer.pid);
    if (stat(program, &wanted) < 0 || stat(path, &found) < 0 || wanted.st_dev != found.st_dev ||
        wanted.st_ino != found.st_ino)
        return 0;
    return peer.pid;
}

/* What the peer has as descriptor 0, opened anew: a pipe or terminal is the same one, and a file is read from @at. */
static int open_input(pid_t peer, const char *at, struct hutch_err *err)
{
    auto_fd fd = -1;
    uint64_t offset;
    char path[48];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)peer);
    fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open the standard input of the client");
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return hutch_err_set(err, 0, "the standard input of the client is neither a file, a pipe nor a terminal");
    if (hutch_parse_u64(at, &offset, err) < 0)
        return -1;
    if (S_ISREG(st.st_mode) && lseek(fd, (off_t)offset, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "go to where the standard input of the client stands");
    return hutch_fd_take(&fd);
}

/* -1: a header says what it cannot mean, or its descriptor cannot be opened. */
static int read_headers(const struct exchange *x, pid_t peer, struct local_grant *ret, struct hutch_err *err)
{
    const char *input = hutch_exchange_header(x, LOCAL_INPUT), *data = hutch_exchange_header(x, LOCAL_DATA);
    const char *wall = hutch_exchange_header(x, LOCAL_WALL);

    if (wall && hutch_parse_u64(wall, &ret->wall_ms, err) < 0)
        return -1;
    if (input && (ret->input_fd = open_input(peer, input, err)) < 0)
        return -1;
    if (data && !(ret->data = hutch_uri_decode(data, strlen(data), err)))
        return -1;
    return 0;
}

bool hutch_local_peer_grant(struct exchange *x, struct local_grant *ret)
{
    const char *own = x->server->options->settings;
    const pid_t peer = find_peer(x);
    struct hutch_err err;

    *ret = (struct local_grant)LOCAL_GRANT_INIT;
    if (!peer || !own || strcmp(own, hutch_exchange_header(x, LOCAL_SETTINGS)) != 0 ||
        hutch_exchange_policy(x, NULL)) { /* another one than that of the settings */
        hutch_exchange_refuse(x, GATEWAY_PRECONDITION, "%s",
                              peer ? "sandboxes of this server are not as the client's would be"
                                   : "the client is not this user's hutch");
        return false;
    }
    if (read_headers(x, peer, ret, &err) == 0)
        return true;
    hutch_exchange_refuse(x, GATEWAY_PRECONDITION, "%s", err.msg);
    return false;
}

void hutch_local_grant_done(struct local_grant *grant)
{
    hutch_fd_closep(&grant->input_fd);
    free(grant->data);
    *grant = (struct local_grant)LOCAL_GRANT_INIT;
}
