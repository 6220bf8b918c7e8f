#include "runtime/run/run.h"

#include "runtime/data/changes.h"
#include "runtime/run/cold_data.h"
#include "runtime/run/project.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "sandbox/log.h"
#include "runtime/lang/python_error.h"
#include "sandbox/sandbox.h"
#include "runtime/run/state.h"
#include "runtime/run/supervisor.h"
#include "runtime/run/verdict.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct run {
    const struct run_request *request;
    struct supervisor *supervisor;
    struct run_result *result;
    struct run_state state;
    struct cgroup_base cgroup_base;
    struct sandbox sandbox;
    int data_dirfd;
    struct cold_data memory; /* data_dirfd is in it, where the directory is in memory */
    struct file_list before;
    int project_dirfd; /* of the copy */
    struct file_list project_before;
};

static bool is_in_memory(const struct run *r)
{
    return r->memory.mount_fd >= 0;
}

static int use_memory(struct run *r, struct hutch_err *err)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct sandbox_mount *mount =
        hutch_spec_add_mount(r->request->spec, MOUNT_BIND, "/", INSIDE_DATA_DIR, MOUNT_DATA, err);

    if (!mount)
        return -1;
    mount->tree_fd = r->memory.mount_fd;
    r->data_dirfd = fcntl(r->memory.dirfd, F_DUPFD_CLOEXEC, 3);
    r->supervisor->data_dirfd = r->data_dirfd;
    r->supervisor->is_data_bounded = true;
    return hutch_collect_snapshot(r->data_dirfd, &bounds, &r->before, err);
}

static int prepare_data(struct run *r, struct hutch_err *err)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
    auto_free char *fresh = NULL;
    const char *dir = r->request->data_dir;
    struct sandbox_mount *mount;
    struct stat st;

    if (!dir && r->request->may_unshare) {
        int made = hutch_cold_data_make(r->request->spec, r->cgroup_base.controllers, &r->memory, err);

        if (made != 0)
            return made < 0 ? -1 : use_memory(r, err);
    }
    if (!dir) {
        if (hutch_state_make_data(&r->state, &fresh, err) < 0)
            return -1;
        dir = fresh;
    }
    r->data_dirfd = (int)syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
    if (r->data_dirfd < 0 || fstat(r->data_dirfd, &st) < 0)
        return hutch_err_set(err, errno, "open the data directory '%s'", dir);
    if (hutch_spec_set_string(&r->result->directory, dir, err) < 0)
        return -1;
    r->supervisor->data_dirfd = r->data_dirfd;
    mount = hutch_spec_add_mount(r->request->spec, MOUNT_BIND, dir, INSIDE_DATA_DIR, MOUNT_IDMAP | MOUNT_DATA, err);
    if (!mount)
        return -1;
    mount->dev = st.st_dev;
    mount->ino = st.st_ino;
    return hutch_collect_snapshot(r->data_dirfd, &bounds, &r->before, err);
}

/* After the data directory, whose ids it has. */
static int prepare_project(struct run *r, struct hutch_err *err)
{
    const struct project_copy *project = r->request->project;
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;

    if (!project)
        return 0;
    if (hutch_project_copy(project, r->request->spec, &r->memory, &r->project_dirfd, err) < 0)
        return -1;
    return project->is_writable ? hutch_collect_snapshot(r->project_dirfd, &bounds, &r->project_before, err) : 0;
}

static int find_cgroup(struct run *r, struct hutch_err *err)
{
    hutch_cgroup_find_base(&r->cgroup_base);
    return hutch_state_note_cgroup(&r->state, &r->cgroup_base, err);
}

static int start(struct run *r, struct hutch_err *err)
{
    auto_fd in_r = -1, out_w = -1, err_w = -1, report_w = -1;
    struct supervisor *s = r->supervisor;
    struct sandbox_io io;

    if (hutch_pyreport_attach(r->request->spec, INIT_REPORT_FD, err) < 0)
        return -1;
    if (hutch_stream_make_pipe(&s->in.pipe_fd, &in_r, false, err) < 0 ||
        hutch_stream_make_pipe(&s->out.pipe_fd, &out_w, true, err) < 0 ||
        hutch_stream_make_pipe(&s->err_out.pipe_fd, &err_w, true, err) < 0 ||
        hutch_stream_make_pipe(&s->report_fd, &report_w, true, err) < 0)
        return -1;
    io = (struct sandbox_io){ .stdin_r = in_r,
                              .stdout_w = out_w,
                              .stderr_w = err_w,
                              .report_w = report_w,
                              .own_uid = r->memory.uid,
                              .own_gid = r->memory.gid,
                              .why_shared = r->memory.why_shared[0] ? r->memory.why_shared : NULL };
    return hutch_sandbox_start(r->request->spec, &r->cgroup_base, r->state.cgroup_name, &io, &r->sandbox, err);
}

static void pass_signals(struct run *r)
{
    struct signalfd_siginfo info;

    while (read(r->request->signal_fd, &info, sizeof(info)) == sizeof(info))
        hutch_supervisor_pass_signal(r->supervisor, (int)info.ssi_signo);
}

static int turn(struct run *r, int timeout_ms, struct hutch_err *err)
{
    struct pollfd p[SUPERVISOR_FDS + 1];

    hutch_supervisor_poll(r->supervisor, p);
    p[SUPERVISOR_FDS] = (struct pollfd){ .fd = r->request->signal_fd, .events = POLLIN };
    if (poll(p, ARRAY_SIZE(p), timeout_ms) < 0) {
        if (errno == EINTR)
            return 0;
        return hutch_err_set(err, errno, "wait for the sandbox");
    }
    if (p[SUPERVISOR_FDS].revents)
        pass_signals(r);
    return hutch_supervisor_turn(r->supervisor, p, err);
}

static int supervise(struct run *r, struct hutch_err *err)
{
    while (!hutch_supervisor_is_over(r->supervisor))
        if (turn(r, hutch_supervisor_clocks(r->supervisor), err) < 0)
            return -1;
    return 0;
}

/* A sink that is not emptied holds the run until a signal comes. */
static int drain(struct run *r, struct hutch_err *err)
{
    hutch_supervisor_drain(r->supervisor);
    while (!hutch_supervisor_is_drained(r->supervisor)) {
        int signal_before = r->supervisor->passed_signal;

        if (turn(r, -1, err) < 0)
            return -1;
        if (r->supervisor->passed_signal != signal_before)
            break;
    }
    return 0;
}

static void collect(struct run *r)
{
    const struct file_changes *files = &r->result->files;
    struct hutch_err why;

    if (r->data_dirfd < 0)
        return;
    hutch_supervisor_collect(r->supervisor, r->data_dirfd, &r->before);
    if (r->request->data_dir)
        return;
    free(r->result->directory);
    r->result->directory = NULL;
    if (r->supervisor->is_data_over || (files->added.n == 0 && !files->truncated))
        return;
    if ((is_in_memory(r) ? hutch_cold_data_keep(&r->memory, &r->state, &r->result->directory, &why)
                         : hutch_state_keep_data(&r->state, &r->result->directory, &why)) < 0)
        hutch_supervisor_admit_lost_files(r->supervisor, &why);
}

static void collect_project(struct run *r)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct hutch_err why;

    if (!r->result->has_project || r->supervisor->setup_failed ||
        hutch_collect_changes(r->project_dirfd, &r->project_before, &bounds, &r->result->project, &why) == 0)
        return;
    r->result->project.truncated = true;
    hutch_log_debug("run: collect the files of the project: %s", why.msg);
}

static int finish(struct run *r, struct hutch_err *err)
{
    struct sandbox_end end = { 0 };
    struct hutch_err ignored;
    int rc = 0;

    if (r->sandbox.pid > 0 && hutch_sandbox_finish(&r->sandbox, &end, &ignored) < 0)
        hutch_log_debug("run: %s (the next start sweeps it)", ignored.msg);
    rc = drain(r, err);
    r->supervisor->has_kept_data = r->request->data_dir != NULL;
    hutch_supervisor_count_last(r->supervisor, 0);
    if (hutch_verdict_decide(r->supervisor, &end, err) < 0)
        rc = -1;
    collect(r);
    collect_project(r);
    return rc;
}

int hutch_run(const struct run_request *request, struct run_result *ret, struct hutch_err *err)
{
    double t0 = hutch_clock_ms();
    struct supervisor *s = hutch_supervisor_create(err);
    struct run r = { .request = request,
                     .supervisor = s,
                     .result = ret,
                     .state = RUN_STATE_INIT,
                     .cgroup_base = CGROUP_BASE_INIT,
                     .sandbox = SANDBOX_INIT,
                     .data_dirfd = -1,
                     .memory = COLD_DATA_INIT,
                     .before = FILE_LIST_INIT,
                     .project_dirfd = -1,
                     .project_before = FILE_LIST_INIT };
    struct hutch_err ignored;
    int rc = -1;

    if (!s)
        return -1;
    s->t0 = t0;
    s->sandbox = &r.sandbox;
    s->tree = request->spec->rootfs_path;
    s->result = ret;
    ret->has_project = request->project && request->project->is_writable;
    s->out.capture = &ret->out;
    s->out.sink_fd = request->stdout_fd;
    s->err_out.capture = &ret->err_out;
    s->err_out.sink_fd = request->stderr_fd;
    s->out.shaper = request->stdout_shaper;
    s->err_out.shaper = request->stderr_shaper;
    s->in.source_fd = request->stdin_fd;
    hutch_supervisor_set_limits(s, request->spec->limits, request->spec->grace_ms);
    if (hutch_state_open(request->home, &r.state, err) < 0 || find_cgroup(&r, err) < 0 ||
        prepare_data(&r, err) < 0 || prepare_project(&r, err) < 0 || start(&r, err) < 0) {
        s->setup_failed = true;
        s->setup_err = *err;
    }
    hutch_supervisor_note_limits(s, request->spec);
    if (s->setup_failed || supervise(&r, err) == 0)
        rc = finish(&r, err);
    if (r.sandbox.pid > 0)
        hutch_sandbox_finish(&r.sandbox, NULL, &ignored);
    hutch_supervisor_free(s);
    hutch_fd_closep(&r.data_dirfd);
    hutch_fd_closep(&r.project_dirfd);
    hutch_cold_data_done(&r.memory);
    hutch_file_list_done(&r.before);
    hutch_file_list_done(&r.project_before);
    hutch_cgroup_base_done(&r.cgroup_base);
    if (hutch_state_close(&r.state, &ignored) < 0)
        hutch_log_debug("run: %s (the next start sweeps it)", ignored.msg);
    ret->total_ms = hutch_clock_ms() - t0;
    return rc;
}
