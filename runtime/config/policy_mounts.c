#include "runtime/config/policy_mounts.h"

#include "runtime/config/limits.h"
#include "runtime/config/policy_value.h"
#include "runtime/config/usual_mounts.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#define MAX_MOUNTS 64
#define MAX_PATHS 128

struct mount_reader {
    int kind; /* -1: not read yet */
    const char *source, *target;
    bool has_readonly, readonly, optional, noexec;
    uint64_t size;
};

static int read_mount_type(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { "bind", "tmpfs" };
    static const enum sandbox_mount_kind kinds[] = { MOUNT_BIND, MOUNT_TMPFS };
    int word = hutch_policy_read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    ((struct mount_reader *)context)->kind = (int)kinds[word];
    return 0;
}

static int read_mount_source(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct mount_reader *reader = context;

    if (reader->kind != MOUNT_BIND)
        return hutch_json_refuse(node, err, "a tmpfs has no source");
    if (hutch_policy_read_path(node, &reader->source, err) < 0)
        return -1;
    return 0;
}

static int read_mount_target(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct mount_reader *reader = context;

    if (hutch_policy_read_path(node, &reader->target, err) < 0)
        return -1;
    if (hutch_usual_mounts_are_hidden_by(reader->target))
        return hutch_json_refuse(node, err, "'%.80s' is set up by hutch itself", reader->target);
    return 0;
}

static int read_mount_readonly(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct mount_reader *reader = context;

    reader->has_readonly = true;
    return hutch_json_bool(node, &reader->readonly, err);
}

static int read_mount_optional(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct mount_reader *reader = context;

    if (reader->kind != MOUNT_BIND)
        return hutch_json_refuse(node, err, "a tmpfs is never missing");
    return hutch_json_bool(node, &reader->optional, err);
}

static int read_mount_noexec(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_bool(node, &((struct mount_reader *)context)->noexec, err);
}

static int read_mount_size(const struct json_node *node, void *context, struct hutch_err *err)
{
    const struct limit *as_tmp = &hutch_limit_rows[LIMIT_TMP_SIZE];
    struct mount_reader *reader = context;
    char accepted[LIMIT_TEXT_SIZE];

    if (reader->kind != MOUNT_TMPFS)
        return hutch_json_refuse(node, err, "only a tmpfs has a size");
    if (!hutch_policy_read_quantity(node, UNIT_BYTES, &reader->size) || hutch_limit_refuses(as_tmp, reader->size))
        return hutch_json_expected(node, err, "a %s such as \"%s\"", hutch_limit_describe(as_tmp, accepted),
                                   as_tmp->example);
    return 0;
}

static int read_mount(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "type", read_mount_type, true }, /* first: the others ask for it */
        { "source", read_mount_source, false },
        { "target", read_mount_target, true },
        { "readonly", read_mount_readonly, false },
        { "optional", read_mount_optional, false },
        { "noexec", read_mount_noexec, false },
        { "size", read_mount_size, false },
    };
    struct mount_reader reader = { .kind = -1 };
    struct sandbox_mount *mount;
    bool is_readonly;
    unsigned flags;

    if (hutch_json_object(node, fields, ARRAY_SIZE(fields), &reader, err) < 0)
        return -1;
    if (reader.kind == MOUNT_BIND && !reader.source)
        return hutch_json_refuse(node, err, "the key \"source\" is missing");
    is_readonly = reader.has_readonly ? reader.readonly : reader.kind == MOUNT_BIND;
    flags = (is_readonly ? MOUNT_RDONLY : 0) | (reader.noexec ? MOUNT_NOEXEC : 0) |
            (reader.optional ? MOUNT_OPTIONAL : 0);
    if (reader.kind == MOUNT_BIND && !is_readonly)
        flags |= MOUNT_IDMAP; /* what the sandbox writes belongs to the directory's owner */
    mount = hutch_spec_add_mount(context, (enum sandbox_mount_kind)reader.kind, reader.source, reader.target, flags,
                                 err);
    if (!mount)
        return hutch_err_wrap(err, "%s", node->what);
    mount->size_bytes = reader.size;
    return 0;
}

int hutch_policy_read_mounts(const struct json_node *node, struct sandbox_spec *spec, struct hutch_err *err)
{
    return hutch_json_array(node, MAX_MOUNTS, read_mount, spec, err);
}

struct path_list {
    const char *paths[MAX_PATHS];
    size_t n;
};

static int read_listed_path(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct path_list *list = context;

    if (hutch_policy_read_path(node, &list->paths[list->n], err) < 0)
        return -1;
    list->n++;
    return 0;
}

int hutch_policy_read_paths(const struct json_node *node, char ***field, struct hutch_err *err)
{
    struct path_list list = { .n = 0 };

    if (hutch_json_array(node, MAX_PATHS, read_listed_path, &list, err) < 0)
        return -1;
    return hutch_spec_set_list(field, list.paths, list.n, err);
}
