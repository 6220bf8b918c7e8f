#include "runtime/e2b/filesystem.h"

#include "runtime/e2b/answer.h"
#include "runtime/e2b/connect.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/paths.h"
#include "runtime/e2b/request.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/change_stream.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/path_request.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/json_write.h"
#include "runtime/text/moment.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 32

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
    const struct path_request *r = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"entry\":");
    add_entry(&t, r->path, &reply->entries[0]);
    hutch_text_add_string(&t, "}");
    hutch_exchange_answer_json(x, 200, &t);
}

static void answer_entries(struct exchange *x, const struct hutch_path_reply *reply)
{
    const char *directory = ((struct path_request *)x->work)->path;
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

/* ---- orders ---- */

/* NULL: the exchange is refused. */
static struct path_request *create_request(struct exchange *x, struct e2b_sandbox *sandbox, const char *path)
{
    struct hutch_err err;
    char *absolute = hutch_e2b_path_absolute(path, &err);

    if (absolute)
        return hutch_path_request_create(x, sandbox->session, absolute);
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    return NULL;
}

/* The order for the path that @key of the body names; NULL: the exchange is refused. */
static struct path_request *read_request(struct exchange *x, const char *key, struct json_view *ret_body)
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
    return create_request(x, sandbox, path ? path : "");
}

void hutch_e2b_filesystem_list(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct json_view body;
    struct path_request *r = read_request(x, "path", &body);
    struct hutch_err err;
    uint64_t depth = 1;

    if (!r)
        return;
    if (hutch_e2b_fields_number(body, "depth", 0, MAX_DEPTH, &depth, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    r->answer = answer_entries;
    options.depth = (unsigned)depth;
    hutch_path_request_give(x, hutch_session_list, &options);
}

void hutch_e2b_filesystem_stat(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct json_view body;
    struct path_request *r = read_request(x, "path", &body);

    if (!r)
        return;
    r->answer = answer_entry;
    options.follow = strcmp(r->path, E2B_HOME) == 0; /* which is a link here, and a directory to clients */
    hutch_path_request_give(x, hutch_session_stat, &options);
}

void hutch_e2b_filesystem_make(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct json_view body;
    struct path_request *r = read_request(x, "path", &body);

    if (!r)
        return;
    r->answer = answer_made;
    options.parents = 1;
    hutch_path_request_give(x, hutch_session_make_directory, &options);
}

void hutch_e2b_filesystem_remove(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct json_view body;
    struct path_request *r = read_request(x, "path", &body);

    if (!r)
        return;
    r->answer = answer_empty;
    options.tree = 1;
    hutch_path_request_give(x, hutch_session_remove, &options);
}

/* What was moved is looked at where it is now. */
static void answer_moved(struct exchange *x, const struct hutch_path_reply *reply)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct path_request *r = x->work;

    (void)reply;
    free(r->path);
    r->path = r->new_path;
    r->new_path = NULL;
    r->answer = answer_entry;
    hutch_path_request_give(x, hutch_session_stat, &options);
}

void hutch_e2b_filesystem_move(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct json_view body;
    struct path_request *r = read_request(x, "source", &body);
    auto_free char *to = NULL;
    struct hutch_err err;

    if (!r)
        return;
    if (hutch_e2b_fields_text(body, "destination", E2B_MAX_PATH, &to, &err) == 0)
        r->new_path = hutch_e2b_path_absolute(to ? to : "", &err);
    if (!r->new_path) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    r->answer = answer_moved;
    options.parents = 1;
    hutch_path_request_rename(x, &options);
}

void hutch_e2b_filesystem_download(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct hutch_err err;
    auto_free char *path = sandbox ? hutch_exchange_query(x, "path", &err) : NULL;

    if (!sandbox)
        return;
    if (!path && err.errnum) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    options.follow = 1;
    if (create_request(x, sandbox, path ? path : ""))
        hutch_path_request_download(x, &options);
}

/* ---- changes ---- */

static bool send_watch_message(struct exchange *x, unsigned flags, struct text_buffer *t)
{
    const bool is_taken = hutch_e2b_answer_message(x, flags, t);

    hutch_text_done(t);
    return is_taken;
}

static void begin_changes(struct exchange *x)
{
    static const char sign[] = "\0\0\0\0\x10{\"keepalive\":{}}";
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_exchange_begin_stream(x, "application/connect+json");
    hutch_e2b_answer_break_silence(x, sign, sizeof(sign) - 1);
    hutch_text_add_string(&t, "{\"start\":{}}");
    send_watch_message(x, 0, &t);
}

static bool end_changes(struct exchange *x, int code, const char *message)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_connect_add_last(&t, code == ENOENT ? "not_found" : "unavailable", message);
    return send_watch_message(x, CONNECT_END, &t);
}

/* The format has no word for changes that were lost, and a client that does not hear of them takes what it knows for
 * all there is: the stream ends. */
static bool send_change(struct exchange *x, const struct hutch_change *change)
{
    static const char *const kinds[] = {
        [HUTCH_CREATED] = "CREATE", [HUTCH_WRITTEN] = "WRITE", [HUTCH_REMOVED] = "REMOVE", [HUTCH_RENAMED] = "RENAME",
        [HUTCH_ATTRIBUTES] = "CHMOD",
    };
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (change->kind == HUTCH_CHANGES_LOST) {
        hutch_connect_add_last(&t, "data_loss", "changes were lost: list the directory, and watch it again");
        ((struct change_stream *)x->work)->is_whole = send_watch_message(x, CONNECT_END, &t);
        return false;
    }
    hutch_text_add_string(&t, "{\"filesystem\":{");
    add_string(&t, "name", change->name);
    hutch_text_addf(&t, ",\"type\":\"EVENT_TYPE_%s\"}}", kinds[change->kind]);
    return send_watch_message(x, 0, &t);
}

void hutch_e2b_filesystem_watch(struct exchange *x)
{
    static const struct change_writer writer = { begin_changes, send_change, end_changes };
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    auto_free char *path = NULL, *absolute = NULL;
    bool is_recursive = false;
    struct json_view body;
    struct hutch_err err;

    if (!sandbox || !hutch_e2b_request_read(x, true, &body))
        return;
    if (hutch_e2b_fields_text(body, "path", E2B_MAX_PATH, &path, &err) == 0 &&
        hutch_e2b_fields_bool(body, "recursive", &is_recursive, &err) == 0)
        absolute = hutch_e2b_path_absolute(path ? path : "", &err);
    if (!absolute)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (is_recursive)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST,
                              "one directory is watched here, and not what is below it: watch each");
    else
        hutch_change_stream_open(x, sandbox->session, absolute, &writer);
}
