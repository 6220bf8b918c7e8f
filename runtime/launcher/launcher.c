#include "runtime/launcher/launcher.h"

#include "sandbox/attach.h"
#include "sandbox/cgroup.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"
#include "runtime/launcher/spec_wire.h"
#include "runtime/launcher/wire.h"
#include "sandbox/zygote.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CGROUP_TIMEOUT_MS 2000
#define VARIANTS 2 /* of a filter: with and without a cgroup that counts memory */

struct known_spec {
    uint32_t id;
    struct sandbox_spec spec;
    struct sandbox_mount *data; /* the spec's MOUNT_DATA, or NULL */
    char *data_root;            /* owned; its source */
    struct seccomp_program programs[VARIANTS]; /* compiled when first asked for */
    struct known_spec *next;
};

struct live_sandbox {
    uint32_t id;
    char name[32];
    pid_t pid;
    struct sandbox_cgroup cgroup;
    int ns_fd;            /* owned; its mount namespace, for LAUNCHER_ATTACH; -1 where init executes */
    bool is_ending;       /* the engine has asked for its end */
    uint32_t ending_id;
    bool is_dead;         /* reaped */
    struct rusage usage;
    struct live_sandbox *next;
};

struct launcher {
    int sock;
    const struct cgroup_base *base;
    bool is_mapped_away;
    struct known_spec *specs;
    struct live_sandbox *sandboxes;
    unsigned shelved; /* sources put on the shelf so far */
    unsigned built;   /* sandboxes so far */
};

static void reply(struct launcher *l, struct launcher_reply *r, const void *text, const int *fds, size_t n_fds)
{
    struct launcher_reply refusal = { .what = LAUNCHER_FAILED, .id = r->id, .spec_id = r->spec_id };

    if (hutch_fdpass_send2(l->sock, r, sizeof(*r), text, r->text_len, fds, n_fds, 0) >= 0)
        return;
    if (errno != ETOOMANYREFS)
        _exit(0); /* the engine is gone */
    hutch_err_set(&refusal.err, ETOOMANYREFS, "send a sandbox's descriptors (other programs of this user have too many "
                                              "on their way)");
    if (hutch_fdpass_send(l->sock, &refusal, sizeof(refusal), NULL, 0, 0) < 0)
        _exit(0);
}

static void refuse(struct launcher *l, const struct launcher_request *request, uint32_t id, const struct hutch_err *err)
{
    struct launcher_reply r = { .what = LAUNCHER_FAILED, .id = id, .spec_id = request->spec_id, .err = *err };

    reply(l, &r, NULL, NULL, 0);
}

static struct known_spec *find_spec(struct launcher *l, uint32_t id)
{
    struct known_spec *s = l->specs;

    while (s && s->id != id)
        s = s->next;
    return s;
}

static void free_spec(struct known_spec *s)
{
    for (size_t i = 0; i < VARIANTS; i++)
        hutch_seccomp_program_done(&s->programs[i]);
    free(s->data_root);
    hutch_spec_done(&s->spec);
    free(s);
}

/* Attaches a detached mount that the opener made where a path names it; *ret_path is that. */
static int shelve(struct launcher *l, int fd, char **ret_path, struct hutch_err *err)
{
    auto_free char *path = NULL;
    auto_fd made = -1;
    struct stat st;

    if (asprintf(&path, LAUNCHER_SHELF "/%d-%u", getpid(), l->shelved++) < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "keep a source");
    }
    if (fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "look at a source");
    if (S_ISDIR(st.st_mode) ? mkdir(path, 0700) < 0
                            : (made = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)) < 0)
        return hutch_err_set(err, errno, "make '%s'", path);
    if (move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return hutch_err_set(err, errno, "attach a source to '%s'", path);
    free(*ret_path);
    *ret_path = path;
    path = NULL;
    return 0;
}

static void unshelve(const char *path)
{
    if (path && strncmp(path, LAUNCHER_SHELF "/", sizeof(LAUNCHER_SHELF)) == 0 && umount2(path, MNT_DETACH) == 0 &&
        rmdir(path) < 0)
        unlink(path);
}

/* The sources that came with a spec, in its order, take the place of the host's paths. */
static int adopt_sources(struct launcher *l, struct known_spec *s, const struct launcher_request *request,
                         const int *fds, size_t n_fds, struct hutch_err *err)
{
    size_t next = 0;

    if (s->spec.root_kind == ROOT_DIR) {
        if (next == n_fds)
            return hutch_err_set(err, EPROTO, "a description without its root tree");
        if (shelve(l, fds[next++], &s->spec.rootfs_path, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < s->spec.n_mounts; i++) {
        struct sandbox_mount *m = &s->spec.mounts[i];

        if (m->kind != MOUNT_BIND)
            continue;
        if (i < 64 * sizeof(request->missing) / sizeof(request->missing[0]) &&
            (request->missing[i / 64] >> (i % 64) & 1)) {
            if (hutch_spec_set_string(&m->source, LAUNCHER_SHELF "/none", err) < 0)
                return -1;
            continue;
        }
        if (next == n_fds)
            return hutch_err_set(err, EPROTO, "a description with too few sources");
        if (shelve(l, fds[next++], &m->source, err) < 0)
            return -1;
    }
    return 0;
}

static void take_spec(struct launcher *l, const struct launcher_request *request, const int *fds, size_t n_fds)
{
    struct known_spec *s = calloc(1, sizeof(*s));
    struct hutch_err err;

    if (!s || n_fds < 1) {
        hutch_err_set(&err, s ? EPROTO : ENOMEM, "take a description");
        goto fail;
    }
    s->id = request->spec_id;
    if (find_spec(l, s->id)) {
        hutch_err_set(&err, EEXIST, "take description %u", s->id);
        goto fail;
    }
    if (hutch_spec_decode(fds[0], &s->spec, &err) < 0 ||
        (l->is_mapped_away && adopt_sources(l, s, request, fds + 1, n_fds - 1, &err) < 0))
        goto fail;
    for (size_t i = 0; i < s->spec.n_mounts; i++)
        if (s->spec.mounts[i].flags & MOUNT_DATA)
            s->data = &s->spec.mounts[i];
    if (s->data && !(s->data_root = strdup(s->data->source))) {
        hutch_err_set(&err, ENOMEM, "take a description");
        goto fail;
    }
    s->next = l->specs;
    l->specs = s;
    return;
fail:
    if (s)
        free_spec(s);
    refuse(l, request, 0, &err);
}

static void forget_spec(struct launcher *l, uint32_t id)
{
    for (struct known_spec **p = &l->specs; *p; p = &(*p)->next) {
        struct known_spec *s = *p;

        if (s->id != id)
            continue;
        *p = s->next;
        if (l->is_mapped_away) {
            unshelve(s->spec.rootfs_path);
            for (size_t i = 0; i < s->spec.n_mounts; i++)
                unshelve(&s->spec.mounts[i] == s->data ? s->data_root : s->spec.mounts[i].source);
        }
        free_spec(s);
        return;
    }
}

/* Where this sandbox's data directory is: below the one of the spec. */
static int set_data(struct known_spec *s, const char *name, struct hutch_err *err)
{
    auto_free char *path = NULL;

    if (!name[0] || !s->data)
        return 0;
    if (strchr(name, '/') || name[0] == '.')
        return hutch_err_set(err, 0, "'%s' is no name for a data directory", name);
    if (asprintf(&path, "%s/%s", s->data_root, name) < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "name a data directory");
    }
    return hutch_spec_set_string(&s->data->source, path, err);
}

static const struct seccomp_program *program_for(struct known_spec *s, unsigned controllers, struct hutch_err *err)
{
    struct seccomp_program *p = &s->programs[(controllers & CGROUP_MEMORY) != 0];

    if (p->insns)
        return p;
    if (hutch_sandbox_compile(&s->spec, controllers, p, err) < 0)
        return NULL;
    malloc_trim(0); /* as in start_zygote() */
    return p;
}

/* The engine has the sandbox from here on; what stays here is what its end needs. */
static int remember(struct launcher *l, const struct launcher_request *request, struct sandbox *sb,
                    struct hutch_err *err)
{
    struct live_sandbox *live = calloc(1, sizeof(*live));

    if (!live)
        return hutch_err_set(err, ENOMEM, "remember a sandbox");
    live->ns_fd = hutch_fd_take(&sb->mnt_ns_fd);
    live->id = request->id;
    memcpy(live->name, request->name, sizeof(live->name));
    live->pid = sb->pid;
    live->cgroup = sb->cgroup;
    live->next = l->sandboxes;
    l->sandboxes = live;
    return 0;
}

static void build(struct launcher *l, const struct launcher_request *request, const int *fds, size_t n_fds)
{
    struct known_spec *s = find_spec(l, request->spec_id);
    bool executes = request->what == LAUNCHER_EXEC;
    struct launcher_reply r = { .what = LAUNCHER_BUILT, .id = request->id };
    struct sandbox_io io = { .report_w = -1,
                             .is_waiting = !executes,
                             .own_uid = request->uid,
                             .own_gid = request->gid,
                             .why_shared = request->why_shared };
    const struct seccomp_program *program = NULL;
    auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct sandbox sb = SANDBOX_INIT;
    struct hutch_err err, ignored;
    int out[3];
    size_t n_out = 0, n_streams = executes ? 4 : 0;
    int rc;

    if (!s || strnlen(request->name, sizeof(request->name)) == sizeof(request->name) ||
        strnlen(request->data_name, sizeof(request->data_name)) == sizeof(request->data_name) ||
        strnlen(request->why_shared, sizeof(request->why_shared)) == sizeof(request->why_shared) ||
        n_fds != n_streams + (request->has_data != 0) || (request->has_data && !s->data) || null < 0) {
        hutch_err_set(&err, EPROTO, "an order to build from description %u with %zu descriptors", request->spec_id,
                      n_fds);
        goto fail;
    }
    io.stdin_r = executes ? fds[0] : null;
    io.stdout_w = executes ? fds[1] : null;
    io.stderr_w = executes ? fds[2] : null;
    if (executes)
        io.report_w = fds[3];
    if (set_data(s, request->data_name, &err) < 0)
        goto fail;
    if (request->has_data)
        s->data->tree_fd = fds[n_streams]; /* the opener has mapped it to this one's ids; the next brings its own */
    rc = hutch_sandbox_start(&s->spec, l->base, request->name, &io, &sb, &err);
    if (s->data)
        s->data->tree_fd = -1;
    if (rc < 0)
        goto fail;
    if (!executes && sb.plan.has_seccomp) {
        program = program_for(s, sb.cgroup.controllers, &err);
        if (!program)
            goto fail;
        r.text_len = (uint32_t)(program->n_insns * sizeof(*program->insns));
        snprintf(sb.enforcement.layer_detail[LAYER_SECCOMP], sizeof(sb.enforcement.layer_detail[0]), "%zu instructions",
                 program->n_insns);
    }
    if (remember(l, request, &sb, &err) < 0)
        goto fail;
    r.has_cgroup = sb.cgroup.dirfd >= 0;
    r.controllers = sb.cgroup.controllers;
    r.wants_samples = sb.wants_samples;
    hutch_rlimits_spread(&sb.plan.rlimits, l->built++);
    r.plan = sb.plan;
    r.enforcement = sb.enforcement;
    out[n_out++] = sb.control_fd;
    out[n_out++] = sb.pidfd;
    if (r.has_cgroup)
        out[n_out++] = sb.cgroup.dirfd;
    reply(l, &r, program ? program->insns : NULL, out, n_out);
    close(sb.control_fd); /* the engine's alone: when it goes, init does */
    close(sb.pidfd);
    return;
fail:
    if (sb.pid > 0)
        hutch_sandbox_finish(&sb, NULL, &ignored);
    refuse(l, request, request->id, &err);
}

static void start_zygote(struct launcher *l, const struct launcher_request *request, const int *fds, size_t n_fds)
{
    struct known_spec *s = find_spec(l, request->spec_id);
    struct launcher_reply r = { .what = LAUNCHER_STARTED, .id = request->id };
    auto_fd pidfd = -1;
    struct hutch_err err;
    pid_t pid;

    if (!s || n_fds < 1 || n_fds > 2) {
        hutch_err_set(&err, EPROTO, "an order to start a zygote from description %u", request->spec_id);
        refuse(l, request, request->id, &err);
        return;
    }
    if (hutch_zygote_start(&s->spec, fds[0], n_fds == 2 ? fds[1] : -1, &pid, &pidfd, &err) < 0)
        refuse(l, request, request->id, &err);
    else
        reply(l, &r, NULL, &pidfd, 1);
    /* Each sandbox's init is forked from this process and keeps a copy of its heap. So what libseccomp has used and
     * freed goes back to the kernel first. */
    malloc_trim(0);
}

static struct live_sandbox *find_sandbox(struct launcher *l, const char *name)
{
    struct live_sandbox *sb = l->sandboxes;

    while (sb && strncmp(sb->name, name, sizeof(sb->name)) != 0)
        sb = sb->next;
    return sb;
}

static void attach(struct launcher *l, const struct launcher_request *request, const int *fds, size_t n_fds)
{
    struct known_spec *s = find_spec(l, request->spec_id);
    struct live_sandbox *sb = find_sandbox(l, request->name);
    struct launcher_reply r = { .what = LAUNCHER_ATTACHED, .id = request->id };
    struct hutch_err err;

    if (!s || !sb || sb->ns_fd < 0 || n_fds != 1)
        hutch_err_set(&err, EPROTO, "an order to attach to a sandbox that this launcher has not built");
    else if (hutch_attach_data(&s->spec, sb->ns_fd, fds[0], &err) == 0) {
        hutch_fd_closep(&sb->ns_fd);
        reply(l, &r, NULL, NULL, 0);
        return;
    }
    refuse(l, request, request->id, &err);
}

static void free_sandbox(struct launcher *l, struct live_sandbox *gone)
{
    struct live_sandbox **p = &l->sandboxes;

    while (*p != gone)
        p = &(*p)->next;
    *p = gone->next;
    hutch_cgroup_done(&gone->cgroup);
    hutch_fd_closep(&gone->ns_fd);
    free(gone);
}

/* Both are there: init is reaped, and the engine has asked. */
static void bury(struct launcher *l, struct live_sandbox *sb)
{
    struct launcher_reply r = { .what = LAUNCHER_DESTROYED, .id = sb->ending_id, .usage = sb->usage };

    if (hutch_cgroup_destroy(&sb->cgroup, CGROUP_TIMEOUT_MS, &r.err) < 0)
        r.what = LAUNCHER_FAILED;
    free_sandbox(l, sb);
    reply(l, &r, NULL, NULL, 0);
}

static void destroy(struct launcher *l, const struct launcher_request *request)
{
    struct launcher_reply r = { .what = LAUNCHER_DESTROYED, .id = request->id };
    struct live_sandbox *sb = find_sandbox(l, request->name);

    if (!sb) { /* made by a launcher before this one: the anchor reaps its init */
        if (strncmp(request->name, "hutch-", 6) == 0 && !strchr(request->name, '/') &&
            hutch_cgroup_destroy_named(l->base, request->name, CGROUP_TIMEOUT_MS, &r.err) < 0)
            r.what = LAUNCHER_FAILED;
        reply(l, &r, NULL, NULL, 0);
        return;
    }
    sb->is_ending = true;
    sb->ending_id = request->id;
    if (sb->is_dead)
        bury(l, sb);
    else
        kill(sb->pid, SIGKILL); /* it is dying, as its socket is closed; this is for one that is stuck */
}

static void reap(struct launcher *l)
{
    struct rusage usage;
    pid_t pid;

    while ((pid = wait4(-1, NULL, WNOHANG, &usage)) > 0) {
        struct live_sandbox *sb = l->sandboxes;

        while (sb && sb->pid != pid)
            sb = sb->next;
        if (!sb)
            continue; /* a zygote: the engine sees its socket close */
        sb->is_dead = true;
        sb->usage = usage;
        sb->pid = -1;
        if (sb->is_ending)
            bury(l, sb);
    }
}

static void obey(struct launcher *l)
{
    struct launcher_reply pong = { .what = LAUNCHER_PONG };
    struct launcher_request request;
    int fds[WARM_MAX_FDS];
    size_t n_fds;
    ssize_t n = hutch_fdpass_receive(l->sock, &request, sizeof(request), fds, WARM_MAX_FDS, &n_fds, 0);

    if (n <= 0)
        _exit(0); /* the engine is gone, and the anchor ends everything */
    if (n == (ssize_t)sizeof(request))
        switch (request.what) {
        case LAUNCHER_SPEC:
            take_spec(l, &request, fds, n_fds);
            break;
        case LAUNCHER_FORGET:
            forget_spec(l, request.spec_id);
            break;
        case LAUNCHER_ZYGOTE:
            start_zygote(l, &request, fds, n_fds);
            break;
        case LAUNCHER_BUILD:
        case LAUNCHER_EXEC:
            build(l, &request, fds, n_fds);
            break;
        case LAUNCHER_ATTACH:
            attach(l, &request, fds, n_fds);
            break;
        case LAUNCHER_DESTROY:
            destroy(l, &request);
            break;
        case LAUNCHER_PING:
            reply(l, &pong, NULL, NULL, 0);
            break;
        }
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

_Noreturn void hutch_launcher_main(int sock, const struct cgroup_base *base, int is_mapped_away)
{
    struct launcher l = { .sock = sock, .base = base, .is_mapped_away = is_mapped_away != 0 };
    sigset_t chld;
    int signals;

    prctl(PR_SET_NAME, "hutch-launcher", 0, 0, 0);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        _exit(1);
    for (;;) {
        struct pollfd p[] = { { .fd = sock, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
        struct signalfd_siginfo info;

        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            _exit(1);
        if (p[1].revents) {
            while (read(signals, &info, sizeof(info)) > 0)
                ;
            reap(&l);
        }
        if (p[0].revents)
            obey(&l);
    }
}
