#include "runtime/config/data_targets.h"

#include "runtime/config/usual_mounts.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "sandbox/mounts.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_within(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* --- by themselves ------------------------------------------------------------------------------------------------ */

static bool is_printable(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return false;
    return hutch_utf8_is_valid(text, strlen(text));
}

/* Absolute, of names alone, so that there is one spelling for a path. */
static bool is_plain_path(const char *path, size_t *ret_parts)
{
    *ret_parts = 0;
    for (const char *p = path; *p; ++*ret_parts) {
        size_t len;

        if (*p++ != '/')
            return false;
        len = strcspn(p, "/");
        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += len;
    }
    return *ret_parts > 0;
}

static int check_target(const char *target, struct hutch_err *err)
{
    size_t len = strlen(target), n_parts;

    if (len > DATA_TARGET_MAX_BYTES)
        return hutch_err_say(err, EINVAL, "a data target of %zu bytes: at most %d can be", len, DATA_TARGET_MAX_BYTES);
    if (!is_printable(target))
        return hutch_err_say(err, EINVAL, "a data target is UTF-8 without control characters, and one is not");
    if (!is_plain_path(target, &n_parts))
        return hutch_err_say(err, EINVAL, "data target '%s': expected an absolute path without '.', '..', '//' and a "
                             "'/' at its end", target);
    if (n_parts > DATA_TARGET_MAX_PARTS)
        return hutch_err_say(err, EINVAL, "data target '%s': at most %d directories deep can it be", target,
                             DATA_TARGET_MAX_PARTS);
    if (hutch_usual_mounts_are_hidden_by(target) || is_within(target, INSIDE_DATA_DIR))
        return hutch_err_say(err, EINVAL, "data target '%s': it is set up by hutch itself", target);
    return 0;
}

int hutch_data_targets_check(const char *const *targets, struct hutch_err *err)
{
    for (size_t n = 0; targets && targets[n]; n++) {
        if (n == DATA_TARGETS_MAX)
            return hutch_err_say(err, EINVAL, "there are more than %d data targets", DATA_TARGETS_MAX);
        if (check_target(targets[n], err) < 0)
            return -1;
    }
    return 0;
}

static bool is_among(const char *target, const char *const *among)
{
    for (; among && *among; among++)
        if (strcmp(target, *among) == 0)
            return true;
    return false;
}

bool hutch_data_targets_are_among(const char *const *targets, const char *const *among)
{
    for (; targets && *targets; targets++)
        if (!is_among(*targets, among))
            return false;
    return true;
}

/* --- with the mounts ---------------------------------------------------------------------------------------------- */

static bool is_link_to_data(const struct sandbox_mount *m)
{
    return m->kind == MOUNT_SYMLINK && strcmp(m->source, INSIDE_DATA_DIR) == 0;
}

static int add_target(struct sandbox_spec *spec, const char *target, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (is_link_to_data(m) && strcmp(target, m->target) == 0)
            return 0; /* said twice */
        if (is_within(m->target, target) || (is_within(target, m->target) && m->kind != MOUNT_TMPFS))
            return hutch_err_say(err, EINVAL, "data target '%s': the sandbox has a mount or another data target at "
                                 "'%s' already", target, m->target);
    }
    if (!hutch_spec_add_mount(spec, MOUNT_SYMLINK, INSIDE_DATA_DIR, target, 0, err))
        return hutch_err_wrap(err, "data target '%s'", target);
    return 0;
}

int hutch_data_targets_add(struct sandbox_spec *spec, const char *const *targets, const char *const *but,
                           struct hutch_err *err)
{
    if (hutch_data_targets_check(targets, err) < 0)
        return -1;
    for (; targets && *targets; targets++)
        if (!is_among(*targets, but) && add_target(spec, *targets, err) < 0)
            return -1;
    return 0;
}

/* --- with the image ----------------------------------------------------------------------------------------------- */

/* The same link there is fine, as it is for mounting. */
static bool is_same_link(int fd)
{
    char text[sizeof(INSIDE_DATA_DIR) + 1];
    ssize_t n = readlinkat(fd, "", text, sizeof(text));

    return n == (ssize_t)strlen(INSIDE_DATA_DIR) && memcmp(text, INSIDE_DATA_DIR, (size_t)n) == 0;
}

static int check_in_tree(int tree, const char *target, struct hutch_err *err)
{
    struct open_how how = {
        .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    auto_fd fd = (int)syscall(SYS_openat2, tree, target + 1, &how, sizeof(how));

    if (fd >= 0 && !is_same_link(fd))
        return hutch_err_say(err, EINVAL, "data target '%s': the image has that path; choose one that it has not got",
                             target);
    if (fd >= 0)
        return 0;
    if (errno == ELOOP || errno == ENOTDIR)
        return hutch_err_say(err, EINVAL, "data target '%s': the image has a %s on the way to it; choose another path",
                             target, errno == ELOOP ? "link" : "file");
    return 0;
}

int hutch_data_targets_check_image(const struct sandbox_spec *spec, struct hutch_err *err)
{
    auto_fd tree = -1;

    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (!is_link_to_data(m) || hutch_mounts_has_place(spec, m->target))
            continue;
        if (tree < 0)
            tree = open(spec->rootfs_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (tree < 0)
            return 0;
        if (check_in_tree(tree, m->target, err) < 0)
            return -1;
    }
    return 0;
}
