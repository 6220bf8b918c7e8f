#include "runtime/gateway/upload.h"

#include "runtime/gateway/path_request.h"
#include "runtime/gateway/server_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

static int set_path(struct upload *u, struct exchange *x, const struct gateway_session *session, const char *path)
{
    *u = (struct upload)UPLOAD_INIT;
    memcpy(u->session, session->id, sizeof(u->session));
    u->path = strdup(path);
    if (u->path)
        return 0;
    hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the upload");
    return -1;
}

static int open_in_data(struct upload *u, struct exchange *x, const struct gateway_session *session)
{
    struct hutch_error error;

    u->fd = hutch_session_open_file(x->server->engine, session->number, u->path, O_WRONLY, &error);
    u->is_partial = u->fd >= 0;
    if (u->is_partial)
        return 0;
    hutch_upload_end(u);
    hutch_exchange_refuse_error(x, &error, GATEWAY_CONFLICT, GATEWAY_NOT_FOUND);
    return -1;
}

/* ---- what is opened later ---- */

/* The file is there by then, or not at all; then it is given up. */
static void on_gone(struct exchange *x)
{
    ((struct upload *)x->work)->was_left = true;
}

/* The answer to an order of the session, by which the file is to be opened. */
static void begin_later(struct upload *u, struct exchange *x, struct gateway_session *session)
{
    u->x = x;
    u->opened_in = session;
    hutch_gateway_sessions_begin(session);
    hutch_exchange_hold_back(x, on_gone);
}

static struct exchange *end_later(struct upload *u)
{
    struct exchange *x = u->x;

    hutch_gateway_sessions_end(u->opened_in);
    u->x = NULL;
    u->opened_in = NULL;
    return x;
}

/* ---- below /mnt/data ---- */

static void on_files(void *user, uint64_t number, const struct hutch_reply *reply)
{
    struct upload *u = user;
    struct gateway_session *session = u->opened_in;
    struct exchange *x = end_later(u);

    (void)number;
    session->has_files |= reply->ok;
    if (!reply->ok || u->was_left) {
        hutch_upload_end(u);
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "the session has no files: %s",
                              reply->ok ? "the client has left" : reply->message);
    } else if (open_in_data(u, x, session) == 0) {
        hutch_exchange_go_on(x);
    }
}

int hutch_upload_begin(struct upload *u, struct exchange *x, struct gateway_session *session, const char *path)
{
    struct hutch_error error;

    if (set_path(u, x, session, path) < 0)
        return -1;
    if (session->has_files)
        return open_in_data(u, x, session);
    if (hutch_session_await_files(x->server->engine, session->number, on_files, u, &error) < 0) {
        hutch_upload_end(u);
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
        return -1;
    }
    begin_later(u, x, session);
    return 0;
}

/* ---- inside ---- */

static void on_open(void *user, uint64_t number, const struct hutch_path_reply *reply)
{
    struct upload *u = user;
    struct exchange *x = end_later(u);

    (void)number;
    if (!reply->ok) {
        hutch_upload_end(u);
        hutch_exchange_refuse(x, hutch_path_request_error(reply->code), "%s", reply->message);
        return;
    }
    u->is_partial = true;
    u->fd = fcntl(reply->fd, F_DUPFD_CLOEXEC, 0);
    if (u->fd >= 0 && !u->was_left) {
        hutch_exchange_go_on(x);
        return;
    }
    hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "open the file: %s",
                          u->was_left ? "the client has left" : strerror(errno)); /* it is given up with the exchange */
}

int hutch_upload_begin_inside(struct upload *u, struct exchange *x, struct gateway_session *session, const char *path,
                              unsigned mode)
{
    struct hutch_path_options options;
    struct hutch_error error;

    if (set_path(u, x, session, path) < 0)
        return -1;
    hutch_path_options_init(&options);
    options.on_reply = on_open;
    options.user = u;
    options.parents = 1;
    options.mode = mode;
    u->is_inside = true;
    if (hutch_session_open_path(x->server->engine, session->number, path, O_WRONLY | O_CREAT | O_TRUNC, &options,
                                &error) < 0) {
        hutch_upload_end(u);
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
        return -1;
    }
    begin_later(u, x, session);
    return 0;
}

/* ---- what is written ---- */

void hutch_upload_end(struct upload *u)
{
    hutch_fd_closep(&u->fd);
    free(u->path);
    *u = (struct upload)UPLOAD_INIT;
}

/* Nobody waits for the answer. */
static void remove_inside(const struct upload *u, const struct exchange *x, const struct gateway_session *session)
{
    struct hutch_path_options options;

    hutch_path_options_init(&options);
    hutch_session_remove(x->server->engine, session->number, u->path, &options, NULL);
}

void hutch_upload_give_up(struct upload *u, const struct exchange *x)
{
    const struct gateway_session *session;

    if (u->is_partial) {
        hutch_fd_closep(&u->fd);
        session = hutch_gateway_sessions_find(&x->server->sessions, u->session, x->token);
        if (session && u->is_inside)
            remove_inside(u, x, session);
        else if (session)
            hutch_session_delete_file(x->server->engine, session->number, u->path, NULL);
    }
    hutch_upload_end(u);
}

/* At its place: a program inside that got hold of the file's description could move the position. */
static int write_all(const struct upload *u, const char *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(u->fd, data + done, len - done, (off_t)(u->n + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

int hutch_upload_write(struct upload *u, struct exchange *x, const char *data, size_t len)
{
    struct gateway_session *session;
    bool is_full;

    session = hutch_gateway_sessions_find(&x->server->sessions, u->session, x->token);
    if (!session) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
        hutch_upload_give_up(u, x);
        return -1;
    }
    if (len > session->data_bytes || session->n_uploaded > session->data_bytes - len) {
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE,
                              "uploads since the session's last cell come to more than its files may, %" PRIu64
                              " bytes", session->data_bytes);
        hutch_upload_give_up(u, x);
        return -1;
    }
    session->n_uploaded += len;
    if (write_all(u, data, len) == 0) {
        u->n += len;
        return 0;
    }
    is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    hutch_exchange_refuse(x, is_full ? GATEWAY_BODY_TOO_LARGE : GATEWAY_INTERNAL,
                          "write the file, after %" PRIu64 " bytes: %s", u->n, strerror(errno));
    hutch_upload_give_up(u, x);
    return -1;
}
