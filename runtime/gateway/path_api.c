#include "runtime/gateway/path_api.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/file_api.h"
#include "runtime/gateway/path_request.h"
#include "runtime/gateway/query.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/upload.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

#define MAX_DEPTH 32
#define MAX_ENTRIES 65536

/* ---- the query ---- */

/* Which paths there are is for the library and the sandbox to say. */
char *hutch_path_api_read_path(struct exchange *x, const char *name)
{
    struct hutch_err err;
    char *path = hutch_exchange_query(x, name, &err);

    if (!path && err.errnum == ENOMEM)
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "%s", err.msg);
    else if (!path && err.errnum)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s: %s", name, err.msg);
    else if (!path)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "the query has no %s", name);
    return path;
}

/* true or false; stays as it is where it is not said. -1: it is neither. */
static int read_flag(struct exchange *x, const char *name, int *ret)
{
    struct hutch_err err;
    auto_free char *text = hutch_exchange_query(x, name, &err);

    if (!text && !err.errnum)
        return 0;
    if (text && hutch_query_flag(text, ret) == 0)
        return 0;
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s is either true or false", name);
    return -1;
}

/* 1 to @max; stays as it is where it is not said. */
static int read_number(struct exchange *x, const char *name, uint64_t max, unsigned *ret)
{
    struct hutch_err err;
    auto_free char *text = hutch_exchange_query(x, name, &err);

    if (!text && !err.errnum)
        return 0;
    if (text && hutch_query_number(text, max, ret) == 0)
        return 0;
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s is a number from 1 to %" PRIu64, name, max);
    return -1;
}

/* Stays as it is where it is not said. */
static int read_mode(struct exchange *x, unsigned *ret)
{
    struct hutch_err err;
    auto_free char *text = hutch_exchange_query(x, "mode", &err);

    if (!text && !err.errnum)
        return 0;
    if (text && hutch_query_mode(text, ret) == 0)
        return 0;
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "mode is one to four octal digits, 1 to 777");
    return -1;
}

/* For the path of the query; NULL: the exchange is refused. */
static struct path_request *begin(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    char *path = session ? hutch_path_api_read_path(x, "path") : NULL;

    return path ? hutch_path_request_create(x, session, path) : NULL;
}

/* ---- answers ---- */

static void answer_entries(struct exchange *x, const struct hutch_path_reply *reply)
{
    char *json = hutch_path_reply_to_json(reply);

    hutch_exchange_answer(x, 200, "application/json", json, json ? strlen(json) : 0);
}

static void answer_nothing(struct exchange *x, const struct hutch_path_reply *reply)
{
    (void)reply;
    hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

/* ---- requests ---- */

void hutch_path_api_stat(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct path_request *r = begin(x);

    if (!r || read_flag(x, "follow", &options.follow) < 0)
        return;
    r->answer = answer_entries;
    hutch_path_request_give(x, hutch_session_stat, &options);
}

void hutch_path_api_list(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct path_request *r = begin(x);

    if (!r || read_number(x, "depth", MAX_DEPTH, &options.depth) < 0 ||
        read_number(x, "max_entries", MAX_ENTRIES, &options.max_entries) < 0)
        return;
    r->answer = answer_entries;
    hutch_path_request_give(x, hutch_session_list, &options);
}

void hutch_path_api_make_directory(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct path_request *r = begin(x);

    if (!r || read_flag(x, "parents", &options.parents) < 0 || read_mode(x, &options.mode) < 0)
        return;
    r->answer = answer_entries;
    hutch_path_request_give(x, hutch_session_make_directory, &options);
}

void hutch_path_api_rename(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct path_request *r = begin(x);

    if (!r || read_flag(x, "parents", &options.parents) < 0)
        return;
    r->new_path = hutch_path_api_read_path(x, "to");
    if (!r->new_path)
        return;
    r->answer = answer_nothing;
    hutch_path_request_rename(x, &options);
}

void hutch_path_api_remove(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct path_request *r = begin(x);

    if (!r || read_flag(x, "tree", &options.tree) < 0)
        return;
    r->answer = answer_nothing;
    hutch_path_request_give(x, hutch_session_remove, &options);
}

void hutch_path_api_download(struct exchange *x)
{
    struct hutch_path_options options = hutch_path_request_options(x);
    struct hutch_err err;
    auto_free char *path = hutch_exchange_query(x, "path", &err);

    if (!path && !err.errnum) { /* the list of /mnt/data has the same path of HTTP's */
        hutch_file_api_list(x);
        return;
    }
    if (!begin(x))
        return;
    options.follow = 1;
    hutch_path_request_download(x, &options);
}

void hutch_path_api_begin(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    auto_free char *path = session ? hutch_path_api_read_path(x, "path") : NULL;
    struct upload *upload;
    unsigned mode = 0;

    if (!path || read_mode(x, &mode) < 0)
        return;
    upload = hutch_file_api_create_upload(x);
    if (upload)
        hutch_upload_begin_inside(upload, x, session, path, mode);
}
