#include "runtime/engine/engine_priv.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "runtime/lang/python_imports.h"
#include "sandbox/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define RETRY_MS 100
#define STDERR_BYTES (64 << 10)
#define RETRY_MAX_MS 5000
#define DEFAULT_MIN 2
#define DEFAULT_MAX 32

static const struct hutch_zygote default_zygotes[] = {
    { .name = "bare", .min = 4 },
    { .name = "data", .parent = "bare", .modules = (const char *const[]){ "numpy", "pandas", NULL } },
    { .name = "plot", .parent = "data", .modules = (const char *const[]){ "matplotlib", "matplotlib.pyplot", NULL } },
    { .name = "shell", .parent = "plot", .modules = (const char *const[]){ "IPython", "ipykernel", NULL } },
};

/* --- what the operator asks for ---------------------------------------------------------------------------------- */

static bool is_word(const char *text, const char *also)
{
    size_t n = 0;

    for (; text[n]; n++)
        if (!(text[n] >= 'a' && text[n] <= 'z') && !(text[n] >= 'A' && text[n] <= 'Z') && !(text[n] >= '0' && text[n] <= '9') &&
            !strchr(also, text[n]))
            return false;
    return n > 0 && n < 256;
}

static void set_bit(uint64_t *bits, size_t n)
{
    bits[n / 64] |= 1ull << n % 64;
}

static size_t find_module(const struct hutch_engine *engine, const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < engine->n_modules; i++)
        if (strncmp(engine->modules[i], name, len) == 0 && engine->modules[i][len] == '\0')
            break;
    return i;
}

static int add_module(struct hutch_engine *engine, struct zygote_conf *conf, const char *name, struct hutch_err *err)
{
    size_t len = strcspn(name, "."), n = find_module(engine, name, len);

    if (n == ENGINE_MAX_MODULES)
        return hutch_err_set(err, E2BIG, "zygote '%s': there are more than %d different modules", conf->name, ENGINE_MAX_MODULES);
    if (n == engine->n_modules) {
        engine->modules[n] = strndup(name, len);
        if (!engine->modules[n])
            return hutch_err_set(err, ENOMEM, "zygote '%s'", conf->name);
        engine->n_modules++;
    }
    set_bit(conf->own, n);
    return 0;
}

/* Names, one a line, and the code behind a line of its own. */
static int write_text(struct zygote_conf *conf, const struct hutch_zygote *zygote, struct hutch_err *err)
{
    FILE *f = open_memstream(&conf->text, &conf->text_len);

    if (!f)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", conf->name);
    for (const char *const *m = zygote->modules; m && *m; m++)
        fprintf(f, "%s\n", *m);
    if (zygote->warm_up)
        fprintf(f, "---\n%s", zygote->warm_up);
    if (fclose(f) != 0)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", conf->name);
    if (conf->text_len > LOOP_SCRATCH_BYTES / 4)
        return hutch_err_set(err, E2BIG, "zygote '%s': its modules and code are too long", conf->name);
    return 0;
}

/* What can be imported from each, its ancestors' included. */
static void sum_modules(struct hutch_engine *engine)
{
    for (size_t i = 0; i < engine->n_confs; i++) {
        struct zygote_conf *conf = &engine->confs[i];

        conf->n_modules = 0;
        for (size_t w = 0; w < ARRAY_SIZE(conf->own); w++) {
            conf->modules[w] = conf->own[w] | (conf->parent >= 0 ? engine->confs[conf->parent].modules[w] : 0);
            conf->n_modules += (size_t)__builtin_popcountll(conf->modules[w]);
        }
    }
}

static int configure_one(struct hutch_engine *engine, const struct hutch_zygote *zygote, struct hutch_err *err)
{
    struct zygote_conf *conf = &engine->confs[engine->n_confs];

    if (!zygote->name || !is_word(zygote->name, "-_"))
        return hutch_err_set(err, EINVAL, "zygote '%s': a name consists of letters, digits, '-' and '_'",
                             zygote->name ? zygote->name : "");
    conf->parent = -1;
    for (size_t i = 0; i < engine->n_confs; i++) {
        if (strcmp(engine->confs[i].name, zygote->name) == 0)
            return hutch_err_set(err, EINVAL, "zygote '%s' is there twice", zygote->name);
        if (zygote->parent && strcmp(engine->confs[i].name, zygote->parent) == 0)
            conf->parent = (int)i;
    }
    if (engine->n_confs > 0 && !zygote->parent)
        return hutch_err_set(err, EINVAL, "zygote '%s' needs a parent: only the first one is the root", zygote->name);
    if (zygote->parent && conf->parent < 0)
        return hutch_err_set(err, EINVAL, "zygote '%s': there is no zygote '%s' before it", zygote->name, zygote->parent);
    conf->min = zygote->min || zygote->max ? zygote->min : DEFAULT_MIN;
    conf->max = zygote->max ? zygote->max : conf->min > DEFAULT_MAX ? conf->min : DEFAULT_MAX;
    if (conf->min > conf->max)
        return hutch_err_set(err, EINVAL, "zygote '%s': min %u is above max %u", zygote->name, conf->min, conf->max);
    conf->name = strdup(zygote->name);
    if (!conf->name)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", zygote->name);
    engine->n_confs++;
    for (const char *const *m = zygote->modules; m && *m; m++)
        if (!is_word(*m, "._"))
            return hutch_err_set(err, EINVAL, "zygote '%s': '%s' is not the name of a module", zygote->name, *m);
        else if (add_module(engine, conf, *m, err) < 0)
            return -1;
    return write_text(conf, zygote, err);
}

static void on_due(void *owner, double now);

int hutch_zygotes_configure(struct hutch_engine *engine, const struct hutch_zygote *zygotes, size_t n, struct hutch_err *err)
{
    engine->zygotes_clock = (struct deadline)DEADLINE_INIT(on_due, engine);
    if (!zygotes) {
        zygotes = default_zygotes;
        n = ARRAY_SIZE(default_zygotes);
    }
    if (n == 0 || n > ENGINE_MAX_ZYGOTES)
        return hutch_err_set(err, EINVAL, "there are %zu zygotes, and 1 to %d can be", n, ENGINE_MAX_ZYGOTES);
    for (size_t i = 0; i < n; i++)
        if (configure_one(engine, &zygotes[i], err) < 0)
            return -1;
    sum_modules(engine);
    return 0;
}

struct wanted {
    const struct hutch_engine *engine;
    uint64_t modules[ENGINE_MAX_MODULES / 64];
};

static void note_import(void *context, const char *name, size_t len)
{
    struct wanted *wanted = context;
    size_t n = find_module(wanted->engine, name, len);

    if (n < wanted->engine->n_modules)
        set_bit(wanted->modules, n);
}

unsigned hutch_zygotes_choose(const struct hutch_engine *engine, const char *code, size_t len)
{
    struct wanted wanted = { .engine = engine };
    unsigned best = 0;
    size_t best_has = 0;

    hutch_imports_scan(code, len, note_import, &wanted);
    for (unsigned i = 0; i < engine->n_confs; i++) {
        const struct zygote_conf *conf = &engine->confs[i];
        size_t has = 0;

        for (size_t w = 0; w < ARRAY_SIZE(conf->modules); w++)
            has += (size_t)__builtin_popcountll(conf->modules[w] & wanted.modules[w]);
        if (i == 0 || has > best_has || (has == best_has && conf->n_modules < engine->confs[best].n_modules)) {
            best = i;
            best_has = has;
        }
    }
    return best;
}

int hutch_zygotes_choose_for_cells(const struct hutch_engine *engine, const char *name)
{
    size_t n = find_module(engine, "ipykernel", strlen("ipykernel"));
    int best = -1;

    for (size_t i = 0; i < engine->n_confs; i++) {
        const struct zygote_conf *conf = &engine->confs[i];

        if (name && strcmp(conf->name, name) == 0)
            return (int)i;
        if (!name && n < engine->n_modules && conf->modules[n / 64] >> n % 64 & 1 &&
            (best < 0 || conf->n_modules < engine->confs[best].n_modules))
            best = (int)i;
    }
    return name || best >= 0 ? best : (int)engine->n_confs - 1;
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static void start_generation(struct generation *generation);

static struct zygote_slot *zygote_slot_of(struct zygote *zygote)
{
    return &zygote->generation->zygote_slots[zygote->index];
}

/* Which generation it is in says what it is for. */
static bool is_in_use(const struct zygote *zygote)
{
    return zygote->generation == zygote->engine->generation || zygote->generation == zygote->engine->next_generation;
}

static void bury(struct zygote *zygote)
{
    hutch_link_close(&zygote->link);
    hutch_loop_free_later(&zygote->engine->loop, &zygote->doomed, zygote, free);
}

void hutch_zygotes_release(struct zygote *zygote)
{
    if (zygote->n_forking > 0)
        zygote->n_forking--;
}

static void drop_generation(struct generation *generation)
{
    for (size_t i = 0; i < generation->engine->n_confs; i++) {
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
    char text[4096], *line;
    off_t end = generation->stderr_fd < 0 ? 0 : lseek(generation->stderr_fd, 0, SEEK_CUR); /* they share its file position */
    off_t start = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
    ssize_t n = end > 0 ? pread(generation->stderr_fd, text, (size_t)(end - start), start) : 0;

    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n <= 0)
        return false;
    text[n] = '\0';
    line = strrchr(text, '\n');
    hutch_err_set(ret, 0, "it ended before it was ready: %s", line ? line + 1 : text);
    return true;
}

/* In this image it cannot be, and every further try would cost as much as the last. The nearest ancestor takes its place. */
static void give_up(struct hutch_engine *engine, unsigned index, const struct hutch_err *why)
{
    struct zygote_conf *conf = &engine->confs[index];
    struct slot *slot, *next;

    hutch_log_debug("engine: zygote '%s' is given up: %s", conf->name, why->msg);
    conf->has_given_up = true;
    memset(conf->own, 0, sizeof(conf->own));
    sum_modules(engine);
    hutch_loop_advance_deadline(&engine->loop, &engine->pools[index].clock, 0);
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        hutch_slot_on_zygote(slot);
    }
}

static void fail_waiting(struct zygote *zygote)
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&zygote->engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->zygote == zygote)
            hutch_slot_fail(slot, NULL);
    }
}

/* It is dead, or has to go. @why: NULL when nobody knows. */
static void lose(struct zygote *zygote, const struct hutch_err *why)
{
    struct hutch_engine *engine = zygote->engine;
    struct generation *generation = zygote->generation;
    struct zygote_slot *zygote_slot = zygote_slot_of(zygote);
    struct hutch_err err;
    bool was_spare = zygote_slot->spare == zygote;

    if (!why && zygote->state == ZYGOTE_IS_STARTING && !was_spare && read_last_words(generation, &err))
        why = &err;
    hutch_log_debug("engine: zygote '%s'%s is gone%s%s", engine->confs[zygote->index].name, was_spare ? " (spare)" : "", why ? ": " : "",
                    why ? why->msg : "");
    bury(zygote);
    if (was_spare) {
        zygote_slot->spare = NULL;
    } else if (zygote_slot->zygote == zygote) {
        zygote_slot->zygote = zygote_slot->spare;
        zygote_slot->spare = NULL;
        if (zygote_slot->zygote)
            zygote_slot->zygote->is_spare = false;
        if (is_in_use(zygote))
            engine->confs[zygote->index].recycled++;
    }
    fail_waiting(zygote);
    if (!is_in_use(zygote))
        return;
    if (zygote->state == ZYGOTE_IS_STARTING) {
        double wait = RETRY_MS << (zygote_slot->failures < 6 ? zygote_slot->failures : 6);

        zygote_slot->failures++;
        zygote_slot->retry_at = hutch_clock_ms() + (wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS);
        if (zygote_slot->failures >= ENGINE_MAX_RESTARTS && zygote->index == 0 && !engine->has_worked) {
            if (why)
                err = *why;
            else
                hutch_err_set(&err, 0, "it ended before it was ready");
            hutch_err_wrap(&err, "start the zygote '%s'", engine->confs[0].name);
            hutch_engine_break(engine, &err);
            return;
        }
        if (why && !was_spare && ++zygote_slot->refusals >= ENGINE_MAX_RESTARTS && zygote->index > 0)
            give_up(engine, zygote->index, why);
    }
    start_generation(generation);
    /* One that was a spare may be ready for what waits. */
    if (generation == engine->generation && zygote_slot->zygote && zygote_slot->zygote->state == ZYGOTE_IS_READY) {
        struct slot *slot, *next;

        for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
            next = TAILQ_NEXT(slot, link);
            hutch_slot_on_zygote(slot);
        }
    }
    hutch_loop_advance_deadline(&engine->loop, &engine->zygotes_clock, zygote_slot->retry_at);
}

static void on_hangup(struct link *l)
{
    struct zygote *zygote = l->owner;

    if (is_in_use(zygote))
        zygote->engine->lost_zygotes++;
    lose(zygote, NULL);
}

static void note_missing(struct hutch_engine *engine, struct zygote_conf *conf, const char *names)
{
    for (const char *p = names; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = find_module(engine, p, strcspn(p, ".\n"));

        if (n < engine->n_modules)
            conf->own[n / 64] &= ~(1ull << n % 64);
    }
    sum_modules(engine);
}

static void swap_generations(struct hutch_engine *engine)
{
    struct generation *old = engine->generation;

    for (size_t i = 0; i < engine->n_confs; i++)
        if (engine->next_generation->zygote_slots[i].failures == 0 && !engine->confs[i].has_given_up &&
            (!engine->next_generation->zygote_slots[i].zygote || engine->next_generation->zygote_slots[i].zygote->state != ZYGOTE_IS_READY))
            return;
    hutch_log_debug("engine: fresh zygotes");
    engine->generation = engine->next_generation;
    engine->next_generation = NULL;
    old->next = engine->retiring;
    engine->retiring = old;
    for (size_t i = 0; i < engine->n_confs; i++)
        engine->confs[i].recycled++;
    hutch_loop_advance_deadline(&engine->loop, &engine->zygotes_clock, 0);
}

static void on_ready_zygote(struct zygote *zygote, const struct zygote_reply *reply, pid_t sender)
{
    struct hutch_engine *engine = zygote->engine;
    struct slot *slot, *next;
    struct hutch_err err;

    if (sender > 0)
        zygote->pid = sender;
    if (strncmp(reply->modules, "error: ", 7) == 0) {
        hutch_err_set(&err, 0, "%.*s", (int)strcspn(reply->modules + 7, "\n"), reply->modules + 7);
        lose(zygote, &err);
        return;
    }
    zygote->state = ZYGOTE_IS_READY;
    zygote_slot_of(zygote)->failures = zygote_slot_of(zygote)->refusals = 0;
    note_missing(engine, &engine->confs[zygote->index], reply->modules);
    start_generation(zygote->generation);
    if (zygote->generation == engine->next_generation)
        swap_generations(engine);
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        hutch_slot_on_zygote(slot);
    }
    for (size_t i = 0; i < engine->n_confs; i++)
        hutch_pool_refill(&engine->pools[i]);
}

static struct zygote *find_zygote(struct hutch_engine *engine, uint32_t id)
{
    struct generation *generations[] = { engine->generation, engine->next_generation };

    for (size_t t = 0; t < ARRAY_SIZE(generations); t++)
        for (size_t i = 0; generations[t] && i < engine->n_confs; i++) {
            struct zygote_slot *zygote_slot = &generations[t]->zygote_slots[i];

            if (zygote_slot->zygote && zygote_slot->zygote->id == id)
                return zygote_slot->zygote;
            if (zygote_slot->spare && zygote_slot->spare->id == id)
                return zygote_slot->spare;
        }
    return NULL;
}

static void on_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct zygote *zygote = l->owner, *child;
    struct hutch_engine *engine = zygote->engine;
    struct zygote_reply reply;
    struct slot *slot;

    for (size_t i = 0; i < n_fds; i++) /* it has nothing to send */
        hutch_fd_closep(&fds[i]);
    if (len != sizeof(reply))
        return;
    memcpy(&reply, data, sizeof(reply));
    reply.modules[sizeof(reply.modules) - 1] = '\0';
    reply.err.msg[sizeof(reply.err.msg) - 1] = '\0';
    slot = hutch_slot_find(engine, reply.id);
    if (slot && slot->zygote != zygote)
        slot = NULL;
    switch ((enum zygote_says)reply.what) {
    case ZYGOTE_READY:
        if (zygote->state == ZYGOTE_IS_STARTING)
            on_ready_zygote(zygote, &reply, sender);
        break;
    case ZYGOTE_FORKED:
        if (slot) {
            zygote->forks++;
            hutch_slot_on_forked(slot, reply.pid);
            if (zygote->forks >= engine->recycle_forks)
                hutch_loop_advance_deadline(&engine->loop, &engine->zygotes_clock, 0);
        }
        break;
    case ZYGOTE_FAILED:
        if (slot)
            hutch_slot_fail(slot, &reply.err);
        else if ((child = find_zygote(engine, reply.id)))
            lose(child, &reply.err);
        break;
    }
}

/* Asks the launcher for a root, or @from for a copy that imports more (a spare: nothing more). */
static int ask_for(struct zygote *zygote, struct zygote *from, int theirs, struct hutch_err *err)
{
    struct hutch_engine *engine = zygote->engine;
    const struct zygote_conf *conf = &engine->confs[zygote->index];
    struct zygote_request request = { .what = ZYGOTE_ZYGOTE, .id = zygote->id };
    struct launcher_request order = { .what = LAUNCHER_ZYGOTE, .id = zygote->id, .spec_id = engine->zygote_template->id };

    if (!from) {
        const int fds[] = { theirs, zygote->generation->stderr_fd };

        return hutch_helper_order(engine, &order, fds, zygote->generation->stderr_fd < 0 ? 1 : 2, err);
    }
    request.text_len = zygote->is_spare ? 0 : (uint32_t)conf->text_len;
    return hutch_link_send(&from->link, &request, sizeof(request), conf->text, request.text_len, &theirs, 1, err);
}

static struct zygote *start_zygote(struct generation *generation, unsigned index, bool is_spare, struct zygote *from)
{
    struct hutch_engine *engine = generation->engine;
    struct zygote *zygote = calloc(1, sizeof(*zygote));
    auto_fd theirs = -1;
    struct hutch_err err;
    int pair[2];

    if (!zygote || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(zygote);
        return NULL;
    }
    theirs = pair[1];
    *zygote = (struct zygote){ .link = LINK_INIT, .engine = engine, .generation = generation, .index = index, .is_spare = is_spare,
                           .id = hutch_engine_make_id(engine), .since = hutch_clock_ms() };
    zygote->link.on_packet = on_packet;
    zygote->link.on_hangup = on_hangup;
    zygote->link.owner = zygote;
    if (hutch_link_open(&zygote->link, &engine->loop, pair[0], &err) < 0 || ask_for(zygote, from, theirs, &err) < 0) {
        hutch_log_debug("engine: %s", err.msg);
        hutch_link_close(&zygote->link);
        free(zygote);
        return NULL;
    }
    hutch_loop_advance_deadline(&engine->loop, &engine->zygotes_clock, zygote->since + engine->import_ms);
    return zygote;
}

/* The nearest ancestor that there is; -1 for the root, which is not given up. */
static int find_parent(const struct hutch_engine *engine, unsigned index)
{
    int parent = engine->confs[index].parent;

    while (parent > 0 && engine->confs[parent].has_given_up)
        parent = engine->confs[parent].parent;
    return parent;
}

/* Starts what can be started: zygotes whose parent is ready, and a spare beside each. */
static void start_generation(struct generation *generation)
{
    struct hutch_engine *engine = generation->engine;
    double now = hutch_clock_ms();

    if (engine->is_broken)
        return;
    for (unsigned i = 0; i < engine->n_confs; i++) {
        struct zygote_slot *zygote_slot = &generation->zygote_slots[i];
        int parent = find_parent(engine, i);
        struct zygote *from = parent < 0 ? NULL : generation->zygote_slots[parent].zygote;
        bool can_ask = engine->confs[i].has_given_up ? false : parent < 0 ? engine->helper.has_launcher && engine->zygote_template->is_sent : from && from->state == ZYGOTE_IS_READY;

        if (!zygote_slot->zygote && now >= zygote_slot->retry_at && can_ask) {
            zygote_slot->zygote = start_zygote(generation, i, false, from);
            if (!zygote_slot->zygote)
                zygote_slot->retry_at = now + RETRY_MAX_MS;
        }
        if (zygote_slot->zygote && zygote_slot->zygote->state == ZYGOTE_IS_READY && !zygote_slot->spare && now >= zygote_slot->retry_at) {
            zygote_slot->spare = start_zygote(generation, i, true, zygote_slot->zygote);
            if (!zygote_slot->spare)
                zygote_slot->retry_at = now + RETRY_MAX_MS;
        }
    }
}

static struct generation *create_generation(struct hutch_engine *engine)
{
    struct generation *generation = calloc(1, sizeof(*generation));

    if (!generation)
        return NULL;
    generation->engine = engine;
    generation->since = hutch_clock_ms();
    generation->stderr_fd = memfd_create("hutch-zygotes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (generation->stderr_fd >= 0 && (ftruncate(generation->stderr_fd, STDERR_BYTES) < 0 ||
                                 fcntl(generation->stderr_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
        hutch_fd_closep(&generation->stderr_fd); /* then nobody hears it */
    return generation;
}

void hutch_zygotes_on_launcher(struct hutch_engine *engine)
{
    if (!engine->generation)
        engine->generation = create_generation(engine);
    if (!engine->generation)
        return;
    start_generation(engine->generation);
    if (engine->next_generation)
        start_generation(engine->next_generation);
    hutch_loop_advance_deadline(&engine->loop, &engine->zygotes_clock, engine->generation->since + (double)engine->recycle_ms);
}

void hutch_zygotes_on_reply(struct hutch_engine *engine, const struct launcher_reply *reply)
{
    struct zygote *zygote = find_zygote(engine, reply->id);

    if (!zygote)
        return;
    if (reply->what == LAUNCHER_FAILED) /* LAUNCHER_STARTED is nothing yet: it has to read its libraries */
        lose(zygote, &reply->err);
}

void hutch_zygotes_drop_all(struct hutch_engine *engine)
{
    struct generation **generations[] = { &engine->generation, &engine->next_generation, &engine->retiring };

    for (size_t i = 0; i < ARRAY_SIZE(generations); i++)
        while (*generations[i]) {
            struct generation *generation = *generations[i];

            *generations[i] = generation->next;
            drop_generation(generation);
        }
}

void hutch_zygotes_done(struct hutch_engine *engine)
{
    hutch_zygotes_drop_all(engine);
    for (size_t i = 0; i < engine->n_confs; i++) {
        free(engine->confs[i].name);
        free(engine->confs[i].text);
    }
    for (size_t i = 0; i < engine->n_modules; i++)
        free(engine->modules[i]);
    engine->n_confs = engine->n_modules = 0;
}

struct zygote *hutch_zygotes_find(struct hutch_engine *engine, unsigned index)
{
    for (int i = (int)index; engine->generation && i >= 0; i = engine->confs[i].parent) {
        struct zygote_slot *zygote_slot = &engine->generation->zygote_slots[i];

        if (zygote_slot->zygote && zygote_slot->zygote->state == ZYGOTE_IS_READY)
            return zygote_slot->zygote;
        if (zygote_slot->failures < ENGINE_MAX_RESTARTS && !engine->confs[i].has_given_up) /* it is going to be ready */
            return NULL;
    }
    return NULL;
}

static void retire(struct hutch_engine *engine)
{
    for (struct generation **at = &engine->retiring; *at;) {
        struct generation *generation = *at;
        unsigned n_forking = 0;

        for (size_t i = 0; i < engine->n_confs; i++)
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
    const struct hutch_engine *engine = generation->engine;

    if (now >= generation->since + (double)engine->recycle_ms)
        return true;
    for (size_t i = 0; i < engine->n_confs; i++)
        if (generation->zygote_slots[i].zygote && generation->zygote_slots[i].zygote->forks >= engine->recycle_forks)
            return true;
    return false;
}

static double watch_generation(struct generation *generation, double now)
{
    double due = LOOP_NEVER;

    for (size_t i = 0; i < generation->engine->n_confs; i++) {
        struct zygote_slot *zygote_slot = &generation->zygote_slots[i];
        struct zygote *zygotes[] = { zygote_slot->zygote, zygote_slot->spare };

        for (size_t k = 0; k < ARRAY_SIZE(zygotes); k++) {
            double end;

            if (!zygotes[k] || zygotes[k]->state == ZYGOTE_IS_READY)
                continue;
            end = zygotes[k]->since + generation->engine->import_ms;
            if (now >= end) {
                struct hutch_err err;

                hutch_err_set(&err, ETIMEDOUT, "wait for its imports");
                lose(zygotes[k], &err);
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

static double check_clocks(struct hutch_engine *engine, double now)
{
    double due = LOOP_NEVER, next;

    retire(engine);
    if (engine->generation)
        due = watch_generation(engine->generation, now);
    if (engine->generation && !engine->next_generation && is_worn(engine->generation, now)) {
        engine->next_generation = create_generation(engine);
        if (engine->next_generation)
            start_generation(engine->next_generation);
    }
    if (engine->next_generation) {
        next = watch_generation(engine->next_generation, now);
        due = next < due ? next : due;
    } else if (engine->generation && engine->generation->since + (double)engine->recycle_ms < due) {
        due = engine->generation->since + (double)engine->recycle_ms;
    }
    if (engine->retiring && now + 100 < due)
        due = now + 100;
    return due;
}

static void on_due(void *owner, double now)
{
    struct hutch_engine *engine = owner;

    hutch_loop_advance_deadline(&engine->loop, &engine->zygotes_clock, check_clocks(engine, now));
}
