/* files.c - the tools list_files, read_file and write_file: what lies in the session's /mnt/data, from outside of the
 * sandbox. hutch.h resolves the names, and follows no link. */
#include "runtime/mcp/tool.h"

#include "runtime/hutch.h"
#include "runtime/mcp/rpc.h"
#include "runtime/mcp/session.h"
#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ENTRIES 1000               /* of a list */
#define MAX_READ (1u << 20)            /* bytes of one read: a control character becomes six in JSON */
#define DEFAULT_READ (64u << 10)
#define MAX_OFFSET 9007199254740991.0  /* what a number of JSON counts exactly */

#define READ_ONLY "{\"readOnlyHint\":true,\"openWorldHint\":false}"
#define PATH_DESCRIPTION "Path of the file: relative to " INSIDE_DATA_DIR ", or absolute below it."

/* The name below /mnt/data; NULL: the path is elsewhere. */
static const char *name_of(const char *path)
{
    static const char root[] = INSIDE_DATA_DIR "/";

    if (strncmp(path, root, sizeof(root) - 1) == 0)
        path += sizeof(root) - 1;
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return path[0] == '/' || path[0] == '\0' ? NULL : path;
}

/* A descriptor, the caller's. -1: the call has failed. */
static int open_file(struct mcp_call *call, const char *path, const char *name, int flags)
{
    struct hutch_err err = { 0 };
    struct hutch_engine *engine = hutch_mcp_call_engine(call, &err);
    struct hutch_error error;
    int fd;

    if (!name) {
        hutch_mcp_call_fail(call, "'%s' is not below " INSIDE_DATA_DIR ", where files are", path);
        return -1;
    }
    if (!engine) {
        hutch_mcp_call_fail(call, "%s", err.msg);
        return -1;
    }
    fd = hutch_session_open_file(engine, call->session->id, name, flags, &error);
    if (fd < 0)
        hutch_mcp_call_fail(call, "%s", error.message);
    return fd;
}

/* --- list_files ------------------------------------------------------------------------------------------------- */

enum { LIST_SESSION };

static const struct mcp_argument list_arguments[] = { [LIST_SESSION] = MCP_SESSION_ARGUMENT };

/* One line of the list for the model. */
static void add_line(struct text_buffer *t, struct json_view entry)
{
    struct json_view path = hutch_json_view_get(entry, "path"), type = hutch_json_view_get(entry, "type");
    auto_free char *text = NULL;
    struct hutch_err err;
    int64_t size = 0;
    size_t len;

    if (!hutch_json_view_is_string(path) || hutch_json_view_text(path, &text, &len, &err) < 0)
        return;
    hutch_json_view_integer(hutch_json_view_get(entry, "size"), &size);
    hutch_text_add(t, text, len);
    if (hutch_json_view_is_string(type) && !hutch_json_view_is(type, "file"))
        hutch_text_addf(t, "  (%.*s)\n", (int)type.len - 2, type.text + 1);
    else
        hutch_text_addf(t, "  %" PRId64 " bytes\n", size);
}

static void begin_list(struct mcp_call *call)
{
    struct hutch_err err = { 0 };
    struct hutch_engine *engine = hutch_mcp_call_engine(call, &err);
    struct hutch_error error = { .code = 0, .message = "" };
    auto_free char *list = engine ? hutch_session_files(engine, call->session->id, &error) : NULL;
    struct text_buffer lines = TEXT_BUFFER_INIT, *t;
    struct mcp_result r = MCP_RESULT_INIT;
    struct json_view all, entry;
    struct json_walk walk;
    size_t n = 0;

    if (!list || hutch_json_view_check("list", 1, 1, list, strlen(list), &all, &err) < 0) {
        hutch_mcp_call_fail(call, "%s", err.msg[0] ? err.msg : error.message);
        return;
    }
    t = hutch_mcp_add_key(&r, "files");
    hutch_text_add_string(t, "[");
    walk = hutch_json_view_walk(all);
    while (walk.p && hutch_json_view_next(&walk, NULL, &entry)) {
        if (n++ >= MAX_ENTRIES)
            continue;
        hutch_text_add_string(t, n > 1 ? "," : "");
        hutch_text_add(t, entry.text, entry.len);
        add_line(&lines, entry);
    }
    hutch_text_add_string(t, "]");
    if (n > MAX_ENTRIES)
        hutch_text_addf(&lines, "[%zu more are left out]\n", n - MAX_ENTRIES);
    hutch_mcp_add_flag(&r, "truncated", n > MAX_ENTRIES);
    hutch_mcp_add_member(&r, "session_id", call->session->handle);
    if (n == 0)
        hutch_mcp_add_string(&r, "[" INSIDE_DATA_DIR " is empty]");
    else
        hutch_mcp_add_text(&r, lines.data, lines.len);
    hutch_text_done(&lines);
    hutch_mcp_call_answer(call, &r);
}

const struct mcp_tool hutch_mcp_list_files = {
    .name = "list_files",
    .title = "List files",
    .description = "Lists the files below " INSIDE_DATA_DIR " with their sizes.",
    .arguments = list_arguments,
    .n_arguments = ARRAY_SIZE(list_arguments),
    .session_at = LIST_SESSION,
    .output_schema =
        "{\"type\":\"object\",\"properties\":{\"files\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
        "\"properties\":{\"path\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"}},\"required\":[\"path\"]}},"
        "\"truncated\":{\"type\":\"boolean\"},\"session_id\":{\"type\":\"string\"}},"
        "\"required\":[\"files\",\"truncated\",\"session_id\"]}",
    .annotations = READ_ONLY,
    .begin = begin_list,
};

/* --- read_file -------------------------------------------------------------------------------------------------- */

enum { READ_PATH, READ_OFFSET, READ_LENGTH, READ_SESSION };

static const struct mcp_argument read_arguments[] = {
    [READ_PATH] = { .name = "path", .type = MCP_STRING, .is_required = true, .description = PATH_DESCRIPTION },
    [READ_OFFSET] = { .name = "offset", .type = MCP_INTEGER, .min = 0, .max = MAX_OFFSET,
                      .description = "Byte to begin at (default 0)." },
    [READ_LENGTH] = { .name = "length", .type = MCP_INTEGER, .min = 1, .max = MAX_READ,
                      .description = "Bytes to read at most (default 65536). An image is read as a whole." },
    [READ_SESSION] = MCP_SESSION_ARGUMENT,
};

/* The file is the sandbox's, and may change while it is read. */
static ssize_t read_piece(int fd, uint64_t offset, unsigned char *to, size_t max)
{
    size_t len = 0;

    while (len < max) {
        ssize_t n = pread(fd, to + len, max - len, (off_t)(offset + len));

        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            break;
        len += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)len;
}

/* What of it is text: all, or all but a character that the end has cut. 0: it is none. */
static size_t text_length(const unsigned char *data, size_t len, bool is_end)
{
    const char *text = (const char *)data;
    enum utf8_kind kind;

    if (memchr(data, '\0', len))
        return 0;
    for (size_t i = 0; i < len;) {
        size_t step = hutch_utf8_next(text + i, len - i, &kind);

        if (kind == UTF8_BROKEN || (kind == UTF8_CUT && is_end))
            return 0;
        if (kind == UTF8_CUT)
            return i;
        i += step;
    }
    return len;
}

static void add_range(struct mcp_result *r, uint64_t from, uint64_t to, uint64_t size)
{
    struct text_buffer text = TEXT_BUFFER_INIT;

    hutch_text_addf(&text, "[bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64 "]", from, to, size);
    hutch_mcp_add_text(r, text.data, text.len);
    hutch_text_done(&text);
}

static void answer_read(struct mcp_call *call, const char *name, int fd, uint64_t size)
{
    const struct mcp_value *values = call->arguments.values;
    uint64_t offset = values[READ_OFFSET].is_set ? (uint64_t)values[READ_OFFSET].number : 0;
    size_t max = values[READ_LENGTH].is_set ? (size_t)values[READ_LENGTH].number : DEFAULT_READ, text_len;
    auto_free unsigned char *data = malloc(MCP_MAX_IMAGE_BYTES);
    struct mcp_result r = MCP_RESULT_INIT;
    ssize_t n = data ? read_piece(fd, offset, data, max) : -1;

    if (n >= 0 && offset == 0 && hutch_mcp_image_type(data, (size_t)n) && size <= MCP_MAX_IMAGE_BYTES)
        n = read_piece(fd, 0, data, MCP_MAX_IMAGE_BYTES);
    if (n < 0) {
        hutch_mcp_call_fail(call, "read '%s': %s", name, strerror(data ? errno : ENOMEM));
        return;
    }
    text_len = text_length(data, (size_t)n, offset + (uint64_t)n >= size);
    if (n == 0) {
        hutch_mcp_add_string(&r, size == 0 ? "[the file is empty]" : "[the file ends before this offset]");
    } else if (offset == 0 && hutch_mcp_image_type(data, (size_t)n)) {
        hutch_mcp_add_image(&r, name, data, (size_t)n);
    } else {
        if (text_len > 0)
            hutch_mcp_add_text(&r, (const char *)data, (size_t)(n = (ssize_t)text_len));
        else
            hutch_mcp_add_blob(&r, name, data, (size_t)n);
        if (offset > 0 || (uint64_t)n < size)
            add_range(&r, offset, offset + (uint64_t)n, size);
    }
    hutch_mcp_call_answer(call, &r);
}

static void begin_read(struct mcp_call *call)
{
    const char *path = call->arguments.values[READ_PATH].text, *name = name_of(path);
    auto_fd fd = open_file(call, path, name, O_RDONLY);
    struct stat st;

    if (fd < 0)
        return;
    if (fstat(fd, &st) < 0)
        hutch_mcp_call_fail(call, "look at '%s': %s", name, strerror(errno));
    else
        answer_read(call, name, fd, (uint64_t)st.st_size);
}

const struct mcp_tool hutch_mcp_read_file = {
    .name = "read_file",
    .title = "Read a file",
    .description = "Reads a file below " INSIDE_DATA_DIR ": text as text, PNG, JPEG, GIF and WebP as images, anything "
                   "else as an embedded resource in base64.",
    .arguments = read_arguments,
    .n_arguments = ARRAY_SIZE(read_arguments),
    .session_at = READ_SESSION,
    .annotations = READ_ONLY,
    .begin = begin_read,
};

/* --- write_file ------------------------------------------------------------------------------------------------- */

enum { WRITE_PATH, WRITE_CONTENT, WRITE_ENCODING, WRITE_SESSION };

static const char *const encodings[] = { "utf-8", "base64", NULL };

static const struct mcp_argument write_arguments[] = {
    [WRITE_PATH] = { .name = "path", .type = MCP_STRING, .is_required = true, .description = PATH_DESCRIPTION },
    [WRITE_CONTENT] = { .name = "content", .type = MCP_STRING, .is_required = true,
                        .description = "What the file is to hold." },
    [WRITE_ENCODING] = { .name = "encoding", .type = MCP_STRING, .values = encodings,
                         .description = "\"base64\": content stands for bytes (default \"utf-8\")." },
    [WRITE_SESSION] = MCP_SESSION_ARGUMENT,
};

/* A part of a file is removed: its reader would take it for the whole. */
static void give_up(struct mcp_call *call, const char *name, int errnum)
{
    struct hutch_err err;
    struct hutch_engine *engine = hutch_mcp_call_engine(call, &err);

    if (engine)
        hutch_session_delete_file(engine, call->session->id, name, NULL);
    hutch_mcp_call_fail(call, "write '%s': %s; it was removed", name, strerror(errnum));
}

static void answer_write(struct mcp_call *call, const char *name, const void *data, size_t len)
{
    struct text_buffer text = TEXT_BUFFER_INIT, *t;
    struct mcp_result r = MCP_RESULT_INIT;
    auto_fd fd = open_file(call, call->arguments.values[WRITE_PATH].text, name, O_WRONLY);

    if (fd < 0)
        return;
    if (hutch_fd_write_all(fd, data, len) < 0) {
        give_up(call, name, errno);
        return;
    }
    hutch_text_addf(&text, "%zu bytes are in " INSIDE_DATA_DIR "/%s", len, name);
    hutch_mcp_add_text(&r, text.data, text.len);
    hutch_text_done(&text);
    hutch_mcp_add_member(&r, "path", name);
    t = hutch_mcp_add_key(&r, "size");
    hutch_text_addf(t, "%zu", len);
    hutch_mcp_add_member(&r, "session_id", call->session->handle);
    hutch_mcp_call_answer(call, &r);
}

static void begin_write(struct mcp_call *call)
{
    const struct mcp_value *values = call->arguments.values, *content = &values[WRITE_CONTENT];
    const char *name = name_of(values[WRITE_PATH].text);
    auto_free unsigned char *decoded = NULL;
    size_t len;

    if (!values[WRITE_ENCODING].is_set || strcmp(values[WRITE_ENCODING].text, "base64") != 0) {
        answer_write(call, name, content->text, content->len);
        return;
    }
    decoded = hutch_base64_decode(content->text, content->len, &len);
    if (decoded)
        answer_write(call, name, decoded, len);
    else
        hutch_mcp_call_fail(call, errno == ENOMEM ? "there was not enough memory" : "'content' is not base64");
}

const struct mcp_tool hutch_mcp_write_file = {
    .name = "write_file",
    .title = "Write a file",
    .description = "Writes a file below " INSIDE_DATA_DIR ", with the directories that lead to it, and replaces "
                   "what has its name.",
    .arguments = write_arguments,
    .n_arguments = ARRAY_SIZE(write_arguments),
    .session_at = WRITE_SESSION,
    .output_schema = "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"size\":{\"type\":"
                     "\"integer\"},\"session_id\":{\"type\":\"string\"}},"
                     "\"required\":[\"path\",\"size\",\"session_id\"]}",
    .annotations = "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,"
                   "\"openWorldHint\":false}",
    .begin = begin_write,
};
