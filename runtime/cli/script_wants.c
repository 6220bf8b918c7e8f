#include "runtime/cli/script_wants.h"

#include "runtime/cli/run_project.h"
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

/* Opens a script. -1 where it is no regular file: standard input or a FIFO can be read only once, and the run itself
 * has to read it. */
static int open_script(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int read_script(const char *path, struct script_wants *ret, struct hutch_err *err)
{
    auto_fd fd = open_script(path);
    auto_free char *text = NULL;
    struct hutch_err ignored;
    size_t len;

    if (fd < 0 || hutch_fd_slurp(fd, PROGRAM_MAX_BYTES, path, &text, &len, &ignored) < 0 ||
        !memmem(text, len, "# /// script", strlen("# /// script")))
        return 0;
    return hutch_requirement_add_script(&ret->pip, text, len, err) < 0 ? hutch_err_wrap(err, "'%s'", path) : 0;
}

/* What else npm would obey there: it says which versions, and where they come from. */
static int check_neighbours(int dirfd, const char *dir, struct hutch_err *err)
{
    static const char *const names[] = { "package-lock.json", "npm-shrinkwrap.json", ".npmrc" };
    static const char *const others[] = { "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb" };

    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (faccessat(dirfd, others[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return hutch_err_set(err, 0, "'%s' has a %s, which npm does not obey: install its node_modules there by "
                                         "the tool that has written it, and show the directory by --project", dir,
                                 others[i]);
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
    struct hutch_err ignored;
    auto_fd fd = -1;
    size_t len;

    if (dirfd < 0 || (project && faccessat(dirfd, "node_modules", F_OK, 0) == 0) ||
        faccessat(dirfd, "package.json", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    fd = hutch_run_project_open(dirfd, "package.json");
    if (fd < 0 && errno == EXDEV)
        return hutch_err_set(err, 0, "'%s/package.json' is a link that leads out of the directory, or one with an "
                                     "absolute path", dir);
    if (fd < 0 || hutch_fd_slurp(fd, NPM_MAX_MANIFEST, "package.json", &text, &len, &ignored) < 0)
        return hutch_err_set(err, 0, "'%s/package.json' is no file that can be read, of at most %u kB", dir,
                             NPM_MAX_MANIFEST / 1024);
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

/* The @i-th; the caller frees it. */
static char *print_one(const struct script_wants *wants, size_t i)
{
    const struct npm_package *item = i < wants->pip.n ? NULL : &wants->npm.items[i - wants->pip.n];
    char *text;

    if (!item)
        return strdup(wants->pip.texts[i]);
    return asprintf(&text, "%s@%s", item->name, item->range) < 0 ? NULL : text;
}

char *hutch_script_wants_print(const struct script_wants *wants, bool is_question)
{
    const size_t n = wants->pip.n + wants->npm.n;
    struct text_buffer t = TEXT_BUFFER_INIT;
    size_t len = 0;

    hutch_text_add_string(&t, "");
    for (size_t i = 0; i < n; i++) {
        auto_free char *one = print_one(wants, i);

        if (!one) {
            hutch_text_done(&t);
            return NULL;
        }
        len += strlen(one) + 2;
        if (!is_question && len > MAX_SHOWN) {
            hutch_text_addf(&t, "%s%zu more", i ? " and " : "", n - i);
            break;
        }
        hutch_text_add_string(&t, i ? ", " : "");
        hutch_text_add_string(&t, one);
    }
    return hutch_text_take(&t, NULL);
}
