/* box.h - for tests that start real sandboxes: start one, read all it says, and know how it ended. */
#ifndef HUTCH_TEST_BOX_H
#define HUTCH_TEST_BOX_H

#include "sandbox/cgroup.h"
#include "sandbox/fd.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define BOX_PATIENCE_MS 120000 /* a test that hangs fails; nothing else is timed */

#define UNUSED __attribute__((unused))

struct box {
    struct sandbox sb;
    int in_w, out_r, err_r, report_r; /* our ends; -1 when closed */
};

struct outcome {
    bool is_started, setup_failed, exec_failed, has_ended;
    struct hutch_err err;  /* with setup_failed and exec_failed */
    int status;            /* with has_ended */
    struct init_sample peak;
    size_t n_samples;
    unsigned n_pauses; /* INIT_PAUSED that came … */
    bool is_still;     /* … and what the last said */
    struct sandbox_end end;
    char out[65536], err_out[16384], report[4096];
};

/* A sandbox without a filter and with the host's programs, that runs @script (NULL: none yet). */
static UNUSED void box_spec(struct sandbox_spec *spec, const char *script)
{
    const char *const argv[] = { "/bin/sh", "-c", script };
    struct hutch_err err;
    struct sandbox_mount *tmp;

    assert_int_equal(hutch_spec_init(spec, &err), 0);
    spec->root_kind = ROOT_HOST;
    spec->layers[LAYER_SECCOMP] = NEED_OFF;
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_PROC, NULL, "/proc", 0, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_DEV, NULL, "/dev", 0, &err));
    tmp = hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/tmp", 0, &err);
    assert_non_null(tmp);
    tmp->mode = 01777;
    assert_int_equal(hutch_spec_set_env(spec, "PATH", "/usr/bin:/bin:/usr/sbin:/sbin", &err), 0);
    if (script)
        assert_int_equal(hutch_spec_set_list(&spec->argv, argv, 3, &err), 0);
}

static UNUSED void box_close(struct box *box)
{
    hutch_fd_closep(&box->in_w);
    hutch_fd_closep(&box->out_r);
    hutch_fd_closep(&box->err_r);
    hutch_fd_closep(&box->report_r);
}

/* As hutch_sandbox_start(), with pipes for the streams. */
static UNUSED int box_start_in(const struct sandbox_spec *spec, const struct cgroup_base *base, const char *name,
                               struct box *box, struct hutch_err *err)
{
    int in[2], out[2], err_out[2], report[2], rc;
    struct sandbox_io io;

    *box = (struct box){ .sb = SANDBOX_INIT };
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err_out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    io = (struct sandbox_io){ .stdin_r = in[0], .stdout_w = out[1], .stderr_w = err_out[1], .report_w = report[1] };
    box->in_w = in[1];
    box->out_r = out[0];
    box->err_r = err_out[0];
    box->report_r = report[0];
    rc = hutch_sandbox_start(spec, base, name, &io, &box->sb, err);
    close(in[0]);
    close(out[1]);
    close(err_out[1]);
    close(report[1]);
    if (rc < 0)
        box_close(box);
    return rc;
}

static UNUSED int box_start(const struct sandbox_spec *spec, struct box *box, struct hutch_err *err)
{
    struct cgroup_base none = CGROUP_BASE_INIT;

    return box_start_in(spec, &none, "unused", box, err);
}

static UNUSED int64_t box_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static UNUSED void box_read(int *fd, char *buf, size_t size)
{
    size_t len = strlen(buf);
    char more[4096];
    ssize_t n = read(*fd, more, sizeof(more));

    if (n <= 0) {
        hutch_fd_closep(fd);
        return;
    }
    if (len + (size_t)n >= size)
        n = (ssize_t)(size - len - 1);
    memcpy(buf + len, more, (size_t)n);
    buf[len + (size_t)n] = '\0';
}

static UNUSED void box_hear(struct box *box, struct outcome *o)
{
    struct init_msg msg;
    struct hutch_err err;
    int rc = hutch_sandbox_receive(&box->sb, &msg, &err);

    assert_true(rc >= 0);
    if (rc == 0) {
        hutch_fd_closep(&box->sb.control_fd);
        return;
    }
    switch (msg.kind) {
    case INIT_SETUP_FAILED:
        o->setup_failed = true;
        o->err = msg.err;
        break;
    case INIT_EXEC_FAILED:
        o->exec_failed = true;
        o->err = msg.err;
        break;
    case INIT_BUILT:
        break;
    case INIT_STARTED:
        o->is_started = true;
        break;
    case INIT_SAMPLE:
        o->n_samples++;
        if (msg.sample.memory_bytes > o->peak.memory_bytes)
            o->peak.memory_bytes = msg.sample.memory_bytes;
        if (msg.sample.pids > o->peak.pids)
            o->peak.pids = msg.sample.pids;
        if (msg.sample.cpu_ms > o->peak.cpu_ms)
            o->peak.cpu_ms = msg.sample.cpu_ms;
        break;
    case INIT_SIGNALLED:
        break;
    case INIT_PAUSED:
        o->n_pauses += msg.paused.is_answer != 0;
        o->is_still = msg.paused.is_still != 0;
        break;
    case INIT_ENDED:
        assert_false(o->has_ended);
        o->has_ended = true;
        o->status = msg.ended.status;
        break;
    default:
        fail_msg("message of kind %d", (int)msg.kind);
    }
}

/* One wait for whatever comes next. False when nothing can come any more. */
static UNUSED bool box_turn(struct box *box, struct outcome *o, int64_t deadline)
{
    struct pollfd p[] = { { box->sb.control_fd, POLLIN, 0 },
                          { box->out_r, POLLIN, 0 },
                          { box->err_r, POLLIN, 0 },
                          { box->report_r, POLLIN, 0 } };
    int64_t left = deadline - box_now_ms();

    if (box->sb.control_fd < 0 && box->out_r < 0 && box->err_r < 0 && box->report_r < 0)
        return false;
    if (left <= 0 || poll(p, ARRAY_SIZE(p), (int)left) == 0) {
        hutch_sandbox_kill(&box->sb);
        fail_msg("nothing more came from the sandbox; it said: %s%s", o->out, o->err_out);
    }
    if (p[1].revents)
        box_read(&box->out_r, o->out, sizeof(o->out));
    if (p[2].revents)
        box_read(&box->err_r, o->err_out, sizeof(o->err_out));
    if (p[3].revents)
        box_read(&box->report_r, o->report, sizeof(o->report));
    if (p[0].revents)
        box_hear(box, o);
    return true;
}

/* To the very end. */
static UNUSED void box_finish(struct box *box, struct outcome *o)
{
    int64_t deadline = box_now_ms() + BOX_PATIENCE_MS;
    struct hutch_err err;

    hutch_fd_closep(&box->in_w);
    while (box_turn(box, o, deadline))
        ;
    if (hutch_sandbox_finish(&box->sb, &o->end, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(box->sb.pid, -1);
    assert_int_equal(box->sb.pidfd, -1);
}

/* Runs @spec from start to end, and releases it. The caller frees what is returned. */
static UNUSED struct outcome *box_run_spec(struct sandbox_spec *spec)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct hutch_err err;
    struct box box;

    assert_non_null(o);
    if (box_start(spec, &box, &err) < 0)
        fail_msg("%s", err.msg);
    box_finish(&box, o);
    hutch_spec_done(spec);
    return o;
}

/* The same for a shell script; what it printed. Fails unless the script ended with 0. */
static UNUSED char *box_shell(struct sandbox_spec *spec)
{
    struct outcome *o = box_run_spec(spec);
    char *out;

    if (o->setup_failed || o->exec_failed)
        fail_msg("%s", o->err.msg);
    if (!o->has_ended || o->status != 0)
        fail_msg("status %#x, it said: %s%s", (unsigned)o->status, o->out, o->err_out);
    out = strdup(o->out);
    free(o);
    return out;
}

#endif
