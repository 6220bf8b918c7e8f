#include "runtime/repl/talk.h"

#include "runtime/text/json_view.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define READ_BYTES (64u << 10)

int hutch_talk_begin(struct talk *t, int fd, const char *method, const char *path, const char *head, uint64_t len,
                     struct hutch_err *err)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    int rc;

    *t = (struct talk){ .fd = fd, .reader = HTTP_READER_INIT };
    hutch_text_add_string(&text, method);
    hutch_text_add_string(&text, " ");
    hutch_text_add_string(&text, path); /* longer than hutch_text_addf() takes */
    hutch_text_add_string(&text, " HTTP/1.1\r\nHost: localhost\r\nConnection: close");
    if (len)
        hutch_text_add_string(&text, "\r\nContent-Type: application/json");
    if (head)
        hutch_text_add_string(&text, head);
    if (len || strcmp(method, "GET") != 0)
        hutch_text_addf(&text, "\r\nContent-Length: %" PRIu64, len);
    hutch_text_add_string(&text, "\r\n\r\n");
    rc = text.is_broken ? hutch_err_set(err, ENOMEM, "ask the server") : hutch_talk_send(t, text.data, text.len, err);
    hutch_text_done(&text);
    return rc;
}

int hutch_talk_send(struct talk *t, const char *data, size_t len, struct hutch_err *err)
{
    return hutch_fd_write_all(t->fd, data, len) < 0 ? hutch_err_set(err, errno, "send it to the server") : 0;
}

int hutch_talk_hear(struct talk *t, struct hutch_err *err)
{
    char buf[READ_BYTES];
    ssize_t n = recv(t->fd, buf, sizeof(buf), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n <= 0)
        return 0;
    if (hutch_http_reader_feed(&t->reader, buf, (size_t)n, err) < 0)
        return -1;
    return !hutch_http_reader_is_over(&t->reader);
}

/* Until there is something to read. */
static int await(const struct talk *t, double until_ms, struct hutch_err *err)
{
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    int n;

    do {
        double left = until_ms - hutch_clock_ms();

        n = poll(&p, 1, left > 0 ? (int)left + 1 : 0);
    } while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : hutch_err_set(err, n < 0 ? errno : 0, "the server does not answer");
}

int hutch_talk_await(const struct talk *t, struct hutch_err *err)
{
    return await(t, hutch_clock_ms() + TALK_MS, err);
}

int hutch_talk_finish(struct talk *t, struct hutch_err *err)
{
    const double until_ms = hutch_clock_ms() + TALK_MS;
    int rc;

    do {
        if (await(t, until_ms, err) < 0)
            return -1;
        rc = hutch_talk_hear(t, err);
        if (rc < 0)
            return -1;
    } while (rc > 0);
    return hutch_talk_check(t, err);
}

int hutch_talk_await_head(struct talk *t, struct hutch_err *err)
{
    const double until_ms = hutch_clock_ms() + TALK_MS;

    while (!t->reader.status) { /* byte by byte, so that what follows stays in the connection */
        char byte;

        if (await(t, until_ms, err) < 0)
            return -1;
        if (recv(t->fd, &byte, 1, MSG_DONTWAIT) != 1)
            return hutch_err_set(err, 0, "the server went away");
        if (hutch_http_reader_feed(&t->reader, &byte, 1, err) < 0)
            return -1;
    }
    return 0;
}

int hutch_talk_check(const struct talk *t, struct hutch_err *err)
{
    const struct http_reader *r = &t->reader;
    struct json_view root, message;
    auto_free char *text = NULL;
    struct hutch_err ignored;
    size_t len;

    if (r->status >= 200 && r->status < 300)
        return hutch_http_reader_is_over(r) ? 0 : hutch_err_set(err, 0, "the server went away");
    if (r->status == 0)
        return hutch_err_set(err, 0, "the server went away");
    if (r->body.len == 0 ||
        hutch_json_view_check("the answer", 1, 1, r->body.data, r->body.len, &root, &ignored) < 0)
        return hutch_err_set(err, 0, "the server refused, and does not say why (%u)", r->status);
    message = hutch_json_view_get(hutch_json_view_get(root, "error"), "message");
    if (!hutch_json_view_is_string(message) || hutch_json_view_text(message, &text, &len, &ignored) < 0)
        return hutch_err_set(err, 0, "the server refused, and does not say why (%u)", r->status);
    return hutch_err_say(err, r->status == 404 ? ENOENT : 0, "%s", text);
}

void hutch_talk_done(struct talk *t)
{
    hutch_fd_closep(&t->fd);
    t->fd = -1;
    hutch_http_reader_done(&t->reader);
    t->reader = (struct http_reader)HTTP_READER_INIT;
}
