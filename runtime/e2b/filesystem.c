#include "runtime/e2b/filesystem.h"

#include "runtime/e2b/connect.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/paths.h"
#include "runtime/e2b/request.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/json_write.h"
#include "runtime/text/moment.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 32

/* What an exchange has besides while its order is the sandbox's. */
struct order {
    struct gateway_session *session;
    struct e2b_sandbox *sandbox;
    char *path, *new_path; /* owned; absolute. The second one: where it is moved to */
    bool was_left;         /* nobody hears the answer */
    /* What the answer is made of, when all went well. */
    void (*answer)(struct exchange *x, const struct hutch_path_reply *reply);
};

static void free_order(struct exchange *x)
{
    struct order *order = x->work;

    if (!order)
        return;
    free(order->path);
    free(order->new_path);
}

/* It cannot be taken back, but its answer comes soon. */
static void on_order_gone(struct exchange *x)
{
    ((struct order *)x->work)->was_left = true;
}

/* ---- answers ---- */

static void add_permissions(struct text_buffer *t, const struct hutch_path_entry *entry)
{
    static const char letters[] = "rwxrwxrwx";
    char text[11] = "----------";

    text[0] = entry->type == HUTCH_PATH_DIRECTORY ? 'd' : entry->type == HUTCH_PATH_LINK ? 'L' : '-';
    for (int i = 0; i < 9; i++)
        if (entry->mode >> (8 - i) & 1)
            text[i + 1] = letters[i];
    hutch_text_addf(t, ",\"permissions\":\"%s\"", text);
}

/* The sandbox has one user, whom E2B calls "user". */
static const char *owner_name(unsigned uid)
{
    return uid == 0 ? "root" : "user";
}

static void add_string(struct text_buffer *t, const char *key, const char *text)
{
    hutch_text_addf(t, "\"%s\":", key);
    hutch_json_quote(t, text, strlen(text));
}

/* @path: absolute. */
static void add_entry(struct text_buffer *t, const char *path, const struct hutch_path_entry *entry)
{
    static const char *const types[] = {
        [HUTCH_PATH_FILE] = "FILE_TYPE_FILE", [HUTCH_PATH_DIRECTORY] = "FILE_TYPE_DIRECTORY",
        [HUTCH_PATH_LINK] = "FILE_TYPE_SYMLINK",
    };
    const char *type = (size_t)entry->type < ARRAY_SIZE(types) ? types[entry->type] : NULL;

    hutch_text_add_string(t, "{");
    add_string(t, "name", hutch_e2b_path_name(path));
    hutch_text_add_string(t, ",");
    add_string(t, "path", path);
    hutch_text_addf(t, ",\"type\":\"%s\",\"size\":\"%" PRIu64 "\",\"mode\":%u", type ? type : "FILE_TYPE_UNSPECIFIED",
                    entry->bytes, entry->mode);
    add_permissions(t, entry);
    hutch_text_addf(t, ",\"owner\":\"%s\",\"group\":\"%s\",\"modifiedTime\":", owner_name(entry->uid),
                    owner_name(entry->gid));
    hutch_moment_add(t, entry->mtime, 6);
    if (entry->target) {
        hutch_text_add_string(t, ",");
        add_string(t, "symlinkTarget", entry->target);
    }
    hutch_text_add_string(t, "}");
}

static void answer_entry(struct exchange *x, const struct hutch_path_reply *reply)
{
    const struct order *order = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"entry\":");
    add_entry(&t, order->new_path ? order->new_path : order->path, &reply->entries[0]);
    hutch_text_add_string(&t, "}");
    hutch_exchange_answer_json(x, 200, &t);
}

static void answer_entries(struct exchange *x, const struct hutch_path_reply *reply)
{
    const char *directory = ((struct order *)x->work)->path;
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"entries\":[");
    for (size_t i = 0; i < reply->n_entries; i++) {
        auto_free char *path = NULL;

        if (asprintf(&path, "%s%s%s", directory, directory[1] ? "/" : "", reply->entries[i].path) < 0) {
            path = NULL;
            t.is_broken = true;
            break;
        }
        hutch_text_add_string(&t, i ? "," : "");
        add_entry(&t, path, &reply->entries[i]);
    }
    hutch_text_add_string(&t, "]}");
    hutch_exchange_answer_json(x, 200, &t);
}

static void answer_empty(struct exchange *x, const struct hutch_path_reply *reply)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)reply;
    hutch_text_add_string(&t, "{}");
    hutch_exchange_answer_json(x, 200, &t);
}

/* {"code": "already_exists"}, by which a client knows that there was such a directory. */
static void answer_existed(struct exchange *x)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_connect_add_error(&t, "already_exists", "there is such a directory already");
    hutch_exchange_answer_json(x, 409, &t);
}

static void answer_made(struct exchange *x, const struct hutch_path_reply *reply)
{
    if (reply->existed)
        answer_existed(x);
    else
        answer_entry(x, reply);
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

/* What the sandbox has said about it. */
static enum gateway_error error_of(int code)
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
    struct order *order = x->work;

    (void)number;
    hutch_gateway_sessions_end(order->session);
    if (order->was_left)
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
    else if (!reply->ok)
        hutch_exchange_refuse(x, error_of(reply->code), "%s", reply->message);
    else
        order->answer(x, reply);
}

/* ---- orders ---- */

/* NULL: the exchange is refused. */
static struct order *create_order(struct exchange *x, struct e2b_sandbox *sandbox, const char *path)
{
    struct order *order = calloc(1, sizeof(*order));
    struct hutch_err err;

    x->work = order;
    x->on_free = free_order;
    if (!order) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return NULL;
    }
    order->sandbox = sandbox;
    order->session = sandbox->session;
    order->path = hutch_e2b_path_absolute(path, &err);
    if (order->path)
        return order;
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    return NULL;
}

/* The order for the path that @key of the body names; NULL: the exchange is refused. */
static struct order *read_order(struct exchange *x, const char *key, struct json_view *ret_body)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    auto_free char *path = NULL;
    struct hutch_err err;

    if (!sandbox || !hutch_e2b_request_read(x, false, ret_body))
        return NULL;
    if (hutch_e2b_fields_text(*ret_body, key, E2B_MAX_PATH, &path, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return NULL;
    }
    return create_order(x, sandbox, path ? path : "");
}

static struct hutch_path_options options_for(struct exchange *x)
{
    struct hutch_path_options options;

    hutch_path_options_init(&options);
    options.on_reply = on_reply;
    options.user = x;
    return options;
}

typedef int (*path_call)(struct hutch_engine *engine, uint64_t session, const char *path,
                         const struct hutch_path_options *options, struct hutch_error *err);

static void begin(struct exchange *x)
{
    hutch_gateway_sessions_begin(((struct order *)x->work)->session);
    hutch_exchange_wait(x, on_order_gone);
}

static void check_taken(struct exchange *x, int rc, const struct hutch_error *error)
{
    if (rc == 0)
        return;
    hutch_gateway_sessions_end(((struct order *)x->work)->session);
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

static void give(struct exchange *x, path_call call, const struct hutch_path_options *options)
{
    const struct order *order = x->work;
    struct hutch_error error;

    begin(x);
    check_taken(x, call(hutch_exchange_engine(x), order->session->number, order->path, options, &error), &error);
}

void hutch_e2b_filesystem_list(struct exchange *x)
{
    struct hutch_path_options options = options_for(x);
    struct json_view body;
    struct order *order = read_order(x, "path", &body);
    struct hutch_err err;
    uint64_t depth = 1;

    if (!order)
        return;
    if (hutch_e2b_fields_number(body, "depth", 0, MAX_DEPTH, &depth, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    order->answer = answer_entries;
    options.depth = (unsigned)depth;
    give(x, hutch_session_list, &options);
}

void hutch_e2b_filesystem_stat(struct exchange *x)
{
    struct hutch_path_options options = options_for(x);
    struct json_view body;
    struct order *order = read_order(x, "path", &body);

    if (!order)
        return;
    order->answer = answer_entry;
    options.follow = strcmp(order->path, E2B_HOME) == 0; /* which is a link here, and a directory to clients */
    give(x, hutch_session_stat, &options);
}

void hutch_e2b_filesystem_make(struct exchange *x)
{
    struct hutch_path_options options = options_for(x);
    struct json_view body;
    struct order *order = read_order(x, "path", &body);

    if (!order)
        return;
    order->answer = answer_made;
    options.parents = 1;
    give(x, hutch_session_make_directory, &options);
}

void hutch_e2b_filesystem_remove(struct exchange *x)
{
    struct hutch_path_options options = options_for(x);
    struct json_view body;
    struct order *order = read_order(x, "path", &body);

    if (!order)
        return;
    order->answer = answer_empty;
    options.tree = 1;
    give(x, hutch_session_remove, &options);
}

/* What was moved is looked at where it is now. */
static void answer_moved(struct exchange *x, const struct hutch_path_reply *reply)
{
    struct hutch_path_options options = options_for(x);
    struct order *order = x->work;
    struct hutch_error error;
    int rc;

    (void)reply;
    order->answer = answer_entry;
    hutch_gateway_sessions_begin(order->session);
    rc = hutch_session_stat(hutch_exchange_engine(x), order->session->number, order->new_path, &options, &error);
    check_taken(x, rc, &error);
}

void hutch_e2b_filesystem_move(struct exchange *x)
{
    struct hutch_path_options options = options_for(x);
    struct json_view body;
    struct order *order = read_order(x, "source", &body);
    auto_free char *to = NULL;
    struct hutch_error error;
    struct hutch_err err;

    if (!order)
        return;
    if (hutch_e2b_fields_text(body, "destination", E2B_MAX_PATH, &to, &err) == 0)
        order->new_path = hutch_e2b_path_absolute(to ? to : "", &err);
    if (!order->new_path) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    order->answer = answer_moved;
    options.parents = 1;
    begin(x);
    check_taken(x, hutch_session_rename(hutch_exchange_engine(x), order->session->number, order->path, order->new_path,
                                        &options, &error), &error);
}

void hutch_e2b_filesystem_download(struct exchange *x)
{
    struct hutch_path_options options = options_for(x);
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct order *order;
    struct hutch_err err;
    auto_free char *path = sandbox ? hutch_exchange_query(x, "path", &err) : NULL;
    struct hutch_error error;
    int rc;

    if (!sandbox)
        return;
    if (!path && err.errnum) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    order = create_order(x, sandbox, path ? path : "");
    if (!order)
        return;
    order->answer = answer_content;
    options.follow = 1;
    begin(x);
    rc = hutch_session_open_path(hutch_exchange_engine(x), order->session->number, order->path, O_RDONLY, &options,
                                 &error);
    check_taken(x, rc, &error);
}

void hutch_e2b_filesystem_watch(struct exchange *x)
{
    if (hutch_e2b_sandbox_awake(x))
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "changes of a directory are not told here: list it again");
}
