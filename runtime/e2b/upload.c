#include "runtime/e2b/upload.h"

#include "runtime/e2b/paths.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/multipart.h"
#include "runtime/gateway/sessions.h"
#include "runtime/gateway/upload.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

struct uploads {
    struct upload file;       /* that is being written; first, as an upload has to be */
    struct exchange *x;
    char session[ID_LEN + 1];
    char *path;               /* owned; of the query; NULL: the parts say it */
    bool is_multipart, is_in_part;
    struct multipart multipart;
    char *absolute;           /* owned; its path */
    struct text_buffer infos; /* of those that are there */
};

static void free_uploads(struct exchange *x)
{
    struct uploads *u = x->work;

    if (!u)
        return;
    hutch_upload_give_up(&u->file, x);
    hutch_text_done(&u->infos);
    free(u->path);
    free(u->absolute);
}

/* What is not below /home/user is opened by the sandbox. The rest of the body waits for what is opened later. */
static int begin_file(struct uploads *u, const char *path)
{
    struct exchange *x = u->x;
    struct gateway_session *session;
    struct hutch_err err;
    const char *name;

    session = hutch_gateway_sessions_find(hutch_exchange_sessions(x), u->session, x->token);
    free(u->absolute);
    u->absolute = hutch_e2b_path_absolute(path, &err);
    if (!session)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "the sandbox was not found");
    else if (!u->absolute)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if ((name = hutch_e2b_path_in_data(u->absolute)))
        hutch_upload_begin(&u->file, x, session, name);
    else
        hutch_upload_begin_inside(&u->file, x, session, u->absolute, 0);
    u->multipart.stops = x->is_held_back;
    return x->status ? -1 : 0;
}

static int write_file(struct uploads *u, const char *data, size_t len)
{
    return hutch_upload_write(&u->file, u->x, data, len);
}

static void add_string(struct text_buffer *t, const char *key, const char *text)
{
    hutch_text_addf(t, "\"%s\":", key);
    hutch_json_quote(t, text, strlen(text));
}

static void end_file(struct uploads *u)
{
    hutch_upload_end(&u->file);
    hutch_text_add_string(&u->infos, u->infos.len ? ",{" : "{");
    add_string(&u->infos, "name", hutch_e2b_path_name(u->absolute));
    hutch_text_add_string(&u->infos, ",\"type\":\"file\",");
    add_string(&u->infos, "path", u->absolute);
    hutch_text_add_string(&u->infos, "}");
}

/* Where an event returns -1, the exchange was refused. */
static int on_part(void *owner, const char *name, const char *filename, struct hutch_err *err)
{
    struct uploads *u = owner;
    const char *path = u->path ? u->path : filename;

    hutch_err_set(err, ECANCELED, "write a file");
    u->is_in_part = strcmp(name, "file") == 0;
    if (!u->is_in_part)
        return 0; /* of another field, which has no meaning */
    if (path)
        return begin_file(u, path);
    hutch_exchange_refuse(u->x, GATEWAY_INVALID_REQUEST, "a part has no filename, and the query has no path");
    return -1;
}

static int on_part_data(void *owner, const char *data, size_t len, struct hutch_err *err)
{
    struct uploads *u = owner;

    hutch_err_set(err, ECANCELED, "write a file");
    return u->is_in_part ? write_file(u, data, len) : 0;
}

static int on_part_end(void *owner, struct hutch_err *err)
{
    struct uploads *u = owner;

    (void)err;
    if (u->is_in_part)
        end_file(u);
    return 0;
}

static int begin_body(struct uploads *u)
{
    static const struct multipart_events events = { on_part, on_part_data, on_part_end };
    const char *type = hutch_exchange_header(u->x, "Content-Type");
    struct hutch_err err;

    u->is_multipart = !type || strncasecmp(type, "application/octet-stream", 24) != 0;
    if (!u->is_multipart) {
        if (u->path)
            return begin_file(u, u->path);
        hutch_exchange_refuse(u->x, GATEWAY_INVALID_REQUEST, "the query has no path");
        return -1;
    }
    if (hutch_multipart_open(&u->multipart, type ? type : "", &events, u, &err) == 0)
        return 0;
    hutch_exchange_refuse(u->x, GATEWAY_MEDIA_TYPE, "%s", err.msg);
    return -1;
}

void hutch_e2b_upload_begin(struct exchange *x)
{
    const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct uploads *u = sandbox ? calloc(1, sizeof(*u)) : NULL;
    struct hutch_err err;

    if (!sandbox)
        return;
    if (!u) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the upload");
        return;
    }
    u->x = x;
    u->file = (struct upload)UPLOAD_INIT;
    memcpy(u->session, sandbox->session->id, sizeof(u->session));
    x->work = u;
    x->on_free = free_uploads;
    u->path = hutch_exchange_query(x, "path", &err);
    if (!u->path && err.errnum)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        begin_body(u);
}

void hutch_e2b_upload_take(struct exchange *x, const char *data, size_t len)
{
    struct uploads *u = x->work;
    struct hutch_err err;
    ssize_t n = (ssize_t)len;

    if (!u->is_multipart)
        write_file(u, data, len);
    else
        n = hutch_multipart_feed(&u->multipart, data, len, &err);
    if (n >= 0)
        x->n_untaken = len - (size_t)n;
    else if (!x->status)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
}

void hutch_e2b_upload_end(struct exchange *x)
{
    struct uploads *u = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_err err;

    if (!u->is_multipart) {
        end_file(u);
    } else if (hutch_multipart_finish(&u->multipart, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    hutch_text_add_string(&t, "[");
    if (u->infos.len)
        hutch_text_add(&t, u->infos.data, u->infos.len);
    hutch_text_add_string(&t, "]");
    t.is_broken |= u->infos.is_broken;
    hutch_exchange_answer_json(x, 200, &t);
}
