/* descriptors.c - whether this process may have as many descriptors as its engine needs for what it has accepted. What
 * is open is counted for the whole process; what is still to come, part by part. */
#include "runtime/lib/engine_priv.h"

#include "sandbox/fd.h"
#include "sandbox/walk.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define GENERATIONS 2    /* of zygotes, while one takes the other's place */
#define GENERATION_FDS 1 /* what its processes say */
#define ZYGOTE_FDS 2     /* its socket and its spare's */
#define TEMPLATE_FDS 2   /* its description and the root tree, before it is made */
/* Its directory, in memory with its base, process 1 and its socket, the control group, three streams, the worker's
 * socket; and the directory of the sandbox that it comes after, which is being removed. */
#define SLOT_FDS 11
/* and its files, which outlive a sandbox, with their base, and their list where they are many */
#define SESSION_FDS (SLOT_FDS + 3)
#define SPAWNER_FDS 2 /* a session's socket to what makes its processes, and that one's end for a moment */
/* A process's streams and its own socket. What it gets of these is open for a moment: a part of PASSING_FDS. */
#define PROCESS_FDS 4
#define PATH_FDS 2 /* the socket of an order about a path, and a file that comes with its answer */
#define PASSING_FDS (WALK_MAX_OPEN + 8) /* open for a moment: in a walk through files, on their way to a helper */

static unsigned count_unset(const int *fds, size_t n)
{
    unsigned n_unset = 0;

    for (size_t i = 0; i < n; i++)
        n_unset += fds[i] < 0;
    return n_unset;
}

/* Of the whole process. Where there is no /proc to tell, none. */
static uint64_t count_open(void)
{
    static const char path[] = "/proc/self/fd";
    uint64_t n = 0;
    struct stat st;
    DIR *dir;

    if (stat(path, &st) == 0 && st.st_size > 0) /* Linux 6.2 */
        return (uint64_t)st.st_size;
    dir = opendir(path);
    if (!dir)
        return errno == EMFILE ? UINT32_MAX : 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n > 3 ? n - 3 : 0; /* ".", ".." and that of the directory itself */
}

static unsigned core_to_come(const struct hutch_engine *engine)
{
    const struct core *core = &engine->core;
    const struct helper *h = &engine->helper;
    const int fds[] = { core->loop.epoll_fd, core->loop.timer_fd, core->state.home_dirfd, core->state.runs_dirfd,
                        core->state.lock_fd, core->data_root_fd, engine->image.n_lockfds > 0 ? 0 : -1, h->opener.fd,
                        h->pidfd,
                        h->launcher.fd, h->launcher_pidfd, h->anchor_pidfd, h->disk.fd, h->disk_pidfd };

    /* root's file of locks is opened with the first sandbox */
    return count_unset(fds, ARRAY_SIZE(fds)) + (geteuid() == 0 && engine->slots.ids.fd < 0);
}

static unsigned templates_to_come(const struct hutch_engine *engine)
{
    unsigned n = (engine->worker_template ? 0 : TEMPLATE_FDS) + (engine->zygote_template ? 0 : TEMPLATE_FDS);
    const struct template *template;

    for (size_t i = engine->configs.n_zygotes; i < engine->pools.n; i++) /* at most: pools of one policy share theirs */
        n += engine->pools.list[i].template ? 0 : TEMPLATE_FDS;
    TAILQ_FOREACH(template, &engine->templates.list, link)
        n += (unsigned)(template->n_fds - template->n_open);
    return n;
}

/* Of a tree beyond the first, which has no spares. */
static unsigned layout_fds(const struct hutch_engine *engine)
{
    return GENERATION_FDS + (unsigned)engine->configs.n;
}

static unsigned zygotes_to_come(const struct hutch_engine *engine)
{
    const struct generation *generations[GENERATIONS] = { engine->zygotes.places[0], engine->zygotes.coming };
    unsigned n = GENERATIONS * (GENERATION_FDS + ZYGOTE_FDS * (unsigned)engine->configs.n);
    unsigned n_layouts = 1;

    for (size_t g = 0; g < GENERATIONS; g++)
        for (size_t i = 0; generations[g] && i < engine->configs.n; i++) {
            n -= generations[g]->zygote_slots[i].zygote != NULL;
            n -= generations[g]->zygote_slots[i].spare != NULL;
        }
    for (size_t p = 1; p < ZYGOTE_MAX_LAYOUTS; p++)
        n_layouts += engine->zygotes.places[p] != NULL;
    if (n_layouts < engine->zygotes.max_layouts) /* which the caller has asked for */
        n += (engine->zygotes.max_layouts - n_layouts) * layout_fds(engine);
    return n;
}

static unsigned count_kept(const struct hutch_engine *engine)
{
    unsigned n = 0;

    for (size_t i = 0; i < engine->pools.n; i++)
        n += engine->pools.list[i].min;
    return n;
}

/* Sandboxes that runs, sessions and pools are to have and do not. One that a pool keeps beyond its least number stands
 * for none of them. */
static uint64_t slots_to_come(const struct hutch_engine *engine)
{
    uint64_t wanted = (uint64_t)engine->runs.max_running + engine->sessions.n + count_kept(engine), n = 0;
    const struct slot *slot;

    TAILQ_FOREACH(slot, &engine->slots.list, link)
        n += !slot->is_idle && slot->supervisor && slot->sb.control_fd >= 0;
    for (size_t i = 0; i < engine->pools.n; i++) {
        unsigned n_idle = engine->pools.list[i].n_idle, min = engine->pools.list[i].min;

        n += n_idle < min ? n_idle : min;
    }
    return n < wanted ? wanted - n : 0;
}

static unsigned spawner_to_come(const struct session *s)
{
    return (s->processes.max > 0 || s->paths.is_allowed) && s->processes.spawner.fd < 0 ? SPAWNER_FDS : 0;
}

static unsigned processes_to_come(const struct session *s)
{
    const struct process *p;
    unsigned n = 0;

    TAILQ_FOREACH(p, &s->processes.list, link)
        n += p->state == PROCESS_WAITING ? PROCESS_FDS : 0;
    return n;
}

/* Those that have an answer hold what came with it already. */
static unsigned paths_to_come(const struct session *s)
{
    const unsigned n = s->paths.n < PATHS_AT_WORK ? s->paths.n : PATHS_AT_WORK;

    return n > s->paths.n_at_work ? (n - s->paths.n_at_work) * PATH_FDS + s->paths.n_at_work : s->paths.n_at_work;
}

static unsigned sessions_to_come(const struct hutch_engine *engine)
{
    const struct session *s;
    unsigned n = 0;

    TAILQ_FOREACH(s, &engine->sessions.list, link)
        n += (s->data.dirfd < 0) + (s->data.seen_fd < 0) + spawner_to_come(s) + processes_to_come(s) +
             paths_to_come(s);
    return n;
}

static uint64_t all_to_come(const struct hutch_engine *engine)
{
    return core_to_come(engine) + templates_to_come(engine) + zygotes_to_come(engine) +
           slots_to_come(engine) * SLOT_FDS + sessions_to_come(engine) + PASSING_FDS;
}

/* What is left over is the pools', which grow while there is much to do. */
static void share_out(struct hutch_engine *engine, uint64_t left)
{
    unsigned kept = count_kept(engine), prepared = engine->pools.n_prepared;
    uint64_t max = (prepared > kept ? prepared : kept) + left / SLOT_FDS;

    engine->pools.max_prepared = max < UINT_MAX ? (unsigned)max : UINT_MAX;
}

static int reserve(struct hutch_engine *engine, unsigned n, const char *what, struct hutch_err *err)
{
    uint64_t open, more;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return hutch_err_set(err, errno, "read the limit on descriptors");
    for (int tries = 0; tries < 2; tries++) {
        open = count_open();
        more = all_to_come(engine) + n;
        if (open + more <= limit.rlim_cur) {
            share_out(engine, limit.rlim_cur - open - more);
            return 0;
        }
        hutch_pools_shrink(&engine->pools); /* what they have beyond their least number was not promised to anyone */
    }
    if (open == UINT32_MAX) /* so few that they cannot be counted */
        open = limit.rlim_cur;
    return hutch_err_say(err, EMFILE,
                         "%s: %" PRIu64 " descriptors are open, %" PRIu64 " more are needed, and the limit is %ju: "
                         "raise RLIMIT_NOFILE (ulimit -n) to %" PRIu64,
                         what, open, more, (uintmax_t)limit.rlim_cur, open + more);
}

int hutch_descriptors_for_engine(struct hutch_engine *engine, struct hutch_err *err)
{
    char what[96];

    snprintf(what, sizeof(what), "open an engine for %u runs at a time and %u prepared sandboxes",
             engine->runs.max_running, count_kept(engine));
    return reserve(engine, 0, what, err);
}

int hutch_descriptors_for_session(struct hutch_engine *engine, bool has_spawner, struct hutch_err *err)
{
    char what[64];

    snprintf(what, sizeof(what), "open a session beside %u others", engine->sessions.n);
    return reserve(engine, SESSION_FDS + (has_spawner ? SPAWNER_FDS : 0), what, err);
}

int hutch_descriptors_for_process(struct hutch_engine *engine, struct hutch_err *err)
{
    return reserve(engine, PROCESS_FDS, "begin a process in a session", err);
}

int hutch_descriptors_for_path(struct hutch_engine *engine, struct hutch_err *err)
{
    return reserve(engine, PATH_FDS, "take an order about a path in a session", err);
}

int hutch_descriptors_for_copy(struct hutch_engine *engine, struct hutch_err *err)
{
    return reserve(engine, 1, "keep a copy of an interpreter", err);
}

int hutch_descriptors_for_function(struct hutch_engine *engine, const struct function *function, struct hutch_err *err)
{
    return reserve(engine, function->min * SLOT_FDS, "keep a function", err);
}

int hutch_descriptors_for_run(struct hutch_engine *engine, struct hutch_err *err)
{
    return reserve(engine, 0, "take one more run with descriptors of its own", err);
}

bool hutch_descriptors_allow_layout(const struct hutch_engine *engine)
{
    struct rlimit limit;

    return engine->zygotes.max_layouts > 0 ||
           (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
            count_open() + all_to_come(engine) + layout_fds(engine) <= limit.rlim_cur / 2);
}
