/* http.h - the least of an HTTP/1.1 client that keeps up with a server: whole requests as text, answers that have a
 * length, or that are switched to another protocol. */
#ifndef BENCH_HTTP_H
#define BENCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>

/* One connection and what has come on it. */
struct http {
    int fd;
    char *data; /* owned; with a NUL behind it */
    size_t len, room;
};
#define HTTP_INIT { .fd = -1 }

/* "unix:PATH" or "ADDRESS:PORT"; ends the program when nobody listens there. */
void bench_http_connect(struct http *h, const char *address);
void bench_http_close(struct http *h);

/* Sends everything, however long the server lets it wait. */
void bench_http_send(struct http *h, const char *data, size_t len);
/* Reads what is there, or waits for something: false at the end of the connection. */
bool bench_http_read(struct http *h);

/* How many bytes the first answer has, 0 as long as it is not whole. *ret_head: of which its headers. */
size_t bench_http_whole(const struct http *h, size_t *ret_head);
int bench_http_status(const struct http *h);
/* The first @len bytes have been looked at. */
void bench_http_drop(struct http *h, size_t len);

/* A request and its answer, which has to have status 2xx or 101, and @want in it. NULL: whatever it says. */
void bench_http_ask(struct http *h, const char *request, size_t len, const char *want);

#endif
