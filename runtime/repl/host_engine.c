#include "runtime/repl/host.h"

#include "runtime/repl/copy.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

struct engine_host {
    struct host host;
    struct hutch_engine *engine; /* owned */
    uint64_t session;            /* the last that was opened */
    uint64_t max_bytes;
};

static struct engine_host *own(const struct host *host)
{
    return (struct engine_host *)host;
}

/* -1, with the words of the library. */
static int tell(struct hutch_err *err, const struct hutch_error *error)
{
    return hutch_err_set(err, 0, "%s", error->message);
}

static void free_host(struct host *host)
{
    hutch_engine_free(own(host)->engine);
    free(own(host));
}

/* What is not fetched from an engine is held back there, and the program waits. */
static int get_fd(const struct host *host, bool is_behind)
{
    return is_behind ? -1 : hutch_engine_fd(own(host)->engine);
}

static bool is_ready(const struct host *host)
{
    (void)host;
    return false;
}

static int dispatch(struct host *host, bool is_behind, struct hutch_err *err)
{
    struct hutch_error error;

    (void)is_behind;
    return hutch_engine_dispatch(own(host)->engine, &error) < 0 ? tell(err, &error) : 0;
}

static int open_session(struct host *host, const struct hutch_session_options *options, struct hutch_err *err)
{
    struct hutch_error error;

    return hutch_session_open(own(host)->engine, options, &own(host)->session, &error) < 0 ? tell(err, &error) : 0;
}

static bool close_session(struct host *host)
{
    return hutch_session_close(own(host)->engine, own(host)->session) == 1;
}

static int execute(struct host *host, const struct hutch_cell *cell, struct hutch_err *err)
{
    struct hutch_error error;

    return hutch_session_execute(own(host)->engine, own(host)->session, cell, &error) < 0 ? tell(err, &error) : 0;
}

static int ask(struct host *host, const struct hutch_question *question, hutch_on_reply on_reply, void *user,
               struct hutch_err *err)
{
    struct hutch_error error;

    return hutch_session_ask(own(host)->engine, own(host)->session, question, on_reply, user, &error) < 0
               ? tell(err, &error)
               : 0;
}

static int give(const struct engine_host *h, enum host_order order, uint64_t which, hutch_on_reply on_reply, void *user,
                struct hutch_error *error)
{
    switch (order) {
    case HOST_CHECKPOINT:
        return hutch_session_checkpoint(h->engine, h->session, on_reply, user, error);
    case HOST_FORK:
        return hutch_session_fork(h->engine, h->session, on_reply, user, error);
    case HOST_ROLLBACK:
        return hutch_session_rollback(h->engine, h->session, which, on_reply, user, error);
    case HOST_SWITCH:
        return hutch_session_switch(h->engine, h->session, which, on_reply, user, error);
    case HOST_DROP:
        break;
    }
    return hutch_session_drop(h->engine, h->session, which, on_reply, user, error);
}

static int give_order(struct host *host, enum host_order order, uint64_t which, hutch_on_reply on_reply, void *user,
                      struct hutch_err *err)
{
    struct hutch_error error;

    return give(own(host), order, which, on_reply, user, &error) < 0 ? tell(err, &error) : 0;
}

static void reply(struct host *host, const char *text)
{
    hutch_session_reply(own(host)->engine, own(host)->session, text);
}

static void interrupt(struct host *host)
{
    hutch_session_interrupt(own(host)->engine, own(host)->session);
}

static int restart(struct host *host, struct hutch_err *err)
{
    struct hutch_error error;

    return hutch_session_restart(own(host)->engine, own(host)->session, &error) < 0 ? tell(err, &error) : 0;
}

static bool is_lost(struct host *host)
{
    struct hutch_session_info info = { .size = sizeof(info) };

    return hutch_session_get_info(own(host)->engine, own(host)->session, &info, NULL, NULL) == 0 &&
           info.state == HUTCH_SESSION_LOST;
}

static char *list_files(struct host *host, struct hutch_err *err)
{
    struct hutch_error error;
    char *json = hutch_session_files(own(host)->engine, own(host)->session, &error);

    if (!json)
        tell(err, &error);
    return json;
}

/* errnum EEXIST where it is there, and cannot be read. */
static int open_named(struct host *host, const char *name, int flags, struct hutch_err *err)
{
    struct hutch_error error;
    int fd = hutch_session_open_file(own(host)->engine, own(host)->session, name, flags, &error);
    const bool is_there = error.code == ELOOP || error.code == EISDIR || error.code == EXDEV || error.code == 0;

    return fd >= 0 ? fd : hutch_err_say(err, is_there ? EEXIST : error.code, "%s", error.message);
}

static int open_file(struct host *host, const char *name, struct host_file *ret, struct hutch_err *err)
{
    auto_fd fd = open_named(host, name, O_RDONLY, err);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "look at '%s'", name);
    *ret = (struct host_file){ .fd = hutch_fd_take(&fd), .size = (uint64_t)st.st_size };
    return 0;
}

static int put_file(struct host *host, const char *name, int from_fd, uint64_t size, bool (*is_called_off)(void *user),
                    void *user, uint64_t *ret_bytes, struct hutch_err *err)
{
    const uint64_t max = own(host)->max_bytes;
    auto_fd to = -1;

    if (size > max)
        return hutch_err_set(err, 0, "it has %" PRIu64 " bytes, and " INSIDE_DATA_DIR " takes %" PRIu64, size, max);
    to = open_named(host, name, O_WRONLY, err);
    return to < 0 ? -1 : hutch_repl_copy(from_fd, to, max, is_called_off, user, ret_bytes, err);
}

struct host *hutch_host_of_engine(struct hutch_engine *engine, uint64_t max_bytes, struct hutch_err *err)
{
    static const struct host_kind kind = {
        .free = free_host, .fd = get_fd, .is_ready = is_ready, .dispatch = dispatch, .open = open_session,
        .close = close_session, .execute = execute, .ask = ask, .order = give_order, .reply = reply,
        .interrupt = interrupt,
        .restart = restart, .is_lost = is_lost, .files = list_files, .open_file = open_file, .put_file = put_file,
    };
    struct engine_host *h = calloc(1, sizeof(*h));

    if (!h) {
        hutch_err_set(err, ENOMEM, "begin a prompt");
        return NULL;
    }
    h->host.kind = &kind;
    h->engine = engine;
    h->max_bytes = max_bytes;
    return &h->host;
}
