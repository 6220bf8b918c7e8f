/* session_path.c - hutch.h's functions for paths inside a session: which order is meant, and its answer as JSON. */
#include "runtime/lib/engine_priv.h"

#include "runtime/text/json_write.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

static int check_paths(const struct session *s, struct hutch_error *error)
{
    struct hutch_err err;

    if (s->paths.is_allowed)
        return 0;
    hutch_err_set(&err, 0, "the session was opened without paths");
    return hutch_engine_tell(error, &err, EINVAL);
}

static int order_path(struct hutch_engine *engine, uint64_t session, const struct path_order *order, const char *path,
                      const char *new_path, const struct hutch_path_options *given, struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, session, error);
    struct hutch_path_options options;
    struct hutch_err err = { 0 };

    if (!s || check_paths(s, error) < 0)
        return -1;
    hutch_engine_copy_sized(&options, sizeof(options), given);
    if (hutch_descriptors_for_path(engine, &err) < 0 ||
        hutch_paths_add(s, order, path, new_path, &options, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    return 0;
}

static int order_kind(struct hutch_engine *engine, uint64_t session, enum path_kind kind, const char *path,
                      const char *new_path, const struct hutch_path_options *options, struct hutch_error *error)
{
    const struct path_order order = { .kind = kind };

    return order_path(engine, session, &order, path, new_path, options, error);
}

int hutch_session_stat(struct hutch_engine *engine, uint64_t session, const char *path,
                       const struct hutch_path_options *options, struct hutch_error *error)
{
    return order_kind(engine, session, PATH_STAT, path, NULL, options, error);
}

int hutch_session_list(struct hutch_engine *engine, uint64_t session, const char *path,
                       const struct hutch_path_options *options, struct hutch_error *error)
{
    return order_kind(engine, session, PATH_LIST, path, NULL, options, error);
}

int hutch_session_make_directory(struct hutch_engine *engine, uint64_t session, const char *path,
                                 const struct hutch_path_options *options, struct hutch_error *error)
{
    return order_kind(engine, session, PATH_MAKE, path, NULL, options, error);
}

int hutch_session_rename(struct hutch_engine *engine, uint64_t session, const char *path, const char *new_path,
                         const struct hutch_path_options *options, struct hutch_error *error)
{
    return order_kind(engine, session, PATH_RENAME, path, new_path, options, error);
}

int hutch_session_remove(struct hutch_engine *engine, uint64_t session, const char *path,
                         const struct hutch_path_options *options, struct hutch_error *error)
{
    return order_kind(engine, session, PATH_REMOVE, path, NULL, options, error);
}

int hutch_session_open_path(struct hutch_engine *engine, uint64_t session, const char *path, int flags,
                            const struct hutch_path_options *options, struct hutch_error *error)
{
    static const int for_writing = O_CREAT | O_EXCL | O_TRUNC | O_APPEND;
    const bool is_write = (flags & O_ACCMODE) == O_WRONLY;
    const struct path_order order = {
        .kind = PATH_OPEN,
        .flags = (is_write ? PATH_WRITE : 0) | (flags & O_CREAT ? PATH_CREATE : 0) | (flags & O_EXCL ? PATH_NEW : 0) |
                 (flags & O_TRUNC ? PATH_EMPTY : 0) | (flags & O_APPEND ? PATH_APPEND : 0),
    };
    struct hutch_err err;

    flags &= ~(O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* it is opened with these */
    if ((is_write ? flags & ~(O_WRONLY | for_writing) : flags != O_RDONLY) ||
        ((flags & O_EXCL) && !(flags & O_CREAT))) {
        hutch_err_say(&err, EINVAL, "the flags 0%o: O_RDONLY, or O_WRONLY with O_CREAT, O_EXCL, O_TRUNC and O_APPEND, "
                                    "can be", flags);
        return hutch_engine_tell(error, &err, 0);
    }
    return order_path(engine, session, &order, path, NULL, options, error);
}

/* --- changes of a directory --------------------------------------------------------------------------------------- */

int hutch_session_watch(struct hutch_engine *engine, uint64_t session, const char *path,
                        const struct hutch_watch_options *given, uint64_t *ret_watch, struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, session, error);
    struct hutch_watch_options options;
    struct hutch_err err = { 0 };
    uint64_t id;

    if (!s || check_paths(s, error) < 0)
        return -1;
    hutch_engine_copy_sized(&options, sizeof(options), given);
    if (hutch_descriptors_for_path(engine, &err) < 0 || hutch_dir_watch_add(s, path, &options, &id, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    if (ret_watch)
        *ret_watch = id;
    return 0;
}

int hutch_session_unwatch(struct hutch_engine *engine, uint64_t session, uint64_t watch)
{
    struct session *s = hutch_engine_find_session(engine, session, NULL);

    return s && hutch_dir_watch_end(s, watch);
}

/* --- as JSON ------------------------------------------------------------------------------------------------------ */

static const char *name_type(enum hutch_path_type type)
{
    switch (type) {
    case HUTCH_PATH_FILE: return "file";
    case HUTCH_PATH_DIRECTORY: return "directory";
    case HUTCH_PATH_LINK: return "link";
    case HUTCH_PATH_FIFO: return "fifo";
    case HUTCH_PATH_SOCKET: return "socket";
    case HUTCH_PATH_DEVICE: return "device";
    case HUTCH_PATH_OTHER: break;
    }
    return "other";
}

static bool add_entry(cJSON *entries, const struct hutch_path_entry *e)
{
    cJSON *o = cJSON_CreateObject();

    cJSON_AddItemToArray(entries, o);
    return o && hutch_json_add_path(o, e->path) && hutch_json_add_string(o, "type", name_type(e->type)) &&
           hutch_json_add_u64(o, "mode", e->mode) && hutch_json_add_u64(o, "uid", e->uid) &&
           hutch_json_add_u64(o, "gid", e->gid) && hutch_json_add_u64(o, "size", e->bytes) &&
           hutch_json_add(o, "mtime", cJSON_CreateNumber(e->mtime)) &&
           (e->target ? hutch_json_add_name(o, "target", "target_base64", e->target)
                      : hutch_json_add_string(o, "target", NULL));
}

static bool add_reply(cJSON *o, const struct hutch_path_reply *reply)
{
    cJSON *error, *entries;

    if (!reply->ok) {
        error = hutch_json_add_new(o, "error", cJSON_CreateObject());
        return error && hutch_json_add_u64(error, "errno", (uint64_t)reply->code) &&
               hutch_json_add_string(error, "message", reply->message);
    }
    entries = hutch_json_add_new(o, "entries", cJSON_CreateArray());
    for (size_t i = 0; entries && i < reply->n_entries; i++)
        if (!add_entry(entries, &reply->entries[i]))
            return false;
    return entries && hutch_json_add_bool(o, "truncated", reply->truncated) &&
           hutch_json_add_bool(o, "existed", reply->existed);
}

char *hutch_path_reply_to_json(const struct hutch_path_reply *reply)
{
    cJSON *o = cJSON_CreateObject();
    char *json = NULL;

    if (o && add_reply(o, reply) && hutch_json_add_ms(o, "ms", reply->ms))
        json = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return json;
}
