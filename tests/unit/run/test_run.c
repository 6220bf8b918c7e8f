/* test_run.c - one run from its request to its result: the verdicts, the streams, the clocks, the files. */
#include "runtime/run/run.h"

#include "tests/unit/box.h"
#include "runtime/config/limits.h"
#include "sandbox/inside.h"
#include "sandbox/rmtree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

struct place {
    char dir[48], home[64];
    int dirfd;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/hutch-test-run.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->home, sizeof(p->home), "%s/home", p->dir);
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = p;
    return 0;
}

/* Nothing of a run is left: no slot with something in it, no data directory with something in it. */
static void check_swept(const struct place *p)
{
    char path[96];
    struct dirent *entry;
    struct stat st;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/runs", p->home);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        assert_int_equal(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        if (S_ISDIR(st.st_mode)) {
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR), 0); /* only when it is empty */
        } else {
            assert_int_equal(st.st_size, 0);
        }
    }
    closedir(dir);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* and no process */
}

static int tear_down(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { .msg = "" };

    for (const char *const *name = (const char *const[]){ "home", "data", NULL }; *name; name++)
        if (hutch_rmtree(p->dirfd, *name, &err) < 0)
            fail_msg("%s", err.msg);
    close(p->dirfd);
    assert_int_equal(rmdir(p->dir), 0);
    free(p);
    return 0;
}

struct job {
    struct sandbox_spec spec;
    struct run_request request;
    struct run_result result;
};

static void prepare(const struct place *p, const char *script, struct job *job)
{
    struct hutch_err err;

    box_spec(&job->spec, script);
    assert_non_null(hutch_spec_add_mount(&job->spec, MOUNT_TMPFS, NULL, "/run", MOUNT_RDONLY, &err));
    assert_int_equal(hutch_spec_set_string(&job->spec.cwd, INSIDE_DATA_DIR, &err), 0);
    job->request = (struct run_request){
        .spec = &job->spec, .home = p->home, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .signal_fd = -1
    };
    hutch_result_init(&job->result);
}

static void run(struct job *job)
{
    struct hutch_err err;

    if (hutch_run(&job->request, &job->result, &err) < 0)
        fail_msg("%s", err.msg);
}

static void done(struct job *job)
{
    hutch_result_done(&job->result);
    hutch_spec_done(&job->spec);
}

static void expect_text(const struct run_output *out, const char *want)
{
    if (out->len != strlen(want) || memcmp(out->data ? out->data : "", want, out->len) != 0)
        fail_msg("'%.*s' instead of '%s'", (int)out->len, out->data ? out->data : "", want);
}

static void test_verdicts(void **state)
{
    static const struct {
        const char *script;
        enum sandbox_limit limit;
        uint64_t value;
        enum hutch_verdict verdict;
        int exit_code, signal;
        const char *out, *err_out, *message;
    } rows[] = {
        { "echo out; echo err >&2", 0, 0, HUTCH_OK, 0, 0, "out\n", "err\n", "" },
        { "echo out; exit 3", 0, 0, HUTCH_ERROR, 3, 0, "out\n", "", "" },
        { "exec no-such-program", 0, 0, HUTCH_ERROR, 127, 0, "", NULL, "" },
        { "echo out; kill -TERM $$", 0, 0, HUTCH_ERROR, -1, SIGTERM, "out\n", "", "" },
        { "kill -SEGV $$", 0, 0, HUTCH_ERROR, -1, SIGSEGV, "", "", "" },
        { "kill -KILL $$", 0, 0, HUTCH_KILLED, -1, SIGKILL, "", "",
          "the program was killed by SIGKILL, and not by hutch" },
        { "kill -SYS $$", 0, 0, HUTCH_DENIED, -1, SIGSYS, "", "",
          "the program made a system call that is never allowed" },
        { "echo out; while :; do :; done", LIMIT_WALL, 2000, HUTCH_TIMEOUT, -1, SIGTERM, "out\n", "",
          "the run took longer than 2000 ms" },
        { "trap '' TERM; echo out; while :; do :; done", LIMIT_WALL, 2000, HUTCH_TIMEOUT, -1, SIGKILL, "out\n", "",
          "the run took longer than 2000 ms" },
        { "trap 'echo late; exit 0' TERM; while :; do :; done", LIMIT_WALL, 2000, HUTCH_TIMEOUT, 0, 0, "late\n", "",
          "the run took longer than 2000 ms" },
        { "while :; do :; done", LIMIT_CPU_TIME, 200, HUTCH_CPU_TIME, -1, SIGKILL, "", "",
          "the program used more than 200 ms of CPU time" },
        { "yes", LIMIT_OUTPUT, 10, HUTCH_OUTPUT_LIMIT, -1, SIGKILL, "y\ny\ny\ny\ny\n", "",
          "the program wrote more than 10 bytes to stdout" },
        { "yes >&2; :", LIMIT_OUTPUT, 10, HUTCH_OUTPUT_LIMIT, -1, SIGKILL, "", "y\ny\ny\ny\ny\n",
          "the program wrote more than 10 bytes to stderr" },
        { "printf 0123456789", LIMIT_OUTPUT, 10, HUTCH_OK, 0, 0, "0123456789", "", "" },
        { "exec head -c 2000 /dev/zero >big", LIMIT_FILE_SIZE, 1024, HUTCH_ERROR, -1, SIGXFSZ, "", "", "" },
        { "kill -XCPU $$", LIMIT_CPU_TIME, 60000, HUTCH_ERROR, -1, SIGXCPU, "", "", "" }, /* it only says so */
        { "head -c 2000 /dev/zero >big; while :; do :; done", LIMIT_DATA_SIZE, 1024, HUTCH_OUTPUT_LIMIT, -1, SIGKILL,
          "", "", "/mnt/data holds more than 1024 bytes or 0 files; none of its files were kept" },
        { "head -c 20000 /dev/zero >big", LIMIT_DATA_SIZE, 1024, HUTCH_OUTPUT_LIMIT, -1, SIGKILL, "", "",
          "/mnt/data holds more than 1024 bytes or 0 files; none of its files were kept" }, /* it ends at once */
        { ": >a; : >b; : >c; while :; do :; done", LIMIT_DATA_FILES, 2, HUTCH_OUTPUT_LIMIT, -1, SIGKILL, "", "",
          "/mnt/data holds more than 0 bytes or 2 files; none of its files were kept" },
        { ": >a; : >b; : >c; exit 3", LIMIT_DATA_FILES, 2, HUTCH_OUTPUT_LIMIT, 3, 0, "", "",
          "/mnt/data holds more than 0 bytes or 2 files; none of its files were kept" },
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct job job;

        print_message("  %s\n", rows[i].script);
        prepare(p, rows[i].script, &job);
        job.spec.grace_ms = rows[i].limit == LIMIT_WALL && rows[i].signal != SIGKILL ? 30000 : 100;
        if (rows[i].value)
            job.spec.limits[rows[i].limit] = rows[i].value;
        run(&job);
        if (job.result.verdict != rows[i].verdict)
            fail_msg("verdict %s: %s", hutch_verdict_text(job.result.verdict), job.result.message);
        assert_string_equal(job.result.message, rows[i].message);
        if (strstr(rows[i].message, "none of its files were kept"))
            assert_null(job.result.directory);
        if (rows[i].signal != SIGKILL || rows[i].verdict == HUTCH_KILLED || rows[i].limit == LIMIT_WALL) {
            assert_int_equal(job.result.exit_code, rows[i].exit_code);
            assert_int_equal(job.result.signal, rows[i].signal);
        }
        if (rows[i].out)
            expect_text(&job.result.out, rows[i].out);
        if (rows[i].err_out)
            expect_text(&job.result.err_out, rows[i].err_out);
        assert_true(job.result.total_ms >= job.result.run_ms && job.result.prepared_ms > 0);
        done(&job);
    }
    check_swept(p);
}

static void test_setup_failures_are_results(void **state)
{
    static const struct { const char *program, *cwd; int exit_code; const char *message;
    } rows[] = {
        { "/no/such/program", NULL, 127,
          "execute '/no/such/program' (is it in this image?): No such file or directory" },
        { "/etc/passwd", NULL, 126, "execute '/etc/passwd': Permission denied" },
        { "/bin/true", "/nowhere", 125,
          "enter the working directory: '/nowhere' inside the sandbox: No such file or directory" },
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err;
        struct job job;

        prepare(p, NULL, &job);
        assert_int_equal(hutch_spec_set_list(&job.spec.argv, &rows[i].program, 1, &err), 0);
        if (rows[i].cwd)
            assert_int_equal(hutch_spec_set_string(&job.spec.cwd, rows[i].cwd, &err), 0);
        run(&job);
        assert_int_equal(job.result.verdict, HUTCH_SETUP_FAILED);
        assert_int_equal(job.result.exit_code, rows[i].exit_code);
        assert_string_equal(job.result.message, rows[i].message);
        assert_null(job.result.directory);
        done(&job);
    }
    for (int i = 0; i < 2; i++) { /* refused before anything is cloned: a result too */
        struct job job;

        prepare(p, "echo no", &job);
        if (i == 0)
            job.spec.uid_inside = 0;
        else
            job.request.data_dir = "/no/such/data";
        run(&job);
        assert_int_equal(job.result.verdict, HUTCH_SETUP_FAILED);
        assert_int_equal(job.result.exit_code, 125);
        assert_string_equal(job.result.message,
                            i == 0 ? "uid and gid 0 are not given to code inside a sandbox"
                                   : "open the data directory '/no/such/data': No such file or directory");
        expect_text(&job.result.out, "");
        done(&job);
    }
    check_swept(p);
}

static void test_no_home_is_a_result(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { .msg = "" };
    struct job job;

    prepare(p, "echo no", &job);
    job.request.home = "/dev/null/home";
    assert_int_equal(hutch_run(&job.request, &job.result, &err), 0);
    assert_int_equal(job.result.verdict, HUTCH_SETUP_FAILED);
    assert_memory_equal(job.result.message, "keep the state of a run: ", 25);
    done(&job);
}

/* The code inside takes permissions away: its files are kept all the same. */
static void test_files_of_a_closed_directory(void **state)
{
    struct place *p = *state;
    struct job job;
    char path[128];
    struct stat st;

    prepare(p, "echo x >new; chmod 0 new .", &job);
    run(&job);
    assert_int_equal(job.result.verdict, HUTCH_OK);
    assert_non_null(job.result.directory);
    assert_int_equal(job.result.files.added.n, 1);
    snprintf(path, sizeof(path), "%s/new", job.result.directory);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 2);
    done(&job);
    check_swept(p);
}

static void test_files(void **state)
{
    struct place *p = *state;
    struct job job;
    char path[128], want[128];

    prepare(p, "echo x >new; mkdir d; echo y >d/deep", &job);
    run(&job);
    assert_int_equal(job.result.verdict, HUTCH_OK);
    snprintf(want, sizeof(want), "%s/outputs/", p->home);
    assert_memory_equal(job.result.directory, want, strlen(want));
    assert_int_equal(job.result.files.added.n, 2);
    snprintf(path, sizeof(path), "%s/d/deep", job.result.directory);
    assert_int_equal(access(path, R_OK), 0);
    {
        struct stat st;

        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, geteuid()); /* the caller's own, whoever he is */
    }
    done(&job);
    check_swept(p);

    prepare(p, "echo x >new; rm new", &job); /* nothing to keep */
    run(&job);
    assert_null(job.result.directory);
    assert_int_equal(job.result.files.added.n, 0);
    done(&job);
    check_swept(p);
}

static void test_a_data_directory_of_the_callers(void **state)
{
    struct place *p = *state;
    struct job job;
    char data[96], path[128];

    snprintf(data, sizeof(data), "%s/data", p->dir);
    assert_int_equal(mkdir(data, 0700), 0);
    for (const char *const *name = (const char *const[]){ "kept", "changed", "removed", NULL }; *name; name++) {
        auto_fd fd = -1;

        snprintf(path, sizeof(path), "%s/%s", data, *name);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(hutch_fd_write_all(fd, "old", 3), 0);
    }
    prepare(p, "cat kept; echo new >changed; rm removed; echo x >added", &job);
    job.request.data_dir = data;
    run(&job);
    expect_text(&job.result.out, "old");
    assert_int_equal(job.result.verdict, HUTCH_OK);
    assert_string_equal(job.result.directory, data);
    assert_int_equal(job.result.files.added.n, 1);
    assert_string_equal(job.result.files.added.items[0].path, "added");
    assert_int_equal(job.result.files.modified.n, 1);
    assert_string_equal(job.result.files.modified.items[0].path, "changed");
    assert_int_equal(job.result.files.deleted.n, 1);
    assert_string_equal(job.result.files.deleted.items[0].path, "removed");
    done(&job);
    check_swept(p);
}

static void test_streams(void **state)
{
    struct place *p = *state;
    int in[2], out[2], err_out[2];
    char buf[64] = "";
    struct job job;

    prepare(p, "tr a-z A-Z; echo err >&2", &job);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err_out, O_CLOEXEC), 0);
    assert_int_equal(hutch_fd_write_all(in[1], "through\n", 8), 0);
    close(in[1]);
    job.request.stdin_fd = in[0];
    job.request.stdout_fd = out[1];
    job.request.stderr_fd = err_out[1];
    run(&job);
    close(in[0]);
    close(out[1]);
    close(err_out[1]);
    assert_int_equal(hutch_fd_read_full(out[0], buf, sizeof(buf) - 1), 8);
    assert_string_equal(buf, "THROUGH\n");
    memset(buf, 0, sizeof(buf));
    assert_int_equal(hutch_fd_read_full(err_out[0], buf, sizeof(buf) - 1), 4);
    assert_string_equal(buf, "err\n");
    assert_int_equal(job.result.out.len, 0); /* not kept as well */
    close(out[0]);
    close(err_out[0]);
    done(&job);
}

/* Nobody reads: the program ends of SIGPIPE, as it would without hutch. */
static void test_a_broken_sink(void **state)
{
    struct place *p = *state;
    struct job job;
    int out[2];

    prepare(p, "exec yes", &job);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    close(out[0]);
    job.request.stdout_fd = out[1];
    run(&job);
    close(out[1]);
    assert_int_equal(job.result.signal, SIGPIPE);
    done(&job);
}

static void test_large_output(void **state)
{
    struct place *p = *state;
    struct job job;

    prepare(p, "head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2", &job);
    run(&job);
    assert_int_equal(job.result.verdict, HUTCH_OK);
    assert_int_equal(job.result.out.len, 5000000);
    assert_int_equal(job.result.err_out.len, 3000000);
    assert_false(job.result.out.truncated);
    done(&job);
}

/* Runs @script and sends @sig to this process as often as the script writes a byte to stderr. */
static void run_and_signal(const struct place *p, const char *script, int sig, int signal_fd, struct job *job)
{
    pid_t self = getpid(), killer;
    int out[2], status;
    char c;

    prepare(p, script, job);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    killer = fork();
    assert_true(killer >= 0);
    if (killer == 0) {
        close(out[1]);
        while (read(out[0], &c, 1) == 1)
            kill(self, sig);
        _exit(0);
    }
    close(out[0]);
    job->request.stderr_fd = out[1];
    job->request.signal_fd = signal_fd;
    run(job);
    close(out[1]);
    assert_int_equal(waitpid(killer, &status, 0), killer);
    assert_int_equal(status, 0);
}

/* Signals to the supervisor come over a descriptor: the first is passed on, the second ends it. */
static void test_signals(void **state)
{
    static const struct { const char *script; int sig, signal, exit_code; const char *out;
    } rows[] = {
        { "trap 'echo got it; exit 4' TERM; printf . >&2; while :; do :; done", SIGTERM, 0, 4, "got it\n" },
        { "trap 'echo got it; exit 5' INT; printf . >&2; while :; do :; done", SIGINT, 0, 5, "got it\n" },
        { "printf . >&2; while :; do :; done", SIGINT, SIGINT, -1, "" },
        { "trap 'echo got it; printf . >&2' TERM; printf . >&2; while :; do :; done", SIGTERM, SIGKILL, -1,
          "got it\n" },
    };
    struct place *p = *state;
    sigset_t set, old;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, &old);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        auto_fd fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        bool is_early;
        int tries = 0;

        do {
            struct job job;
            char want[64];

            run_and_signal(p, rows[i].script, rows[i].sig, fd, &job);
            assert_int_equal(job.result.verdict, HUTCH_KILLED);
            snprintf(want, sizeof(want), "hutch was told to stop by SIG%s", sigabbrev_np(rows[i].sig));
            assert_string_equal(job.result.message, want);
            /* The program may write before the supervisor hears that it runs; a signal in between ends everything at
             * once. */
            is_early = job.result.signal == SIGKILL && job.result.out.len == 0;
            if (!is_early) {
                assert_int_equal(job.result.signal, rows[i].signal);
                assert_int_equal(job.result.exit_code, rows[i].exit_code);
                expect_text(&job.result.out, rows[i].out);
            }
            done(&job);
        } while (is_early && ++tries < 100);
        assert_false(is_early);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    check_swept(p);
}

static void test_limits_and_layers_are_reported(void **state)
{
    struct place *p = *state;
    struct job job;

    prepare(p, "exit 0", &job);
    job.spec.limits[LIMIT_WALL] = 20000;
    job.spec.limits[LIMIT_OUTPUT] = 1000;
    job.spec.limits[LIMIT_MEMORY] = 1 << 29;
    run(&job);
    assert_int_equal(job.result.verdict, HUTCH_OK);
    assert_true(job.result.limits[LIMIT_WALL].asked == 20000);
    assert_int_equal(job.result.limits[LIMIT_WALL].enforcers, 1u << ENFORCER_SUPERVISOR);
    assert_int_equal(job.result.limits[LIMIT_OUTPUT].enforcers, 1u << ENFORCER_SUPERVISOR);
    assert_int_not_equal(job.result.limits[LIMIT_MEMORY].enforcers, 0);
    assert_int_equal(job.result.limits[LIMIT_PIDS].asked, 0);
    assert_true(job.result.layers[LAYER_USER_NS].is_active);
    assert_false(job.result.layers[LAYER_SECCOMP].is_active);
    assert_int_equal(job.result.layers[LAYER_SECCOMP].asked, NEED_OFF);
    done(&job);
}

/* A limit that the code forgets has no enforcer; one that its row in runtime/config/limits.c does not know is told
 * wrongly elsewhere. */
static void test_enforcers_are_those_of_the_rows(void **state)
{
    struct place *p = *state;
    struct job job;

    prepare(p, "exit 0", &job);
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        assert_int_equal(
            hutch_limit_parse(hutch_limit_rows[i].unit, hutch_limit_rows[i].example, &job.spec.limits[i], NULL), 0);
    run(&job);
    assert_int_equal(job.result.verdict, HUTCH_OK);
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        unsigned enforcers = job.result.limits[i].enforcers;

        if (job.result.limits[i].asked != job.spec.limits[i] || enforcers == 0 ||
            enforcers & ~hutch_limit_rows[i].enforcers)
            fail_msg("limit '%s' is enforced by 0x%x, which should be some of 0x%x",
                     hutch_limit_name((enum sandbox_limit)i), enforcers, hutch_limit_rows[i].enforcers);
    }
    done(&job);
}

/* Where no cgroup counts memory, the supervisor does, and a program that hides behind orphans does not escape it. */
static void test_memory_is_watched(void **state)
{
#define HOARD                                                                                                          \
    "mkfifo /tmp/f; for i in 1 2 3 4 5 6 7 8; do (x=$(head -c 12000000 /dev/zero | tr '\\0' x); read y </tmp/f) & " \
    "done; wait"
    static const char *const scripts[] = {
        /* many processes, each far below the limit of one */
        HOARD,
        "while :; do (:&); done & " HOARD,
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        struct job job;

        prepare(p, scripts[i], &job);
        job.spec.limits[LIMIT_MEMORY] = 64 << 20;
        job.spec.limits[LIMIT_WALL] = 20000;
        job.spec.limits[LIMIT_PIDS] = 4000; /* others fork as well */
        run(&job);
        if (job.result.verdict != HUTCH_OUT_OF_MEMORY)
            fail_msg("verdict %s: %s", hutch_verdict_text(job.result.verdict), job.result.message);
        assert_memory_equal(job.result.message, "out of memory: ", 15);
        done(&job);
    }
    check_swept(p);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_verdicts),
        T(test_setup_failures_are_results),
        T(test_no_home_is_a_result),
        T(test_files_of_a_closed_directory),
        T(test_files),
        T(test_a_data_directory_of_the_callers),
        T(test_streams),
        T(test_a_broken_sink),
        T(test_large_output),
        T(test_signals),
        T(test_limits_and_layers_are_reported),
        T(test_enforcers_are_those_of_the_rows),
        T(test_memory_is_watched),
    };

    signal(SIGPIPE, SIG_IGN);
    alarm(100); /* ends a test that hangs */
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
