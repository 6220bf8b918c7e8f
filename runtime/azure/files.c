#include "runtime/azure/files.h"

#include "runtime/azure/session.h"
#include "runtime/gateway/await_files.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "runtime/text/moment.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static void refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_exchange_refuse_error(x, error, GATEWAY_CONFLICT, GATEWAY_NOT_FOUND);
}

/* ---- what is told of a file ---- */

struct azure_file {
    const char *path; /* relative to /mnt/data */
    const char *below; /* the directory that was asked for; "" */
    struct json_view mime; /* with its quotes; none: not known */
    bool is_directory;
    uint64_t size;
    double mtime;
};

static void add_old(struct text_buffer *t, const struct azure_file *file)
{
    hutch_text_add_string(t, "{\"$id\":\"2\",\"properties\":{\"$id\":\"3\",\"filename\":");
    hutch_json_quote(t, file->path, strlen(file->path));
    hutch_text_addf(t, ",\"size\":%" PRIu64 ",\"lastModifiedTime\":", file->size);
    hutch_moment_add(t, file->mtime, 3);
    hutch_text_add_string(t, ",\"last_modified_time\":");
    hutch_moment_add(t, file->mtime, 3);
    hutch_text_add_string(t, "}}");
}

static void add_new(struct text_buffer *t, const struct azure_file *file)
{
    const char *slash = strrchr(file->path, '/'), *name = slash ? slash + 1 : file->path;
    const char *directory = file->path + strlen(file->below);

    hutch_text_add_string(t, "{\"name\":");
    hutch_json_quote(t, name, strlen(name));
    hutch_text_addf(t, ",\"type\":\"%s\",\"contentType\":", file->is_directory ? "directory" : "file");
    if (hutch_json_view_is_string(file->mime))
        hutch_text_add(t, file->mime.text, file->mime.len);
    else
        hutch_text_add_string(t, "\"application/octet-stream\"");
    hutch_text_addf(t, ",\"sizeInBytes\":%" PRIu64 ",\"lastModifiedAt\":", file->size);
    hutch_moment_add(t, file->mtime, 3);
    hutch_text_add_string(t, ",\"directory\":");
    while (*directory == '/')
        directory++;
    hutch_json_quote(t, directory, slash && slash > directory ? (size_t)(slash - directory) : 0);
    hutch_text_add_string(t, "}");
}

static void add_file(struct text_buffer *t, const struct azure_file *file, enum azure_shape shape)
{
    if (shape == AZURE_PROPERTIES)
        add_old(t, file);
    else
        add_new(t, file);
}

/* ---- list ---- */

static double number_of(struct json_view value)
{
    char text[40];

    if (!value.text || value.len >= sizeof(text))
        return 0;
    memcpy(text, value.text, value.len);
    text[value.len] = '\0';
    return strtod(text, NULL);
}

/* Whether @path lies in @directory, directly or, with @is_deep, below. */
static bool is_in(const char *path, const char *directory, bool is_deep)
{
    size_t len = strlen(directory);

    if (len > 0 && (strncmp(path, directory, len) != 0 || path[len] != '/'))
        return false;
    return is_deep || !strchr(path + len + (len > 0), '/');
}

static void add_row(struct text_buffer *t, struct json_view row, const char *below, bool is_deep,
                    enum azure_shape shape, const char **comma)
{
    struct azure_file file = { .below = below, .mime = hutch_json_view_get(row, "mime") };
    struct json_view path = hutch_json_view_get(row, "path");
    auto_free char *text = NULL;
    struct hutch_err ignored;

    if (!hutch_json_view_is_string(path) || hutch_json_view_text(path, &text, NULL, &ignored) < 0)
        return;
    file.path = text;
    file.is_directory = hutch_json_view_is(hutch_json_view_get(row, "type"), "directory");
    file.size = (uint64_t)number_of(hutch_json_view_get(row, "size"));
    file.mtime = number_of(hutch_json_view_get(row, "mtime"));
    if ((file.is_directory && shape == AZURE_PROPERTIES) || !is_in(text, below, is_deep))
        return;
    hutch_text_add_string(t, *comma);
    add_file(t, &file, shape);
    *comma = ",";
}

/* The directory of the query, without slashes at its end; for the caller to free. */
static char *asked_directory(struct exchange *x)
{
    struct hutch_err ignored;
    auto_free char *path = hutch_exchange_query(x, "path", &ignored);
    char *directory = strdup(path ? hutch_azure_relative(path) : "");

    for (size_t len = directory ? strlen(directory) : 0; len > 0 && directory[len - 1] == '/'; len--)
        directory[len - 1] = '\0';
    return directory;
}

static void list(struct exchange *x, struct gateway_session *session)
{
    struct hutch_err err;
    auto_free char *recursive = hutch_exchange_query(x, "recursive", &err), *files = NULL, *below = asked_directory(x);
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct json_view rows, row;
    struct json_walk walk;
    struct hutch_error error;
    const char *comma = "";
    enum azure_shape shape;
    bool is_deep;

    if (!hutch_azure_read_version(x, &shape))
        return;
    is_deep = shape == AZURE_PROPERTIES || (recursive && strcmp(recursive, "true") == 0);
    files = hutch_session_files(hutch_exchange_engine(x), session->number, &error);
    if (!files) {
        refuse(x, &error);
        return;
    }
    if (!below || hutch_json_view_check("files", 1, 1, files, strlen(files), &rows, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the list");
        return;
    }
    walk = hutch_json_view_walk(rows);
    hutch_text_add_string(&t, shape == AZURE_PROPERTIES ? "{\"$id\":\"1\",\"value\":[" : "{\"value\":[");
    while (hutch_json_view_next(&walk, NULL, &row))
        add_row(&t, row, below, is_deep, shape, &comma);
    hutch_text_add_string(&t, shape == AZURE_PROPERTIES ? "]}\n" : "],\"nextLink\":null}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

/* Whatever is asked of files: the session, and @go when the session has any. */
static void begin(struct exchange *x, bool makes, void (*go)(struct exchange *x, struct gateway_session *session))
{
    struct gateway_session *session = hutch_azure_find(x, makes);

    if (session)
        hutch_await_files(x, session, go);
}

void hutch_azure_list(struct exchange *x)
{
    begin(x, true, list);
}

/* ---- upload ---- */

static bool fits(struct gateway_session *session, size_t len)
{
    if (len > session->data_bytes || session->n_uploaded > session->data_bytes - len)
        return false;
    session->n_uploaded += len;
    return true;
}

static int write_file(struct exchange *x, const struct gateway_session *session, const struct azure_upload *upload,
                      struct hutch_error *error)
{
    auto_fd fd = hutch_session_open_file(hutch_exchange_engine(x), session->number, upload->name, O_WRONLY, error);

    if (fd < 0)
        return -1;
    if (upload->len == 0 || hutch_fd_write_all(fd, upload->data, upload->len) == 0)
        return 0;
    *error = (struct hutch_error){ .code = EFBIG, .message = "there is no room for the file" };
    hutch_session_delete_file(hutch_exchange_engine(x), session->number, upload->name, NULL);
    return -1;
}

static void answer_upload(struct exchange *x, const struct azure_upload *upload)
{
    struct azure_file file = { .path = upload->name, .below = "", .mime = JSON_VIEW_NONE, .size = upload->len };
    struct text_buffer t = TEXT_BUFFER_INIT;
    enum azure_shape shape;

    if (!hutch_azure_read_version(x, &shape))
        return;
    file.mtime = (double)time(NULL);
    hutch_text_add_string(&t, shape == AZURE_PROPERTIES ? "{\"$id\":\"1\",\"value\":[" : "");
    add_file(&t, &file, shape);
    hutch_text_add_string(&t, shape == AZURE_PROPERTIES ? "]}\n" : "\n");
    hutch_exchange_answer_json(x, 200, &t);
}

static void upload(struct exchange *x, struct gateway_session *session)
{
    struct hutch_err err;
    auto_free char *directory = hutch_exchange_query(x, "path", &err);
    struct azure_upload file;
    struct hutch_error error;

    if (hutch_azure_upload_parse(x->body.data, x->body.len, directory, &file, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (!fits(session, file.len))
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE, "the session's files may not be as large as that");
    else if (write_file(x, session, &file, &error) < 0)
        refuse(x, &error);
    else
        answer_upload(x, &file);
    free(file.name);
}

void hutch_azure_upload(struct exchange *x)
{
    begin(x, true, upload);
}

/* ---- one file ---- */

static int open_file(struct exchange *x, const struct gateway_session *session, const char *path, struct stat *ret)
{
    struct hutch_error error;
    int fd = hutch_session_open_file(hutch_exchange_engine(x), session->number, hutch_azure_relative(path), O_RDONLY,
                                     &error);

    if (fd < 0) {
        refuse(x, &error);
    } else if (fstat(fd, ret) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INTERNAL, "look at the file: %s", strerror(errno));
        hutch_fd_closep(&fd);
    }
    return fd;
}

static void download(struct exchange *x, struct gateway_session *session)
{
    struct stat st;
    auto_fd fd = open_file(x, session, x->params[0], &st);

    if (fd < 0)
        return;
    hutch_exchange_answer_file(x, hutch_fd_take(&fd), NULL, (uint64_t)st.st_size);
}

static void look(struct exchange *x, struct gateway_session *session)
{
    const char *path = hutch_azure_relative(x->params[0]);
    struct azure_file file = { .path = path, .below = "", .mime = JSON_VIEW_NONE };
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct stat st;
    auto_fd fd = open_file(x, session, path, &st);
    enum azure_shape shape;

    if (fd < 0 || !hutch_azure_read_version(x, &shape))
        return;
    file.size = (uint64_t)st.st_size;
    file.mtime = (double)st.st_mtim.tv_sec;
    add_file(&t, &file, shape);
    hutch_text_add_string(&t, "\n");
    hutch_exchange_answer_json(x, 200, &t);
}

void hutch_azure_download(struct exchange *x)
{
    begin(x, false, download);
}

void hutch_azure_get_file(struct exchange *x)
{
    static const char content[] = "/content";
    size_t len = strlen(x->params[0]), tail = sizeof(content) - 1;

    if (len <= tail || strcmp(x->params[0] + len - tail, content) != 0) {
        begin(x, false, look);
        return;
    }
    x->params[0][len - tail] = '\0';
    begin(x, false, download);
}

static void delete_file(struct exchange *x, struct gateway_session *session)
{
    struct hutch_error error;

    if (hutch_session_delete_file(hutch_exchange_engine(x), session->number, hutch_azure_relative(x->params[0]),
                                  &error) < 0)
        refuse(x, &error);
    else
        hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

void hutch_azure_delete_file(struct exchange *x)
{
    begin(x, false, delete_file);
}
