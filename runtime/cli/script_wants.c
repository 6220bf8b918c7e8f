#include "runtime/cli/script_wants.h"

#include "runtime/lang/program.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SHOWN 300 /* bytes */

void hutch_script_wants_done(struct script_wants *wants)
{
    hutch_requirement_list_done(&wants->pip);
    hutch_npm_packages_done(&wants->npm);
}

static const char *find_ending(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');

    return !dot || dot == path || dot[-1] == '/' ? "" : dot;
}

/* A file that is Python by its name, or by having none that says otherwise. */
static bool may_be_python(const struct run_opts *opts, const char *path)
{
    const char *ending = find_ending(path);

    if (opts->language)
        return strcmp(opts->language, "python") == 0;
    return !ending[0] || strcmp(ending, ".py") == 0;
}

bool hutch_script_is_for_node(const struct run_opts *opts, const char *path)
{
    static const char *const endings[] = { ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts" };
    const char *ending = find_ending(path);

    if (opts->language)
        return strcmp(opts->language, "js") == 0 || strcmp(opts->language, "typescript") == 0;
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
        if (strcmp(ending, endings[i]) == 0)
            return true;
    return false;
}

/* The text of a regular file. Standard input or a FIFO could be read once only. False: there is none. */
static bool read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len)
{
    struct hutch_err ignored;
    auto_fd fd = -1;
    struct stat st;

    if (fstatat(dirfd, path, &st, 0) < 0 || !S_ISREG(st.st_mode))
        return false;
    fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd >= 0 && hutch_fd_slurp(fd, max, path, ret, ret_len, &ignored) == 0;
}

static int read_script(const char *path, struct script_wants *ret, struct hutch_err *err)
{
    auto_free char *text = NULL;
    size_t len;

    if (!read_file(AT_FDCWD, path, PROGRAM_MAX_BYTES, &text, &len) ||
        !memmem(text, len, "# /// script", strlen("# /// script")))
        return 0;
    return hutch_requirement_add_script(&ret->pip, text, len, err) < 0 ? hutch_err_wrap(err, "'%s'", path) : 0;
}

/* What else npm would obey there: it says which versions, and where they come from. */
static int check_neighbours(int dirfd, const char *dir, struct hutch_err *err)
{
    static const char *const names[] = { "package-lock.json", "npm-shrinkwrap.json", ".npmrc" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (faccessat(dirfd, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return hutch_err_set(err, 0, "'%s' has a %s, which says where packages come from: hutch rootfs extend "
                                         "IMAGE --npm %s --as NAME takes its word, and --image NAME runs the program",
                                 dir, names[i], dir);
    return 0;
}

static int read_manifest(const char *script, const char *project, struct script_wants *ret, struct hutch_err *err)
{
    const char *slash = strrchr(script, '/');
    auto_free char *own = slash ? strndup(script, slash == script ? 1 : (size_t)(slash - script)) : strdup(".");
    const char *dir = project ? project : own;
    auto_fd dirfd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    auto_free char *text = NULL;
    size_t len;

    if (dirfd < 0 || (project && faccessat(dirfd, "node_modules", F_OK, 0) == 0) ||
        !read_file(dirfd, "package.json", NPM_MAX_MANIFEST, &text, &len))
        return 0;
    if (hutch_npm_packages_add_manifest(&ret->npm, text, len, err) < 0)
        return hutch_err_wrap(err, "'%s/package.json'", dir);
    return ret->npm.n > 0 ? check_neighbours(dirfd, dir, err) : 0;
}

int hutch_script_wants_read(const struct run_opts *opts, const char *script, const char *project,
                            struct script_wants *ret, struct hutch_err *err)
{
    if (may_be_python(opts, script))
        return read_script(script, ret, err);
    return hutch_script_is_for_node(opts, script) ? read_manifest(script, project, ret, err) : 0;
}

char *hutch_script_wants_print(const struct script_wants *wants)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    char *text;

    hutch_text_add_string(&t, "");
    for (size_t i = 0; i < wants->pip.n; i++) {
        hutch_text_add_string(&t, i ? ", " : "");
        hutch_text_add_string(&t, wants->pip.texts[i]);
    }
    for (size_t i = 0; i < wants->npm.n; i++)
        hutch_text_addf(&t, "%s%s@%s", i ? ", " : "", wants->npm.items[i].name, wants->npm.items[i].range);
    text = hutch_text_take(&t, NULL);
    if (text && strlen(text) > MAX_SHOWN)
        strcpy(text + MAX_SHOWN - strlen("…"), "…");
    return text;
}
