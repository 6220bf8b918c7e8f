#include "runtime/cli/run_project.h"

#include "rootfs/home.h"
#include "runtime/cli/exits.h"
#include "runtime/lang/program.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"
#include "sandbox/walk.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_LOOKED_AT 200000u /* files and directories of a project that is not copied */
#define MAX_PACKAGE_JSON (1u << 20)

void hutch_run_project_done(struct run_project *project)
{
    free(project->dir);
    free(project->entry);
    hutch_ignore_done(&project->ignore);
    *project = (struct run_project)RUN_PROJECT_INIT;
}

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int hutch_run_project_open(int dirfd, const char *path)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    return hutch_fd_take(&fd);
}

/* --- the directory ---------------------------------------------------------------------------------------------- */

static bool is_or_holds(const char *dir, const char *path)
{
    auto_free char *real = path ? realpath(path, NULL) : NULL;
    size_t len = strlen(dir);

    return real && (strcmp(dir, "/") == 0 ||
                    (strncmp(real, dir, len) == 0 && (real[len] == '/' || real[len] == '\0')));
}

/* All of it is shown to code that nobody trusts, so it may not be a place that has everything: the caller's keys, or
 * the files of other runs. */
static int check_dir(const char *dir, struct hutch_err *err)
{
    const struct passwd *user = getpwuid(geteuid()); /* HOME may say anything, or nothing */
    auto_free char *home = NULL;

    if (hutch_home_path(&home, err) < 0)
        return -1;
    if (is_or_holds(dir, getenv("HOME")) || is_or_holds(dir, user ? user->pw_dir : NULL))
        return hutch_err_set(err, 0, "the project '%s' is or holds your home directory, and the code could read all of "
                                     "it: give a directory that has the project alone (or show this one with -v)", dir);
    if (is_or_holds(dir, home))
        return hutch_err_set(err, 0, "the project '%s' holds hutch's own files in '%s': give a directory that has the "
                                     "project alone", dir, home);
    return 0;
}

static int find_dir(const char *path, char **ret, struct hutch_err *err)
{
    char *dir = realpath(path, NULL);

    if (!dir) {
        hutch_err_set(err, errno, "look at the project '%s'", path);
        return -(errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
    }
    *ret = dir;
    if (!is_dir(dir)) {
        hutch_err_set(err, 0, "the project '%s' is no directory (a program by itself is run by: hutch run %s)", path,
                      path);
        return -EXIT_NOT_EXECUTABLE;
    }
    return check_dir(dir, err) < 0 ? -EXIT_HUTCH : 0;
}

/* One that is there and cannot be read is an error: what it is to hide would be shown. */
static int read_ignore(int dirfd, const char *shown, struct ignore_list *ret, struct hutch_err *err)
{
    auto_free char *text = NULL;
    auto_fd fd = -1;
    struct stat st;
    size_t len;

    if (fstatat(dirfd, IGNORE_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    fd = hutch_run_project_open(dirfd, IGNORE_FILE);
    if (fd < 0)
        return hutch_err_set(err, errno, "read " IGNORE_FILE " of the project '%s'", shown);
    if (hutch_fd_slurp(fd, IGNORE_MAX_BYTES, IGNORE_FILE, &text, &len, err) < 0 ||
        hutch_ignore_parse(text, len, ret, err) < 0)
        return hutch_err_wrap(err, "the project '%s'", shown);
    return 0;
}

/* --- its program ------------------------------------------------------------------------------------------------ */

/* The "main" of package.json, the caller's to free; NULL: there is none that can be used. */
static char *read_package(int dirfd)
{
    auto_fd fd = hutch_run_project_open(dirfd, "package.json");
    struct hutch_err ignored;
    auto_free char *text = NULL;
    const char *name;
    char *found = NULL;
    cJSON *json;
    size_t len;

    if (fd < 0 || hutch_fd_slurp(fd, MAX_PACKAGE_JSON, "package.json", &text, &len, &ignored) < 0)
        return NULL;
    json = cJSON_ParseWithLength(text, len);
    name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "main"));
    if (name && name[0])
        found = strdup(strncmp(name, "./", 2) == 0 ? name + 2 : name);
    cJSON_Delete(json);
    return found;
}

static int check_entry(int dirfd, const char *shown, const struct ignore_list *ignore, const char *entry,
                       struct hutch_err *err)
{
    auto_fd fd = hutch_run_project_open(dirfd, entry);

    if (fd >= 0 && !hutch_ignore_holds_back(ignore, entry))
        return 0;
    if (fd >= 0) {
        hutch_err_set(err, 0, "the program '%s' is held back by " IGNORE_FILE " of the project '%s'", entry, shown);
        return -EXIT_NOT_EXECUTABLE;
    }
    if (entry[0] == '/' || errno == EXDEV)
        hutch_err_set(err, 0, "the program '%s' is not in the project '%s': its path is relative to that, and stays in "
                              "it", entry, shown);
    else
        hutch_err_set(err, errno, "open the program '%s' of the project '%s', to which its path is relative", entry,
                      shown);
    return -(errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* By the habits of languages: Python's, Node's, then "main" with the ending of any. NULL behind the last; else the
 * caller's to free, or an empty text where a package names none. */
static char *name_entry(int dirfd, size_t n)
{
    static const char *const names[] = { "main.py", "__main__.py", NULL /* package.json */, "index.js", "index.mjs",
                                         "index.cjs", "index.ts", "index.mts" };
    const char *ending;
    char *name = NULL;

    if (n < ARRAY_SIZE(names)) {
        name = names[n] ? strdup(names[n]) : read_package(dirfd);
        return name ? name : strdup("");
    }
    ending = hutch_program_nth_ending(n - ARRAY_SIZE(names));
    return ending && asprintf(&name, "main%s", ending) >= 0 ? name : NULL;
}

static int find_entry(int dirfd, const char *shown, const struct ignore_list *ignore, char **ret, struct hutch_err *err)
{
    char *name;

    for (size_t i = 0; (name = name_entry(dirfd, i)) != NULL; i++) {
        auto_fd fd = name[0] ? hutch_run_project_open(dirfd, name) : -1;

        if (fd < 0 && (!name[0] || errno == ENOENT)) {
            free(name);
            continue;
        }
        *ret = name;
        return check_entry(dirfd, shown, ignore, *ret, err);
    }
    hutch_err_set(err, 0, "the project '%s' has no program: there is no main.py, __main__.py, package.json with a "
                          "\"main\", index.js, or main of another language (--project %s FILE names one)", shown,
                  shown);
    return -EXIT_NOT_FOUND;
}

/* What is asked for has to make sense together: nothing is ignored in silence. */
static int check_options(const struct run_opts *opts, bool has_dir, struct hutch_err *err)
{
    const char *other = opts->warm ? "--warm" : opts->rich ? "--rich" : opts->llm ? "--llm" : NULL;

    if (opts->module && opts->code)
        return hutch_err_set(err, 0, "options '-m' and '-c': the program is a module or a text");
    if (opts->module && opts->language && strcmp(opts->language, "python") != 0)
        return hutch_err_set(err, 0, "option '-m' is for Python, and '--language %s' says something else",
                             opts->language);
    if (opts->writable && !has_dir)
        return hutch_err_set(err, 0, "option '--writable' is for a project, and there is none");
    if ((has_dir || opts->module) && other)
        return hutch_err_set(err, 0, "option '%s' is for a program by itself, and not for %s", other,
                             has_dir ? "a project" : "a module");
    return 0;
}

int hutch_run_project_find(const struct run_opts *opts, char **words, struct run_project *ret, struct hutch_err *err)
{
    const bool has_text = opts->code || opts->module;
    const bool is_word = !opts->project && !has_text && words[0] && is_dir(words[0]);
    const char *shown = is_word ? words[0] : opts->project;
    auto_fd dirfd = -1;
    int rc;

    *ret = (struct run_project)RUN_PROJECT_INIT;
    if (check_options(opts, shown != NULL, err) < 0)
        return -EXIT_HUTCH;
    if (!shown)
        return 0;
    rc = find_dir(shown, &ret->dir, err);
    if (rc < 0)
        return rc;
    ret->args = words;
    ret->is_writable = opts->writable;
    dirfd = open(ret->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0) {
        hutch_err_set(err, errno, "open the project '%s'", shown);
        return -EXIT_NOT_EXECUTABLE;
    }
    if (read_ignore(dirfd, shown, &ret->ignore, err) < 0)
        return -EXIT_HUTCH;
    if (has_text || (!is_word && words[0] && strcmp(words[0], "-") == 0))
        return 0;
    ret->args = words[0] ? words + 1 : words;
    if (is_word || !words[0])
        return find_entry(dirfd, shown, &ret->ignore, &ret->entry, err);
    rc = check_entry(dirfd, shown, &ret->ignore, words[0], err);
    if (rc < 0)
        return rc;
    ret->entry = strdup(words[0]);
    return ret->entry ? 0 : (hutch_err_set(err, ENOMEM, "name the program"), -EXIT_HUTCH);
}

static int refuse_unseen(const struct run_project *project, const struct walk *walk, int why, struct hutch_err *err)
{
    const bool is_other = why == EXDEV;

    return hutch_err_set(err, is_other ? 0 : why, "the project '%s' has '%.200s', which cannot be looked through for "
                         "sockets%s: hold it back by a line in " IGNORE_FILE, project->dir, walk->path,
                         is_other ? ", as another file system begins there" : "");
}

/* A bind mount that is only read still lets a program connect to a socket in it, and with that to one outside. What
 * cannot be looked at is refused: a program reaches a name that it knows where it may not list the directory. */
static int refuse_sockets(const struct run_project *project, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_walk_done))) struct walk walk = WALK_INIT;
    enum walk_event event;
    unsigned n = 0;
    int skipped;

    if (hutch_walk_open(&walk, AT_FDCWD, project->dir, 0, err) < 0)
        return -1;
    for (;;) {
        struct stat st;

        if (hutch_walk_next(&walk, &event, err) < 0)
            return hutch_err_wrap(err, "look through the project '%s'", project->dir);
        if (event == WALK_END)
            return 0;
        if (event != WALK_ENTRY)
            continue;
        if (++n > MAX_LOOKED_AT)
            return hutch_err_set(err, 0, "the project '%s' has more than %u files and directories, too many to be "
                                         "looked through for sockets: hold back what is no code by lines in "
                                         IGNORE_FILE, project->dir, MAX_LOOKED_AT);
        if (fstatat(walk.dirfd, walk.name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
            if (errno == ENOENT)
                continue;
            return refuse_unseen(project, &walk, errno, err);
        }
        if (S_ISSOCK(st.st_mode))
            return hutch_err_set(err, 0, "the project '%s' has the socket '%.200s', by which the code could reach a "
                                         "program outside: hold it back by a line in " IGNORE_FILE, project->dir,
                                 walk.path);
        if (!S_ISDIR(st.st_mode))
            continue;
        if (hutch_walk_enter(&walk, &skipped, err) < 0)
            return hutch_err_wrap(err, "look through the project '%s'", project->dir);
        if (skipped != 0 && skipped != ENOENT)
            return refuse_unseen(project, &walk, skipped, err);
    }
}

int hutch_run_project_set(const struct run_project *project, const struct run_opts *opts, struct sandbox_spec *spec,
                          struct project_copy *ret_copy, struct hutch_err *err)
{
    const bool is_copied = project->is_writable || project->ignore.block; /* there is a file */
    auto_free char *path = NULL;
    auto_fd dirfd = -1, fd = -1;
    char head[128];
    ssize_t n;

    for (size_t i = 0; i < spec->n_mounts; i++)
        if (strcmp(spec->mounts[i].target, RUN_PROJECT_DIR) == 0)
            return hutch_err_set(err, 0, "'" RUN_PROJECT_DIR "' is where the project is: nothing else can be there");
    if (!is_copied && refuse_sockets(project, err) < 0)
        return -1;
    if (is_copied)
        *ret_copy = (struct project_copy){ .dir = project->dir, .target = RUN_PROJECT_DIR, .entry = project->entry,
                                           .ignore = &project->ignore, .is_writable = project->is_writable };
    if ((!is_copied && !hutch_spec_add_mount(spec, MOUNT_BIND, project->dir, RUN_PROJECT_DIR,
                                             MOUNT_IDMAP | MOUNT_RDONLY, err)) ||
        (!opts->workdir && hutch_spec_set_string(&spec->cwd, RUN_PROJECT_DIR, err) < 0))
        return -1;
    if (!project->entry)
        return 0;
    dirfd = open(project->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = dirfd >= 0 ? hutch_run_project_open(dirfd, project->entry) : -1;
    n = fd >= 0 ? read(fd, head, sizeof(head)) : -1;
    if (n < 0)
        return hutch_err_set(err, errno, "read the program '%s' of the project '%s'", project->entry, project->dir);
    if (asprintf(&path, RUN_PROJECT_DIR "/%s", project->entry) < 0)
        return hutch_err_set(err, ENOMEM, "name the program");
    return hutch_program_set_inside(spec, opts->language, path, head, (size_t)n, project->args, err);
}
