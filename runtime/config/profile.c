#include "runtime/config/profile.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "runtime/text/quantity.h"
#include "runtime/config/data_targets.h"
#include "runtime/config/image_env.h"
#include "runtime/config/limits.h"
#include "runtime/config/policy.h"
#include "runtime/config/policy_find.h"
#include "rootfs/stores.h"
#include "runtime/gpu/gpu.h"
#include "runtime/config/usual_env.h"
#include "runtime/config/usual_mounts.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- a copy ----------------------------------------------------------------------------------------------------- */

#define TEXT(field) offsetof(struct profile, field)

static const size_t texts[] = { TEXT(home),   TEXT(policy),  TEXT(policy_dir), TEXT(image),
                                TEXT(rootfs), TEXT(workdir), TEXT(network),    TEXT(gpu),
                                TEXT(data) };
static const size_t lists[] = { TEXT(env), TEXT(volumes), TEXT(tmpfs), TEXT(data_targets), TEXT(own_data_targets) };

static char **text_at(const struct profile *profile, size_t offset)
{
    return (char **)((char *)profile + offset);
}

static char ***list_at(const struct profile *profile, size_t offset)
{
    return (char ***)((char *)profile + offset);
}

static char **copy_list(char *const *from)
{
    size_t n = 0;
    char **copy;

    while (from[n])
        n++;
    copy = calloc(n + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(from[i]);
        if (!copy[i]) {
            while (i > 0)
                free(copy[--i]);
            free(copy);
            return NULL;
        }
    }
    return copy;
}

int hutch_profile_copy(const struct profile *from, struct profile *ret, struct hutch_err *err)
{
    struct profile copy = { 0 };
    bool is_whole = true;

    memcpy(copy.limits, from->limits, sizeof(copy.limits));
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (*text_at(from, texts[i]))
            is_whole &= (*text_at(&copy, texts[i]) = strdup(*text_at(from, texts[i]))) != NULL;
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        if (*list_at(from, lists[i]))
            is_whole &= (*list_at(&copy, lists[i]) = copy_list(*list_at(from, lists[i]))) != NULL;
    if (!is_whole) {
        hutch_profile_done(&copy);
        return hutch_err_set(err, ENOMEM, "keep what is asked of a sandbox");
    }
    *ret = copy;
    return 0;
}

void hutch_profile_done(struct profile *profile)
{
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(*text_at(profile, texts[i]));
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        char **list = *list_at(profile, lists[i]);

        for (size_t j = 0; list && list[j]; j++)
            free(list[j]);
        free(list);
    }
    *profile = (struct profile){ 0 };
}

/* --- a spec ----------------------------------------------------------------------------------------------------- */

/* The bounds are those that policies have, too. */
static int apply_limits(struct sandbox_spec *spec, const uint64_t limits[LIMIT_COUNT], struct hutch_err *err)
{
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        bool has_one = limits[i] != PROFILE_NO_LIMIT;
        const char *refusal = has_one ? hutch_limit_refuses(&hutch_limit_rows[i], limits[i]) : NULL;

        if (!limits[i])
            continue;
        if (refusal)
            return hutch_err_set(err, 0, "the limit '%s' of %" PRIu64 " is too %s", hutch_limit_name(i), limits[i],
                                 refusal);
        spec->limits[i] = has_one ? limits[i] : 0;
    }
    return 0;
}

static int add_volume(struct sandbox_spec *spec, const char *text, struct hutch_err *err)
{
    const char *colon = strstr(text, ":/");
    auto_free char *source = NULL, *target = NULL, *real = NULL;
    unsigned flags = MOUNT_IDMAP;
    char *mode;

    if (!colon || colon == text)
        return hutch_err_set(err, 0, "volume '%s': expected SRC:DST or SRC:DST:ro, with an absolute DST", text);
    source = strndup(text, (size_t)(colon - text));
    target = strdup(colon + 1);
    if (!source || !target)
        return hutch_err_set(err, ENOMEM, "volume '%s'", text);
    mode = strrchr(target, ':');
    if (mode) {
        *mode++ = '\0';
        if (strcmp(mode, "ro") == 0)
            flags |= MOUNT_RDONLY;
        else if (strcmp(mode, "rw") != 0)
            return hutch_err_set(err, 0, "volume '%s': '%s' is neither 'ro' nor 'rw'", text, mode);
    }
    if (hutch_usual_mounts_are_hidden_by(target))
        return hutch_err_set(err, 0, "volume '%s': '%s' is set up by hutch itself%s", text, target,
                             strcmp(target, INSIDE_DATA_DIR) == 0 ? " (--data puts a directory there)" : "");
    real = realpath(source, NULL);
    if (!real)
        return hutch_err_set(err, errno, "volume '%s': look at '%s'", text, source);
    if (!hutch_spec_add_mount(spec, MOUNT_BIND, real, target, flags, err))
        return hutch_err_wrap(err, "volume '%s'", text);
    return 0;
}

/* Policies may name sources by way of links; mounting follows none. A missing one is left to the mount to complain
 * about. */
static int resolve_sources(struct sandbox_spec *spec, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        struct sandbox_mount *m = &spec->mounts[i];
        auto_free char *real = m->kind == MOUNT_BIND ? realpath(m->source, NULL) : NULL;

        if (real && hutch_spec_set_string(&m->source, real, err) < 0)
            return -1;
    }
    return 0;
}

/* What code inside may write must not hold hutch's own files: the images that later runs execute, the slots, the
 * policies. */
static int refuse_own_files(const char *source, const char *home, const char *policy_dir, struct hutch_err *err)
{
    static const char *const parts[] = { "images", "runs" };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        auto_free char *part = NULL;

        if (asprintf(&part, "%s/%s", home, parts[i]) < 0)
            return hutch_err_set(err, ENOMEM, "check '%s'", source);
        if (hutch_spec_path_is_below(part, source) || hutch_spec_path_is_below(source, part))
            return hutch_err_set(err, 0, "'%s' cannot be written from inside: hutch keeps its images and state in '%s' "
                                         "(share a directory beside it, or add ':ro')", source, home);
    }
    if (hutch_spec_path_is_below(policy_dir, source))
        return hutch_err_set(err, 0, "'%s' cannot be written from inside: hutch's policies are in '%s'", source,
                             policy_dir);
    return 0;
}

static int refuse_own(const char *source, const char *home, const char *policy_dir, struct hutch_err *err)
{
    auto_free char *real_home = realpath(home, NULL), *real_policies = realpath(policy_dir, NULL);

    if (!real_home || !real_policies)
        return 0; /* nothing there yet that could be harmed */
    return refuse_own_files(source, real_home, real_policies, err);
}

static int refuse_own_binds(const struct sandbox_spec *spec, const char *home, const char *policy_dir,
                            struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        /* Of the directory for changes two others are used, which hold nothing of hutch's. */
        if (m->kind == MOUNT_BIND && !(m->flags & (MOUNT_RDONLY | MOUNT_CHANGES)) &&
            refuse_own(m->source, home, policy_dir, err) < 0)
            return -1;
    }
    return 0;
}

static int find_policies(const struct profile *profile, char **ret, struct hutch_err *err)
{
    if (!profile->policy_dir)
        return hutch_policy_dir(ret, err);
    *ret = strdup(profile->policy_dir);
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "find the policies");
}

int hutch_profile_refuse_own(const struct profile *profile, const char *source, struct hutch_err *err)
{
    auto_free char *policy_dir = NULL;

    return find_policies(profile, &policy_dir, err) < 0 ? -1 : refuse_own(source, profile->home, policy_dir, err);
}

static int add_tmpfs(struct sandbox_spec *spec, const char *text, struct hutch_err *err)
{
    auto_free char *target = strdup(text);
    struct sandbox_mount *m;
    uint64_t size = 0;
    char *colon;

    if (!target)
        return hutch_err_set(err, ENOMEM, "tmpfs '%s'", text);
    colon = strchr(target, ':');
    if (colon) {
        *colon++ = '\0';
        if (strncmp(colon, "size=", 5) == 0)
            colon += 5;
        if (hutch_parse_bytes(colon, &size, err) < 0)
            return hutch_err_wrap(err, "tmpfs '%s'", text);
    }
    if (strcmp(target, "/tmp") != 0 && hutch_usual_mounts_are_hidden_by(target))
        return hutch_err_set(err, 0, "tmpfs '%s': '%s' is set up by hutch itself", text, target);
    m = hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, target, 0, err);
    if (!m)
        return hutch_err_wrap(err, "tmpfs '%s'", text);
    m->size_bytes = size;
    m->mode = 01777;
    return 0;
}

static int add_env(struct sandbox_spec *spec, const char *text, struct hutch_err *err)
{
    const char *equals = strchr(text, '=');
    auto_free char *name = equals ? strndup(text, (size_t)(equals - text)) : NULL;

    if (!equals)
        return hutch_err_set(
            err, 0, "environment '%s': expected NAME=VALUE (nothing is taken over from the caller's own)", text);
    if (!name)
        return hutch_err_set(err, ENOMEM, "environment '%s'", text);
    return hutch_spec_set_env(spec, name, equals + 1, err);
}

static int set_network(struct sandbox_spec *spec, const char *text, struct hutch_err *err)
{
    if (strcmp(text, "none") == 0) {
        spec->network = NETWORK_NONE;
        if (spec->layers[LAYER_NET_NS] == NEED_OFF)
            spec->layers[LAYER_NET_NS] = NEED_REQUIRE;
    } else if (strcmp(text, "host") == 0) {
        if (spec->limits_need == NEED_REQUIRE)
            return hutch_err_set(
                err, 0, "option '--network host': the policy requires every layer, a network namespace among them");
        spec->network = NETWORK_HOST;
        spec->layers[LAYER_NET_NS] = NEED_OFF;
    } else {
        return hutch_err_set(err, 0, "option '--network': expected 'none' or 'host', got '%s'", text);
    }
    return 0;
}

/* What a policy gives already, and more, it gives. */
static int set_gpu(struct sandbox_spec *spec, const char *text, struct hutch_err *err)
{
    if (strcmp(text, "compute") != 0)
        return hutch_err_set(err, 0, "option '--gpu': expected 'compute', got '%s'", text);
    if (spec->gpu != GPU_NONE)
        return 0;
    if (spec->limits_need == NEED_REQUIRE)
        return hutch_err_set(err, 0, "option '--gpu': the policy requires every layer, and the driver of a GPU is a "
                                     "way around them, which the policy has to open itself (\"gpu\": \"compute\")");
    spec->gpu = GPU_COMPUTE;
    return 0;
}

int hutch_profile_set_root(const struct profile *profile, struct sandbox_spec *spec, struct image_root *ret_image,
                           struct hutch_err *err)
{
    auto_image_root image = IMAGE_ROOT_INIT;
    auto_free char *path = NULL;
    struct stat st;

    if (profile->rootfs && profile->image)
        return hutch_err_set(err, 0, "options '--rootfs' and '--image' exclude each other");
    if (profile->rootfs && strcmp(profile->rootfs, "host") == 0) {
        spec->root_kind = ROOT_HOST;
        return 0;
    }
    spec->root_kind = ROOT_DIR;
    if (profile->rootfs) {
        path = realpath(profile->rootfs, NULL);
        if (!path || stat(path, &st) < 0)
            return hutch_err_set(err, errno, "option '--rootfs': look at '%s'", profile->rootfs);
        if (!S_ISDIR(st.st_mode))
            return hutch_err_set(err, ENOTDIR, "option '--rootfs': '%s'", profile->rootfs);
        return hutch_spec_set_string(&spec->rootfs_path, path, err);
    }
    if (hutch_stores_find(profile->home, profile->image ? profile->image : PROFILE_IMAGE, &image, err) < 0 ||
        hutch_spec_set_string(&spec->rootfs_path, image.path, err) < 0)
        return -1;
    for (size_t i = 0; i < image.n_layers; i++)
        if (hutch_spec_add_layer(spec, image.layers[i], err) < 0)
            return -1;
    if (hutch_image_env_read(image.path, &image.env, err) < 0 ||
        hutch_image_env_add(profile, image.env, spec, err) < 0)
        return -1;
    *ret_image = image;
    image = (struct image_root)IMAGE_ROOT_INIT;
    return 0;
}

int hutch_profile_build(const struct profile *profile, struct sandbox_spec *spec, struct hutch_err *err)
{
    auto_free char *policy_dir = NULL;

    if (hutch_spec_set_string(&spec->cwd, INSIDE_DATA_DIR, err) < 0 || hutch_usual_mounts_add(spec, err) < 0 ||
        find_policies(profile, &policy_dir, err) < 0 ||
        hutch_policy_load(profile->policy ? profile->policy : "default", policy_dir, spec, err) < 0)
        return -1;
    if (apply_limits(spec, profile->limits, err) < 0)
        return -1;
    if (profile->network && set_network(spec, profile->network, err) < 0)
        return -1;
    if (profile->gpu && set_gpu(spec, profile->gpu, err) < 0)
        return -1;
    /* Names are looked up where the host looks them up; the place may be a link into /run. */
    if (spec->network == NETWORK_HOST && !hutch_spec_add_mount(spec, MOUNT_BIND, "/etc/resolv.conf", "/etc/resolv.conf",
                                                               MOUNT_RDONLY | MOUNT_OPTIONAL, err))
        return -1;
    hutch_usual_mounts_size(spec);
    if (hutch_usual_mounts_count_cpus(spec, err) < 0)
        return -1;
    for (const char *const *t = profile->tmpfs; t && *t; t++)
        if (add_tmpfs(spec, *t, err) < 0)
            return -1;
    if (hutch_data_targets_add(spec, profile->data_targets, NULL, err) < 0)
        return -1;
    for (const char *const *v = profile->volumes; v && *v; v++)
        if (add_volume(spec, *v, err) < 0)
            return -1;
    if (hutch_data_targets_add(spec, profile->own_data_targets, profile->data_targets, err) < 0)
        return -1;
    if (resolve_sources(spec, err) < 0 || refuse_own_binds(spec, profile->home, policy_dir, err) < 0 ||
        (profile->data && refuse_own(profile->data, profile->home, policy_dir, err) < 0))
        return -1;
    for (const char *const *e = profile->env; e && *e; e++)
        if (add_env(spec, *e, err) < 0)
            return -1;
    if (hutch_usual_env_add(spec, err) < 0 || hutch_gpu_add(spec, getenv("HUTCH_GPU_ROOT"), err) < 0)
        return -1;
    if (profile->workdir) {
        if (profile->workdir[0] != '/')
            return hutch_err_set(err, 0, "option '--workdir': '%s' is not an absolute path", profile->workdir);
        if (hutch_spec_set_string(&spec->cwd, profile->workdir, err) < 0)
            return -1;
    }
    return 0;
}
