#include "runtime/config/policy.h"

#include "sandbox/fd.h"
#include "runtime/text/json.h"
#include "runtime/text/quantity.h"
#include "runtime/config/seccomp_profile.h"
#include "sandbox/spec.h"
#include "runtime/config/usual_mounts.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES (256u << 10)
#define MAX_DEPTH 8      /* of JSON */
#define MAX_EXTENDS 8    /* files in a row */
#define MAX_NAME_LEN 64
#define MAX_PATH_LEN 4000
#define MAX_MOUNTS 64
#define MAX_PATHS 128
#define MAX_VARIABLES 256
#define MAX_VALUE_LEN 32768
#define MAX_DESCRIPTION_LEN 4096

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define TIB (1ull << 40)

/* One call of hutch_policy_load(). */
struct load {
    const char *policy_dir;
    struct sandbox_spec *spec;
    bool require_all;    /* "enforcement": "require" */
    char *seccomp_path;  /* owned; NULL: none named, or null */
};

/* One file on the way down through "extends"; lives on the stack of read_file(). */
struct file {
    struct load *load;
    const struct file *child; /* the one that extends this one; NULL for the first */
    char *path;
    dev_t dev;
    ino_t ino;
};

static int read_file(const char *path, struct load *load, const struct file *child, struct hutch_err *err);

/* ---- finding files ---- */

/* "default, strict, trusted": what there is instead of a name that is not. */
static void list_names(const char *dir, char *buf, size_t size)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, alphasort);
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *dot = strrchr(name, '.');

        /* The seccomp profiles live beside the policies. */
        if (dot && dot != name && strcmp(dot, ".json") == 0 && strncmp(name, "seccomp", 7) != 0 && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%.*s", used ? ", " : "", (int)(dot - name), name);
        free(entries[i]);
    }
    free(entries);
}

static bool is_name(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len <= MAX_NAME_LEN && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

/* @base_dir is where a relative path starts; NULL: where the process stands. */
static int find_policy(const char *name_or_path, const char *policy_dir, const char *base_dir, char **ret,
                       struct hutch_err *err)
{
    auto_free char *path = NULL;
    char known[200];
    int n;

    if (!strchr(name_or_path, '/')) {
        if (!is_name(name_or_path))
            return hutch_err_set(err, 0, "'%.*s' is not the name of a policy; write a path with a '/' for a file",
                                 MAX_NAME_LEN, name_or_path);
        n = asprintf(&path, "%s/%s.json", policy_dir, name_or_path);
        if (n >= 0 && access(path, F_OK) < 0 && errno == ENOENT) {
            list_names(policy_dir, known, sizeof(known));
            hutch_err_set(err, 0, "there is no policy '%s' in '%s' (there are: %s%s)", name_or_path, policy_dir,
                          known[0] ? known : "none",
                          access(name_or_path, F_OK) == 0 ? "; a file is named with a '/', as in './policy.json'" : "");
            err->errnum = ENOENT;
            return -1;
        }
    } else if (name_or_path[0] != '/' && base_dir) {
        bool has_dot = strncmp(name_or_path, "./", 2) == 0;

        n = asprintf(&path, "%s/%s", base_dir, has_dot ? name_or_path + 2 : name_or_path);
    } else {
        n = asprintf(&path, "%s", name_or_path);
    }
    if (n < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "find the policy '%s'", name_or_path);
    }
    *ret = path;
    path = NULL;
    return 0;
}

/* Everything before the last '/'; the caller frees. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

int hutch_policy_dir(char **ret, struct hutch_err *err)
{
    static const char *const below[] = { "../share/hutch/policies", "../policies" };
    const char *given = getenv("HUTCH_POLICY_DIR");
    char exe[PATH_MAX];
    auto_free char *dir = NULL;
    struct stat st;
    ssize_t n;

    if (given && *given) {
        if (stat(given, &st) < 0)
            return hutch_err_set(err, errno, "HUTCH_POLICY_DIR names '%s'", given);
        if (!S_ISDIR(st.st_mode))
            return hutch_err_set(err, ENOTDIR, "HUTCH_POLICY_DIR names '%s'", given);
        *ret = strdup(given);
        return *ret ? 0 : hutch_err_set(err, ENOMEM, "find the policies");
    }
    n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n < 0)
        return hutch_err_set(err, errno,
                             "find the policies: read '/proc/self/exe' (HUTCH_POLICY_DIR can name them)");
    exe[n] = '\0';
    dir = directory_of(exe);
    for (size_t i = 0; dir && i < ARRAY_SIZE(below); i++) {
        char *path;

        if (asprintf(&path, "%s/%s", dir, below[i]) < 0)
            return hutch_err_set(err, ENOMEM, "find the policies");
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            *ret = path;
            return 0;
        }
        free(path);
    }
    return hutch_err_set(err, ENOENT,
                         "find the policies: neither '%s/%s' nor '%s/%s' is there (HUTCH_POLICY_DIR can name them)",
                         dir ? dir : "", below[0], dir ? dir : "", below[1]);
}

/* ---- small checks ---- */

/* A path inside the sandbox: absolute, and without components that mean something else than a name. */
static bool is_inside_path(const char *path)
{
    if (path[0] != '/' || strlen(path) > MAX_PATH_LEN)
        return false;
    for (const char *p = path; *p;) {
        size_t len;

        p += strspn(p, "/");
        len = strcspn(p, "/");
        if ((len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += len;
    }
    return true;
}

static int read_inside_path(const struct json_node *node, const char **ret, struct hutch_err *err)
{
    if (!hutch_json_is_string(node))
        return hutch_json_expected(node, err, "a string");
    if (hutch_json_string(node, MAX_PATH_LEN, ret, err) < 0)
        return -1;
    return is_inside_path(*ret) ? 0 : hutch_json_expected(node, err, "an absolute path without '.' or '..'");
}

static struct sandbox_spec *spec_of(void *context)
{
    return ((struct file *)context)->load->spec;
}

/* One of a few words. The index into @words, or -1. */
static int read_word(const struct json_node *node, const char *const *words, size_t n_words, struct hutch_err *err)
{
    char expected[160] = "";
    size_t used = 0;
    const char *text;

    if (hutch_json_is_string(node)) {
        if (hutch_json_string(node, MAX_VALUE_LEN, &text, err) < 0)
            return -1;
        for (size_t i = 0; i < n_words; i++)
            if (strcmp(words[i], text) == 0)
                return (int)i;
    }
    for (size_t i = 0; i < n_words && used < sizeof(expected); i++)
        used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"",
                                 i == 0 ? "" : i + 1 < n_words ? ", " : " or ", words[i]);
    return hutch_json_expected(node, err, "%s", expected);
}

/* ---- limits ---- */

enum limit_kind { KIND_BYTES, KIND_COUNT, KIND_CPUS, KIND_TIME };

static const struct limit_row {
    enum sandbox_limit limit; /* its name is the key */
    enum limit_kind kind;
    uint64_t min, max;
    const char *expected;
} limit_rows[] = {
    { LIMIT_MEMORY, KIND_BYTES, 4 * MIB, 1024 * TIB, "a size 4M..1024T such as \"512M\", or null" },
    { LIMIT_PIDS, KIND_COUNT, 1, 4194304, "a whole number 1..4194304, or null" },
    { LIMIT_CPUS, KIND_CPUS, 10, 1024000, "a number of CPUs 0.01..1024, or null" },
    { LIMIT_CPU_TIME, KIND_TIME, 1, 31536000000, "a duration 1ms..365d such as \"30s\", or null" },
    { LIMIT_WALL, KIND_TIME, 1, 31536000000, "a duration 1ms..365d such as \"30s\", or null" },
    { LIMIT_OUTPUT, KIND_BYTES, 1, 1024 * TIB, "a size 1..1024T such as \"8M\", or null" },
    { LIMIT_FILE_SIZE, KIND_BYTES, 1, 1024 * TIB, "a size 1..1024T such as \"256M\", or null" },
    { LIMIT_OPEN_FILES, KIND_COUNT, 16, 1048576, "a whole number 16..1048576, or null" },
    { LIMIT_DATA_SIZE, KIND_BYTES, 1, 1024 * TIB, "a size 1..1024T such as \"1G\", or null" },
    { LIMIT_DATA_FILES, KIND_COUNT, 1, 1000000000, "a whole number 1..1000000000, or null" },
    { LIMIT_TMP_SIZE, KIND_BYTES, 4 * KIB, 1024 * TIB, "a size 4K..1024T such as \"64M\", or null" },
};
_Static_assert(ARRAY_SIZE(limit_rows) == LIMIT_COUNT, "every limit can be set by a policy");

void hutch_policy_limit_range(enum sandbox_limit limit, uint64_t *ret_min, uint64_t *ret_max)
{
    for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++)
        if (limit_rows[i].limit == limit) {
            *ret_min = limit_rows[i].min;
            *ret_max = limit_rows[i].max;
        }
}

/* A duration as text, or a number of seconds; CPUs as text or a number; sizes as text or a number of bytes. */
static bool read_quantity(const struct json_node *node, enum limit_kind kind, uint64_t *ret)
{
    struct hutch_err ignored; /* the caller's sentence says what is accepted here, with its range */
    double number = hutch_json_number(node), scale = kind == KIND_CPUS || kind == KIND_TIME ? 1000 : 1;
    const char *text;

    if (hutch_json_is_string(node)) {
        if (hutch_json_string(node, MAX_NAME_LEN, &text, &ignored) < 0)
            return false;
        return kind == KIND_BYTES  ? hutch_parse_bytes(text, ret, &ignored) == 0
               : kind == KIND_TIME ? hutch_parse_duration_ms(text, ret, &ignored) == 0
               : kind == KIND_CPUS ? hutch_parse_cpus(text, ret, &ignored) == 0
                                   : false;
    }
    if (!hutch_json_is_number(node) || !(number >= 0 && number * scale <= (double)JSON_U64_MAX))
        return false;
    *ret = (uint64_t)(number * scale + (scale > 1 ? 0.5 : 0));
    return scale > 1 || (double)*ret == number;
}

static int read_limit(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct sandbox_spec *spec = spec_of(context);

    for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
        const struct limit_row *row = &limit_rows[i];
        uint64_t value = 0;

        if (strcmp(hutch_limit_name(row->limit), node->key) != 0)
            continue;
        if (!hutch_json_is_null(node) &&
            (!read_quantity(node, row->kind, &value) || value < row->min || value > row->max))
            return hutch_json_expected(node, err, "%s", row->expected);
        spec->limits[row->limit] = value;
        return 0;
    }
    return hutch_json_refuse(node, err, "unknown limit");
}

static int read_grace(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t value;

    if (!read_quantity(node, KIND_TIME, &value) || value > 600000)
        return hutch_json_expected(node, err, "a duration 0..10m such as \"2s\"");
    spec_of(context)->grace_ms = value;
    return 0;
}

static int read_limits(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct json_field fields[LIMIT_COUNT + 1];

    for (size_t i = 0; i < LIMIT_COUNT; i++)
        fields[i] = (struct json_field){ hutch_limit_name(limit_rows[i].limit), read_limit, false };
    fields[LIMIT_COUNT] = (struct json_field){ "grace", read_grace, false };
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), context, err);
}

/* ---- layers ---- */

/* Without these there is no sandbox, and nothing in sandbox/ would know how to go on: a policy may say "require",
 * which is what they are anyway. net_namespace follows "network". */
static bool is_core(enum sandbox_layer layer)
{
    return layer != LAYER_SECCOMP && layer != LAYER_LANDLOCK && layer != LAYER_CGROUP;
}

static int read_layer(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { [NEED_OFF] = "off", [NEED_TRY] = "try", [NEED_REQUIRE] = "require" };
    struct sandbox_spec *spec = spec_of(context);

    for (int i = 0; i < LAYER_COUNT; i++) {
        int need;

        if (strcmp(hutch_layer_name((enum sandbox_layer)i), node->key) != 0)
            continue;
        need = is_core((enum sandbox_layer)i) ? read_word(node, &words[NEED_REQUIRE], 1, err)
                                              : read_word(node, words, ARRAY_SIZE(words), err);
        if (need < 0)
            return -1;
        spec->layers[i] = is_core((enum sandbox_layer)i) ? NEED_REQUIRE : (enum sandbox_need)need;
        return 0;
    }
    return hutch_json_refuse(node, err, "unknown layer");
}

static int read_layers(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct json_field fields[LAYER_COUNT];

    for (int i = 0; i < LAYER_COUNT; i++)
        fields[i] = (struct json_field){ hutch_layer_name((enum sandbox_layer)i), read_layer, false };
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), context, err);
}

static int read_enforcement(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { "best-effort", "require" };
    int word = read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    ((struct file *)context)->load->require_all = word == 1;
    return 0;
}

/* ---- network, seccomp, names ---- */

static int read_network(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { [NETWORK_NONE] = "none", [NETWORK_HOST] = "host" };
    int word = read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    spec_of(context)->network = (enum sandbox_network)word;
    return 0;
}

static int read_seccomp(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct file *file = context;
    auto_free char *dir = NULL;
    const char *name;
    char *path = NULL;

    if (!hutch_json_is_null(node)) {
        if (!hutch_json_is_string(node))
            return hutch_json_expected(node, err, "the file name of a seccomp profile, or null");
        if (hutch_json_string(node, MAX_PATH_LEN, &name, err) < 0)
            return -1;
        if (!*name)
            return hutch_json_expected(node, err, "the file name of a seccomp profile, or null");
        dir = directory_of(file->path);
        if (!dir || asprintf(&path, "%s%s%s", name[0] == '/' ? "" : dir, name[0] == '/' ? "" : "/", name) < 0)
            return hutch_err_set(err, ENOMEM, "%s: find the seccomp profile", node->what);
    }
    free(file->load->seccomp_path);
    file->load->seccomp_path = path;
    return 0;
}

static int read_hostname(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const char *name = "";

    if (hutch_json_is_string(node) && hutch_json_string(node, MAX_PATH_LEN, &name, err) < 0)
        return -1;
    if (!*name || strlen(name) > 64 || strspn(name, allowed) != strlen(name) || strchr("-.", name[0]))
        return hutch_json_expected(node, err, "a host name of 1..64 letters, digits, '-' and '.'");
    return hutch_spec_set_string(&spec_of(context)->hostname, name, err);
}

static int read_workdir(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *path;

    if (read_inside_path(node, &path, err) < 0)
        return -1;
    return hutch_spec_set_string(&spec_of(context)->cwd, path, err);
}

/* ---- environment ---- */

static bool is_variable_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    return *name && !strchr("0123456789", *name) && strlen(name) <= MAX_NAME_LEN &&
           strspn(name, letters) == strlen(name);
}

static void remove_variable(char **envp, const char *name)
{
    size_t len = strlen(name), kept = 0;

    for (size_t i = 0; envp[i]; i++) {
        if (strncmp(envp[i], name, len) == 0 && envp[i][len] == '=')
            free(envp[i]);
        else
            envp[kept++] = envp[i];
    }
    envp[kept] = NULL;
}

static int read_variable(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct sandbox_spec *spec = spec_of(context);
    const char *value;

    if (!is_variable_name(node->key))
        return hutch_json_refuse(node, err,
                                 "not the name of an environment variable (letters, digits and '_', at most %d)",
                                 MAX_NAME_LEN);
    if (hutch_json_is_null(node)) {
        remove_variable(spec->envp, node->key);
        return 0;
    }
    if (!hutch_json_is_string(node))
        return hutch_json_expected(node, err, "a string, or null to remove the variable");
    if (hutch_json_string(node, MAX_VALUE_LEN, &value, err) < 0)
        return -1;
    return hutch_spec_set_env(spec, node->key, value, err);
}

static int read_environment(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_map(node, MAX_VARIABLES, read_variable, context, err);
}

/* ---- mounts and paths ---- */

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
    int word = read_word(node, words, ARRAY_SIZE(words), err);

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
    if (read_inside_path(node, &reader->source, err) < 0)
        return -1;
    return 0;
}

static int read_mount_target(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct mount_reader *reader = context;

    if (read_inside_path(node, &reader->target, err) < 0)
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
    struct mount_reader *reader = context;

    if (reader->kind != MOUNT_TMPFS)
        return hutch_json_refuse(node, err, "only a tmpfs has a size");
    if (!read_quantity(node, KIND_BYTES, &reader->size) || reader->size < 4 * KIB || reader->size > 1024 * TIB)
        return hutch_json_expected(node, err, "a size 4K..1024T such as \"64M\"");
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
    mount = hutch_spec_add_mount(spec_of(context), (enum sandbox_mount_kind)reader.kind, reader.source,
                                 reader.target, flags, err);
    if (!mount)
        return hutch_err_wrap(err, "%s", node->what);
    mount->size_bytes = reader.size;
    return 0;
}

static int read_mounts(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_array(node, MAX_MOUNTS, read_mount, context, err);
}

struct path_list {
    const char *paths[MAX_PATHS];
    size_t n;
};

static int read_listed_path(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct path_list *list = context;

    if (read_inside_path(node, &list->paths[list->n], err) < 0)
        return -1;
    list->n++;
    return 0;
}

static int read_path_list(const struct json_node *node, char ***field, struct hutch_err *err)
{
    struct path_list list = { .n = 0 };

    if (hutch_json_array(node, MAX_PATHS, read_listed_path, &list, err) < 0)
        return -1;
    return hutch_spec_set_list(field, list.paths, list.n, err);
}

static int read_masked_paths(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_path_list(node, &spec_of(context)->masked_paths, err);
}

static int read_readonly_paths(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_path_list(node, &spec_of(context)->readonly_paths, err);
}

/* ---- a file ---- */

static int read_schema(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t version;

    (void)context;
    return hutch_json_u64(node, 1, 1, &version, err);
}

static int read_description(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *text;

    (void)context;
    return hutch_json_string(node, MAX_DESCRIPTION_LEN, &text, err);
}

static int read_extends(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct file *file = context;
    auto_free char *dir = directory_of(file->path);
    auto_free char *path = NULL;
    const char *base;

    if (!dir)
        return hutch_err_set(err, ENOMEM, "%s: find what it extends", node->what);
    if (hutch_json_string(node, MAX_PATH_LEN, &base, err) < 0)
        return -1;
    if (find_policy(base, file->load->policy_dir, dir, &path, err) == 0 &&
        read_file(path, file->load, file, err) == 0)
        return 0;
    /* The way there is worth naming, but not at the price of the end of the message, which says what is wrong. */
    if (strlen(err->msg) + strlen(node->what) + strlen(": at $.extends: ") < sizeof(err->msg))
        hutch_err_wrap(err, "%s: at $.extends", node->what);
    return -1;
}

static int check_chain(const struct file *file, struct hutch_err *err)
{
    unsigned depth = 1;

    for (const struct file *f = file->child; f; f = f->child, depth++)
        if (f->dev == file->dev && f->ino == file->ino)
            return hutch_err_set(err, 0, "policy '%s' extends itself", file->path);
    if (depth > MAX_EXTENDS)
        return hutch_err_set(err, 0, "more than %d policies extend one another", MAX_EXTENDS);
    return 0;
}

static int read_file(const char *path, struct load *load, const struct file *child, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "schema", read_schema, true },
        { "description", read_description, false },
        { "extends", read_extends, false }, /* before all that may override it */
        { "enforcement", read_enforcement, false },
        { "layers", read_layers, false },
        { "limits", read_limits, false },
        { "network", read_network, false },
        { "seccomp", read_seccomp, false },
        { "hostname", read_hostname, false },
        { "workdir", read_workdir, false },
        { "environment", read_environment, false },
        { "mounts", read_mounts, false },
        { "masked_paths", read_masked_paths, false },
        { "readonly_paths", read_readonly_paths, false },
    };
    auto_free char *own_path = strdup(path);
    struct file file = { .load = load, .child = child, .path = own_path };
    struct json_doc doc = JSON_DOC_INIT;
    struct json_node root;
    struct stat st;
    int rc;

    if (!own_path)
        return hutch_err_set(err, ENOMEM, "read the policy '%s'", path);
    if (stat(path, &st) < 0)
        return hutch_err_set(err, errno, "open policy '%s'", path);
    file.dev = st.st_dev;
    file.ino = st.st_ino;
    if (check_chain(&file, err) < 0 || hutch_json_load("policy", path, MAX_FILE_BYTES, MAX_DEPTH, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    rc = hutch_json_object(&root, fields, ARRAY_SIZE(fields), &file, err);
    hutch_json_done(&doc);
    return rc;
}

/* What depends on several keys, once all files are read. */
static int settle(struct load *load, struct hutch_err *err)
{
    struct sandbox_spec *spec = load->spec;
    struct seccomp_rules rules;

    spec->limits_need = load->require_all ? NEED_REQUIRE : NEED_TRY;
    for (size_t i = 0; load->require_all && i < LAYER_COUNT; i++)
        if (spec->layers[i] == NEED_TRY)
            spec->layers[i] = NEED_REQUIRE;
    spec->layers[LAYER_NET_NS] = spec->network == NETWORK_HOST ? NEED_OFF : NEED_REQUIRE;
    if (spec->layers[LAYER_SECCOMP] == NEED_OFF)
        return 0;
    if (!load->seccomp_path)
        return hutch_err_set(err, 0,
                             "no seccomp profile is named at $.seccomp, and $.layers.seccomp is not \"off\"");
    if (hutch_seccomp_profile_load(load->seccomp_path, &rules, err) < 0)
        return -1;
    hutch_seccomp_rules_done(&spec->seccomp);
    spec->seccomp = rules;
    return 0;
}

int hutch_policy_load(const char *name_or_path, const char *policy_dir, struct sandbox_spec *spec,
                      struct hutch_err *err)
{
    struct load load = { .policy_dir = policy_dir, .spec = spec };
    auto_free char *path = NULL;
    int rc;

    if (find_policy(name_or_path, policy_dir, NULL, &path, err) < 0)
        return -1;
    rc = read_file(path, &load, NULL, err);
    if (rc == 0 && settle(&load, err) < 0)
        rc = hutch_err_wrap(err, "policy '%s'", path);
    free(load.seccomp_path);
    return rc;
}
