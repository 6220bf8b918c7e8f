#include "runtime/engine/zygotes.h"

#include "runtime/engine/zygote_proc.h"
#include "runtime/run/supervisor.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RETRY_MS 100
#define RETRY_MAX_MS 5000
#define RETRY_MEMORY_MS 200 /* when there was none for a generation */
#define RETIRE_CHECK_MS 100
#define STDERR_BYTES (64 << 10)
#define MORE_AFTER_MS 2000 /* after the first tree is ready: the pools are filled then */
#define MORE_CHECK_MS 1000 /* from one look whether there is leisure for one more to the next */
#define MORE_RETRY_MS 600000 /* when one could not be made */
#define USUAL_LAYOUTS 4    /* at most, where the owner does not say how many */
#define MEMORY_SHARE 32    /* all of them together have no more than one of so many parts of what is available */

static void start_generation(struct generation *generation);

static struct zygote_slot *zygote_slot_of(struct zygote *zygote)
{
    return &zygote->generation->zygote_slots[zygote->index];
}

static bool is_in_place(const struct generation *generation)
{
    return generation->zygotes->places[generation->place] == generation;
}

/* It is to be one more. */
static bool is_additional(const struct generation *generation)
{
    return !generation->zygotes->places[generation->place] && generation->place > 0;
}

/* But for what cannot be in this image. */
static bool is_whole(const struct generation *generation)
{
    for (size_t i = 0; i < generation->zygotes->configs->n; i++)
        if (!generation->zygotes->configs->list[i].has_given_up &&
            (!generation->zygote_slots[i].zygote || generation->zygote_slots[i].zygote->state != ZYGOTE_IS_READY))
            return false;
    return true;
}

/* Which generation it is in says what it is for. */
static bool is_in_use(const struct zygote *zygote)
{
    return is_in_place(zygote->generation) || zygote->generation == zygote->zygotes->coming;
}

/* As long as its socket does not hang up it is there, and its number no other process's. */
static void kill_process(const struct zygote *zygote)
{
    struct pollfd hangup = { .fd = zygote->link.fd };
    /* in a test the opener plays the zygotes, too */
    bool is_known = zygote->pid > 0 && zygote->pid != zygote->zygotes->helper->pid;
    auto_fd pidfd = is_known ? (int)syscall(SYS_pidfd_open, zygote->pid, 0) : -1;

    if (pidfd >= 0 && hangup.fd >= 0 && poll(&hangup, 1, 0) == 0)
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* It would end by itself when its socket closes, if it does not hang. */
static void bury(struct zygote *zygote)
{
    hutch_patience_end(&zygote->patience);
    kill_process(zygote);
    hutch_link_close(&zygote->link);
    hutch_loop_free_later(&zygote->zygotes->core->loop, &zygote->doomed, zygote, free);
}

void hutch_zygotes_release(struct zygote *zygote)
{
    if (zygote->n_forking > 0)
        zygote->n_forking--;
}

static void drop_generation(struct generation *generation)
{
    for (size_t i = 0; i < generation->zygotes->configs->n; i++) {
        if (generation->zygote_slots[i].zygote)
            bury(generation->zygote_slots[i].zygote);
        if (generation->zygote_slots[i].spare)
            bury(generation->zygote_slots[i].spare);
    }
    hutch_fd_closep(&generation->stderr_fd);
    free(generation);
}

/* The last line that a process of the generation has written on its stderr. */
static bool read_last_words(const struct generation *generation, struct hutch_err *ret)
{
    char text[4096];
    /* they share its file position */
    off_t end = generation->stderr_fd < 0 ? 0 : lseek(generation->stderr_fd, 0, SEEK_CUR);
    off_t start = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
    ssize_t n = end > 0 ? pread(generation->stderr_fd, text, (size_t)(end - start), start) : 0;
    const char *line = hutch_core_last_line(text, n);

    if (line)
        hutch_err_set(ret, 0, "it ended before it was ready: %s", line);
    return line != NULL;
}

/* In this image it cannot be, and every further try would cost as much as the last. The nearest ancestor takes its
 * place. */
static void give_up(struct zygotes *zygotes, unsigned index, const struct hutch_err *why)
{
    hutch_log_debug("engine: zygote '%s' is given up: %s", zygotes->configs->list[index].name, why->msg);
    hutch_zygote_configs_give_up(zygotes->configs, index, why);
    zygotes->events->on_given_up(zygotes->owner, index);
}

/* Runs wait for it now. It imports nothing, so one that is not ready yet has no longer for that than an answer takes:
 * what stopped the one before may have stopped both. */
static void promote(struct zygote *spare)
{
    spare->is_spare = false;
    if (spare->state == ZYGOTE_IS_STARTING)
        hutch_patience_begin(&spare->patience);
}

/* What its code came to the first time it comes to again: it is said at once. */
static bool is_hopeless(const struct zygote *zygote, const struct hutch_err *why)
{
    const struct zygote_config *config = &zygote->zygotes->configs->list[zygote->index];

    return config->is_function && !config->has_been_ready &&
           (why || zygote_slot_of((struct zygote *)zygote)->failures >= CORE_MAX_RESTARTS);
}

/* It is dead, or has to go. @why: NULL when nobody knows. */
static void lose(struct zygote *zygote, const struct hutch_err *why)
{
    struct zygotes *zygotes = zygote->zygotes;
    struct generation *generation = zygote->generation;
    struct zygote_slot *zygote_slot = zygote_slot_of(zygote);
    struct hutch_err err;
    bool was_spare = zygote_slot->spare == zygote;

    if (!why && zygote->state == ZYGOTE_IS_STARTING && !was_spare && read_last_words(generation, &err))
        why = &err;
    hutch_log_debug("engine: zygote '%s'%s is gone%s%s", zygotes->configs->list[zygote->index].name,
                    was_spare ? " (spare)" : "", why ? ": " : "", why ? why->msg : "");
    bury(zygote);
    if (was_spare) {
        zygote_slot->spare = NULL;
    } else if (zygote_slot->zygote == zygote) {
        zygote_slot->zygote = zygote_slot->spare;
        zygote_slot->spare = NULL;
        if (zygote_slot->zygote)
            promote(zygote_slot->zygote);
        if (is_in_use(zygote))
            zygotes->recycled[zygote->index]++;
    }
    zygotes->events->on_lost(zygotes->owner, zygote);
    if (!is_in_use(zygote))
        return;
    if (zygote->state == ZYGOTE_IS_STARTING) {
        double wait = RETRY_MS << (zygote_slot->failures < 6 ? zygote_slot->failures : 6);

        zygote_slot->failures++;
        zygote_slot->retry_at = hutch_clock_ms() + (wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS);
        if (is_additional(generation)) {
            generation->has_failed = true;
            hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, 0);
            return;
        }
        if (zygote_slot->failures >= CORE_MAX_RESTARTS && zygote->index == 0 && generation->place == 0 &&
            !zygotes->core->has_worked) {
            if (why)
                err = *why;
            else
                hutch_err_set(&err, 0, "it ended before it was ready");
            hutch_err_wrap(&err, "start the zygote '%s'", zygotes->configs->list[0].name);
            hutch_core_break(zygotes->core, &err);
            return;
        }
        if (is_hopeless(zygote, why)) {
            if (!why)
                hutch_err_set(&err, 0, "its interpreter ended meanwhile");
            give_up(zygotes, zygote->index, why ? why : &err);
        } else if (why && !was_spare && ++zygote_slot->refusals >= CORE_MAX_RESTARTS && zygote->index > 0 &&
                   generation->place == 0) {
            give_up(zygotes, zygote->index, why);
        }
    }
    start_generation(generation);
    /* One that was a spare may be ready for what waits. */
    if (is_in_place(generation) && zygote_slot->zygote && zygote_slot->zygote->state == ZYGOTE_IS_READY)
        zygotes->events->on_ready(zygotes->owner);
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, zygote_slot->retry_at);
}

static void on_hangup(struct link *l)
{
    struct zygote *zygote = l->owner;

    if (is_in_use(zygote))
        zygote->zygotes->lost++;
    lose(zygote, NULL);
}

static void on_silent(void *owner)
{
    struct zygote *zygote = owner;
    char who[64];

    snprintf(who, sizeof(who), "the zygote '%.40s'", zygote->zygotes->configs->list[zygote->index].name);
    hutch_core_note_hung(zygote->zygotes->core, who);
    on_hangup(&zygote->link);
}

static bool is_ready_slot(const struct zygote_slot *zygote_slot)
{
    return zygote_slot->zygote && zygote_slot->zygote->state == ZYGOTE_IS_READY;
}

static void swap_generations(struct zygotes *zygotes)
{
    struct generation **place = &zygotes->places[zygotes->coming->place], *old = *place;

    for (size_t i = 0; i < zygotes->configs->n; i++)
        if (zygotes->coming->zygote_slots[i].failures == 0 && !zygotes->configs->list[i].has_given_up &&
            !is_ready_slot(&zygotes->coming->zygote_slots[i]))
            return;
    hutch_log_debug("engine: fresh zygotes in place %u", zygotes->coming->place);
    *place = zygotes->coming;
    zygotes->coming = NULL;
    if (old) {
        old->next = zygotes->retiring;
        zygotes->retiring = old;
        for (size_t i = 0; i < zygotes->configs->n; i++)
            zygotes->recycled[i]++;
    }
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, 0);
}

static void on_ready_zygote(struct zygote *zygote, const struct zygote_reply *reply)
{
    struct zygotes *zygotes = zygote->zygotes;
    struct hutch_err err;

    if (strncmp(reply->modules, "error: ", 7) == 0) {
        hutch_err_set(&err, 0, "%.*s", (int)strcspn(reply->modules + 7, "\n"), reply->modules + 7);
        lose(zygote, &err);
        return;
    }
    zygote->state = ZYGOTE_IS_READY;
    zygote->memory = reply->memory;
    zygotes->configs->list[zygote->index].has_been_ready = true;
    zygote_slot_of(zygote)->failures = zygote_slot_of(zygote)->refusals = 0;
    if (zygote_slot_of(zygote)->ready_at == 0)
        zygote_slot_of(zygote)->ready_at = hutch_clock_ms();
    hutch_zygote_configs_note_missing(zygotes->configs, zygote->index, reply->modules);
    start_generation(zygote->generation);
    if (zygote->generation == zygotes->coming)
        swap_generations(zygotes);
    if (is_whole(zygote->generation) && zygotes->more_at == 0)
        zygotes->more_at = hutch_clock_ms() + MORE_AFTER_MS;
    if (zygotes->more_at > 0)
        hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, zygotes->more_at);
    zygotes->events->on_ready(zygotes->owner);
}

static struct zygote *find_in(struct generation *generation, uint32_t id)
{
    for (size_t i = 0; generation && i < generation->zygotes->configs->n; i++) {
        struct zygote_slot *zygote_slot = &generation->zygote_slots[i];

        if (zygote_slot->zygote && zygote_slot->zygote->id == id)
            return zygote_slot->zygote;
        if (zygote_slot->spare && zygote_slot->spare->id == id)
            return zygote_slot->spare;
    }
    return NULL;
}

static struct zygote *find_zygote(struct zygotes *zygotes, uint32_t id)
{
    struct zygote *found = find_in(zygotes->coming, id);

    for (size_t p = 0; !found && p < ZYGOTE_MAX_LAYOUTS; p++)
        found = find_in(zygotes->places[p], id);
    return found;
}

static void on_packet(struct link *l, void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct zygote *zygote = l->owner, *child;
    struct zygotes *zygotes = zygote->zygotes;
    struct zygote_reply reply;
    struct hutch_err err;

    for (size_t i = 0; i < n_fds; i++) /* it has nothing to send */
        hutch_fd_closep(&fds[i]);
    if (len != sizeof(reply))
        return;
    memcpy(&reply, data, sizeof(reply));
    reply.modules[sizeof(reply.modules) - 1] = '\0';
    if (sender > 0)
        zygote->pid = sender;
    switch ((enum zygote_says)reply.what) {
    case ZYGOTE_BORN:
        if (reply.wants_proc && zygote->state == ZYGOTE_IS_STARTING &&
            hutch_zygote_proc_send(&zygote->link, sender, &err) < 0) {
            hutch_err_wrap(&err, "show a zygote its own process (without a /proc it has to be)");
            lose(zygote, &err);
        }
        break;
    case ZYGOTE_PONG:
        break;
    case ZYGOTE_READY:
        if (zygote->state == ZYGOTE_IS_STARTING)
            on_ready_zygote(zygote, &reply);
        break;
    case ZYGOTE_FORKED:
        if (!zygotes->events->on_forked(zygotes->owner, zygote, reply.id, reply.pid))
            break;
        if (++zygote->forks >= zygotes->recycle_forks)
            hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, 0);
        break;
    case ZYGOTE_FAILED:
        hutch_err_receive(&reply.err, "a zygote");
        if (!zygotes->events->on_fork_failed(zygotes->owner, zygote, reply.id, &reply.err) &&
            (child = find_zygote(zygotes, reply.id)))
            lose(child, &reply.err);
        break;
    }
}

/* How long it may take until it is ready. What it imports lies in the kernel's memory when it was imported before, and
 * a spare imports nothing. */
static double start_ms(struct zygote *zygote)
{
    const struct core *core = zygote->zygotes->core;

    return zygote_slot_of(zygote)->ready_at > 0 ? core->setup_ms : core->import_ms;
}

/* Asks the launcher for a root, or @from for a copy that imports more (a spare: nothing more). */
static int ask_for(struct zygote *zygote, struct zygote *from, int theirs, struct hutch_err *err)
{
    struct zygotes *zygotes = zygote->zygotes;
    const struct zygote_config *config = &zygotes->configs->list[zygote->index];
    struct zygote_request request = { .what = ZYGOTE_ZYGOTE, .id = zygote->id };
    struct launcher_request order = { .what = LAUNCHER_ZYGOTE, .id = zygote->id, .spec_id = zygotes->template->id };

    if (!from) {
        const int fds[] = { theirs, zygote->generation->stderr_fd };

        return hutch_helper_order(zygotes->helper, &order, fds, zygote->generation->stderr_fd < 0 ? 1 : 2, err);
    }
    request.text_len = zygote->is_spare ? 0 : (uint32_t)config->text_len;
    if (hutch_link_send(&from->link, &request, sizeof(request), config->text, request.text_len, &theirs, 1, err) < 0)
        return -1;
    hutch_patience_begin(&from->patience);
    return 0;
}

static struct zygote *start_zygote(struct generation *generation, unsigned index, bool is_spare, struct zygote *from)
{
    static const struct zygote_request ping = { .what = ZYGOTE_PING };
    struct zygotes *zygotes = generation->zygotes;
    struct zygote *zygote = calloc(1, sizeof(*zygote));
    auto_fd theirs = -1;
    struct hutch_err err;
    int pair[2];

    if (!zygote || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(zygote);
        return NULL;
    }
    theirs = pair[1];
    *zygote = (struct zygote){ .link = LINK_INIT,
                               .zygotes = zygotes,
                               .generation = generation,
                               .index = index,
                               .is_spare = is_spare,
                               .id = hutch_core_make_id(zygotes->core),
                               .since = hutch_clock_ms() };
    zygote->link.on_packet = on_packet;
    zygote->link.on_hangup = on_hangup;
    zygote->link.owner = zygote;
    hutch_patience_init(&zygote->patience, zygotes->core, &zygote->link, &ping, sizeof(ping), on_silent, zygote);
    if (hutch_link_open(&zygote->link, &zygotes->core->loop, pair[0], &err) < 0 ||
        ask_for(zygote, from, theirs, &err) < 0) {
        hutch_log_debug("engine: %s", err.msg);
        hutch_link_close(&zygote->link);
        free(zygote);
        return NULL;
    }
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, zygote->since + start_ms(zygote));
    return zygote;
}

static void retry_later(struct zygotes *zygotes, struct zygote_slot *zygote_slot)
{
    zygote_slot->retry_at = hutch_clock_ms() + RETRY_MAX_MS;
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, zygote_slot->retry_at);
}

static bool has_starting(const struct generation *generation)
{
    for (size_t i = 0; i < generation->zygotes->configs->n; i++)
        if (generation->zygote_slots[i].zygote && generation->zygote_slots[i].zygote->state == ZYGOTE_IS_STARTING)
            return true;
    return false;
}

/* What the first place lacks comes first, and so does what takes the place of a worn tree. All else is one import at a
 * time, and none while something runs, which would have to share the processors with it. */
static bool may_import(const struct generation *generation)
{
    struct zygotes *zygotes = generation->zygotes;
    bool is_replacement = generation == zygotes->coming && zygotes->places[generation->place];

    if (generation->place == 0 || is_replacement)
        return true;
    if (zygotes->places[0] && is_whole(zygotes->places[0]) && !has_starting(generation) &&
        zygotes->events->has_leisure(zygotes->owner))
        return true;
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, hutch_clock_ms() + MORE_CHECK_MS);
    return false;
}

/* Starts what can be started: zygotes whose parent is ready, and in the first place a spare beside each. */
static void start_generation(struct generation *generation)
{
    struct zygotes *zygotes = generation->zygotes;
    double now = hutch_clock_ms();

    if (zygotes->core->is_broken)
        return;
    for (unsigned i = 0; i < zygotes->configs->n; i++) {
        struct zygote_slot *zygote_slot = &generation->zygote_slots[i];
        int parent = hutch_zygote_configs_parent(zygotes->configs, i);
        struct zygote *from = parent < 0 ? NULL : generation->zygote_slots[parent].zygote;
        bool has_origin = from ? from->state == ZYGOTE_IS_READY
                               : parent < 0 && zygotes->helper->has_launcher && zygotes->template->is_sent;
        bool can_ask = has_origin && !zygotes->configs->list[i].has_given_up;

        if (!zygote_slot->zygote && now >= zygote_slot->retry_at && can_ask && may_import(generation)) {
            zygote_slot->zygote = start_zygote(generation, i, false, from);
            if (!zygote_slot->zygote)
                retry_later(zygotes, zygote_slot);
        }
        if (zygote_slot->zygote && zygote_slot->zygote->state == ZYGOTE_IS_READY && !zygote_slot->spare &&
            generation->place == 0 && now >= zygote_slot->retry_at) {
            zygote_slot->spare = start_zygote(generation, i, true, zygote_slot->zygote);
            if (!zygote_slot->spare)
                retry_later(zygotes, zygote_slot);
        }
    }
}

static struct generation *create_generation(struct zygotes *zygotes, unsigned place)
{
    struct generation *generation = calloc(1, sizeof(*generation));

    if (!generation)
        return NULL;
    generation->zygotes = zygotes;
    generation->place = place;
    generation->since = hutch_clock_ms();
    generation->stderr_fd = memfd_create("hutch-zygotes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (generation->stderr_fd >= 0 &&
        (ftruncate(generation->stderr_fd, STDERR_BYTES) < 0 ||
         fcntl(generation->stderr_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
        hutch_fd_closep(&generation->stderr_fd); /* then nobody hears it */
    return generation;
}

void hutch_zygotes_on_launcher(struct zygotes *zygotes)
{
    if (!zygotes->places[0])
        zygotes->places[0] = create_generation(zygotes, 0);
    if (!zygotes->places[0]) {
        hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, hutch_clock_ms() + RETRY_MEMORY_MS);
        return;
    }
    for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS; p++)
        if (zygotes->places[p])
            start_generation(zygotes->places[p]);
    if (zygotes->coming)
        start_generation(zygotes->coming);
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock,
                                zygotes->places[0]->since + (double)zygotes->recycle_ms);
}

void hutch_zygotes_on_reply(struct zygotes *zygotes, const struct launcher_reply *reply)
{
    struct zygote *zygote = find_zygote(zygotes, reply->id);

    if (!zygote)
        return;
    if (reply->what == LAUNCHER_FAILED) /* LAUNCHER_STARTED is nothing yet: it has to read its libraries */
        lose(zygote, &reply->err);
}

static void drop_list(struct generation **list)
{
    while (*list) {
        struct generation *generation = *list;

        *list = generation->next;
        drop_generation(generation);
    }
}

void hutch_zygotes_drop_all(struct zygotes *zygotes)
{
    for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS; p++)
        drop_list(&zygotes->places[p]);
    drop_list(&zygotes->coming);
    drop_list(&zygotes->retiring);
}

void hutch_zygotes_done(struct zygotes *zygotes)
{
    hutch_zygotes_drop_all(zygotes);
    hutch_loop_set_deadline(&zygotes->core->loop, &zygotes->clock, LOOP_NEVER);
}

/* The one of @index whose turn it is, NULL when none is ready. */
static struct zygote *take_turn(struct zygotes *zygotes, unsigned index)
{
    for (unsigned k = 0; k < ZYGOTE_MAX_LAYOUTS; k++) {
        unsigned place = (zygotes->turn[index] + k) % ZYGOTE_MAX_LAYOUTS;
        struct zygote *zygote = zygotes->places[place] ? zygotes->places[place]->zygote_slots[index].zygote : NULL;

        if (zygote && zygote->state == ZYGOTE_IS_READY) {
            zygotes->turn[index] = (place + 1) % ZYGOTE_MAX_LAYOUTS;
            return zygote;
        }
    }
    return NULL;
}

struct zygote *hutch_zygotes_find(struct zygotes *zygotes, unsigned index)
{
    for (int i = (int)index; zygotes->places[0] && i >= 0; i = zygotes->configs->list[i].parent) {
        const struct zygote_slot *zygote_slot = &zygotes->places[0]->zygote_slots[i];
        struct zygote *zygote = take_turn(zygotes, (unsigned)i);

        if (zygote)
            return zygote;
        /* it is going to be ready, or nothing can stand in for it */
        if ((zygote_slot->failures < CORE_MAX_RESTARTS && !zygotes->configs->list[i].has_given_up) ||
            zygotes->configs->list[i].is_function)
            return NULL;
    }
    return NULL;
}

void hutch_zygotes_begin(struct zygotes *zygotes)
{
    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, 0);
}

bool hutch_zygotes_are_ready(const struct zygotes *zygotes, unsigned index)
{
    for (unsigned p = 0; p < ZYGOTE_MAX_LAYOUTS; p++) {
        const struct zygote *zygote = zygotes->places[p] ? zygotes->places[p]->zygote_slots[index].zygote : NULL;

        if (zygote && zygote->state == ZYGOTE_IS_READY)
            return true;
    }
    return false;
}

static void forget_slot(struct generation *generation, unsigned index)
{
    struct zygote_slot *zygote_slot = generation ? &generation->zygote_slots[index] : NULL;

    if (!zygote_slot)
        return;
    if (zygote_slot->zygote)
        bury(zygote_slot->zygote);
    if (zygote_slot->spare)
        bury(zygote_slot->spare);
    *zygote_slot = (struct zygote_slot){ .zygote = NULL };
}

void hutch_zygotes_forget(struct zygotes *zygotes, unsigned index)
{
    for (unsigned p = 0; p < ZYGOTE_MAX_LAYOUTS; p++)
        forget_slot(zygotes->places[p], index);
    forget_slot(zygotes->coming, index);
    for (struct generation *generation = zygotes->retiring; generation; generation = generation->next)
        forget_slot(generation, index);
    zygotes->turn[index] = 0;
    zygotes->recycled[index] = 0;
}

unsigned hutch_zygotes_count_layouts(const struct zygotes *zygotes)
{
    unsigned n = 0;

    for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS; p++)
        n += zygotes->places[p] && is_whole(zygotes->places[p]);
    return n;
}

double hutch_zygotes_import_until(const struct zygotes *zygotes, unsigned index)
{
    const struct core *core = zygotes->core;
    double until = 0;

    for (int i = (int)index; zygotes->places[0] && i >= 0; i = zygotes->configs->list[i].parent) {
        const struct zygote_slot *zygote_slot = &zygotes->places[0]->zygote_slots[i];
        double end = 0;

        if (zygote_slot->ready_at > 0)
            end = zygote_slot->ready_at + core->setup_ms;
        else if (zygote_slot->zygote)
            end = zygote_slot->zygote->since + core->import_ms + core->setup_ms;
        until = end > until ? end : until;
    }
    return until;
}

static void retire(struct zygotes *zygotes)
{
    for (struct generation **at = &zygotes->retiring; *at;) {
        struct generation *generation = *at;
        unsigned n_forking = 0;

        for (size_t i = 0; i < zygotes->configs->n; i++)
            n_forking += generation->zygote_slots[i].zygote ? generation->zygote_slots[i].zygote->n_forking : 0;
        if (n_forking > 0) {
            at = &generation->next;
            continue;
        }
        *at = generation->next;
        drop_generation(generation); /* their sockets close, and they end */
    }
}

static bool is_worn(const struct generation *generation, double now)
{
    const struct zygotes *zygotes = generation->zygotes;

    if (now >= generation->since + (double)zygotes->recycle_ms)
        return true;
    for (size_t i = 0; i < zygotes->configs->n; i++)
        if (generation->zygote_slots[i].zygote && generation->zygote_slots[i].zygote->forks >= zygotes->recycle_forks)
            return true;
    return false;
}

static double watch_generation(struct generation *generation, double now)
{
    double due = LOOP_NEVER;

    for (size_t i = 0; i < generation->zygotes->configs->n; i++) {
        struct zygote_slot *zygote_slot = &generation->zygote_slots[i];
        struct zygote *both[] = { zygote_slot->zygote, zygote_slot->spare };

        for (size_t k = 0; k < ARRAY_SIZE(both); k++) {
            double end;

            if (!both[k] || both[k]->state == ZYGOTE_IS_READY)
                continue;
            both[k]->since += hutch_loop_stood_still(&generation->zygotes->core->loop);
            end = both[k]->since + start_ms(both[k]);
            if (now >= end) {
                struct hutch_err err;

                hutch_err_set(&err, ETIMEDOUT, "wait for its imports");
                lose(both[k], &err);
            } else if (end < due) {
                due = end;
            }
        }
        if ((!zygote_slot->zygote || !zygote_slot->spare) && zygote_slot->retry_at > now && zygote_slot->retry_at < due)
            due = zygote_slot->retry_at;
    }
    start_generation(generation);
    return due;
}

/* Of the processes of a tree, by what they have said themselves. */
static uint64_t sum_memory(const struct generation *generation)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < generation->zygotes->configs->n; i++)
        sum += generation->zygote_slots[i].zygote ? generation->zygote_slots[i].zygote->memory : 0;
    return sum;
}

/* Bytes of this machine that programs could still take; 0 when nobody tells. */
static uint64_t read_available_memory(void)
{
    static const char name[] = "\nMemAvailable:";
    char text[512];
    auto_fd fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    const char *p;

    text[n > 0 ? n : 0] = '\0';
    p = strstr(text, name); /* the third line */
    return p ? strtoull(p + sizeof(name) - 1, NULL, 10) << 10 : 0;
}

/* Whether one more tree is allowed beside the @n that there are. Those have taken their share already. */
static bool has_memory_for_one_more(const struct zygotes *zygotes, unsigned n)
{
    uint64_t each = sum_memory(zygotes->places[0]), available = read_available_memory();

    return each > 0 && available > 0 && (n + 1) * each <= (available + n * each) / MEMORY_SHARE;
}

/* Begins one more tree in a place that is free, where there may be one. Returns when to ask again. */
static double begin_one_more(struct zygotes *zygotes, double now)
{
    unsigned n_present = 0, place = ZYGOTE_MAX_LAYOUTS;

    for (unsigned p = ZYGOTE_MAX_LAYOUTS; p-- > 0;)
        if (zygotes->places[p])
            n_present++;
        else
            place = p;
    if (zygotes->more_at == 0 || n_present >= (zygotes->max_layouts ? zygotes->max_layouts : USUAL_LAYOUTS))
        return LOOP_NEVER;
    if (now < zygotes->more_at)
        return zygotes->more_at;
    zygotes->more_at = now + MORE_CHECK_MS;
    if (!is_whole(zygotes->places[0]) || !zygotes->events->has_leisure(zygotes->owner))
        return zygotes->more_at;
    if (!zygotes->max_layouts && !has_memory_for_one_more(zygotes, n_present)) {
        zygotes->more_at = now + MORE_RETRY_MS;
        return zygotes->more_at;
    }
    zygotes->coming = create_generation(zygotes, place);
    if (zygotes->coming)
        start_generation(zygotes->coming);
    return zygotes->more_at;
}

static struct generation *find_worn(const struct zygotes *zygotes, double now)
{
    for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS; p++)
        if (zygotes->places[p] && is_worn(zygotes->places[p], now))
            return zygotes->places[p];
    return NULL;
}

/* A tree that is to be one more gives way to what takes the place of a worn one, and ends when it cannot be. */
static void drop_additional(struct zygotes *zygotes, const struct generation *worn, double now)
{
    if (!zygotes->coming || !is_additional(zygotes->coming) || (!zygotes->coming->has_failed && !worn))
        return;
    if (zygotes->coming->has_failed)
        zygotes->more_at = now + MORE_RETRY_MS;
    drop_list(&zygotes->coming);
}

static double check_clocks(struct zygotes *zygotes, double now)
{
    struct generation *worn;
    double due = LOOP_NEVER, next;

    retire(zygotes);
    if (zygotes->coming && is_whole(zygotes->coming))
        swap_generations(zygotes); /* what it waited for may have been given up */
    if (!zygotes->places[0] && zygotes->helper->has_launcher && zygotes->template->is_sent)
        hutch_zygotes_on_launcher(zygotes);
    for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS; p++)
        if (zygotes->places[p]) {
            next = watch_generation(zygotes->places[p], now);
            due = next < due ? next : due;
        }
    worn = find_worn(zygotes, now);
    drop_additional(zygotes, worn, now);
    if (worn && !zygotes->coming) {
        zygotes->coming = create_generation(zygotes, worn->place);
        if (zygotes->coming)
            start_generation(zygotes->coming);
        else
            due = now + RETRY_MEMORY_MS < due ? now + RETRY_MEMORY_MS : due;
    } else if (zygotes->places[0] && !zygotes->coming) {
        next = begin_one_more(zygotes, now);
        due = next < due ? next : due;
    }
    for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS && !worn; p++) {
        next = zygotes->places[p] ? zygotes->places[p]->since + (double)zygotes->recycle_ms : LOOP_NEVER;
        due = next < due ? next : due;
    }
    if (zygotes->coming) {
        next = watch_generation(zygotes->coming, now);
        due = next < due ? next : due;
    }
    if (zygotes->retiring && now + RETIRE_CHECK_MS < due)
        due = now + RETIRE_CHECK_MS;
    return due;
}

static void on_due(void *owner, double now)
{
    struct zygotes *zygotes = owner;

    hutch_loop_advance_deadline(&zygotes->core->loop, &zygotes->clock, check_clocks(zygotes, now));
}

void hutch_zygotes_init(struct zygotes *zygotes, struct helper *helper, struct zygote_configs *configs,
                        const struct zygote_events *events, void *owner)
{
    *zygotes = (struct zygotes){ .core = helper->core,
                                 .helper = helper,
                                 .configs = configs,
                                 .events = events,
                                 .owner = owner,
                                 .clock = DEADLINE_INIT(on_due, zygotes) };
}
