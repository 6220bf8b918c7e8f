#include "soak.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_S    60 /* not a measure: for a machine that is busy with other things */
#define STABLE_MS   25
#define ORDERS_EACH 24 /* of a session, more or less; then it is closed and another one opened */
#define AT_ONCE     3  /* orders of a session that wait */
#define STORM_EACH  10 /* every so many rounds, several processes die at once */
#define STORM_SIZE  5

enum what { CELL_BEGIN, CELL_COUNT, CELL_FILE, CELL_SLEEP, CHECKPOINT, ROLLBACK, FORK, SWITCH, WHATS };

/* One that sits at a desk has a session, and knows what it has to say. */
struct desk {
    struct hall *hall;
    uint64_t id;             /* 0: no session */
    unsigned number, given;  /* of sessions so far; of orders */
    unsigned in_flight;
    bool is_closing;
    bool is_lost;            /* its interpreter died: nothing is known until it has begun anew */
    bool is_told;            /* that it died, so that the first cell of the next one is no news */
    bool has_begun;          /* x is there, or will be */
    unsigned x;              /* when all that is under way is done */
    uint64_t checkpoint, branch; /* 0: none */
    unsigned checkpoint_x, branch_x;
    bool is_away;            /* in the branch */
};
struct order {
    struct desk *desk;
    enum what what;
    unsigned want, ended, x; /* what it is to say; answers so far; x at the time, for copies */
    uint64_t session;
};
struct hall {
    struct hutch_engine *engine;
    const struct settings *settings;
    struct procs procs;
    struct desk *desks;
    unsigned n_desks, in_flight;
    unsigned opened, ended;
    /* given; cells that were as they should; deaths told; orders that failed */
    unsigned orders, cells, said, lost, failed;
    unsigned may_harm, done[PROC_KINDS], rounds;
    bool is_paused, spares_helpers;
};

static struct hutch_engine_stats stats_of(struct hutch_engine *engine)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(engine, &stats);
    return stats;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void lose(struct desk *d)
{
    d->is_lost = true;
    d->has_begun = d->is_away = false;
    d->checkpoint = d->branch = 0;
}

static struct desk *end_order(struct order *o, uint64_t session)
{
    struct desk *d = o->desk;

    if (o->ended++ > 0 || session != o->session || d->id != session)
        complain("order %d of session %llu was answered %u times, now for %llu", (int)o->what,
                 (unsigned long long)o->session, o->ended, (unsigned long long)session);
    d->in_flight--;
    d->hall->in_flight--;
    return d;
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *r)
{
    struct order *o = user;
    struct desk *d = end_order(o, session);
    struct hall *h = d->hall;
    char want[96];

    snprintf(want, sizeof(want), "[{\"name\":\"stdout\",\"output_type\":\"stream\",\"text\":\"x %u\\n\"}]", o->want);
    if (r->interpreter_died || (r->is_fresh && !d->is_told)) {
        h->lost++;
        lose(d);
        d->is_told = r->interpreter_died;
        if (!r->message[0])
            complain("a cell whose interpreter died does not say so");
    } else if (d->is_lost || d->is_closing) {
        d->is_told &= !r->is_fresh; /* what comes after a death finds nothing */
    } else if (r->verdict == HUTCH_OK && strcmp(r->outputs, want) == 0) {
        h->said++;
        d->is_told &= !r->is_fresh;
    } else {
        complain("session %llu, cell of kind %d: %s, said %s instead of %s: %s %s", (unsigned long long)session,
                 (int)o->what, hutch_verdict_text(r->verdict), r->outputs, want, r->message,
                 r->error_value ? r->error_value : "");
    }
    free(o);
}

static void on_reply(void *user, uint64_t session, const struct hutch_reply *r)
{
    struct order *o = user;
    struct desk *d = end_order(o, session);

    if (!r->ok) {
        struct hutch_error err;

        d->hall->failed++;
        if (!r->message[0])
            complain("an order that failed does not say why");
        lose(d); /* its interpreter may live, and then nobody here knows in which branch */
        if (!d->is_closing && hutch_session_restart(d->hall->engine, session, &err) < 0)
            complain("session %llu cannot be restarted: %s", (unsigned long long)session, err.message);
    } else if (o->what == CHECKPOINT) {
        d->checkpoint = r->id;
        d->checkpoint_x = o->x;
    } else if (o->what == FORK) {
        d->branch = r->id;
        d->branch_x = o->x;
    }
    free(o);
}

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct desk *d = user;

    (void)directory;
    if (d->id != session)
        complain("session %llu ends, whose desk has %llu: %s", (unsigned long long)session, (unsigned long long)d->id,
                 why);
    if (d->in_flight > 0)
        complain("session %llu ends with %u orders unanswered", (unsigned long long)session, d->in_flight);
    if (!d->is_closing)
        complain("session %llu ended by itself: %s", (unsigned long long)session, why);
    d->hall->ended++;
    d->id = 0;
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

static void open_session(struct desk *d)
{
    struct hutch_session_options options;
    struct hutch_error err;
    struct hall *h = d->hall;

    *d = (struct desk){ .hall = h, .number = d->number + 1, .is_lost = true };
    hutch_session_options_init(&options);
    options.on_end = on_end;
    options.user = d;
    if (hutch_session_open(h->engine, &options, &d->id, &err) < 0)
        die("open a session: %s", err.message);
    h->opened++;
}

static const char *code_of(enum what what)
{
    static const char *const codes[] = {
        [CELL_BEGIN] = "x = 0\nopen('/mnt/data/x', 'w').write('0')\nprint('x', x)",
        [CELL_COUNT] = "x += 1\nopen('/mnt/data/x', 'w').write(str(x))\nprint('x', x)",
        [CELL_FILE] = "print('x', open('/mnt/data/x').read())",
        [CELL_SLEEP] = "import time\ntime.sleep(0.01)\nprint('x', x)",
    };
    return codes[what];
}

static int hand_in(struct desk *d, struct order *o, struct hutch_error *err)
{
    struct hutch_engine *engine = d->hall->engine;
    struct hutch_cell cell;

    switch (o->what) {
    case CHECKPOINT: return hutch_session_checkpoint(engine, d->id, on_reply, o, err);
    case FORK:       return hutch_session_fork(engine, d->id, on_reply, o, err);
    case ROLLBACK:   return hutch_session_rollback(engine, d->id, d->checkpoint, on_reply, o, err);
    case SWITCH:     return hutch_session_switch(engine, d->id, d->is_away ? 0 : d->branch, on_reply, o, err);
    default:         break;
    }
    hutch_cell_init(&cell);
    cell.code = code_of(o->what);
    cell.on_result = on_result;
    cell.user = o;
    return hutch_session_execute(engine, d->id, &cell, err);
}

/* What may come next. Copies are made, and gone back to, only when nothing is under way: then it is known what they
 * have. */
static enum what choose(const struct desk *d)
{
    static const enum what cells[] = { CELL_COUNT, CELL_COUNT, CELL_COUNT, CELL_FILE, CELL_SLEEP };

    if (!d->has_begun)
        return CELL_BEGIN;
    if (d->in_flight > 0 || random_below(3) > 0)
        return cells[random_below(5)];
    if (d->branch && random_below(2) == 0)
        return SWITCH;
    if (d->checkpoint && random_below(2) == 0)
        return ROLLBACK;
    return !d->checkpoint ? CHECKPOINT : !d->branch && !d->is_away ? FORK : CELL_COUNT;
}

static void give_order(struct desk *d)
{
    struct order *o = calloc(1, sizeof(*o));
    struct hutch_error err;
    unsigned x;

    if (!o)
        die("out of memory");
    *o = (struct order){ .desk = d, .what = choose(d), .session = d->id };
    switch (o->what) {
    case CELL_BEGIN:
        d->has_begun = true;
        d->is_lost = false;
        d->x = 0;
        break;
    case CELL_COUNT:
        d->x++;
        break;
    case ROLLBACK:
        d->x = d->checkpoint_x;
        break;
    case SWITCH:
        x = d->x;
        d->x = d->branch_x;
        d->branch_x = x;
        break;
    default:
        break;
    }
    o->want = o->x = d->x;
    d->given++;
    d->in_flight++;
    d->hall->in_flight++;
    d->hall->orders++;
    d->hall->cells += o->what <= CELL_SLEEP;
    if (hand_in(d, o, &err) < 0)
        die("session %llu, order of kind %d: %s", (unsigned long long)d->id, (int)o->what, err.message);
    if (o->what == SWITCH)
        d->is_away = !d->is_away;
}

static void work(struct desk *d)
{
    bool is_copying = false; /* such an order is alone */

    if (!d->id)
        open_session(d);
    if (d->is_closing)
        return;
    if (d->given >= ORDERS_EACH + d->number % 5) {
        d->is_closing = hutch_session_close(d->hall->engine, d->id) == 1;
        return;
    }
    if (d->is_lost && d->in_flight > 0)
        return;
    while (d->in_flight < AT_ONCE && !is_copying) {
        enum what before = d->in_flight == 0 ? WHATS : CELL_COUNT;

        give_order(d);
        is_copying = before == WHATS; /* the first one may be; more follow when it is answered, or by chance at once */
        if (random_below(2) == 0)
            break;
    }
}

static void turn(struct hall *h, double until)
{
    struct pollfd pfd = { .fd = hutch_engine_fd(h->engine), .events = POLLIN };
    struct hutch_error err;
    double left;

    for (unsigned i = 0; !h->is_paused && i < h->n_desks; i++)
        if (h->desks[i].in_flight == 0)
            work(&h->desks[i]);
    left = until - now_ms();
    if (poll(&pfd, 1, left > 0 ? (int)left + 1 : 0) < 0 && errno != EINTR)
        die("poll: %s", strerror(errno));
    if (hutch_engine_dispatch(h->engine, &err) < 0)
        die("%s", err.message);
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static bool is_quiet(struct hall *h)
{
    struct hutch_engine_stats stats = stats_of(h->engine);

    if (h->in_flight > 0 || stats.building > 0 || stats.queued > 0 || stats.n_zygotes == 0 ||
        stats.sessions != h->opened - h->ended)
        return false;
    return stats.zygotes[0].is_ready && stats.zygotes[0].prepared >= h->settings->pool;
}

static bool settle(struct hall *h)
{
    double end = now_ms() + SETTLE_S * 1e3, since = 0;

    h->is_paused = true;
    while (since == 0 || now_ms() < since + STABLE_MS) {
        if (now_ms() > end) {
            struct hutch_engine_stats stats = stats_of(h->engine);

            complain("after %d s there are %u orders without an answer; %u sessions of %u, %u prepared, %u being built",
                     SETTLE_S, h->in_flight, stats.sessions, h->opened - h->ended, stats.prepared, stats.building);
            return false;
        }
        turn(h, since == 0 ? now_ms() + 50 : since + STABLE_MS);
        if (!is_quiet(h))
            since = 0;
        else if (since == 0)
            since = now_ms();
    }
    h->is_paused = false;
    return true;
}

/* The first half are those that are replaced alone; then opener, anchor and disk worker too, which leave something to
 * the end of the engine. */
static enum proc_kind pick_kind(const struct hall *h)
{
    static const enum proc_kind single[] = { PROC_LAUNCHER, PROC_ZYGOTE, PROC_INIT, PROC_WORKER, PROC_WORKER };
    static const enum proc_kind helpers[] = { PROC_DISK_WORKER, PROC_DISK_WORKER, PROC_OPENER, PROC_ANCHOR };

    return h->spares_helpers || random_below(4) > 0 ? single[random_below(5)] : helpers[random_below(4)];
}

static void kill_one(struct hall *h)
{
    enum proc_kind kind = pick_kind(h);

    if (!procs_kill(&h->procs, stats_of(h->engine).launcher_pid, kind))
        return;
    /* One session's interpreter, or all of them; and an order that counted on a copy. */
    if (kind == PROC_INIT || kind == PROC_WORKER || kind == PROC_OPENER || kind == PROC_ANCHOR)
        h->may_harm += 2 * (kind == PROC_INIT || kind == PROC_WORKER ? 1 : h->n_desks);
    h->done[kind]++;
}

static bool one_round(struct hall *h)
{
    unsigned n = ++h->rounds % STORM_EACH == 0 ? STORM_SIZE : 1;
    bool is_settled;

    for (unsigned i = 0; i < n; i++) {
        double moment = now_ms() + random_below(60000) / 1e3;

        do
            turn(h, moment);
        while (now_ms() < moment);
        kill_one(h);
    }
    is_settled = settle(h);
    procs_reap();
    if (h->lost + h->failed > h->may_harm)
        complain("%u interpreters died and %u orders failed, but what was killed can have harmed no more than %u",
                 h->lost, h->failed, h->may_harm);
    return is_settled;
}

static void close_all(struct hall *h)
{
    double end = now_ms() + SETTLE_S * 1e3;

    for (unsigned i = 0; i < h->n_desks; i++)
        if (h->desks[i].id && !h->desks[i].is_closing)
            h->desks[i].is_closing = hutch_session_close(h->engine, h->desks[i].id) == 1;
    h->is_paused = true;
    while (h->opened != h->ended && now_ms() < end)
        turn(h, now_ms() + 50);
    settle(h);
    procs_reap();
    if (h->opened != h->ended)
        complain("%u sessions were opened, and %u ended", h->opened, h->ended);
}

/* A disk worker that was killed is replaced with the opener. */
static void renew(struct hall *h)
{
    if (h->done[PROC_DISK_WORKER] > 0)
        procs_kill(&h->procs, stats_of(h->engine).launcher_pid, PROC_OPENER);
    settle(h);
    procs_reap();
}

static void open_hall(struct hall *h, const struct settings *settings)
{
    static const char *const modules[] = { "IPython", "ipykernel", NULL };
    struct hutch_zygote zygote = { .name = "shell", .modules = modules, .min = settings->pool, .max = settings->pool };
    struct hutch_engine_options options;
    struct hutch_error err;

    h->settings = settings;
    h->n_desks = settings->jobs;
    h->desks = calloc(h->n_desks, sizeof(*h->desks));
    if (!h->desks)
        die("out of memory");
    for (unsigned i = 0; i < h->n_desks; i++)
        h->desks[i].hall = h;
    hutch_engine_options_init(&options);
    options.layouts = 1; /* further ones are made in pauses: what is counted would grow by them, whenever that is */
    options.image = settings->image;
    options.zygotes = &zygote;
    options.n_zygotes = 1;
    if (hutch_engine_open(&options, &h->engine, &err) < 0)
        die("%s", err.message);
}

/* Sessions come and go, so that all is there that is going to be; what they leave is removed beside the work. */
static void warm_up(struct hall *h)
{
    for (double end = now_ms() + 300; now_ms() < end;)
        turn(h, end);
    settle(h);
    close_all(h);
    h->is_paused = true;
    for (double end = now_ms() + 300; now_ms() < end;)
        turn(h, end);
    h->is_paused = false;
}

/* Until @kills processes of all have been killed. */
static void kill_until(struct hall *h, unsigned kills)
{
    unsigned done = 0;

    while (done < kills && one_round(h) && complaints < 20) {
        done = 0;
        for (int kind = 0; kind < PROC_KINDS; kind++)
            done += h->done[kind];
    }
    close_all(h);
}

static void look(struct hall *h, const char *label, struct counts *ret)
{
    warm_up(h); /* what was killed last is there again */
    counts_take(h->engine, &h->procs, ret);
    counts_print("sessions:", label, ret);
}

int soak_sessions(const struct settings *settings)
{
    struct hall *h = calloc(1, sizeof(*h));
    struct counts first, last;

    if (!h)
        die("out of memory");
    open_hall(h, settings);
    if (!settle(h))
        return -1;
    counts_print("sessions:", "", NULL);
    look(h, "first", &first);
    h->spares_helpers = true;
    kill_until(h, settings->kills / 2);
    look(h, "half", &last);
    counts_compare(&first, &last, false);
    h->spares_helpers = false;
    kill_until(h, settings->kills);
    renew(h);
    look(h, "last", &last);
    last.n[STATE] = last.n[CGROUPS] = -1;
    counts_compare(&first, &last, false);
    printf(
        "sessions: %u opened, each with one end; %u orders, each with one answer: of %u cells %u said what they "
        "should, "
        "%u interpreters died, %u orders failed\n",
        h->opened, h->orders, h->cells, h->said, h->lost, h->failed);
    printf("sessions: killed:");
    for (int kind = 0; kind < PROC_KINDS; kind++)
        printf(" %u %s%s", h->done[kind], proc_names[kind], kind + 1 < PROC_KINDS ? "," : "\n");
    if (h->cells == 0 || h->said < h->cells / 4)
        complain("hardly any cell did what it should");
    hutch_engine_free(h->engine);
    procs_check_gone(&h->procs);
    free(h->desks);
    free(h);
    return 0;
}
