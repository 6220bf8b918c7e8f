#include "runtime/lang/program.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* execve(2) takes 32 pages for one argument (MAX_ARG_STRLEN); a longer text goes in as a file. */
#define CODE_MAX_ARGUMENT (100u << 10)

static const struct { const char *ending, *language, *interpreter; } interpreters[] = {
    { ".py", "python", "python3" }, { ".sh", "sh", "sh" },     { ".bash", "bash", "bash" }, { ".js", "js", "node" },
    { ".mjs", NULL, "node" },       { ".pl", "perl", "perl" }, { ".rb", "ruby", "ruby" },   { ".R", "r", "Rscript" },
    { ".r", NULL, "Rscript" },      { ".lua", "lua", "lua" },
};

/* NULL: the file is a program of its own. */
static const char *interpreter_for(const char *name, const char *data, size_t len)
{
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; dot && i < ARRAY_SIZE(interpreters); i++)
        if (strcmp(dot, interpreters[i].ending) == 0)
            return interpreters[i].interpreter;
    if ((len >= 2 && memcmp(data, "#!", 2) == 0) || (len >= 4 && memcmp(data, "\x7f" "ELF", 4) == 0))
        return NULL;
    return "python3";
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

static int add_program(struct sandbox_spec *spec, const char *interpreter, const char *name, const char *data,
                       size_t len, char *const *args, struct hutch_err *err)
{
    char target[sizeof(PROGRAM_DIR) + 256];
    const char *head[2];
    size_t n = 0;

    snprintf(target, sizeof(target), PROGRAM_DIR "/%s", name);
    if (hutch_spec_add_file(spec, target, data, len, interpreter ? 0444 : 0555, err) < 0)
        return -1;
    if (interpreter)
        head[n++] = interpreter;
    head[n++] = target;
    return set_argv(spec, head, n, args, err);
}

bool hutch_program_is_name(const char *name)
{
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= NAME_MAX &&
           !strchr(name, '/');
}

int hutch_program_set_file(struct sandbox_spec *spec, const char *path, char *const *args, struct hutch_err *err)
{
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
    return add_program(spec, interpreter_for(name, data, len), name, data, len, args, err);
}

int hutch_program_set_code(struct sandbox_spec *spec, const char *code, char *const *args, struct hutch_err *err)
{
    const char *head[] = { "python3", "-c", code };

    if (strlen(code) > CODE_MAX_ARGUMENT)
        return add_program(spec, "python3", "code.py", code, strlen(code), args, err);
    return set_argv(spec, head, ARRAY_SIZE(head), args, err);
}

int hutch_program_set_stdin(struct sandbox_spec *spec, char *const *args, struct hutch_err *err)
{
    const char *head[] = { "python3", "-" };

    return set_argv(spec, head, ARRAY_SIZE(head), args, err);
}

const char *hutch_program_ending(const char *language)
{
    for (size_t i = 0; i < ARRAY_SIZE(interpreters); i++)
        if (interpreters[i].language && strcmp(language, interpreters[i].language) == 0)
            return interpreters[i].ending;
    return NULL;
}

int hutch_program_set_text(struct sandbox_spec *spec, const char *language, const char *name, const char *text,
                           size_t len, char *const *args, struct hutch_err *err)
{
    const char *interpreter = language ? NULL : interpreter_for(name, text, len);

    if (!hutch_program_is_name(name))
        return hutch_err_set(err, 0, "'%s' is not the name of a program file", name);
    for (size_t i = 0; language && i < ARRAY_SIZE(interpreters); i++)
        if (interpreters[i].language && strcmp(language, interpreters[i].language) == 0)
            interpreter = interpreters[i].interpreter;
    if (language && !interpreter)
        return hutch_err_set(err, 0, "there is no language '%s'", language);
    return add_program(spec, interpreter, name, text, len, args, err);
}
