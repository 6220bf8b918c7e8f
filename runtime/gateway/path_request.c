#include "runtime/gateway/path_request.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static void free_request(struct exchange *x)
{
    struct path_request *r = x->work;

    if (!r)
        return;
    free(r->path);
    free(r->new_path);
}

struct path_request *hutch_path_request_create(struct exchange *x, struct gateway_session *session, char *path)
{
    struct path_request *r = calloc(1, sizeof(*r));

    x->work = r;
    x->on_free = free_request;
    if (!r || !path) {
        free(path);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return NULL;
    }
    r->session = session;
    r->path = path;
    return r;
}

/* ---- the answer ---- */

enum gateway_error hutch_path_request_error(int code)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
        return GATEWAY_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
    case EBUSY:
    case ECANCELED:
        return GATEWAY_CONFLICT;
    case ENOSPC:
    case EDQUOT:
        return GATEWAY_BODY_TOO_LARGE;
    case ETIMEDOUT:
        return GATEWAY_TIMEOUT;
    default:
        return GATEWAY_INVALID_REQUEST;
    }
}

static void on_reply(void *user, uint64_t number, const struct hutch_path_reply *reply)
{
    struct exchange *x = user;
    struct path_request *r = x->work;

    (void)number;
    hutch_gateway_sessions_end(r->session);
    if (r->was_left)
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
    else if (!reply->ok)
        hutch_exchange_refuse(x, hutch_path_request_error(reply->code), "%s", reply->message);
    else
        r->answer(x, reply);
}

static void answer_content(struct exchange *x, const struct hutch_path_reply *reply)
{
    auto_fd fd = fcntl(reply->fd, F_DUPFD_CLOEXEC, 0);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "open the file: %s", strerror(errno));
        return;
    }
    hutch_exchange_answer_file(x, hutch_fd_take(&fd), hutch_exchange_header(x, "Range"), (uint64_t)st.st_size);
}

/* ---- the order ---- */

struct hutch_path_options hutch_path_request_options(struct exchange *x)
{
    struct hutch_path_options options;

    hutch_path_options_init(&options);
    options.on_reply = on_reply;
    options.user = x;
    return options;
}

/* It cannot be taken back, but its answer comes soon. */
static void on_gone(struct exchange *x)
{
    ((struct path_request *)x->work)->was_left = true;
}

static void begin(struct exchange *x)
{
    hutch_gateway_sessions_begin(((struct path_request *)x->work)->session);
    hutch_exchange_wait(x, on_gone);
}

static void check_taken(struct exchange *x, int rc, const struct hutch_error *error)
{
    if (rc == 0)
        return;
    hutch_gateway_sessions_end(((struct path_request *)x->work)->session);
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

void hutch_path_request_give(struct exchange *x, path_call call, const struct hutch_path_options *options)
{
    const struct path_request *r = x->work;
    struct hutch_error error;

    begin(x);
    check_taken(x, call(hutch_exchange_engine(x), r->session->number, r->path, options, &error), &error);
}

void hutch_path_request_rename(struct exchange *x, const struct hutch_path_options *options)
{
    const struct path_request *r = x->work;
    struct hutch_error error;
    int rc;

    begin(x);
    rc = hutch_session_rename(hutch_exchange_engine(x), r->session->number, r->path, r->new_path, options, &error);
    check_taken(x, rc, &error);
}

void hutch_path_request_download(struct exchange *x, const struct hutch_path_options *options)
{
    struct path_request *r = x->work;
    struct hutch_error error;
    int rc;

    r->answer = answer_content;
    begin(x);
    rc = hutch_session_open_path(hutch_exchange_engine(x), r->session->number, r->path, O_RDONLY, options, &error);
    check_taken(x, rc, &error);
}
