#include "runtime/gateway/upload.h"

#include "runtime/gateway/server_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

int hutch_upload_begin(struct upload *u, struct exchange *x, const struct gateway_session *session, const char *path)
{
    struct hutch_error error;

    *u = (struct upload)UPLOAD_INIT;
    memcpy(u->session, session->id, sizeof(u->session));
    u->path = strdup(path);
    if (!u->path) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the upload");
        return -1;
    }
    u->fd = hutch_session_open_file(x->server->engine, session->number, u->path, O_WRONLY, &error);
    if (u->fd >= 0)
        return 0;
    hutch_upload_end(u);
    hutch_exchange_refuse_error(x, &error, GATEWAY_CONFLICT, GATEWAY_NOT_FOUND);
    return -1;
}

void hutch_upload_end(struct upload *u)
{
    hutch_fd_closep(&u->fd);
    free(u->path);
    u->fd = -1;
    u->path = NULL;
}

void hutch_upload_give_up(struct upload *u, const struct exchange *x)
{
    const struct gateway_session *session;

    if (u->fd >= 0) {
        hutch_fd_closep(&u->fd);
        session = hutch_gateway_sessions_find(&x->server->sessions, u->session, x->token);
        if (session)
            hutch_session_delete_file(x->server->engine, session->number, u->path, NULL);
    }
    hutch_upload_end(u);
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
    u->n += len;
    if (hutch_fd_write_all(u->fd, data, len) == 0)
        return 0;
    is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    hutch_exchange_refuse(x, is_full ? GATEWAY_BODY_TOO_LARGE : GATEWAY_INTERNAL,
                          "write the file, after %" PRIu64 " bytes: %s", u->n - len, strerror(errno));
    hutch_upload_give_up(u, x);
    return -1;
}
