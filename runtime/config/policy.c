#include "runtime/config/policy.h"

#include "runtime/config/policy_find.h"
#include "runtime/config/policy_limits.h"
#include "runtime/config/policy_mounts.h"
#include "runtime/config/policy_value.h"
#include "runtime/config/seccomp_profile.h"
#include "runtime/text/json.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES (256u << 10)
#define MAX_DEPTH 8      /* of JSON */
#define MAX_EXTENDS 8    /* files in a row */
#define MAX_NAME_LEN 64
#define MAX_VARIABLES 256
#define MAX_VALUE_LEN 32768
#define MAX_DESCRIPTION_LEN 4096

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

static struct sandbox_spec *spec_of(void *context)
{
    return ((struct file *)context)->load->spec;
}

static int read_limits(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_policy_read_limits(node, spec_of(context), err);
}

static int read_mounts(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_policy_read_mounts(node, spec_of(context), err);
}

static int read_root_changes(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *path;

    if (hutch_policy_read_path(node, &path, err) < 0)
        return -1;
    return hutch_spec_set_changes(spec_of(context), path, err);
}

static int read_masked_paths(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_policy_read_paths(node, &spec_of(context)->masked_paths, err);
}

static int read_readonly_paths(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_policy_read_paths(node, &spec_of(context)->readonly_paths, err);
}

/* ---- layers ---- */

/* What a sandbox may go without where something around hutch forbids it, and never because a policy says so. */
static bool is_tried(enum sandbox_layer layer)
{
    return layer == LAYER_OWN_PROC || layer == LAYER_HOST_NAME || layer == LAYER_NET_BUFFERS;
}

/* Without these there is no sandbox, and nothing in sandbox/ would know how to go on: a policy may say "require",
 * which is what they are anyway. net_namespace follows "network". */
static bool is_core(enum sandbox_layer layer)
{
    return layer != LAYER_SECCOMP && layer != LAYER_LANDLOCK && layer != LAYER_CGROUP && layer != LAYER_OWN_UID &&
           layer != LAYER_OWN_INODES && !is_tried(layer);
}

static int read_layer(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { [NEED_OFF] = "off", [NEED_TRY] = "try", [NEED_REQUIRE] = "require" };
    struct sandbox_spec *spec = spec_of(context);

    for (int i = 0; i < LAYER_COUNT; i++) {
        enum sandbox_need least = is_core((enum sandbox_layer)i)    ? NEED_REQUIRE
                                  : is_tried((enum sandbox_layer)i) ? NEED_TRY
                                                                    : NEED_OFF;
        int need;

        if (strcmp(hutch_layer_name((enum sandbox_layer)i), node->key) != 0)
            continue;
        need = hutch_policy_read_word(node, &words[least], ARRAY_SIZE(words) - least, err);
        if (need < 0)
            return -1;
        spec->layers[i] = least + (enum sandbox_need)need;
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
    int word = hutch_policy_read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    ((struct file *)context)->load->require_all = word == 1;
    return 0;
}

/* ---- network, seccomp, names ---- */

static int read_network(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { [NETWORK_NONE] = "none", [NETWORK_HOST] = "host" };
    int word = hutch_policy_read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    spec_of(context)->network = (enum sandbox_network)word;
    return 0;
}

static int read_gpu(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { [GPU_NONE] = "none", [GPU_COMPUTE] = "compute", [GPU_MODESET] = "modeset" };
    int word = hutch_policy_read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    spec_of(context)->gpu = (enum sandbox_gpu)word;
    return 0;
}

static int read_data_place(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const words[] = { [DATA_AUTO] = "auto", [DATA_MEMORY] = "memory", [DATA_DISK] = "disk" };
    int word = hutch_policy_read_word(node, words, ARRAY_SIZE(words), err);

    if (word < 0)
        return -1;
    spec_of(context)->data_place = (enum sandbox_data_place)word;
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
        if (hutch_json_string(node, POLICY_MAX_PATH_LEN, &name, err) < 0)
            return -1;
        if (!*name)
            return hutch_json_expected(node, err, "the file name of a seccomp profile, or null");
        dir = hutch_policy_directory_of(file->path);
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

    if (hutch_json_is_string(node) && hutch_json_string(node, POLICY_MAX_PATH_LEN, &name, err) < 0)
        return -1;
    if (!*name || strlen(name) > 64 || strspn(name, allowed) != strlen(name) || strchr("-.", name[0]))
        return hutch_json_expected(node, err, "a host name of 1..64 letters, digits, '-' and '.'");
    return hutch_spec_set_string(&spec_of(context)->hostname, name, err);
}

static int read_workdir(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *path;

    if (hutch_policy_read_path(node, &path, err) < 0)
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

/* Nor does hutch itself set it then. */
static int leave_out_variable(struct sandbox_spec *spec, const char *name, struct hutch_err *err)
{
    size_t n = 0;
    char **bigger;

    remove_variable(spec->envp, name);
    while (spec->env_left_out && spec->env_left_out[n])
        n++;
    bigger = reallocarray(spec->env_left_out, n + 2, sizeof(*bigger));
    if (bigger) {
        spec->env_left_out = bigger;
        bigger[n] = strdup(name);
        bigger[n + 1] = NULL;
    }
    return bigger && bigger[n] ? 0 : hutch_err_set(err, ENOMEM, "leave out the variable '%s'", name);
}

static int read_variable(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct sandbox_spec *spec = spec_of(context);
    const char *value;

    if (!is_variable_name(node->key))
        return hutch_json_refuse(node, err,
                                 "not the name of an environment variable (letters, digits and '_', at most %d)",
                                 MAX_NAME_LEN);
    if (hutch_json_is_null(node))
        return leave_out_variable(spec, node->key, err);
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

/* ---- a file ---- */

static int read_schema(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct hutch_err other = { 0 };
    uint64_t version;

    (void)context;
    if (hutch_json_u64(node, 1, 1, &version, &other) < 0)
        return hutch_json_expected(node, err, "1, the only schema that this version of hutch reads");
    return 0;
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
    auto_free char *dir = hutch_policy_directory_of(file->path);
    auto_free char *path = NULL;
    const char *base;

    if (!dir)
        return hutch_err_set(err, ENOMEM, "%s: find what it extends", node->what);
    if (hutch_json_string(node, POLICY_MAX_PATH_LEN, &base, err) < 0)
        return -1;
    if (hutch_policy_find(base, file->load->policy_dir, dir, &path, err) == 0 &&
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
        { "data_place", read_data_place, false },
        { "gpu", read_gpu, false },
        { "seccomp", read_seccomp, false },
        { "hostname", read_hostname, false },
        { "workdir", read_workdir, false },
        { "environment", read_environment, false },
        { "mounts", read_mounts, false },
        { "root_changes", read_root_changes, false },
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
static int finish_spec(struct load *load, struct hutch_err *err)
{
    struct sandbox_spec *spec = load->spec;
    struct seccomp_rules rules;

    spec->limits_need = load->require_all ? NEED_REQUIRE : NEED_TRY;
    for (size_t i = 0; load->require_all && i < LAYER_COUNT; i++)
        if (spec->layers[i] == NEED_TRY && i != LAYER_OWN_UID) /* which takes subordinate ids: by name only */
            spec->layers[i] = NEED_REQUIRE;
    if (spec->data_place == DATA_MEMORY && spec->limits[LIMIT_DATA_SIZE] == 0)
        return hutch_err_set(err, 0, "$.data_place is \"memory\", and $.limits.data_size does not say how much of it");
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
    spec->seccomp.seems_root = hutch_spec_find_changes(spec) != NULL;
    return 0;
}

int hutch_policy_load(const char *name_or_path, const char *policy_dir, struct sandbox_spec *spec,
                      struct hutch_err *err)
{
    struct load load = { .policy_dir = policy_dir, .spec = spec };
    auto_free char *path = NULL;
    int rc;

    if (hutch_policy_find(name_or_path, policy_dir, NULL, &path, err) < 0)
        return -1;
    rc = read_file(path, &load, NULL, err);
    if (rc == 0 && finish_spec(&load, err) < 0)
        rc = hutch_err_wrap(err, "policy '%s'", path);
    free(load.seccomp_path);
    return rc;
}
