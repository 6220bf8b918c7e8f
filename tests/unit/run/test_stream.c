/* test_stream.c - bytes in and out of a sandbox: every one of them, up to the limit, and never waiting. */
#include "runtime/run/stream.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A pipe of the sandbox and, maybe, a sink: what goes in at .in must come out at .out or in .captured. */
struct line {
    struct out_stream s;
    struct run_output captured;
    int in, out;
};

static int set_up(void **state)
{
    struct line *l = calloc(1, sizeof(*l));
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    l->s.pipe_fd = fds[0];
    l->s.sink_fd = -1;
    l->s.capture = &l->captured;
    l->in = fds[1];
    l->out = -1;
    *state = l;
    return 0;
}

static void add_sink(struct line *l)
{
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    l->out = fds[0];
    l->s.sink_fd = fds[1];
}

static int tear_down(void **state)
{
    struct line *l = *state;

    hutch_fd_closep(&l->s.pipe_fd);
    hutch_fd_closep(&l->s.sink_fd);
    hutch_fd_closep(&l->in);
    hutch_fd_closep(&l->out);
    free(l->captured.data);
    free(l);
    return 0;
}

/* One turn of a loop that never waits. True when there was something to do. */
static bool turn(struct line *l)
{
    struct pollfd p[2];

    hutch_out_stream_poll(&l->s, &p[0], &p[1]);
    if (poll(p, 2, 0) <= 0)
        return false;
    assert_int_equal(hutch_out_stream_run(&l->s, &p[0], &p[1]), 0);
    return true;
}

static char byte_at(size_t i)
{
    return (char)(i * 31 + i / 251);
}

/* Puts bytes @from to @to in, as far as they go without waiting. */
static size_t feed(int fd, size_t from, size_t to)
{
    char block[5000];
    size_t n = to - from < sizeof(block) ? to - from : sizeof(block);
    ssize_t wrote;

    for (size_t i = 0; i < n; i++)
        block[i] = byte_at(from + i);
    wrote = n ? write(fd, block, n) : 0;
    return wrote > 0 ? (size_t)wrote : 0;
}

static void test_capture(void **state)
{
    static const size_t lens[] = { 0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 1000000 };

    for (size_t row = 0; row < ARRAY_SIZE(lens); row++) {
        struct line *l;
        size_t fed = 0;

        tear_down(state);
        set_up(state);
        l = *state;
        while (fed < lens[row]) {
            fed += feed(l->in, fed, lens[row]);
            turn(l);
            assert_false(hutch_out_stream_is_done(&l->s));
        }
        hutch_fd_closep(&l->in);
        while (turn(l))
            ;
        assert_true(hutch_out_stream_is_done(&l->s));
        assert_int_equal(l->captured.len, lens[row]);
        assert_int_equal(l->s.seen, lens[row]);
        assert_false(l->captured.truncated);
        for (size_t i = 0; i < lens[row]; i++)
            if (l->captured.data[i] != byte_at(i))
                fail_msg("byte %zu of %zu differs", i, lens[row]);
        if (lens[row] == 0)
            assert_null(l->captured.data);
    }
}

/* Its last bytes are there, wherever they went; what is beyond the limit is not among them. */
static void test_tail(void **state)
{
    static const size_t lengths[] = { 0, 1, STREAM_TAIL - 1, STREAM_TAIL, STREAM_TAIL + 1, 2 * STREAM_TAIL,
                                      2 * STREAM_TAIL + 1, 5 * STREAM_TAIL + 7 };

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
        size_t len = lengths[i / 2], fed = 0, want = len < STREAM_TAIL ? len : STREAM_TAIL;
        const char *tail;
        struct line *l;
        void *line;

        set_up(&line);
        l = line;
        l->s.limit = len;
        if (i % 2)
            add_sink(l);
        while (fed < len + 10) {
            char part[777];
            size_t n = 0;

            for (; n < sizeof(part) && fed + n < len + 10; n++)
                part[n] = byte_at(fed + n);
            fed += (size_t)write(l->in, part, n);
            turn(l);
            while (l->out >= 0 && read(l->out, part, sizeof(part)) > 0)
                ;
            if (l->s.pipe_fd < 0)
                break;
        }
        while (turn(l) && l->s.pipe_fd >= 0)
            ;
        if (len > 0) /* a limit of 0 means no limit */
            assert_int_equal(hutch_out_stream_tail(&l->s, &tail), want);
        for (size_t at = 0; len > 0 && at < want; at++)
            assert_int_equal(tail[at], byte_at(len - want + at));
        tear_down(&line);
    }
}

static void test_limit(void **state)
{
    static const struct { size_t limit, len; bool over; } rows[] = {
        { 1, 1, false },         { 1, 2, true },           { 100, 99, false },       { 100, 100, false },
        { 100, 101, true },      { 100, 60000, true },     { 65536, 65536, false },  { 65536, 65537, true },
        { 70000, 70000, false }, { 70000, 200000, true },  { 0, 200000, false },
    };

    for (size_t row = 0; row < 2 * ARRAY_SIZE(rows); row++) {
        size_t limit = rows[row / 2].limit, len = rows[row / 2].len, want = limit && len > limit ? limit : len, got = 0;
        bool has_sink = row % 2;
        struct line *l;
        char block[4096];

        tear_down(state);
        set_up(state);
        l = *state;
        if (has_sink)
            add_sink(l);
        l->s.limit = limit;
        for (size_t fed = 0; fed < len && !l->s.is_over_limit;) {
            ssize_t n;

            fed += feed(l->in, fed, len);
            turn(l);
            while (has_sink && (n = read(l->out, block, sizeof(block))) > 0)
                for (ssize_t i = 0; i < n; i++, got++)
                    assert_true(block[i] == byte_at(got));
        }
        hutch_fd_closep(&l->in);
        while (turn(l)) {
            ssize_t n;

            while (has_sink && (n = read(l->out, block, sizeof(block))) > 0)
                for (ssize_t i = 0; i < n; i++, got++)
                    assert_true(block[i] == byte_at(got));
        }
        assert_true(hutch_out_stream_is_done(&l->s));
        assert_int_equal(l->s.is_over_limit, rows[row / 2].over);
        assert_int_equal(l->captured.truncated, rows[row / 2].over);
        assert_int_equal(l->s.seen, want);
        assert_int_equal(has_sink ? got : l->captured.len, want);
        if (!has_sink)
            for (size_t i = 0; i < want; i++)
                assert_true(l->captured.data[i] == byte_at(i));
    }
}

/* Over the limit the pipe is closed at once: the program gets SIGPIPE, however slowly the sink is emptied. */
static void test_over_the_limit_closes_the_pipe(void **state)
{
    struct line *l = *state;

    add_sink(l);
    l->s.limit = 10;
    assert_int_equal(feed(l->in, 0, 5000), 5000);
    assert_true(turn(l));
    assert_int_equal(l->s.pipe_fd, -1);
    assert_int_equal(feed(l->in, 0, 1), 0);
    assert_int_equal(errno, EPIPE);
    assert_false(hutch_out_stream_is_done(&l->s)); /* ten bytes are still on their way */
    assert_true(turn(l));
    assert_true(hutch_out_stream_is_done(&l->s));
}

/* Nobody empties the sink: memory stays bounded, the pipe fills, and nothing is lost once somebody does. */
static void test_slow_sink(void **state)
{
    enum { LEN = 1 << 20 };
    struct line *l = *state;
    size_t fed = 0, got = 0, n_fed, turns = 0;
    char block[4096];
    ssize_t n;

    add_sink(l);
    do {
        n_fed = feed(l->in, fed, LEN);
        fed += n_fed;
        assert_true(l->s.end - l->s.start <= STREAM_BUF);
        assert_true(++turns < 10000);
    } while (turn(l) || n_fed > 0);
    assert_true(fed < LEN); /* the program stands still */
    while (got < LEN) {
        fed += feed(l->in, fed, LEN);
        while ((n = read(l->out, block, sizeof(block))) > 0)
            for (ssize_t i = 0; i < n; i++, got++)
                if (block[i] != byte_at(got))
                    fail_msg("byte %zu differs", got);
        if (fed == LEN)
            hutch_fd_closep(&l->in);
        turn(l);
        assert_true(++turns < 100000);
    }
    while (turn(l))
        ;
    assert_true(hutch_out_stream_is_done(&l->s));
    assert_null(l->captured.data); /* what went to the sink is not kept as well */
}

/* A blocking sink (somebody else's descriptor) gets no more at a time than poll(2) promised room for. */
static void test_blocking_sink_is_never_waited_for(void **state)
{
    struct line *l = *state;
    size_t fed = 0;

    add_sink(l);
    assert_int_equal(fcntl(l->s.sink_fd, F_SETFL, 0), 0);
    alarm(20); /* ends a test that stands still */
    for (int i = 0; i < 1000; i++) {
        fed += feed(l->in, fed, SIZE_MAX);
        turn(l);
    }
    alarm(0);
    assert_true(fed > 65536);
}

struct doubler {
    struct stream_shaper base;
    unsigned n_ends;
};

static size_t shape_double(struct stream_shaper *base, const char *data, size_t len, char *to)
{
    (void)base;
    for (size_t i = 0; i < len; i++)
        to[2 * i] = to[2 * i + 1] = data[i];
    return 2 * len;
}

static size_t end_double(struct stream_shaper *base, char *to)
{
    ((struct doubler *)base)->n_ends++;
    memcpy(to, "end", 3);
    return 3;
}

/* The sink gets what the shaper makes of the bytes, all of it and its end, once; the limit is of the program's own. */
static void test_shaper(void **state)
{
    static const uint64_t limits[] = { 0, 100000, 99999, 300000 };
    struct line *l = *state;

    for (size_t k = 0; k < ARRAY_SIZE(limits); k++) {
        struct doubler doubler = { .base = { shape_double, end_double } };
        size_t total = 200000, sent = 0, got = 0, wanted = limits[k] && limits[k] < total ? limits[k] : total;
        char block[7000], *all = malloc(2 * total + 3);
        ssize_t n;

        if (k > 0) {
            int fds[2];

            hutch_fd_closep(&l->s.sink_fd);
            hutch_fd_closep(&l->out);
            hutch_fd_closep(&l->in);
            hutch_out_stream_init(&l->s);
            assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
            l->s.pipe_fd = fds[0];
            l->in = fds[1];
        }
        add_sink(l);
        l->s.shaper = &doubler.base;
        l->s.limit = limits[k];
        while (!hutch_out_stream_is_done(&l->s)) {
            if (l->in >= 0 && sent < total)
                sent += feed(l->in, sent, total);
            if (sent == total)
                hutch_fd_closep(&l->in);
            turn(l);
            while ((n = read(l->out, block, sizeof(block))) > 0) {
                assert_true(got + (size_t)n <= 2 * total + 3);
                memcpy(all + got, block, (size_t)n);
                got += (size_t)n;
            }
            if (l->s.is_over_limit)
                hutch_fd_closep(&l->in);
        }
        while ((n = read(l->out, all + got, 2 * total + 3 - got)) > 0)
            got += (size_t)n;
        assert_int_equal(got, 2 * wanted + 3);
        for (size_t i = 0; i < 2 * wanted; i++)
            assert_int_equal(all[i], byte_at(i / 2));
        assert_memory_equal(all + 2 * wanted, "end", 3);
        assert_int_equal(doubler.n_ends, 1);
        assert_int_equal(l->s.is_over_limit, wanted < total);
        free(all);
    }
}

/* At the end of a run, what the pipe holds is all: somebody who still has its write end holds nobody up. */
static void test_finish_does_not_wait_for_the_end(void **state)
{
    static const size_t lens[] = { 0, 1, 4096, 65536 };

    for (size_t i = 0; i < 2 * ARRAY_SIZE(lens); i++) {
        size_t fed = 0, n, len = lens[i / 2], got = 0;
        struct line *l;
        char block[4096];
        ssize_t r;

        tear_down(state);
        set_up(state);
        l = *state;
        if (i % 2)
            add_sink(l);
        while (fed < len && (n = feed(l->in, fed, len)) > 0)
            fed += n;
        hutch_out_stream_finish(&l->s);
        (void)!write(l->in, "late", 4); /* comes too late, where there is room for it at all */
        while (turn(l))
            while (i % 2 && (r = read(l->out, block, sizeof(block))) > 0)
                got += (size_t)r;
        assert_true(hutch_out_stream_is_done(&l->s));
        assert_int_equal(l->s.pipe_fd, -1);
        assert_int_equal(i % 2 ? got : l->captured.len, fed);
        hutch_out_stream_finish(&l->s); /* again */
        assert_true(hutch_out_stream_is_done(&l->s));
    }
}

static void test_broken_sink(void **state)
{
    struct line *l = *state;

    add_sink(l);
    hutch_fd_closep(&l->out);
    assert_int_equal(feed(l->in, 0, 100), 100);
    while (turn(l))
        ;
    assert_true(l->s.is_sink_broken);
    assert_int_equal(l->s.pipe_fd, -1);
    assert_true(hutch_out_stream_is_done(&l->s));
    assert_int_equal(feed(l->in, 0, 1), 0); /* the program notices like any other */
    assert_int_equal(errno, EPIPE);
}

static void test_full_sink(void **state)
{
    struct line *l = *state;

    l->s.sink_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(l->s.sink_fd >= 0);
    assert_int_equal(feed(l->in, 0, 100), 100);
    while (turn(l))
        ;
    assert_true(l->s.is_sink_broken);
    assert_true(hutch_out_stream_is_done(&l->s));
}

/* --- into the sandbox -------------------------------------------------------------------------------------------- */

struct inward {
    struct in_stream s;
    int in, out;
};

static void open_inward(struct inward *w)
{
    int source[2], sandbox[2];

    assert_int_equal(pipe2(source, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(pipe2(sandbox, O_CLOEXEC | O_NONBLOCK), 0);
    w->s.source_fd = source[0];
    w->in = source[1];
    w->s.pipe_fd = sandbox[1];
    w->out = sandbox[0];
    w->s.start = w->s.end = 0;
}

static bool turn_inward(struct inward *w)
{
    struct pollfd p[2];

    hutch_in_stream_poll(&w->s, &p[0], &p[1]);
    if (poll(p, 2, 0) <= 0)
        return false;
    hutch_in_stream_run(&w->s, &p[0], &p[1]);
    return true;
}

static void test_stdin_goes_through(void **state)
{
    enum { LEN = 500000 };
    struct inward *w = calloc(1, sizeof(*w));
    size_t fed = 0, got = 0, turns = 0;
    int source;
    char block[4096];
    ssize_t n;

    (void)state;
    open_inward(w);
    source = w->s.source_fd;
    while (w->s.pipe_fd >= 0) {
        fed += feed(w->in, fed, LEN);
        if (fed == LEN)
            hutch_fd_closep(&w->in);
        turn_inward(w);
        while ((n = read(w->out, block, 1 + turns % sizeof(block))) > 0)
            for (ssize_t i = 0; i < n; i++, got++)
                if (block[i] != byte_at(got))
                    fail_msg("byte %zu differs", got);
        assert_true(++turns < 100000);
    }
    while ((n = read(w->out, block, sizeof(block))) > 0)
        got += (size_t)n;
    assert_int_equal(n, 0); /* the end of file came through */
    assert_int_equal(got, LEN);
    assert_int_equal(w->s.source_fd, -1);
    assert_true(fcntl(source, F_GETFD) >= 0); /* the caller's descriptor stays the caller's */
    close(source);
    close(w->out);
    free(w);
}

static void test_stdin_that_is_not_there(void **state)
{
    struct inward *w = calloc(1, sizeof(*w));
    struct pollfd none = { .fd = -1 };
    char c;

    (void)state;
    open_inward(w);
    close(w->s.source_fd);
    w->s.source_fd = -1;
    hutch_in_stream_run(&w->s, &none, &none);
    assert_int_equal(w->s.pipe_fd, -1);
    assert_int_equal(read(w->out, &c, 1), 0);
    close(w->in);
    close(w->out);
    free(w);
}

/* The program closes its standard input while there is more: the rest is dropped, and nothing spins. */
static void test_stdin_closed_early(void **state)
{
    struct inward *w = calloc(1, sizeof(*w));
    size_t turns = 0;

    (void)state;
    open_inward(w);
    assert_int_equal(feed(w->in, 0, 5000), 5000);
    assert_true(turn_inward(w));
    close(w->out);
    while (turn_inward(w))
        assert_true(++turns < 10);
    assert_int_equal(w->s.pipe_fd, -1);
    close(w->in);
    close(w->s.source_fd);
    free(w);
}

/* The same with nothing to deliver: the end of the pipe alone is an event. */
static void test_stdin_closed_while_idle(void **state)
{
    struct inward *w = calloc(1, sizeof(*w));

    (void)state;
    open_inward(w);
    assert_false(turn_inward(w));
    close(w->out);
    assert_true(turn_inward(w));
    assert_int_equal(w->s.pipe_fd, -1);
    assert_false(turn_inward(w));
    close(w->in);
    close(w->s.source_fd);
    free(w);
}

/* A program that does not read: at most one buffer waits for it, and the caller's data stays where it is. */
static void test_stdin_that_nobody_reads(void **state)
{
    struct inward *w = calloc(1, sizeof(*w));
    size_t fed = 0, turns = 0, n;

    (void)state;
    open_inward(w);
    do {
        n = feed(w->in, fed, SIZE_MAX);
        fed += n;
        assert_true(++turns < 10000);
    } while (turn_inward(w) || n > 0);
    assert_true(w->s.end - w->s.start <= STREAM_BUF);
    assert_true(fed < 4 * 65536);
    close(w->in);
    close(w->out);
    close(w->s.source_fd);
    hutch_fd_closep(&w->s.pipe_fd);
    free(w);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_capture),
        cmocka_unit_test(test_tail),
        T(test_limit),
        T(test_over_the_limit_closes_the_pipe),
        T(test_slow_sink),
        T(test_blocking_sink_is_never_waited_for),
        T(test_finish_does_not_wait_for_the_end),
        T(test_shaper),
        T(test_broken_sink),
        T(test_full_sink),
        cmocka_unit_test(test_stdin_goes_through),
        cmocka_unit_test(test_stdin_that_is_not_there),
        cmocka_unit_test(test_stdin_closed_early),
        cmocka_unit_test(test_stdin_closed_while_idle),
        cmocka_unit_test(test_stdin_that_nobody_reads),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
