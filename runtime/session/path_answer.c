#include "runtime/session/path_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A packet as it came: the texts of entries are in it. */
struct path_chunk {
    struct path_chunk *next;
    char data[];
};

void hutch_path_answer_init(struct path_answer *a, const struct path_order *order)
{
    *a = (struct path_answer){
        .is_list = order->kind == PATH_LIST,
        .depth = order->kind == PATH_LIST ? order->depth : 0,
        .max_entries = order->kind == PATH_LIST ? order->max_entries : 1,
    };
}

void hutch_path_answer_done(struct path_answer *a)
{
    while (a->chunks) {
        struct path_chunk *next = a->chunks->next;

        free(a->chunks);
        a->chunks = next;
    }
    free(a->entries);
    a->entries = NULL;
    a->n = a->room = 0;
}

static int refuse(struct hutch_err *err, const char *what)
{
    return hutch_err_set(err, EPROTO, "what was answered from inside is not an answer: %s", what);
}

static enum hutch_path_type type_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return HUTCH_PATH_FILE;
    case S_IFDIR: return HUTCH_PATH_DIRECTORY;
    case S_IFLNK: return HUTCH_PATH_LINK;
    case S_IFIFO: return HUTCH_PATH_FIFO;
    case S_IFSOCK: return HUTCH_PATH_SOCKET;
    case S_IFCHR:
    case S_IFBLK: return HUTCH_PATH_DEVICE;
    default: return HUTCH_PATH_OTHER;
    }
}

/* At most @depth names, none of which leads elsewhere. */
static bool is_below(const char *path, uint32_t depth)
{
    for (uint32_t n = 0; n < depth; n++) {
        size_t len = strcspn(path, "/");

        if (len == 0 || (len == 1 && path[0] == '.') || (len == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        if (path[len] == '\0')
            return true;
        path += len + 1;
    }
    return false;
}

static bool is_text(const char *text, size_t len)
{
    return memchr(text, '\0', len) == text + len - 1;
}

static int add_entry(struct path_answer *a, const struct hutch_path_entry *entry, struct hutch_err *err)
{
    if (a->n == a->max_entries)
        return refuse(err, "it has more entries than were asked for");
    if (a->n == a->room) {
        size_t room = a->room ? 2 * a->room : 16;
        struct hutch_path_entry *more = reallocarray(a->entries, room, sizeof(*more));

        if (!more)
            return hutch_err_set(err, ENOMEM, "keep what is inside");
        a->entries = more;
        a->room = room;
    }
    a->entries[a->n++] = *entry;
    return 0;
}

/* Takes one of the *@len bytes at *@at. */
static int take_record(struct path_answer *a, const char **at, size_t *len, struct hutch_err *err)
{
    struct path_record r;
    struct hutch_path_entry entry;
    const char *path, *target;
    size_t texts;

    if (*len < sizeof(r))
        return refuse(err, "an entry is cut");
    memcpy(&r, *at, sizeof(r));
    texts = (size_t)r.path_len + r.target_len;
    if (r.path_len == 0 || r.target_len == 0 || *len - sizeof(r) < texts)
        return refuse(err, "an entry is cut");
    path = *at + sizeof(r);
    target = path + r.path_len;
    if (!is_text(path, r.path_len) || !is_text(target, r.target_len))
        return refuse(err, "a name does not end where it should");
    if (a->is_list ? !is_below(path, a->depth) : path[0] != '\0')
        return refuse(err, "a name leads elsewhere");
    a->names += texts;
    if (a->names > PATH_NAMES_MAX)
        return refuse(err, "it is too long");
    entry = (struct hutch_path_entry){
        .path = path,
        .type = type_of(r.mode),
        .mode = r.mode & 07777,
        .uid = r.uid,
        .gid = r.gid,
        .bytes = r.bytes,
        .mtime = (double)r.mtime_s + (double)(r.mtime_ns % 1000000000u) / 1e9,
        .target = r.has_target ? target : NULL,
    };
    *at += sizeof(r) + texts;
    *len -= sizeof(r) + texts;
    return add_entry(a, &entry, err);
}

static int take_records(struct path_answer *a, const char *data, size_t len, uint32_t n, struct hutch_err *err)
{
    struct path_chunk *chunk;
    const char *at;

    if (n == 0 && len == 0)
        return 0;
    if (n == 0 || n > len / sizeof(struct path_record))
        return refuse(err, "it has another length than it says");
    chunk = malloc(sizeof(*chunk) + len);
    if (!chunk)
        return hutch_err_set(err, ENOMEM, "keep what is inside");
    memcpy(chunk->data, data, len);
    chunk->next = a->chunks;
    a->chunks = chunk;
    at = chunk->data;
    for (uint32_t i = 0; i < n; i++)
        if (take_record(a, &at, &len, err) < 0)
            return -1;
    return len == 0 ? 0 : refuse(err, "it has another length than it says");
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct hutch_path_entry *)a)->path, ((const struct hutch_path_entry *)b)->path);
}

int hutch_path_answer_take(struct path_answer *a, const void *packet, size_t len, struct hutch_err *err)
{
    struct path_said said;

    if (len < sizeof(said) || len > PATH_PACKET_MAX)
        return refuse(err, "its length is wrong");
    memcpy(&said, packet, sizeof(said));
    switch (said.what) {
    case PATH_ENTRIES:
        if (!a->is_list || said.n == 0)
            return refuse(err, "it says nothing");
        break;
    case PATH_DONE:
        a->is_over = true;
        a->truncated = a->is_list && said.truncated != 0;
        a->existed = !a->is_list && said.existed != 0;
        break;
    case PATH_FAILED:
        a->is_over = true;
        a->n = 0;
        a->step = said.step < PATH_STEPS ? (enum path_step)said.step : PATH_STEP_ORDER;
        a->errnum = said.errnum > 0 && said.errnum < 4096 ? said.errnum : EPROTO;
        return len == sizeof(said) ? 0 : refuse(err, "it has another length than it says");
    default:
        return refuse(err, "it begins with something else");
    }
    if (take_records(a, (const char *)packet + sizeof(said), len - sizeof(said), said.n, err) < 0)
        return -1;
    if (a->is_over && a->n > 1)
        qsort(a->entries, a->n, sizeof(*a->entries), compare_entries);
    return 0;
}
