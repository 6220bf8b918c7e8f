#include "runtime/engine/engine_priv.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "runtime/launcher/spec_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STOP_TIMEOUT_MS 10000
#define RETRY_MS 100

extern char **environ;

/* --- specs ------------------------------------------------------------------------------------------------------- */

static bool has_root(const struct sandbox_spec *spec)
{
    return spec->root_kind == ROOT_DIR;
}

/* The mount that descriptor number @n of a template is for; NULL: the root tree. */
static const struct sandbox_mount *mount_of_fd(const struct sandbox_spec *spec, size_t n, size_t *ret_index)
{
    if (has_root(spec) && n-- == 0)
        return NULL;
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mounts[i].kind == MOUNT_BIND && n-- == 0) {
            *ret_index = i;
            return &spec->mounts[i];
        }
    return NULL;
}

static void wake_waiters(struct template *b)
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&b->engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->template == b && slot->state == SLOT_NEW)
            hutch_slot_on_launcher(slot);
    }
    if (b == b->engine->zygote_template)
        hutch_zygotes_on_launcher(b->engine);
}

static void template_failed(struct template *b, const struct hutch_err *why)
{
    struct hutch_engine *engine = b->engine;
    struct slot *slot, *next;

    b->has_failed = true;
    b->is_sent = false;
    if (b == engine->worker_template || b == engine->zygote_template)
        hutch_engine_break(engine, why);
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->template != b || slot->state > SLOT_FORKING)
            continue;
        if (slot->run)
            hutch_run_refuse(slot->run, why);
        hutch_slot_discard(slot);
    }
}

static int ask_for_sources(struct template *b, struct hutch_err *err)
{
    if (b->n_open > 0 || b->fds) /* on its way */
        return 0;
    b->fds = malloc((b->n_fds + 1) * sizeof(*b->fds));
    if (!b->fds)
        return hutch_err_set(err, ENOMEM, "open the sources of a sandbox");
    for (size_t i = 0; i < b->n_fds; i++)
        b->fds[i] = -1;
    for (size_t i = 0; i < b->n_fds; i++) {
        size_t index;
        const struct sandbox_mount *m = mount_of_fd(&b->spec, i, &index);

        if (hutch_helper_open(b->engine, b->id, m ? m->source : b->spec.rootfs_path,
                              m ? m->flags & (MOUNT_RDONLY | MOUNT_IDMAP) : MOUNT_RDONLY, err) < 0)
            return -1;
    }
    return 0;
}

static int push(struct template *b, struct hutch_err *err)
{
    struct helper *h = &b->engine->helper;
    struct launcher_request request = { .what = LAUNCHER_SPEC, .spec_id = b->id };
    int fds[WARM_MAX_FDS] = { b->memfd };
    size_t n = 1;

    if (b->is_sent || b->has_failed || !h->has_launcher)
        return 0;
    if (h->is_mapped_away) {
        if (b->n_open < b->n_fds)
            return ask_for_sources(b, err);
        for (size_t i = 0; i < b->n_fds; i++)
            if (b->fds[i] >= 0)
                fds[n++] = b->fds[i];
        memcpy(request.missing, b->missing, sizeof(request.missing));
    }
    if (hutch_helper_order(b->engine, &request, fds, n, err) < 0)
        return -1;
    b->is_sent = true;
    wake_waiters(b);
    return 0;
}

static void on_source(struct template *b, int fd, const struct hutch_err *why)
{
    size_t index = 0;
    const struct sandbox_mount *m;
    struct hutch_err err;

    if (!b->fds || b->n_open == b->n_fds) {
        hutch_fd_closep(&fd);
        return;
    }
    m = mount_of_fd(&b->spec, b->n_open, &index);
    b->fds[b->n_open++] = fd;
    if (fd < 0 && m && (m->flags & MOUNT_OPTIONAL) && why->errnum == ENOENT) {
        b->missing[index / 64] |= 1ull << index % 64;
    } else if (fd < 0 && !b->has_failed) {
        b->has_failed = true;
        b->why = *why;
    }
    if (b->n_open < b->n_fds)
        return;
    if (b->has_failed)
        template_failed(b, &b->why);
    else if (push(b, &err) < 0)
        template_failed(b, &err);
}

static void forget_sources(struct template *b)
{
    for (size_t i = 0; b->fds && i < b->n_open; i++)
        hutch_fd_closep(&b->fds[i]);
    free(b->fds);
    b->fds = NULL;
    b->n_open = 0;
    memset(b->missing, 0, sizeof(b->missing));
    b->has_failed = false;
}

void hutch_template_want(struct template *b)
{
    struct hutch_err err;

    if (!b->has_failed || (b->fds && b->n_open < b->n_fds)) /* what is on its way comes first */
        return;
    forget_sources(b);
    if (push(b, &err) < 0)
        template_failed(b, &err);
}

struct template *hutch_template_create(struct hutch_engine *engine, struct sandbox_spec *spec, struct hutch_err *err)
{
    struct template *b = calloc(1, sizeof(*b));
    size_t index;

    if (!b) {
        hutch_spec_done(spec);
        hutch_err_set(err, ENOMEM, "describe a sandbox");
        return NULL;
    }
    b->engine = engine;
    b->id = hutch_engine_make_id(engine);
    b->refs = 1;
    b->spec = *spec;
    *spec = (struct sandbox_spec){ 0 };
    b->memfd = -1;
    TAILQ_INSERT_TAIL(&engine->templates, b, link);
    b->n_fds = has_root(&b->spec);
    while (mount_of_fd(&b->spec, b->n_fds, &index))
        b->n_fds++;
    if (b->n_fds + 1 > WARM_MAX_FDS || b->spec.n_mounts > 64 * ARRAY_SIZE(b->missing))
        hutch_err_set(err, E2BIG, "a sandbox with %zu mounts", b->spec.n_mounts);
    else if (hutch_spec_encode(&b->spec, &b->memfd, err) == 0 && push(b, err) == 0)
        return b;
    hutch_template_unref(b);
    return NULL;
}

void hutch_template_unref(struct template *b)
{
    struct launcher_request request = { .what = LAUNCHER_FORGET };
    struct hutch_err ignored;

    if (!b || --b->refs > 0)
        return;
    if (b->is_sent) {
        request.spec_id = b->id;
        hutch_helper_order(b->engine, &request, NULL, 0, &ignored);
    }
    TAILQ_REMOVE(&b->engine->templates, b, link);
    forget_sources(b);
    hutch_fd_closep(&b->memfd);
    hutch_spec_done(&b->spec);
    free(b);
}

static struct template *find_template(struct hutch_engine *engine, uint32_t id)
{
    struct template *b;

    TAILQ_FOREACH(b, &engine->templates, link)
        if (b->id == id)
            return b;
    return NULL;
}

/* --- launcher ---------------------------------------------------------------------------------------------------- */

int hutch_helper_order(struct hutch_engine *engine, const struct launcher_request *request, const int *fds, size_t n_fds,
                       struct hutch_err *err)
{
    return hutch_link_send(&engine->helper.launcher, request, sizeof(*request), NULL, 0, fds, n_fds, err);
}

static void lose_launcher(struct hutch_engine *engine)
{
    struct helper *h = &engine->helper;
    struct template *b;
    struct slot *slot, *next;

    if (!h->has_launcher)
        return;
    hutch_link_close(&h->launcher);
    h->has_launcher = false;
    h->launcher_pid = 0;
    TAILQ_FOREACH(b, &engine->templates, link)
        b->is_sent = false;
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        hutch_slot_on_lost_launcher(slot);
    }
}

static void on_launcher_hangup(struct link *l)
{
    struct hutch_engine *engine = l->owner;

    hutch_log_debug("engine: the launcher is gone");
    engine->lost_launchers++;
    lose_launcher(engine); /* the opener sends another one, or goes too */
    engine->helper.since = hutch_clock_ms();
    hutch_loop_advance_deadline(&engine->loop, &engine->helper.clock, engine->helper.since + engine->setup_ms);
}

static void on_launcher_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct hutch_engine *engine = l->owner;
    const struct launcher_reply *reply = data;
    struct template *b;
    struct slot *slot;

    engine->helper.launcher_pid = sender;
    if (len < sizeof(*reply) || reply->text_len != len - sizeof(*reply))
        goto out;
    slot = reply->id ? hutch_slot_find(engine, reply->id) : NULL;
    switch ((enum launcher_says)reply->what) {
    case LAUNCHER_STARTED:
        hutch_zygotes_on_reply(engine, reply);
        break;
    case LAUNCHER_BUILT:
        if (slot)
            hutch_slot_on_built(slot, reply, (const char *)(reply + 1), fds, n_fds);
        break;
    case LAUNCHER_DESTROYED:
        if (slot)
            hutch_slot_on_destroyed(slot, &reply->usage);
        break;
    case LAUNCHER_FAILED:
        if (slot && (slot->state == SLOT_DESTROYING || slot->state == SLOT_DYING))
            hutch_slot_on_destroyed(slot, NULL);
        else if (slot)
            hutch_slot_fail(slot, &reply->err);
        else if (reply->id)
            hutch_zygotes_on_reply(engine, reply);
        else if ((b = find_template(engine, reply->spec_id)))
            template_failed(b, &reply->err);
        break;
    }
out:
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
}

/* --- opener ------------------------------------------------------------------------------------------------------ */

int hutch_helper_open(struct hutch_engine *engine, uint32_t id, const char *path, unsigned flags, struct hutch_err *err)
{
    struct opener_request request = { .what = OPENER_OPEN, .id = id, .flags = flags };

    if (strlen(path) >= sizeof(request.path))
        return hutch_err_set(err, ENAMETOOLONG, "open '%s'", path);
    strcpy(request.path, path);
    return hutch_link_send(&engine->helper.opener, &request, sizeof(request), NULL, 0, NULL, 0, err);
}

static void take_launcher(struct hutch_engine *engine, int fd)
{
    struct helper *h = &engine->helper;
    struct template *b, *next;
    struct slot *slot, *next_slot;
    struct hutch_err err;

    if (h->has_launcher) {
        engine->lost_launchers++;
        lose_launcher(engine);
    }
    h->launcher.on_packet = on_launcher_packet;
    h->launcher.on_hangup = on_launcher_hangup;
    h->launcher.owner = engine;
    if (hutch_link_open(&h->launcher, &engine->loop, fd, &err) < 0) {
        hutch_engine_break(engine, &err);
        return;
    }
    h->has_launcher = true;
    h->launchers++;
    for (b = TAILQ_FIRST(&engine->templates); b; b = next) {
        next = TAILQ_NEXT(b, link);
        if (push(b, &err) < 0)
            template_failed(b, &err);
    }
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next_slot) {
        next_slot = TAILQ_NEXT(slot, link);
        hutch_slot_on_launcher(slot);
    }
    for (size_t i = 0; i < engine->n_confs; i++)
        hutch_pool_refill(&engine->pools[i]);
}

/* Kills it after @patience_ms, and takes its end. */
static void reap(struct helper *h, int patience_ms)
{
    struct pollfd p = { .fd = h->pidfd, .events = POLLIN };

    if (h->pid == 0)
        return;
    if (TEMP_FAILURE_RETRY(poll(&p, 1, patience_ms)) != 1)
        syscall(SYS_pidfd_send_signal, h->pidfd, SIGKILL, NULL, 0);
    TEMP_FAILURE_RETRY(waitid(P_PIDFD, (id_t)h->pidfd, NULL, WEXITED)); /* ECHILD: the caller was there first */
    hutch_fd_closep(&h->pidfd);
    h->pid = 0;
}

bool hutch_helper_disk_remove(struct hutch_engine *engine, const char *name)
{
    struct disk_request request = { .name = "" };
    struct hutch_err err;

    snprintf(request.name, sizeof(request.name), "%s", name);
    return engine->helper.disk.fd >= 0 &&
           hutch_link_send(&engine->helper.disk, &request, sizeof(request), NULL, 0, &engine->data_root_fd, 1, &err) == 0;
}

bool hutch_helper_disk_order(struct hutch_engine *engine, const struct disk_request *request, int data_dirfd)
{
    const int fds[] = { engine->data_root_fd, data_dirfd };
    struct hutch_err err;

    return engine->helper.disk.fd >= 0 &&
           hutch_link_send(&engine->helper.disk, request, sizeof(*request), NULL, 0, fds, ARRAY_SIZE(fds), &err) == 0;
}

static void on_disk_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct hutch_engine *engine = l->owner;

    (void)sender;
    if (len == sizeof(struct disk_reply))
        hutch_checkpoint_on_files(engine, data);
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
}

static void on_disk_hangup(struct link *l)
{
    struct hutch_engine *engine = l->owner;

    hutch_link_close(l); /* what it had not removed, the end of the engine does */
    hutch_checkpoint_on_files(engine, NULL);
}

static void take_disk_worker(struct hutch_engine *engine, int fd)
{
    struct link *l = &engine->helper.disk;
    struct hutch_err err;

    hutch_link_close(l);
    l->on_packet = on_disk_packet;
    l->on_hangup = on_disk_hangup;
    l->owner = engine;
    if (hutch_link_open(l, &engine->loop, fd, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
}

/* With the opener everything is gone. */
static void lose_helper(struct hutch_engine *engine)
{
    struct helper *h = &engine->helper;
    struct template *b;
    struct slot *slot, *next;

    hutch_link_close(&h->opener);
    hutch_link_close(&h->disk);
    h->has_hello = false;
    reap(h, 0); /* it hung up, so it is on its way */
    lose_launcher(engine);
    TAILQ_FOREACH(b, &engine->templates, link)
        forget_sources(b);
    hutch_zygotes_drop_all(engine);
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->state < SLOT_RUNNING)
            hutch_slot_fail(slot, NULL);
        else if (slot->state == SLOT_DESTROYING)
            hutch_slot_on_destroyed(slot, NULL);
    }
}

static void fail_helper(struct hutch_engine *engine, const struct hutch_err *why)
{
    struct helper *h = &engine->helper;

    lose_helper(engine);
    if (++h->failures >= ENGINE_MAX_RESTARTS && !engine->has_worked) {
        hutch_engine_break(engine, why);
        return;
    }
    h->retry_at = hutch_clock_ms() + RETRY_MS * (h->failures - 1 < 10 ? h->failures - 1 : 10);
    hutch_loop_advance_deadline(&engine->loop, &h->clock, h->retry_at);
}

static void on_opener_hangup(struct link *l)
{
    struct hutch_engine *engine = l->owner;
    struct hutch_err err;

    hutch_log_debug("engine: the opener is gone");
    hutch_err_set(&err, 0, "the helper program '%s' ended%s", engine->launcher,
                  engine->helper.has_hello ? "" : " as soon as it was started");
    if (engine->helper.launchers > 0)
        engine->lost_launchers++;
    fail_helper(engine, &err);
}

static void on_opener_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct hutch_engine *engine = l->owner;
    struct helper *h = &engine->helper;
    const struct opener_reply *reply = data;
    struct template *b;
    struct slot *slot;

    (void)sender;
    if (len != sizeof(*reply))
        goto out;
    switch ((enum opener_says)reply->what) {
    case OPENER_HELLO:
        h->has_hello = true;
        h->is_mapped_away = reply->is_mapped_away;
        if (n_fds > 0)
            take_disk_worker(engine, hutch_fd_take(&fds[0]));
        break;
    case OPENER_LAUNCHER:
        if (n_fds > 0)
            take_launcher(engine, hutch_fd_take(&fds[0]));
        break;
    case OPENER_OPENED:
    case OPENER_FAILED:
        if (reply->id == 0) { /* it cannot work at all, and says why */
            struct hutch_err why = reply->err;

            h->failures = ENGINE_MAX_RESTARTS;
            fail_helper(engine, &why);
        } else if ((b = find_template(engine, reply->id))) {
            on_source(b, reply->what == OPENER_OPENED && n_fds > 0 ? hutch_fd_take(&fds[0]) : -1, &reply->err);
        } else if ((slot = hutch_slot_find(engine, reply->id)) && slot->state == SLOT_OPENING) {
            if (reply->what == OPENER_OPENED && n_fds > 0) {
                hutch_slot_on_opened(slot, fds[0]);
            } else {
                if (slot->run)
                    hutch_run_refuse(slot->run, &reply->err);
                hutch_slot_discard(slot);
            }
        }
        break;
    }
out:
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
}

/* What its own environment tells of the caller's is his, but for how to find things. */
static char **filtered_environment(void)
{
    static const char *const kept[] = { "HUTCH_", "PATH=", "XDG_RUNTIME_DIR=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=" };
    size_t n = 0, count = 0;
    char **env;

    while (environ && environ[count])
        count++;
    env = calloc(count + 1, sizeof(*env));
    for (size_t i = 0; env && i < count; i++)
        for (size_t k = 0; k < ARRAY_SIZE(kept); k++)
            if (strncmp(environ[i], kept[k], strlen(kept[k])) == 0) {
                env[n++] = environ[i];
                break;
            }
    return env;
}

static int spawn(struct hutch_engine *engine, int sock, pid_t *ret, struct hutch_err *err)
{
    char *argv[] = { (char *)"hutch-launcher", engine->cgroup, engine->cgroup_why_not, NULL };
    auto_free char **env = filtered_environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int e;

    if (!env)
        return hutch_err_set(err, ENOMEM, "start '%s'", engine->launcher);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    e = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_adddup2(&actions, sock, WARM_SOCKET_FD);
    if (!e)
        e = posix_spawn_file_actions_addclosefrom_np(&actions, WARM_SOCKET_FD + 1);
    if (!e)
        e = posix_spawn(ret, engine->launcher, &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return e ? hutch_err_set(err, e, "start the helper program '%s'", engine->launcher) : 0;
}

static void on_due(void *owner, double now);

int hutch_helper_start(struct hutch_engine *engine, struct hutch_err *err)
{
    struct helper *h = &engine->helper;
    int pair[2];
    auto_fd theirs = -1;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the helper's socket");
    h->opener.on_packet = on_opener_packet;
    h->opener.on_hangup = on_opener_hangup;
    h->opener.owner = engine;
    theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, WARM_SOCKET_FD + 1); /* a dup2 of itself onto itself would leave it CLOEXEC */
    close(pair[1]);
    if (theirs < 0) {
        close(pair[0]);
        return hutch_err_set(err, errno, "make the helper's socket");
    }
    if (hutch_link_open(&h->opener, &engine->loop, pair[0], err) < 0)
        return -1;
    if (spawn(engine, theirs, &h->pid, err) < 0) {
        h->pid = 0;
        hutch_link_close(&h->opener);
        return -1;
    }
    h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    if (h->pidfd < 0) { /* it hangs up as soon as the link closes */
        hutch_err_set(err, errno, "hold the helper process");
        h->pid = 0;
        hutch_link_close(&h->opener);
        return -1;
    }
    h->retry_at = LOOP_NEVER;
    h->clock.on_due = on_due;
    h->clock.owner = engine;
    h->since = hutch_clock_ms();
    hutch_loop_advance_deadline(&engine->loop, &h->clock, h->since + engine->setup_ms);
    return 0;
}

void hutch_helper_stop(struct hutch_engine *engine)
{
    struct helper *h = &engine->helper;

    hutch_link_close(&h->launcher);
    hutch_link_close(&h->disk);
    hutch_link_close(&h->opener);
    h->has_launcher = h->has_hello = false;
    reap(h, STOP_TIMEOUT_MS); /* it kills what it has started and waits for that */
}

static double check_clocks(struct hutch_engine *engine, double now)
{
    struct helper *h = &engine->helper;
    struct hutch_err err;

    if (engine->is_broken)
        return LOOP_NEVER;
    if (h->pid == 0) {
        if (now < h->retry_at)
            return h->retry_at;
        if (hutch_helper_start(engine, &err) < 0)
            fail_helper(engine, &err);
        return now + engine->setup_ms;
    }
    if (h->has_launcher)
        return LOOP_NEVER;
    if (now < h->since + engine->setup_ms)
        return h->since + engine->setup_ms;
    hutch_err_set(&err, ETIMEDOUT, "wait for the helper program '%s'", engine->launcher);
    fail_helper(engine, &err);
    return now + engine->setup_ms;
}

static void on_due(void *owner, double now)
{
    struct hutch_engine *engine = owner;

    hutch_loop_advance_deadline(&engine->loop, &engine->helper.clock, check_clocks(engine, now));
}
