/* test_supervisor.c - what a supervisor makes of what it hears: verdicts, bounds, clocks; without any sandbox behind
 * it. The words of a real one are test_run.c's. */
#include "runtime/run/supervisor.h"
#include "runtime/run/verdict.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "runtime/lang/python_error.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct scene {
    struct supervisor *s;
    struct sandbox sb;
    struct run_result result;
    int init_fd; /* init's end of the control socket */
    int out_w, report_w, in_r;
};

static void make_pipe(int *ret_mine, int *ret_theirs, bool i_read)
{
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    *ret_mine = fds[i_read ? 0 : 1];
    *ret_theirs = fds[i_read ? 1 : 0];
}

static void begin(struct scene *c, const uint64_t *limits)
{
    static const uint64_t none[LIMIT_COUNT];
    struct hutch_err err;
    int pair[2];

    *c = (struct scene){ .sb = SANDBOX_INIT };
    hutch_result_init(&c->result);
    c->s = hutch_supervisor_create(&err);
    assert_non_null(c->s);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    c->sb.control_fd = pair[0];
    c->init_fd = pair[1];
    make_pipe(&c->s->out.pipe_fd, &c->out_w, true);
    make_pipe(&c->s->report_fd, &c->report_w, true);
    make_pipe(&c->s->in.pipe_fd, &c->in_r, false);
    c->s->sandbox = &c->sb;
    c->s->result = &c->result;
    c->s->out.capture = &c->result.out;
    c->s->err_out.capture = &c->result.err_out;
    c->s->t0 = hutch_clock_ms();
    hutch_supervisor_set_limits(c->s, limits ? limits : none, 100);
}

static void end(struct scene *c)
{
    hutch_supervisor_free(c->s);
    hutch_fd_closep(&c->sb.control_fd);
    hutch_fd_closep(&c->init_fd);
    hutch_fd_closep(&c->out_w);
    hutch_fd_closep(&c->report_w);
    hutch_fd_closep(&c->in_r);
    hutch_result_done(&c->result);
}

static void say(struct scene *c, const struct init_msg *msg)
{
    assert_int_equal(send(c->init_fd, msg, sizeof(*msg), MSG_NOSIGNAL), sizeof(*msg));
}

/* All that is there to be heard. */
static void listen_to(struct scene *c)
{
    struct pollfd p[SUPERVISOR_FDS];
    struct hutch_err err;

    for (int i = 0; i < 100; i++) {
        hutch_supervisor_poll(c->s, p);
        if (poll(p, SUPERVISOR_FDS, 0) <= 0)
            return;
        assert_int_equal(hutch_supervisor_turn(c->s, p, &err), 0);
        if (hutch_supervisor_is_over(c->s))
            return;
    }
}

static void judge(struct scene *c)
{
    struct sandbox_end nothing = { .usage = c->s->usage };
    struct hutch_err err;

    hutch_cgroup_read_usage(&c->sb.cgroup, &nothing.cgroup);
    hutch_supervisor_drain(c->s);
    while (!hutch_supervisor_is_drained(c->s)) {
        struct pollfd p[SUPERVISOR_FDS];

        hutch_supervisor_poll(c->s, p);
        assert_int_not_equal(poll(p, SUPERVISOR_FDS, 0), 0);
        assert_int_equal(hutch_supervisor_turn(c->s, p, &err), 0);
    }
    assert_int_equal(hutch_verdict_decide(c->s, &nothing, &err), 0);
}

enum { STATUS_EXIT_0 = 0, STATUS_EXIT_3 = 3 << 8 };

static void test_ends(void **state)
{
    static const struct {
        const char *label;
        bool starts, ends;
        int status;
        enum end_reason reason;
        enum hutch_verdict verdict;
        int exit_code, signal;
        const char *message;
    } rows[] = {
        { "ok", true, true, STATUS_EXIT_0, END_OWN, HUTCH_OK, 0, 0, "" },
        { "exit code", true, true, STATUS_EXIT_3, END_OWN, HUTCH_ERROR, 3, 0, "" },
        { "its own signal", true, true, SIGSEGV, END_OWN, HUTCH_ERROR, -1, SIGSEGV, "" },
        { "the filter", true, true, SIGSYS, END_OWN, HUTCH_DENIED, -1, SIGSYS,
          "the program made a system call that is never allowed" },
        { "somebody's SIGKILL", true, true, SIGKILL, END_OWN, HUTCH_KILLED, -1, SIGKILL,
          "the program was killed by SIGKILL, and not by hutch" },
        { "the sandbox is gone", true, false, 0, END_OWN, HUTCH_KILLED, -1, SIGKILL,
          "the sandbox was killed from outside" },
        { "gone before it began", false, false, 0, END_OWN, HUTCH_SETUP_FAILED, 125, 0,
          "the sandbox was killed from outside before it was ready" },
        { "cancelled", true, false, 0, END_CANCELLED, HUTCH_KILLED, -1, SIGKILL, "the run was cancelled" },
        { "cancelled, and ended by itself", true, true, STATUS_EXIT_0, END_CANCELLED, HUTCH_KILLED, -1, SIGKILL,
          "the run was cancelled" },
        { "cancelled, and failed by itself", true, true, STATUS_EXIT_3, END_CANCELLED, HUTCH_KILLED, 3, 0,
          "the run was cancelled" },
        { "told to stop, and ended by itself", true, true, STATUS_EXIT_0, END_TIMEOUT, HUTCH_TIMEOUT, 0, 0,
          "the run took longer than 0 ms" },
        { "cpu", true, false, 0, END_CPU_TIME, HUTCH_CPU_TIME, -1, SIGKILL,
          "the program used more than 50 ms of CPU time" },
    };
    const uint64_t limits[LIMIT_COUNT] = { [LIMIT_CPU_TIME] = 50 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct scene c;

        print_message("  %s\n", rows[i].label);
        begin(&c, limits);
        if (rows[i].starts)
            say(&c, &(struct init_msg){ .kind = INIT_STARTED });
        listen_to(&c);
        if (rows[i].reason != END_OWN)
            hutch_supervisor_end(c.s, rows[i].reason);
        if (rows[i].ends)
            say(&c, &(struct init_msg){ .kind = INIT_ENDED, .ended.status = rows[i].status });
        else
            hutch_fd_closep(&c.init_fd);
        listen_to(&c);
        assert_true(hutch_supervisor_is_over(c.s));
        judge(&c);
        assert_int_equal(c.result.verdict, rows[i].verdict);
        assert_int_equal(c.result.exit_code, rows[i].exit_code);
        assert_int_equal(c.result.signal, rows[i].signal);
        assert_string_equal(c.result.message, rows[i].message);
        end(&c);
    }
}

static void test_usage(void **state)
{
    struct init_msg ended = {
        .kind = INIT_ENDED,
        .ended = { .usage = { .ru_utime = { 1, 234000 }, .ru_stime = { 0, 5000 }, .ru_maxrss = 1000 } }
    };
    struct scene c;

    (void)state;
    begin(&c, NULL);
    say(&c, &(struct init_msg){ .kind = INIT_STARTED });
    say(&c, &(struct init_msg){ .kind = INIT_SAMPLE, .sample = { .memory_bytes = 5 << 20, .pids = 3 } });
    say(&c, &(struct init_msg){ .kind = INIT_SAMPLE, .sample = { .memory_bytes = 2 << 20, .pids = 1 } });
    say(&c, &ended);
    listen_to(&c);
    judge(&c);
    assert_int_equal(c.result.cpu_user_ms, 1234);
    assert_int_equal(c.result.cpu_system_ms, 5);
    assert_int_equal(c.result.memory_peak_bytes, 5 << 20);
    assert_int_equal(c.result.pids_peak, 3);
    assert_true(c.result.prepared_ms >= 0 && c.result.run_ms >= 0);
    end(&c);
}

static void test_samples_end_a_run(void **state)
{
    static const struct {
        const char *label;
        enum sandbox_limit limit;
        uint64_t value;
        struct init_sample sample;
        int times;
        enum end_reason reason;
    } rows[] = {
        { "within bounds", LIMIT_MEMORY, 1 << 20, { .memory_bytes = 1 << 20 }, 3, END_OWN },
        { "memory", LIMIT_MEMORY, 1 << 20, { .memory_bytes = (1 << 20) + 1 }, 1, END_MEMORY },
        { "no limit on memory", LIMIT_PIDS, 1, { .memory_bytes = 1ull << 40 }, 3, END_OWN },
        { "cpu", LIMIT_CPU_TIME, 100, { .cpu_ms = 101 }, 1, END_CPU_TIME },
        { "files without names", LIMIT_DATA_SIZE, 100, { .unlinked_bytes = 101 }, 1, END_DATA },
        { "hidden now and then", LIMIT_PIDS, 1, { .is_hidden = true }, 4, END_OWN },
        { "hidden all the time", LIMIT_PIDS, 1, { .is_hidden = true }, 5, END_HIDDEN },
        { "descriptors in sockets", LIMIT_OPEN_FILES, 256, { .in_flight = 256 + 512 }, 3, END_OWN },
        { "too many of them", LIMIT_OPEN_FILES, 256, { .in_flight = 256 + 513 }, 1, END_IN_FLIGHT },
        { "too much to look at", LIMIT_PIDS, 1, { .is_cut_short = true }, 10, END_UNCOUNTED },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t limits[LIMIT_COUNT] = { 0 };
        struct scene c;

        print_message("  %s\n", rows[i].label);
        limits[rows[i].limit] = rows[i].value;
        begin(&c, limits);
        say(&c, &(struct init_msg){ .kind = INIT_STARTED });
        for (int k = 0; k < rows[i].times; k++)
            say(&c, &(struct init_msg){ .kind = INIT_SAMPLE, .sample = rows[i].sample });
        listen_to(&c);
        assert_int_equal(c.s->reason, rows[i].reason);
        end(&c);
    }
}

static void test_output_in_bounds(void **state)
{
    const uint64_t limits[LIMIT_COUNT] = { [LIMIT_OUTPUT] = 10 };
    struct scene c;

    (void)state;
    begin(&c, limits);
    say(&c, &(struct init_msg){ .kind = INIT_STARTED });
    assert_int_equal(write(c.out_w, "0123456789ab", 12), 12);
    listen_to(&c);
    assert_int_equal(c.s->reason, END_OUTPUT);
    hutch_fd_closep(&c.init_fd);
    listen_to(&c);
    judge(&c);
    assert_int_equal(c.result.verdict, HUTCH_OUTPUT_LIMIT);
    assert_int_equal(c.result.out.len, 10);
    assert_string_equal(c.result.out.data, "0123456789"); /* a string, too */
    assert_true(c.result.out.truncated);
    end(&c);
}

/* A program that is killed before init can say that it runs has had the layers that stood when it could begin. */
static void test_layers_of_a_program_that_is_killed_at_once(void **state)
{
    const uint64_t limits[LIMIT_COUNT] = { [LIMIT_OUTPUT] = 10 };

    (void)state;
    for (int is_built = 0; is_built < 2; is_built++) {
        struct scene c;

        begin(&c, limits);
        c.s->sandbox->enforcement.layer_active[LAYER_USER_NS] = true;
        c.s->sandbox->enforcement.layer_active[LAYER_HOST_NAME] = true;
        if (is_built)
            say(&c, &(struct init_msg){ .kind = INIT_BUILT, .waived.host_name_errnum = EPERM });
        assert_int_equal(write(c.out_w, "0123456789ab", 12), 12);
        listen_to(&c);
        assert_int_equal(c.s->reason, END_OUTPUT);
        hutch_fd_closep(&c.init_fd);
        listen_to(&c);
        judge(&c);
        assert_int_equal(c.result.layers[LAYER_USER_NS].is_active, is_built);
        assert_false(c.result.layers[LAYER_HOST_NAME].is_active);
        end(&c);
    }
}

static void note_data(void *user, const struct out_stream *s, const char *data, size_t len)
{
    char *text = user;

    (void)s;
    strncat(text, data, len);
}

static void test_output_as_it_comes(void **state)
{
    char text[64] = "";
    struct scene c;

    (void)state;
    begin(&c, NULL);
    c.s->out.on_data = note_data;
    c.s->out.user = text;
    assert_int_equal(write(c.out_w, "one", 3), 3);
    listen_to(&c);
    assert_string_equal(text, "one");
    assert_int_equal(write(c.out_w, "two", 3), 3);
    say(&c, &(struct init_msg){ .kind = INIT_ENDED });
    listen_to(&c);
    judge(&c);
    assert_string_equal(text, "onetwo"); /* what was on its way at the end too */
    assert_int_equal(c.result.out.len, 0);
    end(&c);
}

static int n_closed;

static int kept_fd;

static bool note_close(void *user, int fd)
{
    assert_true(fcntl(fd, F_GETFD) >= 0); /* it is open still */
    n_closed++;
    if (!user)
        return false;
    kept_fd = fd;
    return true;
}

static void test_closing_is_told(void **state)
{
    struct scene c;

    (void)state;
    begin(&c, NULL);
    n_closed = 0;
    c.s->on_close = c.s->out.on_close = c.s->err_out.on_close = c.s->in.on_close = note_close;
    hutch_fd_closep(&c.out_w);
    listen_to(&c); /* the end of stdout; and stdin has no source */
    assert_int_equal(n_closed, 2);
    hutch_supervisor_reset(c.s);
    assert_int_equal(n_closed, 3); /* the report; stderr was never open */
    assert_int_equal(c.s->report_fd, -1);
    end(&c);

    begin(&c, NULL);
    c.s->out.on_close = note_close;
    c.s->out.user = &c;
    hutch_fd_closep(&c.out_w);
    listen_to(&c);
    assert_int_equal(c.s->out.pipe_fd, -1);
    assert_int_equal(close(kept_fd), 0); /* it was left to us */
    end(&c);
}

/* Anybody inside can write there: too much, or nonsense, is no report. */
static void test_reports(void **state)
{
    static const char good[] = "HUTCHPY1\1\0\0\0\2\0\0\0\3\0\0\0Evvttt";
    char *much = malloc(PYREPORT_MAX + 4096);

    (void)state;
    memset(much, 'x', PYREPORT_MAX + 4096);
    for (int row = 0; row < 4; row++) {
        struct scene c;

        begin(&c, NULL);
        if (row == 0 || row == 1)
            assert_int_equal(write(c.report_w, good, sizeof(good) - 1), sizeof(good) - 1);
        for (size_t sent = 0; row == 3 && sent < PYREPORT_MAX + 4096;) {
            ssize_t n = write(c.report_w, much, PYREPORT_MAX + 4096 - sent);

            listen_to(&c);
            if (n <= 0)
                break; /* nobody listens any more */
            sent += (size_t)n;
        }
        if (row == 2)
            assert_int_equal(write(c.report_w, "nonsense", 8), 8);
        say(&c, &(struct init_msg){ .kind = INIT_ENDED, .ended.status = row == 1 ? STATUS_EXIT_0 : STATUS_EXIT_3 });
        listen_to(&c);
        judge(&c);
        if (row == 0)
            assert_string_equal(c.result.error.name, "E");
        else
            assert_null(c.result.error.name); /* row 1: nothing failed, so there is no error to report */
        end(&c);
    }
    free(much);
}

static void test_clocks(void **state)
{
    const uint64_t limits[LIMIT_COUNT] = { [LIMIT_WALL] = 1000000 };
    struct scene c;

    (void)state;
    begin(&c, limits);
    assert_in_range(hutch_supervisor_clocks(c.s), 1, 1000); /* not started: the next look at the setup's clock */
    hutch_supervisor_started(c.s);
    assert_in_range(hutch_supervisor_clocks(c.s), 1, 1000001);
    c.s->t_started -= 2000000; /* long ago */
    hutch_supervisor_clocks(c.s);
    assert_int_equal(c.s->reason, END_TIMEOUT);
    {
        struct init_order order;

        assert_int_equal(recv(c.init_fd, &order, sizeof(order), MSG_DONTWAIT), sizeof(order));
        assert_int_equal(order.what, INIT_SIGNAL);
        assert_int_equal(order.value, SIGTERM);
    }
    end(&c);

    begin(&c, limits);
    c.s->t0 -= 1000000;
    hutch_supervisor_clocks(c.s); /* a host that hangs */
    assert_true(c.s->setup_failed);
    assert_int_equal(c.s->reason, END_SETUP);
    end(&c);
}

/* A worker that was killed before it read its job, while the one that had passed it the socket still has a copy: the
 * socket is not closed, and tells nothing. */
static void test_unread_orders(void **state)
{
    char text[64] = { 0 };
    struct scene c;
    int pair[2];

    (void)state;
    for (size_t n_read = 0; n_read <= sizeof(text); n_read += sizeof(text) / 2) {
        begin(&c, NULL);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        hutch_fd_closep(&c.s->report_fd);
        c.s->report_fd = pair[0];
        assert_int_equal(write(pair[0], text, sizeof(text)), sizeof(text));
        assert_int_equal(read(pair[1], text, n_read), n_read);
        hutch_supervisor_drain(c.s);
        assert_int_equal(c.s->report_errno, n_read < sizeof(text) ? ECONNRESET : 0);
        close(pair[1]);
        end(&c);
    }
}

static unsigned n_ordered;

static bool order_count(void *user, const struct collect_bounds *bounds)
{
    (void)user;
    assert_true(bounds->max_walked > 1000);
    n_ordered++;
    return true;
}

/* A count that is ordered and does not come is made after all, and is not taken when it comes then. */
static void test_counts_that_do_not_come(void **state)
{
    static const uint64_t limits[LIMIT_COUNT] = { [LIMIT_DATA_FILES] = 2 };
    static const uint64_t fewer[LIMIT_COUNT] = { [LIMIT_DATA_FILES] = 1 };
    char dir[] = "/tmp/hutch-test-supervisor.XXXXXX";
    auto_fd fd = -1;
    struct scene c;

    (void)state;
    assert_non_null(mkdtemp(dir));
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *name = "123"; *name; name++)
        assert_int_equal(mkdirat(fd, (char[]){ *name, '\0' }, 0700), 0);
    for (int comes = 0; comes < 2; comes++) {
        begin(&c, limits);
        c.s->data_dirfd = fd;
        c.s->order_count = order_count;
        c.s->max_counted = 1;
        hutch_supervisor_started(c.s);
        n_ordered = 0;
        c.s->next_data = 1;
        hutch_supervisor_clocks(c.s);
        hutch_supervisor_clocks(c.s);
        assert_int_equal(n_ordered, 1);
        assert_int_equal(c.s->reason, END_OWN);
        if (comes) {
            hutch_supervisor_take_count(c.s, 0, 2, 1, NULL);
            assert_int_equal(c.s->reason, END_OWN);
        } else {
            c.s->count_begun_ms -= 60000;
            hutch_supervisor_clocks(c.s);
            assert_int_equal(c.s->reason, END_DATA);
            hutch_supervisor_take_count(c.s, 0, 2, 1, NULL);
            assert_int_equal(c.s->data_watch.entries, 3);
        }
        end(&c);
    }
    begin(&c, fewer); /* the last one: over the limit, and whether that is all is another question */
    c.s->data_dirfd = fd;
    assert_false(hutch_supervisor_count_last(c.s, 3));
    assert_false(c.s->is_data_over);
    assert_true(hutch_supervisor_count_last(c.s, 4));
    assert_true(c.s->is_data_over);
    end(&c);
    for (const char *name = "123"; *name; name++)
        unlinkat(fd, (char[]){ *name, '\0' }, AT_REMOVEDIR);
    rmdir(dir);
}

/* Until init says so, a signal may come to code that runs later. */
static void test_signals_on_their_way(void **state)
{
    struct init_order order;
    struct scene c;

    (void)state;
    begin(&c, NULL);
    assert_false(hutch_supervisor_is_signalling(c.s));
    for (int i = 0; i < 2; i++) {
        hutch_sandbox_signal(&c.sb, SIGINT);
        assert_int_equal(recv(c.init_fd, &order, sizeof(order), 0), sizeof(order));
    }
    for (int i = 0; i < 2; i++) {
        assert_true(hutch_supervisor_is_signalling(c.s));
        say(&c, &(struct init_msg){ .kind = INIT_SIGNALLED });
        listen_to(&c);
    }
    assert_false(hutch_supervisor_is_signalling(c.s));
    end(&c);
}

static void test_signals_are_passed_on(void **state)
{
    struct init_order order;
    struct scene c;

    (void)state;
    begin(&c, NULL);
    hutch_supervisor_started(c.s);
    hutch_supervisor_pass_signal(c.s, SIGINT);
    assert_int_equal(recv(c.init_fd, &order, sizeof(order), MSG_DONTWAIT), sizeof(order));
    assert_int_equal(order.value, SIGINT);
    say(&c, &(struct init_msg){ .kind = INIT_ENDED, .ended.status = SIGINT });
    listen_to(&c);
    judge(&c);
    assert_int_equal(c.result.verdict, HUTCH_KILLED);
    assert_string_equal(c.result.message, "hutch was told to stop by SIGINT");
    end(&c);
}

/* Whatever init sends, as long as it is of the right size, there is a verdict. A wrong size is the end of it. */
static void test_anything(void **state)
{
    unsigned seed = 20240310;

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 2000; round++) {
        uint64_t limits[LIMIT_COUNT] = { 0 };
        struct scene c;

        limits[rand() % LIMIT_COUNT] = (uint64_t)rand() % 1000;
        begin(&c, limits);
        for (int i = rand() % 12; i > 0 && !hutch_supervisor_is_over(c.s); i--) {
            struct init_msg msg;
            size_t len = rand() % 20 == 0 ? (size_t)rand() % sizeof(msg) + 1 : sizeof(msg);
            char text[32];

            for (size_t k = 0; k < sizeof(msg); k++)
                ((unsigned char *)&msg)[k] = (unsigned char)rand();
            msg.kind = (enum init_msg_kind)(rand() % 10 - 1);
            msg.err.msg[sizeof(msg.err.msg) - 1] = '\0'; /* init is ours: its texts end */
            for (size_t k = 0; k < sizeof(text); k++)
                text[k] = (char)rand();
            assert_int_equal(send(c.init_fd, &msg, len, MSG_NOSIGNAL), len);
            if (write(rand() % 2 ? c.out_w : c.report_w, text, (size_t)rand() % sizeof(text)) < 0)
                assert_int_equal(errno, EPIPE);
            listen_to(&c);
        }
        hutch_fd_closep(&c.init_fd);
        listen_to(&c);
        assert_true(hutch_supervisor_is_over(c.s));
        judge(&c);
        assert_in_range(c.result.verdict, 0, HUTCH_SETUP_FAILED);
        assert_true(c.result.verdict != HUTCH_OK || c.s->has_ended);
        end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_samples_end_a_run),
        cmocka_unit_test(test_output_in_bounds),
        cmocka_unit_test(test_layers_of_a_program_that_is_killed_at_once),
        cmocka_unit_test(test_output_as_it_comes),
        cmocka_unit_test(test_closing_is_told),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_unread_orders),
        cmocka_unit_test(test_counts_that_do_not_come),
        cmocka_unit_test(test_signals_on_their_way),
        cmocka_unit_test(test_signals_are_passed_on),
        cmocka_unit_test(test_anything),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("supervisor", tests, NULL, NULL);
}
