/* test_run.c - what `hutch run` says to a command line that it cannot follow, before it starts anything.
 *
 * Finds the policies in $HUTCH_POLICY_DIR, else in policies/ below the working directory. */
#include "runtime/cli/run.h"

#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

struct answer {
    int status;
    char out[16384], err_out[4096];
};

static char home[] = "/tmp/hutch-test-options.XXXXXX";

/* `hutch run WORDS…` in a child with nothing on its standard input. */
static void run(const char *const *words, struct answer *ret)
{
    int out[2], err_out[2], status;
    char *argv[300];
    int argc = 0;
    pid_t pid;
    ssize_t n;

    argv[argc++] = (char *)"run";
    while (*words && argc < 299)
        argv[argc++] = (char *)*words++;
    argv[argc] = NULL;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err_out, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        struct hutch_err err;

        dup2(null, 0);
        dup2(out[1], 1);
        dup2(err_out[1], 2);
        status = hutch_cmd_run(argc, argv, &err);
        if (status < 0) { /* as main() does */
            fprintf(stderr, "hutch: %s\n", err.msg);
            status = 125;
        }
        fflush(stdout);
        _exit(status);
    }
    close(out[1]);
    close(err_out[1]);
    n = hutch_fd_read_full(out[0], ret->out, sizeof(ret->out) - 1);
    ret->out[n] = '\0';
    n = hutch_fd_read_full(err_out[0], ret->err_out, sizeof(ret->err_out) - 1);
    ret->err_out[n] = '\0';
    close(out[0]);
    close(err_out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    ret->status = WEXITSTATUS(status);
}

#define W(...) (const char *const[]){ __VA_ARGS__, NULL }

static void test_usage_errors(void **state)
{
    static const struct { const char *words[6], *want; } rows[] = {
        { { NULL }, "there is nothing to run: expected FILE, DIR, '-m MODULE', '-c CODE' or '-' (see: hutch run "
                    "--help)" },
        { { "--no-such" }, "there is no option '--no-such' (see: hutch run --help)" },
        { { "--no-such=1" }, "there is no option '--no-such=1' (see: hutch run --help)" },
        { { "-z" }, "there is no option '-z' (see: hutch run --help)" },
        { { "-qz" }, "there is no option '-qz' (see: hutch run --help)" },
        { { "--mem", "1g" }, "there is no option '--mem' (see: hutch run --help)" }, /* not a beginning of one */
        { { "--memory" }, "option '--memory' needs a value: SIZE" },
        { { "-c" }, "option '-c' needs a value: CODE" },
        { { "-e" }, "option '-e' needs a value: NAME=VALUE" },
        { { "--json=1" }, "option '--json' takes no value" },
        { { "--quiet=" }, "option '--quiet' takes no value" },
        { { "-c", "pass", "--rootfs" }, "option '--rootfs' needs a value: host|DIR" }, /* -c does not end the options */
        { { "--memory", "lots", "-c", "pass" }, "option '--memory': " },
        { { "--memory=", "-c", "pass" }, "option '--memory': " },
        { { "--memory=1", "-c", "pass" }, "option '--memory': '1' is too small: expected a size " },
        { { "--pids-limit=9999999", "-c", "pass" }, "option '--pids-limit': '9999999' is too large: expected a " },
        { { "--memory", "-1", "-c", "pass" }, "option '--memory': " },
        { { "--cpus", "0.0.1", "-c", "pass" }, "option '--cpus': " },
        { { "--pids-limit", "10x", "-c", "pass" }, "option '--pids-limit': " },
        { { "--timeout", "soon", "-c", "pass" }, "option '--timeout': " },
        { { "--cpu-time", "99999999999999999999s", "-c", "pass" }, "option '--cpu-time': " },
        { { "--network", "bridge", "-c", "pass" }, "option '--network': expected 'none' or 'host', got 'bridge'" },
        { { "-e", "NAME", "-c", "pass" },
          "environment 'NAME': expected NAME=VALUE (nothing is taken over from the caller's own)" },
        { { "-e", "=x", "-c", "pass" }, "'' is not the name of an environment variable" },
        { { "-v", "x:/y:rx", "-c", "pass" }, "volume 'x:/y:rx': 'rx' is neither 'ro' nor 'rw'" },
        { { "-v", "/nowhere/at/all:/x", "-c", "pass" },
          "volume '/nowhere/at/all:/x': look at '/nowhere/at/all': No such file or directory" },
        { { "--volume", "/tmp", "-c", "pass" }, "volume '/tmp': expected SRC:DST or SRC:DST:ro, with an absolute DST" },
        { { "--volume", "/tmp:x", "-c", "pass" },
          "volume '/tmp:x': expected SRC:DST or SRC:DST:ro, with an absolute DST" },
        { { "--volume", ":/x", "-c", "pass" }, "volume ':/x': expected SRC:DST or SRC:DST:ro, with an absolute DST" },
        { { "-v", "/tmp:/x/../y", "-c", "pass" },
          "volume '/tmp:/x/../y': path '/x/../y' inside the sandbox has a '.' or '..' component" },
        { { "--tmpfs", "x", "-c", "pass" }, "tmpfs 'x': 'x' is not an absolute path inside the sandbox" },
        { { "--tmpfs", "/x:much", "-c", "pass" }, "tmpfs '/x:much': " },
        { { "--tmpfs", "/x:size=", "-c", "pass" }, "tmpfs '/x:size=': " },
        { { "-w", "here", "-c", "pass" }, "option '--workdir': 'here' is not an absolute path" },
        { { "--image", "a", "--rootfs", "host", "-c", "pass" }, "options '--rootfs' and '--image' exclude each other" },
        { { "--rootfs", "/nowhere", "-c", "pass" },
          "option '--rootfs': look at '/nowhere': No such file or directory" },
        { { "--policy", "no-such", "-c", "pass" }, "there is no policy 'no-such' in " },
        { { "--data", "/nowhere", "--rootfs", "host", "-c", "pass" },
          "option '--data': look at '/nowhere': No such file or directory" },
        { { "/nowhere.py" }, "open the program '/nowhere.py': No such file or directory" },
        { { "--", "-c" }, "open the program '-c': No such file or directory" },
        { { "--memory=1g", "--", "--memory" }, "open the program '--memory': No such file or directory" },
        { { "-v", "-c" }, "option '-c' needs a value: CODE" }, /* -v before anything but SRC:DST is --verbose */
        { { "" }, "'' is not the name of a program file" },
        { { "\033[2J" }, "open the program '?[2J': No such file or directory" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct answer a;
        const char *line;

        run(rows[i].words, &a);
        line = strstr(a.err_out, "hutch: ");
        while (line && strncmp(line, "hutch: debug: ", 14) == 0)
            line = strstr(line + 1, "hutch: ");
        print_message("  %s", line ? line : "?\n");
        assert_int_equal(a.status, 125);
        assert_string_equal(a.out, "");
        assert_non_null(line);
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1); /* one line, and the last */
        if (strncmp(line + 7, rows[i].want, strlen(rows[i].want)) != 0 ||
            (line[7 + strlen(rows[i].want)] != '\n' && rows[i].want[strlen(rows[i].want) - 1] != ' '))
            fail_msg("expected: %s", rows[i].want);
    }
}

/* Every repeatable option has an end. */
static void test_too_many(void **state)
{
    const char *words[299] = { NULL };
    struct answer a;

    (void)state;
    for (int i = 0; i < 298; i++)
        words[i] = "-eA=1";
    run(words, &a);
    assert_int_equal(a.status, 125);
    assert_string_equal(a.err_out, "hutch: option '--env' is given more than 256 times\n");
}

static void test_help(void **state)
{
    struct answer a;

    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *words[] = { (const char *[]){ "--help", "-h", "--memory=bad" }[i], i == 2 ? "--help" : NULL, NULL };

        run(words, &a);
        assert_int_equal(a.status, 0);
        assert_string_equal(a.err_out, "");
        assert_memory_equal(a.out, "usage: hutch run [options] FILE [ARGS...]\n", 42);
        for (const char *const *option =
                 W("--image", "--rootfs", "--policy", "--memory", "--cpus", "--pids-limit", "--timeout", "--cpu-time",
                   "--network", "-e, --env", "-v, --volume", "--tmpfs", "-w, --workdir", "--data", "--json",
                   "-q, --quiet", "--verbose", "-h, --help", "-c");
             *option; option++)
            if (!strstr(a.out, *option))
                fail_msg("%s is not in the help", *option);
        for (char *save = NULL, *line = strtok_r(a.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            assert_true(strlen(line) <= 120);
    }
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(home));
    setenv("HUTCH_HOME", home, 1);
    setenv("HUTCH_POLICY_DIR", "policies", 0);
    return 0;
}

static int tear_down(void **state)
{
    auto_fd tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_rmtree(tmp, strrchr(home, '/') + 1, &err), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage_errors),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_help),
    };

    return cmocka_run_group_tests_name("options", tests, set_up, tear_down);
}
