#include "runtime/gateway/file_api.h"

#include "runtime/gateway/await_files.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/upload.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static void refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_exchange_refuse_error(x, error, GATEWAY_CONFLICT, GATEWAY_NOT_FOUND);
}

/* The session that the path names, and @go when it has files. */
static void begin(struct exchange *x, void (*go)(struct exchange *x, struct gateway_session *session))
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (session)
        hutch_await_files(x, session, go);
}

static void list(struct exchange *x, struct gateway_session *session)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_error error;
    auto_free char *files = hutch_session_files(x->server->engine, session->number, &error);

    if (!files) {
        refuse(x, &error);
        return;
    }
    hutch_text_add_string(&t, "{\"files\":");
    hutch_text_add_string(&t, files);
    hutch_text_add_string(&t, "}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

void hutch_file_api_list(struct exchange *x)
{
    begin(x, list);
}

static void delete_file(struct exchange *x, struct gateway_session *session)
{
    struct hutch_error error;

    if (hutch_session_delete_file(x->server->engine, session->number, x->params[1], &error) < 0)
        refuse(x, &error);
    else
        hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

void hutch_file_api_delete(struct exchange *x)
{
    begin(x, delete_file);
}

static void download(struct exchange *x, struct gateway_session *session)
{
    struct hutch_error error;
    struct stat st;
    auto_fd fd = hutch_session_open_file(x->server->engine, session->number, x->params[1], O_RDONLY, &error);

    if (fd < 0) {
        refuse(x, &error);
        return;
    }
    if (fstat(fd, &st) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INTERNAL, "look at the file: %s", strerror(errno));
        return;
    }
    hutch_exchange_answer_file(x, hutch_fd_take(&fd), hutch_exchange_header(x, "Range"), (uint64_t)st.st_size);
}

void hutch_file_api_download(struct exchange *x)
{
    begin(x, download);
}

/* ---- upload ---- */

static void on_free(struct exchange *x)
{
    if (x->work)
        hutch_upload_give_up(x->work, x);
}

struct upload *hutch_file_api_create_upload(struct exchange *x)
{
    struct upload *upload = malloc(sizeof(*upload));

    if (!upload) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the upload");
        return NULL;
    }
    *upload = (struct upload)UPLOAD_INIT;
    x->work = upload;
    x->on_free = on_free;
    return upload;
}

void hutch_file_api_begin(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct upload *upload = session ? hutch_file_api_create_upload(x) : NULL;

    if (upload)
        hutch_upload_begin(upload, x, session, x->params[1]);
}

void hutch_file_api_take(struct exchange *x, const char *data, size_t len)
{
    hutch_upload_write(x->work, x, data, len);
}

void hutch_file_api_uploaded(struct exchange *x)
{
    struct upload *upload = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"path\":");
    hutch_json_quote(&t, upload->path, strlen(upload->path));
    hutch_text_addf(&t, ",\"size\":%" PRIu64 "}\n", upload->n);
    hutch_upload_end(upload);
    hutch_exchange_answer_json(x, 201, &t);
}
