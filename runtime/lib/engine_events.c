/* engine_events.c - what one part of the engine tells, passed on to the parts that it concerns. No part names another
 * that is above it. */
#include "runtime/lib/engine_priv.h"

#include "sandbox/fd.h"

/* --- helper processes ------------------------------------------------------------------------------------------- */

static void on_launcher(void *owner)
{
    struct hutch_engine *engine = owner;

    hutch_templates_on_launcher(&engine->templates); /* on_sent of each tells zygotes and slots */
    hutch_slots_on_launcher(&engine->slots);
    hutch_pools_refill(&engine->pools);
    hutch_sessions_on_launcher(&engine->sessions);
}

static void on_lost_launcher(void *owner)
{
    struct hutch_engine *engine = owner;

    hutch_templates_on_lost_launcher(&engine->templates);
    hutch_slots_on_lost_launcher(&engine->slots);
}

static void on_launcher_reply(void *owner, const struct launcher_reply *reply, const char *text, int *fds, size_t n_fds)
{
    struct hutch_engine *engine = owner;

    if (reply->id == 0 && reply->what == LAUNCHER_FAILED)
        hutch_templates_on_refused(&engine->templates, reply->spec_id, &reply->err);
    else if (hutch_slot_find(&engine->slots, reply->id))
        hutch_slots_on_reply(&engine->slots, reply, text, fds, n_fds);
    else
        hutch_zygotes_on_reply(&engine->zygotes, reply);
}

static void on_opened(void *owner, uint32_t id, int fd, int base_fd, const struct hutch_err *why)
{
    struct hutch_engine *engine = owner;

    if (!hutch_templates_on_opened(&engine->templates, id, fd, why) &&
        !hutch_slots_on_opened(&engine->slots, id, fd, base_fd, why)) {
        hutch_fd_closep(&fd);
        hutch_fd_closep(&base_fd);
    }
}

static void on_files(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct hutch_engine *engine = owner;

    hutch_looks_on_files(&engine->slots.looks, reply, fds, n_fds);
    hutch_sessions_on_files(&engine->sessions, reply);
}

static void on_lost_opener(void *owner)
{
    struct hutch_engine *engine = owner;

    hutch_sessions_on_lost_opener(&engine->sessions);
    hutch_templates_on_lost_opener(&engine->templates);
    hutch_zygotes_drop_all(&engine->zygotes);
    hutch_slots_on_lost_opener(&engine->slots);
    hutch_looks_on_files(&engine->slots.looks, NULL, NULL, 0); /* the disk worker is given up, too */
}

static const struct helper_events helper_events = {
    .on_launcher = on_launcher,
    .on_lost_launcher = on_lost_launcher,
    .on_launcher_reply = on_launcher_reply,
    .on_opened = on_opened,
    .on_files = on_files,
    .on_lost = on_lost_opener,
};

/* --- templates -------------------------------------------------------------------------------------------------- */

static void on_template(void *owner, struct template *template)
{
    struct hutch_engine *engine = owner;

    hutch_slots_on_template(&engine->slots, template);
    if (template == engine->zygote_template)
        hutch_zygotes_on_launcher(&engine->zygotes);
}

static void on_no_template(void *owner, struct template *template, const struct hutch_err *why)
{
    struct hutch_engine *engine = owner;

    if (template == engine->worker_template || template == engine->zygote_template)
        hutch_core_break(&engine->core, why);
    hutch_slots_on_no_template(&engine->slots, template, why);
}

static const struct template_events template_events = { .on_sent = on_template, .on_failed = on_no_template };

/* --- zygotes ---------------------------------------------------------------------------------------------------- */

static void on_zygote(void *owner)
{
    struct hutch_engine *engine = owner;

    hutch_slots_on_zygote(&engine->slots);
    hutch_pools_refill(&engine->pools);
    hutch_functions_on_zygote(&engine->functions);
}

static void on_lost_zygote(void *owner, struct zygote *zygote)
{
    struct hutch_engine *engine = owner;

    hutch_slots_on_lost_zygote(&engine->slots, zygote);
}

static bool on_forked(void *owner, struct zygote *zygote, uint32_t id, pid_t pid)
{
    struct hutch_engine *engine = owner;

    return hutch_slots_on_forked(&engine->slots, zygote, id, pid);
}

static bool on_fork_failed(void *owner, struct zygote *zygote, uint32_t id, const struct hutch_err *why)
{
    struct hutch_engine *engine = owner;

    return hutch_slots_on_fork_failed(&engine->slots, zygote, id, why);
}

static void on_given_up(void *owner, unsigned index)
{
    struct hutch_engine *engine = owner;

    (void)index;
    hutch_slots_on_zygote(&engine->slots); /* its ancestor may be ready */
    hutch_pools_refill_soon(&engine->pools);
    hutch_functions_on_zygote(&engine->functions);
}

static bool has_leisure(void *owner)
{
    struct hutch_engine *engine = owner;
    const struct session *s;

    if (engine->runs.n_active > 0 || engine->runs.n_queued > 0 || engine->slots.n_building > 0)
        return false;
    TAILQ_FOREACH(s, &engine->sessions.list, link)
        if (s->n_orders > 0 || s->state == SESSION_SEEKING || s->state == SESSION_SEATING)
            return false;
    return hutch_descriptors_allow_layout(engine);
}

static const struct zygote_events zygote_events = {
    .on_ready = on_zygote,
    .on_lost = on_lost_zygote,
    .on_forked = on_forked,
    .on_fork_failed = on_fork_failed,
    .on_given_up = on_given_up,
    .has_leisure = has_leisure,
};

/* --- all of it -------------------------------------------------------------------------------------------------- */

static void on_room(void *owner)
{
    struct hutch_engine *engine = owner;

    hutch_pools_refill_soon(&engine->pools);
}

void hutch_engine_connect(struct hutch_engine *engine)
{
    hutch_helper_init(&engine->helper, &engine->core, &helper_events, engine);
    hutch_templates_init(&engine->templates, &engine->helper, &template_events, engine);
    hutch_zygotes_init(&engine->zygotes, &engine->helper, &engine->configs, &zygote_events, engine);
    hutch_slots_init(&engine->slots, &engine->helper, &engine->zygotes, on_room, engine);
    hutch_pools_init(&engine->pools, &engine->slots, &engine->configs);
    hutch_functions_init(&engine->functions, &engine->zygotes, &engine->pools);
    hutch_runs_init(&engine->runs, &engine->pools);
    hutch_sessions_init(&engine->sessions, &engine->helper, &engine->runs);
}
