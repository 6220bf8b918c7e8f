#include "runtime/lang/program.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* execve(2) takes 32 pages for one argument (MAX_ARG_STRLEN); a longer text goes in as a file. */
#define CODE_MAX_ARGUMENT (100u << 10)

struct interpreter {
    const char *ending, *language; /* language NULL: another ending of the one above */
    const char *program;
    const char *starter; /* not NULL: a text of sh's that starts it, with the file and its arguments as "$@" */
};

/* Whether the image's node takes types out of a program is known when it is asked: from 22.6 with an option, of which
 * later ones have made the default, and 20 has neither. "-v" ends before node has made its heap. */
static const char strip_types[] =
    "by='--experimental-strip-types --disable-warning=ExperimentalWarning'\n"
    "if node $by -v >/dev/null 2>&1; then exec node $by \"$@\"; fi\n"
    "if ! is=$(node -v 2>/dev/null); then\n"
    "    echo \"hutch: TypeScript needs node 22.6 or newer, and this image has no node that starts\" >&2\n"
    "    exit 127\n"
    "fi\n"
    "if node -e 'process.exit(process.features.typescript ? 0 : 1)'; then exec node \"$@\"; fi\n"
    "echo \"hutch: TypeScript needs node 22.6 or newer, which takes the types out by itself; this image has node $is"
    " (another image by --image, or JavaScript made of it outside)\" >&2\n"
    "exit 126\n";

static const struct interpreter interpreters[] = {
    { ".py", "python", "python3", NULL },
    { ".sh", "sh", "sh", NULL },
    { ".bash", "bash", "bash", NULL },
    { ".js", "js", "node", NULL },
    { ".mjs", NULL, "node", NULL },
    { ".cjs", NULL, "node", NULL },
    { ".ts", "typescript", "node", strip_types },
    { ".mts", NULL, "node", strip_types },
    { ".cts", NULL, "node", strip_types },
    { ".pl", "perl", "perl", NULL },
    { ".rb", "ruby", "ruby", NULL },
    { ".R", "r", "Rscript", NULL },
    { ".r", NULL, "Rscript", NULL },
    { ".lua", "lua", "lua", NULL },
};

static size_t find_language(const char *language)
{
    size_t i = 0;

    while (i < ARRAY_SIZE(interpreters) &&
           (!interpreters[i].language || strcmp(language, interpreters[i].language) != 0))
        i++;
    return i;
}

/* "python, sh, …" or ".py, .sh, …" */
static const char *list_languages(bool are_endings, char *to, size_t room)
{
    size_t len = 0;

    to[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(interpreters) && len < room; i++) {
        const char *name = are_endings ? interpreters[i].ending : interpreters[i].language;

        if (name)
            len += (size_t)snprintf(to + len, room - len, "%s%s", len ? ", " : "", name);
    }
    return to;
}

/* Whether the first line has hutch run the file, as in "#!/usr/bin/env -S hutch run": that was obeyed outside. */
static bool is_run_by_hutch(const char *data, size_t len)
{
    const char *end = memchr(data, '\n', len);

    for (const char *p = data + 2, *eol = end ? end : data + len; p < eol;) {
        size_t n = 0, base = 0;

        for (; p + n < eol && p[n] != ' ' && p[n] != '\t'; n++)
            if (p[n] == '/')
                base = n + 1;
        if (n - base == 5 && memcmp(p + base, "hutch", 5) == 0)
            return true;
        p += n + 1;
    }
    return false;
}

/* @ret: NULL when the file is a program of its own. An ending that is not known is refused, as what is in such a file
 * is hardly Python: a compiler's language, a table, a text. */
static int find_interpreter(const char *language, const char *name, const char *data, size_t len,
                            const struct interpreter **ret, struct hutch_err *err)
{
    const char *dot = strrchr(name, '.');
    char known[256];
    size_t i;

    if (language) {
        i = find_language(language);
        if (i == ARRAY_SIZE(interpreters))
            return hutch_err_say(err, EINVAL, "there is no language '%s' (there are %s)", language,
                                 list_languages(false, known, sizeof(known)));
        *ret = &interpreters[i];
        return 0;
    }
    for (i = 0; dot && i < ARRAY_SIZE(interpreters); i++) {
        if (strcasecmp(dot, interpreters[i].ending) == 0) {
            *ret = &interpreters[i];
            return 0;
        }
    }
    if ((len >= 2 && memcmp(data, "#!", 2) == 0 && !is_run_by_hutch(data, len)) ||
        (len >= 4 && memcmp(data, "\x7f" "ELF", 4) == 0)) {
        *ret = NULL;
        return 0;
    }
    if (dot && dot > name)
        return hutch_err_say(err, EINVAL,
                             "no language that hutch knows has programs that end in '%s' like '%s' (known are %s; "
                             "--language python says what it is, and so does a first line with #!)",
                             dot, name, list_languages(true, known, sizeof(known)));
    *ret = &interpreters[0]; /* Python */
    return 0;
}

static int set_argv(struct sandbox_spec *spec, const char *const *head, size_t n_head, char *const *args,
                    struct hutch_err *err)
{
    auto_free const char **argv = NULL;
    size_t n = 0;

    while (args && args[n])
        n++;
    argv = calloc(n_head + n + 1, sizeof(*argv));
    if (!argv)
        return hutch_err_set(err, ENOMEM, "set the program's arguments");
    memcpy(argv, head, n_head * sizeof(*argv));
    for (size_t i = 0; i < n; i++)
        argv[n_head + i] = args[i];
    return hutch_spec_set_list(&spec->argv, argv, n_head + n, err);
}

/* @interpreter NULL: @path is a program of its own. */
static int set_interpreter(struct sandbox_spec *spec, const struct interpreter *interpreter, const char *path,
                           char *const *args, struct hutch_err *err)
{
    const char *head[5];
    size_t n = 0;

    if (interpreter && interpreter->starter) {
        head[n++] = "sh";
        head[n++] = "-c";
        head[n++] = interpreter->starter;
        head[n++] = "hutch";
    } else if (interpreter) {
        head[n++] = interpreter->program;
    }
    head[n++] = path;
    return set_argv(spec, head, n, args, err);
}

static int add_program(struct sandbox_spec *spec, const struct interpreter *interpreter, const char *name,
                       const char *data, size_t len, char *const *args, struct hutch_err *err)
{
    char target[sizeof(PROGRAM_DIR) + 256];

    snprintf(target, sizeof(target), PROGRAM_DIR "/%s", name);
    if (hutch_spec_add_file(spec, target, data, len, interpreter ? 0444 : 0555, err) < 0)
        return -1;
    return set_interpreter(spec, interpreter, target, args, err);
}

const char *hutch_program_skip_mark(const char *data, size_t *len)
{
    size_t n = *len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    *len -= n;
    return data + n;
}

bool hutch_program_is_name(const char *name)
{
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= NAME_MAX &&
           !strchr(name, '/');
}

int hutch_program_set_file(struct sandbox_spec *spec, const char *language, const char *path, char *const *args,
                           struct hutch_err *err)
{
    const struct interpreter *interpreter;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    auto_free char *data = NULL;
    auto_fd fd = -1;
    struct stat st;
    size_t len;

    if (!hutch_program_is_name(name))
        return hutch_err_set(err, 0, "'%s' is not the name of a program file", path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open the program '%s'", path);
    if (S_ISDIR(st.st_mode))
        return hutch_err_set(err, EISDIR, "read the program '%s'", path);
    if (hutch_fd_slurp(fd, PROGRAM_MAX_BYTES, path, &data, &len, err) < 0)
        return -1;
    if (find_interpreter(language, name, data, len, &interpreter, err) < 0)
        return -1;
    return add_program(spec, interpreter, name, data, len, args, err);
}

int hutch_program_set_code(struct sandbox_spec *spec, const char *code, char *const *args, struct hutch_err *err)
{
    const char *head[] = { "python3", "-c", code };

    if (strlen(code) > CODE_MAX_ARGUMENT)
        return add_program(spec, &interpreters[0], "code.py", code, strlen(code), args, err);
    return set_argv(spec, head, ARRAY_SIZE(head), args, err);
}

int hutch_program_set_inside(struct sandbox_spec *spec, const char *language, const char *path, const char *data,
                             size_t len, char *const *args, struct hutch_err *err)
{
    const char *slash = strrchr(path, '/');
    const struct interpreter *interpreter;

    if (find_interpreter(language, slash ? slash + 1 : path, data, len, &interpreter, err) < 0)
        return -1;
    return set_interpreter(spec, interpreter, path, args, err);
}

int hutch_program_set_module(struct sandbox_spec *spec, const char *module, char *const *args, struct hutch_err *err)
{
    const char *head[] = { "python3", "-m", module };

    return set_argv(spec, head, ARRAY_SIZE(head), args, err);
}

int hutch_program_set_stdin(struct sandbox_spec *spec, char *const *args, struct hutch_err *err)
{
    const char *head[] = { "python3", "-" };

    return set_argv(spec, head, ARRAY_SIZE(head), args, err);
}

const char *hutch_program_ending(const char *language)
{
    size_t i = find_language(language);

    return i < ARRAY_SIZE(interpreters) ? interpreters[i].ending : NULL;
}

const char *hutch_program_nth_ending(size_t n)
{
    return n < ARRAY_SIZE(interpreters) ? interpreters[n].ending : NULL;
}

int hutch_program_set_text(struct sandbox_spec *spec, const char *language, const char *name, const char *text,
                           size_t len, char *const *args, struct hutch_err *err)
{
    const struct interpreter *interpreter;

    if (!hutch_program_is_name(name))
        return hutch_err_set(err, 0, "'%s' is not the name of a program file", name);
    if (find_interpreter(language, name, text, len, &interpreter, err) < 0)
        return -1;
    return add_program(spec, interpreter, name, text, len, args, err);
}

/* --- what an image has ------------------------------------------------------------------------------------------ */

static bool has_program(int root, const char *name)
{
    static const char *const folders[] = { "/usr/local/bin", "/usr/bin", "/bin" };
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        char path[64];
        auto_fd fd = -1;

        snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
        if (fd >= 0)
            return true;
    }
    return false;
}

static bool is_there(int root, const struct interpreter *interpreter)
{
    return interpreter->language && !interpreter->starter && has_program(root, interpreter->program);
}

void hutch_program_list_installed(const char *tree, char *to, size_t room)
{
    auto_fd root = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t len = 0;

    to[0] = '\0';
    for (size_t i = 0; root >= 0 && i < ARRAY_SIZE(interpreters) && len < room; i++)
        if (is_there(root, &interpreters[i]))
            len += (size_t)snprintf(to + len, room - len, "%s%s", len ? ", " : "", interpreters[i].language);
}

bool hutch_program_is_installed(const char *tree, const char *language)
{
    auto_fd root = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; root >= 0 && i < ARRAY_SIZE(interpreters); i++)
        if (is_there(root, &interpreters[i]) && strcmp(interpreters[i].language, language) == 0)
            return true;
    return false;
}
