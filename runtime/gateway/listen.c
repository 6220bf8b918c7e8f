#include "runtime/gateway/listen.h"

#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define FIRST_INHERITED 3 /* sd_listen_fds(3) */
#define BACKLOG 1024

static const char unix_prefix[] = "unix:";

static struct listener *next_row(struct listeners *l, const char *name, struct hutch_err *err)
{
    struct listener *row = &l->rows[l->n];

    if (l->n == LISTEN_MAX) {
        hutch_err_set(err, 0, "listen on '%s': at most %d addresses can be", name, LISTEN_MAX);
        return NULL;
    }
    *row = (struct listener){ .fd = -1, .watch = WATCH_INIT };
    return row;
}

/* ---- unix sockets ---- */

/* A socket's file stays when its server was killed. Whether one still listens is told by connecting. */
static int remove_stale(const struct sockaddr_un *address, struct hutch_err *err)
{
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat st;

    if (fd < 0)
        return hutch_err_set(err, errno, "make a socket");
    if (lstat(address->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "look at '%s'", address->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return hutch_err_say(err, EADDRINUSE, "'%s' is there and is no socket", address->sun_path);
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno != ECONNREFUSED)
        return hutch_err_say(err, EADDRINUSE, "another server listens on '%s'", address->sun_path);
    return unlink(address->sun_path) < 0 ? hutch_err_set(err, errno, "remove '%s'", address->sun_path) : 0;
}

static int add_unix(struct listeners *l, const char *path, struct hutch_err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct listener *row = next_row(l, path, err);
    auto_free char *copy = strdup(path);
    auto_fd fd = -1;
    struct stat st;
    mode_t mask;
    int rc;

    if (!row)
        return -1;
    if (path[0] == '\0' || strlen(path) >= sizeof(address.sun_path))
        return hutch_err_say(err, ENAMETOOLONG, "the path of a socket has 1 to %zu bytes, not %zu",
                             sizeof(address.sun_path) - 1, strlen(path));
    strcpy(address.sun_path, path);
    if (remove_stale(&address, err) < 0)
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !copy)
        return hutch_err_set(err, copy ? errno : ENOMEM, "make a socket");
    mask = umask(0177); /* bind(2) makes the file, and nobody else may connect even before a chmod(2) */
    rc = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (rc < 0 || stat(path, &st) < 0 || listen(fd, BACKLOG) < 0)
        return hutch_err_set(err, errno, "listen on '%s'", path);
    snprintf(row->name, sizeof(row->name), "unix:%s", path);
    row->path = copy;
    copy = NULL;
    row->device = st.st_dev;
    row->inode = st.st_ino;
    row->fd = hutch_fd_take(&fd);
    l->n++;
    return 0;
}

int hutch_listeners_add_default(struct listeners *l, struct hutch_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];

    if (!runtime || runtime[0] != '/')
        return hutch_err_set(err, 0, "XDG_RUNTIME_DIR is not set, so --listen has to say where (unix:PATH, HOST:PORT)");
    if ((size_t)snprintf(path, sizeof(path), "%s/hutch", runtime) >= sizeof(path) - sizeof("/hutch.sock"))
        return hutch_err_say(err, ENAMETOOLONG, "the path '%s' is too long for a socket", runtime);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "make the directory '%s'", path);
    strcat(path, "/hutch.sock");
    return add_unix(l, path, err);
}

/* ---- TCP ---- */

static void name_tcp(struct listener *row)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    char host[INET6_ADDRSTRLEN] = "?";

    if (getsockname(row->fd, (struct sockaddr *)&address, &len) < 0)
        return;
    if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(row->name, sizeof(row->name), "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(row->name, sizeof(row->name), "%s:%u", host, ntohs(in->sin_port));
    }
}

static int bind_tcp(const struct addrinfo *info, int *ret_fd)
{
    auto_fd fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, info->ai_protocol);
    int yes = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
        (info->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes)) < 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int split_address(const char *address, char *host, size_t size, const char **ret_port, struct hutch_err *err)
{
    const char *colon = strrchr(address, ':');
    const char *from = address, *end = colon;
    uint64_t port;

    if (colon && address[0] == '[' && colon > address + 1 && colon[-1] == ']') {
        from++;
        end--;
    } else if (colon && memchr(address, ':', (size_t)(colon - address))) {
        colon = NULL; /* an IPv6 address without its brackets */
    }
    if (!colon || from == end || (size_t)(end - from) >= size)
        return hutch_err_set(err, 0, "listen on '%s': expected unix:PATH, HOST:PORT or [ADDRESS]:PORT", address);
    if (hutch_parse_u64(colon + 1, &port, err) < 0 || port > 65535)
        return hutch_err_set(err, 0, "listen on '%s': a port is 0 to 65535", address);
    memcpy(host, from, (size_t)(end - from));
    host[end - from] = '\0';
    *ret_port = colon + 1;
    return 0;
}

static int add_tcp(struct listeners *l, const char *address, struct hutch_err *err)
{
    struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct listener *row = next_row(l, address, err);
    struct addrinfo *info;
    const char *port = NULL;
    char host[256];
    int rc;

    if (!row || split_address(address, host, sizeof(host), &port, err) < 0)
        return -1;
    rc = getaddrinfo(host, port, &hints, &info);
    if (rc != 0)
        return hutch_err_set(err, 0, "listen on '%s': look up '%s': %s", address, host, gai_strerror(rc));
    rc = bind_tcp(info, &row->fd);
    freeaddrinfo(info);
    if (rc < 0)
        return hutch_err_set(err, errno, "listen on '%s'", address);
    row->is_tcp = true;
    name_tcp(row);
    l->n++;
    return 0;
}

static bool is_unix(const char *address)
{
    return strncmp(address, unix_prefix, strlen(unix_prefix)) == 0;
}

int hutch_listeners_add(struct listeners *l, const char *address, struct hutch_err *err)
{
    return is_unix(address) ? add_unix(l, address + strlen(unix_prefix), err) : add_tcp(l, address, err);
}

/* ---- what a service manager hands over ---- */

static int add_inherited(struct listeners *l, int fd, struct hutch_err *err)
{
    struct sockaddr_storage address;
    socklen_t address_len = sizeof(address), len = sizeof(int);
    struct listener *row = next_row(l, "LISTEN_FDS", err);
    int listens = 0, flags;

    if (!row)
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0 || !listens ||
        getsockname(fd, (struct sockaddr *)&address, &address_len) < 0)
        return hutch_err_set(err, 0, "descriptor %d of LISTEN_FDS is no socket that listens", fd);
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "prepare descriptor %d of LISTEN_FDS", fd);
    row->fd = fd;
    row->is_tcp = address.ss_family != AF_UNIX;
    snprintf(row->name, sizeof(row->name), "descriptor %d", fd);
    if (row->is_tcp)
        name_tcp(row);
    l->n++;
    return 0;
}

int hutch_listeners_add_inherited(struct listeners *l, size_t *ret_n, struct hutch_err *err)
{
    const char *pid_text = getenv("LISTEN_PID"), *n_text = getenv("LISTEN_FDS");
    uint64_t pid = 0, n = 0;
    int rc = 0;

    *ret_n = 0;
    if (pid_text && n_text && hutch_parse_u64(pid_text, &pid, err) == 0 && pid == (uint64_t)getpid() &&
        (hutch_parse_u64(n_text, &n, err) < 0 || n > LISTEN_MAX))
        return hutch_err_set(err, 0, "LISTEN_FDS is '%s', and can be 0 to %d", n_text, LISTEN_MAX);
    if (pid != (uint64_t)getpid())
        n = 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    for (uint64_t i = 0; i < n && rc == 0; i++)
        rc = add_inherited(l, FIRST_INHERITED + (int)i, err);
    *ret_n = n;
    return rc;
}

/* ---- all of them ---- */

int hutch_listeners_open(struct listeners *l, const char *const *addresses, struct hutch_err *err)
{
    size_t n = 0;

    if (hutch_listeners_add_inherited(l, &n, err) < 0)
        return -1;
    for (const char *const *address = addresses; address && *address; address++, n++)
        if (hutch_listeners_add(l, *address, err) < 0)
            return -1;
    return n == 0 ? hutch_listeners_add_default(l, err) : 0;
}

static int refuse_tcp(struct hutch_err *err)
{
    return hutch_err_set(err, 0, "listen on TCP without tokens: everybody who can connect could run code "
                                 "(give --tokens FILE, or --insecure-no-auth if that is meant)");
}

int hutch_listeners_may_open(const struct listeners *l, bool is_guarded, struct hutch_err *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->rows[i].is_tcp && !is_guarded)
            return refuse_tcp(err);
    return 0;
}

int hutch_listeners_may_name(const char *const *addresses, bool is_guarded, struct hutch_err *err)
{
    for (const char *const *address = addresses; address && *address; address++)
        if (!is_unix(*address) && !is_guarded)
            return refuse_tcp(err);
    return 0;
}

void hutch_listeners_forget(struct listeners *l)
{
    for (size_t i = 0; i < l->n; i++) {
        hutch_fd_closep(&l->rows[i].fd);
        free(l->rows[i].path);
    }
    l->n = 0;
}

void hutch_listeners_done(struct listeners *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct listener *row = &l->rows[i];
        struct stat st;

        hutch_fd_closep(&row->fd);
        if (row->path && lstat(row->path, &st) == 0 && st.st_dev == row->device && st.st_ino == row->inode)
            unlink(row->path);
        free(row->path);
    }
    l->n = 0;
}
