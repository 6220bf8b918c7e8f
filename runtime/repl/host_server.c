#include "runtime/repl/host.h"

#include "runtime/repl/copy.h"
#include "runtime/repl/server_cell.h"
#include "runtime/repl/talk.h"
#include "runtime/text/ids.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/" /* in a path */
#define NDJSON "\r\nAccept: application/x-ndjson"

struct server_host {
    struct host host;
    struct host_server_way way;
    struct talk life;          /* the stream as long as which the session lives */
    char id[ID_LEN + 1];       /* of the session; "": there is none */
    bool is_new;               /* nobody has opened it yet */
    void (*on_end)(void *user, uint64_t session, const char *why, const char *directory);
    void *user;
    struct talk work;          /* what is under way */
    enum { WORK_NONE, WORK_CELL, WORK_ORDER, WORK_QUESTION } kind;
    bool is_heard, has_failed; /* no more of its answer comes; it is none, because of this: */
    struct hutch_err why;
    struct server_cell cell;   /* WORK_CELL: whose events they are */
    hutch_on_reply on_reply;   /* the others' */
    void *reply_user;
    int epoll_fd;              /* owned; has both connections */
};

static struct server_host *own(const struct host *host)
{
    return (struct server_host *)host;
}

/* ---- requests ---- */

static int begin(struct server_host *h, struct talk *t, const char *method, const char *what, const char *head,
                 uint64_t len, struct hutch_err *err)
{
    auto_free char *path = NULL;
    int fd;

    if (asprintf(&path, "/v1/sessions%s%s%s", h->id[0] ? "/" : "", h->id, what) < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "ask the server");
    }
    if (h->way.connect(&fd, err) < 0)
        return -1;
    if (hutch_talk_begin(t, fd, method, path, head, len, err) == 0)
        return 0;
    hutch_talk_done(t);
    return -1;
}

/* What is answered at once. @t is the caller's in any case. */
static int ask_now(struct server_host *h, struct talk *t, const char *method, const char *what, const char *body,
                   struct hutch_err *err)
{
    size_t len = body ? strlen(body) : 0;

    if (begin(h, t, method, what, NULL, len, err) < 0 || (body && hutch_talk_send(t, body, len, err) < 0))
        return -1;
    return hutch_talk_finish(t, err);
}

static int tell_now(struct server_host *h, const char *method, const char *what, const char *body,
                    struct hutch_err *err)
{
    struct talk t = TALK_INIT;
    int rc = ask_now(h, &t, method, what, body, err);

    hutch_talk_done(&t);
    return rc;
}

static int watch(struct server_host *h, const struct talk *t, struct hutch_err *err)
{
    struct epoll_event event = { .events = EPOLLIN };

    if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, t->fd, &event) < 0)
        return hutch_err_set(err, errno, "watch a connection");
    return 0;
}

/* Its answer comes to dispatch(). */
static int begin_work(struct server_host *h, int kind, const char *method, const char *what, const char *head,
                      struct text_buffer *body, struct hutch_err *err)
{
    int rc = body->is_broken ? hutch_err_set(err, ENOMEM, "ask the server") : 0;

    if (h->work.fd >= 0)
        rc = hutch_err_set(err, 0, "the session is at work");
    if (rc == 0)
        rc = begin(h, &h->work, method, what, head, body->len, err);
    if (rc == 0 && ((body->len && hutch_talk_send(&h->work, body->data, body->len, err) < 0) ||
                    watch(h, &h->work, err) < 0)) {
        hutch_talk_done(&h->work);
        rc = -1;
    }
    hutch_text_done(body);
    if (rc == 0)
        h->kind = kind;
    return rc;
}

/* ---- the session ---- */

static void end_session(struct server_host *h, const char *why, const char *directory)
{
    hutch_talk_done(&h->life);
    h->id[0] = '\0';
    if (!h->is_new && h->on_end)
        h->on_end(h->user, 1, why, directory);
    h->is_new = false;
}

/* "end", whose text is the server's. */
static void take_end(struct server_host *h, struct json_view data)
{
    const struct json_view why = hutch_json_view_get(data, "why"), directory = hutch_json_view_get(data, "directory");
    auto_free char *why_text = NULL, *directory_text = NULL;
    struct hutch_err ignored;
    size_t len;

    if (hutch_json_view_is_string(why))
        hutch_json_view_text(why, &why_text, &len, &ignored);
    if (hutch_json_view_is_string(directory))
        hutch_json_view_text(directory, &directory_text, &len, &ignored);
    end_session(h, why_text ? why_text : "the server has ended it", directory_text);
}

/* The next line of a stream; false: it is not whole yet. */
static bool next_event(struct talk *t, size_t *from, struct json_view *ret_event, struct json_view *ret_data)
{
    size_t len = t->reader.status == 200 ? hutch_http_reader_line(&t->reader, *from) : 0;
    struct json_view root = JSON_VIEW_NONE;
    struct hutch_err ignored;

    if (len == 0)
        return false;
    if (hutch_json_view_check("the answer of the server", 1, 1, t->reader.body.data + *from, len, &root, &ignored) < 0)
        root = JSON_VIEW_NONE;
    *from += len;
    *ret_event = hutch_json_view_get(root, "event");
    *ret_data = hutch_json_view_get(root, "data");
    return true;
}

static void take_off(struct talk *t, size_t len)
{
    if (len == 0)
        return;
    memmove(t->reader.body.data, t->reader.body.data + len, t->reader.body.len - len);
    t->reader.body.len -= len;
}

static int open_on_server(struct server_host *h, struct hutch_err *err)
{
    const char *body = h->way.open_body;
    auto_free char *head = NULL, *id = NULL;
    struct json_view event, data;
    const double until_ms = hutch_clock_ms() + TALK_MS;
    size_t from = 0, len;

    if (asprintf(&head, NDJSON "%s", h->way.open_head) < 0) {
        head = NULL;
        return hutch_err_set(err, ENOMEM, "open a session");
    }
    if (begin(h, &h->life, "POST", "", head, strlen(body), err) < 0)
        return -1;
    if (hutch_talk_send(&h->life, body, strlen(body), err) < 0 || hutch_talk_await_head(&h->life, err) < 0)
        return -1;
    if (h->life.reader.status != 200)
        return hutch_talk_finish(&h->life, err) < 0 ? -1 : hutch_err_set(err, 0, "the server is of another kind");
    while (!next_event(&h->life, &from, &event, &data)) {
        struct hutch_err ignored;

        if (hutch_talk_await(&h->life, err) < 0)
            return -1;
        if (hutch_talk_hear(&h->life, &ignored) <= 0 || hutch_clock_ms() > until_ms)
            return hutch_err_set(err, 0, "the server went away");
    }
    if (!hutch_json_view_is(event, "session") || !hutch_json_view_is_string(hutch_json_view_get(data, "id")) ||
        hutch_json_view_text(hutch_json_view_get(data, "id"), &id, &len, err) < 0 || !hutch_id_is(id))
        return hutch_err_set(err, 0, "what the server has answered is no session");
    take_off(&h->life, from);
    memcpy(h->id, id, ID_LEN + 1);
    h->is_new = true;
    return watch(h, &h->life, err);
}

static int open_session(struct host *host, const struct hutch_session_options *options, struct hutch_err *err)
{
    struct server_host *h = own(host);

    if (!h->is_new && open_on_server(h, err) < 0) {
        hutch_talk_done(&h->life);
        h->id[0] = '\0';
        return hutch_err_wrap(err, "open a session with the server (hutch repl --no-server goes without)");
    }
    h->is_new = false;
    h->on_end = options->on_end;
    h->user = options->user;
    return 0;
}

/* A server that does not answer is taken for one that is gone: what waits for it ends. */
static void break_off(struct server_host *h)
{
    if (h->work.fd >= 0)
        shutdown(h->work.fd, SHUT_RDWR);
    if (h->life.fd >= 0)
        shutdown(h->life.fd, SHUT_RDWR);
}

static bool close_session(struct host *host)
{
    struct hutch_err ignored;

    if (!own(host)->id[0])
        return false;
    if (tell_now(own(host), "DELETE", "", NULL, &ignored) < 0)
        break_off(own(host));
    return true;
}

/* ---- what is under way ---- */

static int execute(struct host *host, const struct hutch_cell *cell, struct hutch_err *err)
{
    struct text_buffer body = TEXT_BUFFER_INIT;

    hutch_server_cell_write(cell, &body);
    if (begin_work(own(host), WORK_CELL, "POST", "/cells", NDJSON, &body, err) < 0)
        return -1;
    own(host)->cell = (struct server_cell){ .cell = *cell };
    return 0;
}

static int ask(struct host *host, const struct hutch_question *question, hutch_on_reply on_reply, void *user,
               struct hutch_err *err)
{
    struct text_buffer body = TEXT_BUFFER_INIT;

    hutch_text_add_string(&body, "{\"code\":");
    hutch_json_quote(&body, question->code, question->code_len);
    hutch_text_addf(&body, ",\"context\":\"%s\",\"timeout_ms\":%" PRIu64 "}", question->context, question->timeout_ms);
    if (begin_work(own(host), WORK_QUESTION, "POST", "/complete", NULL, &body, err) < 0)
        return -1;
    own(host)->on_reply = on_reply;
    own(host)->reply_user = user;
    return 0;
}

static int give_order(struct host *host, enum host_order order, uint64_t which, hutch_on_reply on_reply, void *user,
                      struct hutch_err *err)
{
    static const struct {
        const char *method, *what;
        const char *key; /* of the number, in the body */
    } rows[] = {
        [HOST_CHECKPOINT] = { "POST", "/checkpoints", NULL },
        [HOST_FORK] = { "POST", "/branches", NULL },
        [HOST_ROLLBACK] = { "POST", "/rollback", "checkpoint" },
        [HOST_SWITCH] = { "POST", "/switch", "branch" },
        [HOST_DROP] = { "DELETE", "/checkpoints", NULL }, /* branches are numbered along with them */
    };
    struct text_buffer body = TEXT_BUFFER_INIT;
    char what[64];

    if (order == HOST_DROP)
        snprintf(what, sizeof(what), "%s/%" PRIu64, rows[order].what, which);
    else
        snprintf(what, sizeof(what), "%s", rows[order].what);
    if (rows[order].key)
        hutch_text_addf(&body, "{\"%s\":%" PRIu64 "}", rows[order].key, which);
    if (begin_work(own(host), WORK_ORDER, rows[order].method, what, NULL, &body, err) < 0)
        return -1;
    own(host)->on_reply = on_reply;
    own(host)->reply_user = user;
    return 0;
}

/* The answer to an order or a question, or why there is none. */
static void end_reply(struct server_host *h, int kind, const struct talk *t, const struct hutch_err *why)
{
    struct hutch_reply reply = { .size = sizeof(reply), .ok = !why, .message = why ? why->msg : "", .lost = "[]" };
    auto_free char *json = why ? NULL : strndup(t->reader.body.data, t->reader.body.len), *lost = NULL;
    struct json_view root = JSON_VIEW_NONE, sentences;
    struct hutch_err ignored;
    int64_t n;

    if (!why && (!json || hutch_json_view_check("the answer", 1, 1, json, strlen(json), &root, &ignored) < 0)) {
        reply.ok = 0;
        reply.message = "what the server has answered is no answer";
    }
    if (reply.ok && kind == WORK_QUESTION)
        reply.json = json;
    if (reply.ok && kind == WORK_ORDER) {
        sentences = hutch_json_view_get(root, "lost");
        lost = hutch_json_view_is_array(sentences) ? strndup(sentences.text, sentences.len) : NULL;
        reply.lost = lost ? lost : "[]";
        reply.id = hutch_json_view_integer(hutch_json_view_get(root, "id"), &n) ? (uint64_t)n : 0;
        reply.bytes = hutch_json_view_integer(hutch_json_view_get(root, "bytes"), &n) ? (uint64_t)n : 0;
        reply.ms = hutch_json_view_get(root, "ms").text ? strtod(hutch_json_view_get(root, "ms").text, NULL) : 0;
    }
    h->on_reply(h->reply_user, 1, &reply);
}

static void end_work(struct server_host *h)
{
    struct talk t = h->work; /* a callback may begin the next */
    const int kind = h->kind;
    struct server_cell cell = h->cell;
    struct hutch_err why = h->why;
    const struct hutch_err *const failure = h->has_failed ? &why : NULL;

    h->work = (struct talk)TALK_INIT;
    h->kind = WORK_NONE;
    h->is_heard = false;
    if (kind == WORK_CELL)
        hutch_server_cell_end(&cell, failure);
    else
        end_reply(h, kind, &t, failure);
    hutch_talk_done(&t);
}

/* ---- what comes ---- */

static void hear_work(struct server_host *h, bool is_behind)
{
    struct json_view event, data;
    size_t from = 0;

    if (!h->is_heard) {
        int rc = hutch_talk_hear(&h->work, &h->why);

        if (rc == 0)
            rc = hutch_talk_check(&h->work, &h->why) == 0 ? 0 : -1;
        h->is_heard = rc <= 0;
        h->has_failed = rc < 0;
        if (h->is_heard)
            epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, h->work.fd, NULL);
    }
    if (is_behind)
        return;
    if (h->kind == WORK_CELL) {
        while (next_event(&h->work, &from, &event, &data))
            hutch_server_cell_take(&h->cell, event, data);
        take_off(&h->work, from);
    }
    if (h->is_heard || (h->kind == WORK_CELL && h->cell.has_result)) /* the next may begin before the stream's end */
        end_work(h);
}

static void hear_life(struct server_host *h)
{
    struct json_view event, data;
    struct hutch_err ignored;
    size_t from = 0;
    int rc = hutch_talk_hear(&h->life, &ignored);

    while (h->id[0] && next_event(&h->life, &from, &event, &data))
        if (hutch_json_view_is(event, "end")) {
            take_end(h, data);
            return;
        }
    take_off(&h->life, from);
    if (rc <= 0)
        end_session(h, "the server went away", NULL);
}

static int get_fd(const struct host *host, bool is_behind)
{
    return is_behind && own(host)->is_heard ? -1 : own(host)->epoll_fd;
}

static bool is_ready(const struct host *host)
{
    const struct server_host *h = own(host);

    return h->is_heard || (h->kind == WORK_CELL && h->work.reader.status == 200 &&
                           hutch_http_reader_line(&h->work.reader, 0) > 0);
}

/* The answer of what is under way comes before the session's end. It is read also while its output cannot be shown, as
 * the server ends what a client is too far behind with. */
static int dispatch(struct host *host, bool is_behind, struct hutch_err *err)
{
    struct server_host *h = own(host);

    (void)err;
    if (h->work.fd >= 0)
        hear_work(h, is_behind);
    if (h->life.fd >= 0 && h->work.fd < 0)
        hear_life(h);
    return 0;
}

/* ---- what is answered at once ---- */

static void reply(struct host *host, const char *text)
{
    struct text_buffer body = TEXT_BUFFER_INIT;
    struct hutch_err ignored;

    hutch_text_add_string(&body, "{\"text\":");
    if (text)
        hutch_json_quote(&body, text, strlen(text));
    else
        hutch_text_add_string(&body, "null");
    hutch_text_add_string(&body, "}");
    if (!body.is_broken)
        tell_now(own(host), "POST", "/input", body.data, &ignored);
    if (body.data)
        explicit_bzero(body.data, body.len); /* it may be a password */
    hutch_text_done(&body);
}

static void interrupt(struct host *host)
{
    struct hutch_err ignored;

    tell_now(own(host), "POST", "/interrupt", NULL, &ignored);
}

static int restart(struct host *host, struct hutch_err *err)
{
    int rc = tell_now(own(host), "POST", "/restart", NULL, err);

    if (rc < 0)
        break_off(own(host));
    return rc;
}

static bool is_lost(struct host *host)
{
    struct talk t = TALK_INIT;
    struct json_view root;
    struct hutch_err ignored;
    bool is = ask_now(own(host), &t, "GET", "", NULL, &ignored) == 0 &&
              hutch_json_view_check("a session", 1, 1, t.reader.body.data, t.reader.body.len, &root, &ignored) == 0 &&
              hutch_json_view_is(hutch_json_view_get(hutch_json_view_get(root, "now"), "state"), "lost");

    hutch_talk_done(&t);
    return is;
}

/* ---- files ---- */

static char *list_files(struct host *host, struct hutch_err *err)
{
    struct talk t = TALK_INIT;
    struct json_view root, files;
    char *json = NULL;

    if (ask_now(own(host), &t, "GET", "/files", NULL, err) == 0 &&
        hutch_json_view_check("the list of files", 1, 1, t.reader.body.data, t.reader.body.len, &root, err) == 0) {
        files = hutch_json_view_get(root, "files");
        json = hutch_json_view_is_array(files) ? strndup(files.text, files.len) : NULL;
        if (!json)
            hutch_err_set(err, 0, "what the server has answered is no list of files");
    }
    hutch_talk_done(&t);
    return json;
}

/* The caller frees it; NULL: ENOMEM. */
static char *file_path(const char *name)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "/files/");
    for (; *name; name++)
        hutch_text_addf(&t, strchr(PLAIN, *name) ? "%c" : "%%%02x", (unsigned char)*name);
    return hutch_text_take(&t, NULL);
}

/* Whether an answer with this status does not say if the file is there. */
static bool hides_file(unsigned status)
{
    return status == 401 || status == 403 || status == 408 || status == 429 || status >= 500;
}

static int open_file(struct host *host, const char *name, struct host_file *ret, struct hutch_err *err)
{
    auto_free char *path = file_path(name);
    struct talk t = TALK_INIT;
    int rc = -1;

    if (!path)
        return hutch_err_set(err, ENOMEM, "open '%s'", name);
    if (begin(own(host), &t, "GET", path, NULL, 0, err) == 0 && hutch_talk_await_head(&t, err) == 0) {
        if (t.reader.status != 200 && hutch_talk_finish(&t, err) < 0)
            err->errnum = hides_file(t.reader.status) ? 0 : t.reader.status == 404 ? ENOENT : EEXIST;
        else if (t.reader.status != 200)
            hutch_err_set(err, 0, "the server does not say what '%s' is", name);
        else if (t.reader.length == HTTP_READER_ENDLESS)
            hutch_err_set(err, 0, "the server does not say how large '%s' is", name);
        else
            rc = 0;
    }
    if (rc == 0)
        *ret = (struct host_file){ .fd = hutch_fd_take(&t.fd), .size = t.reader.length, .is_counted = true };
    hutch_talk_done(&t);
    return rc;
}

static int put_file(struct host *host, const char *name, int from_fd, uint64_t size, bool (*is_called_off)(void *user),
                    void *user, uint64_t *ret_bytes, struct hutch_err *err)
{
    auto_free char *path = file_path(name);
    struct talk t = TALK_INIT;
    struct hutch_err why;
    int rc;

    *ret_bytes = 0;
    if (!path)
        return hutch_err_set(err, ENOMEM, "send '%s'", name);
    if (begin(own(host), &t, "PUT", path, NULL, size, err) < 0)
        return -1;
    rc = hutch_repl_copy(from_fd, t.fd, size, is_called_off, user, ret_bytes, &why);
    if (rc < 0 && why.errnum == EFBIG) /* it grows, and has been sent as it was */
        rc = 0;
    if (rc < 0 && (why.errnum == EPIPE || why.errnum == ECONNRESET)) /* the server has said why */
        rc = hutch_talk_finish(&t, err) < 0 ? -1 : hutch_err_set(err, 0, "%s", why.msg);
    else if (rc < 0)
        hutch_err_say(err, why.errnum, "%s", why.msg);
    else if (*ret_bytes < size)
        rc = hutch_err_set(err, 0, "the file has become shorter");
    else
        rc = hutch_talk_finish(&t, err);
    hutch_talk_done(&t);
    return rc;
}

/* ---- beginning and end ---- */

static void free_host(struct host *host)
{
    struct server_host *h = own(host);

    hutch_talk_done(&h->work);
    hutch_talk_done(&h->life); /* with it goes the session */
    hutch_fd_closep(&h->epoll_fd);
    free(h);
}

struct host *hutch_host_of_server(const struct host_server_way *way, struct hutch_err *err)
{
    static const struct host_kind kind = {
        .free = free_host, .fd = get_fd, .is_ready = is_ready, .dispatch = dispatch, .open = open_session,
        .close = close_session, .execute = execute, .ask = ask, .order = give_order, .reply = reply,
        .interrupt = interrupt,
        .restart = restart, .is_lost = is_lost, .files = list_files, .open_file = open_file, .put_file = put_file,
    };
    struct server_host *h = calloc(1, sizeof(*h));

    if (!h) {
        hutch_err_set(err, ENOMEM, "begin a prompt");
        return NULL;
    }
    *h = (struct server_host){ .host.kind = &kind, .way = *way, .life = TALK_INIT, .work = TALK_INIT };
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll_fd < 0)
        hutch_err_set(err, errno, "begin a prompt");
    else if (open_on_server(h, err) == 0)
        return &h->host;
    free_host(&h->host);
    return NULL;
}
