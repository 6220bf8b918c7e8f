#include "http.h"

#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_unix(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof(address.sun_path))
        bench_die("the path '%s' is too long for a socket", path);
    strcpy(address.sun_path, path);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        bench_die("connect to '%s': %s", path, strerror(errno));
    return fd;
}

static int connect_tcp(const char *text)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    const char *colon = strrchr(text, ':');
    char host[64] = "";

    if (colon && (size_t)(colon - text) < sizeof(host))
        memcpy(host, text, (size_t)(colon - text));
    if (!colon || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        bench_die("'%s' is no unix:PATH and no ADDRESS:PORT", text);
    address.sin_port = htons((in_port_t)strtoul(colon + 1, NULL, 10));
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        bench_die("connect to '%s': %s", text, strerror(errno));
    return fd;
}

void bench_http_connect(struct http *h, const char *address)
{
    *h = (struct http)HTTP_INIT;
    h->fd = strncmp(address, "unix:", 5) == 0 ? connect_unix(address + 5) : connect_tcp(address);
}

void bench_http_close(struct http *h)
{
    if (h->fd >= 0)
        close(h->fd);
    free(h->data);
    *h = (struct http)HTTP_INIT;
}

void bench_http_send(struct http *h, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(h->fd, data, len, MSG_NOSIGNAL);

        if (n < 0)
            bench_die("send a request: %s", strerror(errno));
        data += n;
        len -= (size_t)n;
    }
}

bool bench_http_read(struct http *h)
{
    ssize_t n;

    if (h->room - h->len < 16384) {
        h->room = h->room ? 2 * h->room : 32768;
        h->data = realloc(h->data, h->room);
        if (!h->data)
            bench_die("no memory for an answer of %zu bytes", h->len);
    }
    n = recv(h->fd, h->data + h->len, h->room - h->len - 1, 0);
    if (n < 0)
        bench_die("read an answer: %s", strerror(errno));
    h->len += (size_t)n;
    h->data[h->len] = '\0';
    return n > 0;
}

int bench_http_status(const struct http *h)
{
    return h->len > 12 ? atoi(h->data + 9) : 0;
}

size_t bench_http_whole(const struct http *h, size_t *ret_head)
{
    const char *end = h->len ? strstr(h->data, "\r\n\r\n") : NULL, *length;
    size_t head, body;

    if (!end)
        return 0;
    *ret_head = head = (size_t)(end - h->data) + 4;
    length = strcasestr(h->data, "\r\nContent-Length:");
    if (!length || length > end)
        return bench_http_status(h) == 101 || bench_http_status(h) == 204 ? head : 0;
    body = strtoul(length + 17, NULL, 10);
    return h->len >= head + body ? head + body : 0;
}

void bench_http_drop(struct http *h, size_t len)
{
    memmove(h->data, h->data + len, h->len - len + 1);
    h->len -= len;
}

void bench_http_ask(struct http *h, const char *request, size_t len, const char *want)
{
    size_t whole, head;
    int status;

    bench_http_send(h, request, len);
    while ((whole = bench_http_whole(h, &head)) == 0)
        if (!bench_http_read(h))
            bench_die("the server has closed the connection after %zu bytes: %.300s", h->len, h->len ? h->data : "");
    status = bench_http_status(h);
    if ((status / 100 != 2 && status != 101) || (want && !memmem(h->data, whole, want, strlen(want))))
        bench_die("not '%s', but: %.1500s", want ? want : "2xx", h->data);
    bench_http_drop(h, whole);
}
