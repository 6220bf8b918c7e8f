/* test_program.c - which interpreter a program gets, and what is not a program. */
#include "runtime/lang/program.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

struct place {
    char dir[48];
    struct sandbox_spec spec;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    struct hutch_err err;

    strcpy(p->dir, "/tmp/hutch-test-program.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(hutch_spec_init(&p->spec, &err), 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    assert_int_equal(rmdir(p->dir), 0);
    hutch_spec_done(&p->spec);
    free(p);
    return 0;
}

static void fresh_spec(struct place *p)
{
    struct hutch_err err;

    hutch_spec_done(&p->spec);
    assert_int_equal(hutch_spec_init(&p->spec, &err), 0);
}

static void path_of(const struct place *p, const char *name, char *buf, size_t size)
{
    assert_true((size_t)snprintf(buf, size, "%s/%s", p->dir, name) < size);
}

static void test_interpreters(void **state)
{
    static const struct { const char *name, *text, *interpreter; } rows[] = {
        { "a.py", "print(1)", "python3" },
        { "a.sh", "echo", "sh" },
        { "a.bash", "echo", "bash" },
        { "a.js", "1", "node" },
        { "a.mjs", "1", "node" },
        { "a.cjs", "1", "node" },
        { "a.pl", "1", "perl" },
        { "a.rb", "1", "ruby" },
        { "a.R", "1", "Rscript" },
        { "a.r", "1", "Rscript" },
        { "a.lua", "1", "lua" },
        { "a.tar.py", "1", "python3" },
        { "a.py", "#!/bin/sh\n", "python3" }, /* the ending says more than the first line */
        { ".py", "1", "python3" },
        { "a.PY", "print(1)", "python3" },
        { "a.Js", "1", "node" },
        { "a", "print(1)", "python3" },
        { "a", "#!/bin/sh\necho", NULL },
        { ".profile", "print(1)", "python3" }, /* a name, and no ending */
        { "a.cgi", "#!/usr/bin/env ruby\n", NULL },
        { "a", "\177ELF\2\1\1", NULL },
        { "a", "#", "python3" },
        { "a", "\177EL", "python3" },
        { "name with 'quotes' and\nnewline.py", "1", "python3" },
        { "-c", "1", "python3" },             /* it is passed as a whole path, so no option */
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char *args[] = { (char *)"one", (char *)"--two", NULL }, path[128], inside[128];
        char *const *argv;
        struct hutch_err err;
        auto_fd fd = -1;

        path_of(p, rows[i].name, path, sizeof(path));
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_int_equal(hutch_fd_write_all(fd, rows[i].text, strlen(rows[i].text)), 0);
        if (hutch_program_set_file(&p->spec, NULL, path, args, &err) < 0)
            fail_msg("%s", err.msg);
        snprintf(inside, sizeof(inside), "%s/%s", PROGRAM_DIR, rows[i].name);
        argv = p->spec.argv;
        if (rows[i].interpreter)
            assert_string_equal(*argv++, rows[i].interpreter);
        assert_string_equal(argv[0], inside);
        assert_string_equal(argv[1], "one");
        assert_string_equal(argv[2], "--two");
        assert_null(argv[3]);
        assert_int_equal(p->spec.n_files, 1);
        assert_string_equal(p->spec.files[0].target, inside);
        assert_string_equal(p->spec.files[0].data, rows[i].text);
        assert_int_equal(p->spec.files[0].mode, rows[i].interpreter ? 0444 : 0555);
        assert_int_equal(unlink(path), 0);
        fresh_spec(p);
    }
}

/* What no language of ours is refused rather than taken for Python; a language that is named goes before all. */
static void test_languages(void **state)
{
    static const struct { const char *label, *language, *name, *text, *interpreter, *error; } rows[] = {
        { "compiled", NULL, "main.go", "package main", NULL,
          "no language that hutch knows has programs that end in '.go'" },
        { "TypeScript", NULL, "a.ts", "let x: number", "sh", NULL },
        { "TypeScript by name", "typescript", "a", "let x: number", "sh", NULL },
        { "JSX", NULL, "a.tsx", "let x: number", NULL, "'.tsx' like 'a.tsx' (known are .py, .sh," },
        { "C", NULL, "a.b.c", "int main", NULL, "--language python says what it is" },
        { "text", NULL, "a.txt", "", NULL, "'.txt'" },
        { "dot at the end", NULL, "a.", "1", NULL, "'.'" },
        { "named against the ending", "perl", "a.py", "1", "perl", NULL },
        { "named for an unknown ending", "python", "a.txt", "1", "python3", NULL },
        { "named against the first line", "sh", "a", "#!/usr/bin/perl", "sh", NULL },
        { "named, unknown", "go", "a.py", "1", NULL,
          "there is no language 'go' (there are python, sh, bash, js, typescript, perl, ruby, r, lua)" },
        { "named, empty", "", "a.py", "1", NULL, "there is no language ''" },
        { "an ending is no name", ".py", "a.py", "1", NULL, "there is no language '.py'" },
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err;
        int rc = hutch_program_set_text(&p->spec, rows[i].language, rows[i].name, rows[i].text, strlen(rows[i].text),
                                        NULL, &err);

        if (rows[i].error && (rc == 0 || !strstr(err.msg, rows[i].error)))
            fail_msg("%s: %s", rows[i].label, rc == 0 ? "accepted" : err.msg);
        if (rows[i].interpreter && (rc < 0 || strcmp(p->spec.argv[0], rows[i].interpreter) != 0))
            fail_msg("%s: %s", rows[i].label, rc < 0 ? err.msg : p->spec.argv[0]);
        fresh_spec(p);
    }
}

/* What starts TypeScript is sh, which is handed the file and the arguments as they are. */
static void test_starter(void **state)
{
    static const char *const names[] = { "a b.ts", "-c.mts", "x;y.cts", "a.TS" };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char *args[] = { (char *)"$(one)", (char *)"--two", NULL };
        struct hutch_err err;

        assert_int_equal(hutch_program_set_text(&p->spec, NULL, names[i], "let x: number", 13, args, &err), 0);
        assert_string_equal(p->spec.argv[0], "sh");
        assert_string_equal(p->spec.argv[1], "-c");
        assert_non_null(strstr(p->spec.argv[2], "node"));
        assert_string_equal(p->spec.argv[3], "hutch");
        assert_string_equal(p->spec.argv[4], p->spec.files[0].target);
        assert_string_equal(strrchr(p->spec.argv[4], '/') + 1, names[i]);
        assert_string_equal(p->spec.argv[5], "$(one)");
        assert_string_equal(p->spec.argv[6], "--two");
        assert_null(p->spec.argv[7]);
        assert_int_equal(p->spec.files[0].mode, 0444);
        fresh_spec(p);
    }
    assert_string_equal(hutch_program_ending("typescript"), ".ts");
}

static void make_in(const struct place *p, const char *name, const char *link)
{
    char path[512];

    path_of(p, name, path, sizeof(path));
    assert_int_equal(link ? symlink(link, path) : mkdir(path, 0755), 0);
}

/* Links of an image lead to places in the image, and never out of it. */
static void test_installed(void **state)
{
    static const struct { const char *name, *link; } made[] = {
        { "etc", NULL },      { "etc/node", NULL },           { "usr", NULL },
        { "usr/bin", NULL },  { "usr/bin/python3", NULL },    { "usr/bin/node", "/etc/node" },
        { "bin", "usr/bin" }, { "usr/bin/lua", "/bin/true" }, { "usr/bin/ruby", "../../../../../bin/sh" },
    };
    struct place *p = *state;
    char text[128], path[512];

    for (size_t i = 0; i < ARRAY_SIZE(made); i++)
        make_in(p, made[i].name, made[i].link);
    hutch_program_list_installed(p->dir, text, sizeof(text));
    assert_string_equal(text, "python, js");
    for (size_t i = ARRAY_SIZE(made); i-- > 0;) {
        path_of(p, made[i].name, path, sizeof(path));
        assert_int_equal(remove(path), 0);
    }
    hutch_program_list_installed("/nowhere", text, sizeof(text));
    assert_string_equal(text, "");
}

static void test_no_program(void **state)
{
    struct place *p = *state;
    char path[512], want[600], longest[300];
    struct hutch_err err;

    static const struct { const char *path, *error; } rows[] = {
        { "", "'' is not the name of a program file" },
        { "/", "'/' is not the name of a program file" },
        { "/tmp/", "'/tmp/' is not the name of a program file" },
        { ".", "'.' is not the name of a program file" },
        { "a/..", "'a/..' is not the name of a program file" },
        { "/nowhere/a.py", "open the program '/nowhere/a.py': No such file or directory" },
        { "/tmp", "read the program '/tmp': Is a directory" },
        { "/dev/null/x.py", "open the program '/dev/null/x.py': Not a directory" },
        { "/nowhere/\033[31m.py", "open the program '/nowhere/?[31m.py': No such file or directory" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(hutch_program_set_file(&p->spec, NULL, rows[i].path, NULL, &err), -1);
        assert_string_equal(err.msg, rows[i].error);
    }
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(hutch_program_set_file(&p->spec, NULL, longest, NULL, &err), -1);
    assert_non_null(strstr(err.msg, "is not the name of a program file"));
    longest[255] = '\0'; /* NAME_MAX: only missing */
    assert_int_equal(hutch_program_set_file(&p->spec, NULL, longest, NULL, &err), -1);
    assert_int_equal(err.errnum, ENOENT);

    if (geteuid() != 0) {
        path_of(p, "secret.py", path, sizeof(path));
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0));
        assert_int_equal(hutch_program_set_file(&p->spec, NULL, path, NULL, &err), -1);
        snprintf(want, sizeof(want), "open the program '%s': Permission denied", path);
        assert_string_equal(err.msg, want);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(p->spec.n_files, 0);
    assert_null(p->spec.argv[0]);
}

static void test_too_large(void **state)
{
    struct place *p = *state;
    char path[128];
    struct hutch_err err;
    auto_fd fd = -1;

    path_of(p, "big.py", path, sizeof(path));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, PROGRAM_MAX_BYTES + 1), 0);
    assert_int_equal(hutch_program_set_file(&p->spec, NULL, path, NULL, &err), -1);
    assert_int_equal(err.errnum, EFBIG);
    assert_non_null(strstr(err.msg, "(the limit is 67108864 bytes): File too large"));
    assert_int_equal(p->spec.n_files, 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(hutch_program_set_file(&p->spec, NULL, path, NULL, &err), 0);
    assert_int_equal(p->spec.files[0].len, 1 << 20);
    assert_int_equal(unlink(path), 0);
}

/* What a shell's <(…) hands over: the bytes come from a pipe. */
static void test_fifo(void **state)
{
    struct place *p = *state;
    char path[128];
    struct hutch_err err;
    int status;
    pid_t pid;

    path_of(p, "fifo.py", path, sizeof(path));
    assert_int_equal(mkfifo(path, 0600), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        _exit(fd >= 0 && hutch_fd_write_all(fd, "print(2)", 8) == 0 ? 0 : 1);
    }
    if (hutch_program_set_file(&p->spec, NULL, path, NULL, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(p->spec.files[0].data, "print(2)");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(unlink(path), 0);
}

static void test_code_and_stdin(void **state)
{
    struct place *p = *state;
    char *args[] = { (char *)"-x", NULL }, *text = malloc((100 << 10) + 2);
    struct hutch_err err;

    assert_int_equal(hutch_program_set_code(&p->spec, "print(1)", args, &err), 0);
    assert_string_equal(p->spec.argv[0], "python3");
    assert_string_equal(p->spec.argv[1], "-c");
    assert_string_equal(p->spec.argv[2], "print(1)");
    assert_string_equal(p->spec.argv[3], "-x");
    assert_null(p->spec.argv[4]);

    assert_int_equal(hutch_program_set_stdin(&p->spec, args, &err), 0);
    assert_string_equal(p->spec.argv[1], "-");
    assert_string_equal(p->spec.argv[2], "-x");
    assert_null(p->spec.argv[3]);
    assert_int_equal(p->spec.n_files, 0);

    /* the longest that fits an argument of execve(2), and one more */
    memset(text, ' ', 100 << 10);
    text[100 << 10] = '\0';
    assert_int_equal(hutch_program_set_code(&p->spec, text, args, &err), 0);
    assert_int_equal(p->spec.n_files, 0);
    strcpy(text + (100 << 10), "1");
    assert_int_equal(hutch_program_set_code(&p->spec, text, args, &err), 0);
    assert_int_equal(p->spec.n_files, 1);
    assert_string_equal(p->spec.argv[0], "python3");
    assert_string_equal(p->spec.argv[1], PROGRAM_DIR "/code.py");
    assert_string_equal(p->spec.argv[2], "-x");
    assert_int_equal(p->spec.files[0].len, (100 << 10) + 1);
    free(text);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_interpreters),
        T(test_languages),
        T(test_starter),
        T(test_installed),
        T(test_no_program),
        T(test_too_large),
        T(test_fifo),
        T(test_code_and_stdin),
    };

    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
