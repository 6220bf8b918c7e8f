#include "engine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int refuse(struct hutch_error *err)
{
    if (err) {
        err->code = ENOSYS;
        snprintf(err->message, sizeof(err->message), "sessions are not there yet");
    }
    return -1;
}

void hutch_session_options_init(struct hutch_session_options *options)
{
    *options = (struct hutch_session_options){ .size = sizeof(*options) };
}

void hutch_cell_init(struct hutch_cell *cell)
{
    *cell = (struct hutch_cell){ .size = sizeof(*cell) };
}

char *hutch_cell_result_to_json(const struct hutch_cell_result *result)
{
    (void)result;
    return NULL;
}

char *hutch_cell_result_to_text(const struct hutch_cell_result *result, size_t budget)
{
    (void)result;
    (void)budget;
    return NULL;
}

int hutch_session_open(struct hutch_engine *engine, const struct hutch_session_options *options, uint64_t *ret_id, struct hutch_error *err)
{
    (void)engine;
    (void)options;
    (void)ret_id;
    return refuse(err);
}

int hutch_session_execute(struct hutch_engine *engine, uint64_t id, const struct hutch_cell *cell, struct hutch_error *err)
{
    (void)engine;
    (void)id;
    (void)cell;
    return refuse(err);
}

int hutch_session_interrupt(struct hutch_engine *engine, uint64_t id)
{
    (void)engine;
    (void)id;
    return 0;
}

int hutch_session_reply(struct hutch_engine *engine, uint64_t id, const char *text)
{
    (void)engine;
    (void)id;
    (void)text;
    return 0;
}

int hutch_session_restart(struct hutch_engine *engine, uint64_t id, struct hutch_error *err)
{
    (void)engine;
    (void)id;
    return refuse(err);
}

int hutch_session_close(struct hutch_engine *engine, uint64_t id)
{
    (void)engine;
    (void)id;
    return 0;
}

int hutch_session_checkpoint(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user, struct hutch_error *err)
{
    (void)engine;
    (void)id;
    (void)on_reply;
    (void)user;
    return refuse(err);
}

int hutch_session_rollback(struct hutch_engine *engine, uint64_t id, uint64_t checkpoint, hutch_on_reply on_reply, void *user,
                           struct hutch_error *err)
{
    (void)checkpoint;
    return hutch_session_checkpoint(engine, id, on_reply, user, err);
}

int hutch_session_fork(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user, struct hutch_error *err)
{
    return hutch_session_checkpoint(engine, id, on_reply, user, err);
}

int hutch_session_switch(struct hutch_engine *engine, uint64_t id, uint64_t branch, hutch_on_reply on_reply, void *user,
                         struct hutch_error *err)
{
    (void)branch;
    return hutch_session_checkpoint(engine, id, on_reply, user, err);
}

int hutch_session_drop(struct hutch_engine *engine, uint64_t id, uint64_t checkpoint_or_branch, hutch_on_reply on_reply, void *user,
                       struct hutch_error *err)
{
    (void)checkpoint_or_branch;
    return hutch_session_checkpoint(engine, id, on_reply, user, err);
}

char *hutch_session_files(struct hutch_engine *engine, uint64_t id, struct hutch_error *err)
{
    (void)engine;
    (void)id;
    refuse(err);
    return NULL;
}

int hutch_session_open_file(struct hutch_engine *engine, uint64_t id, const char *name, int flags, struct hutch_error *err)
{
    (void)engine;
    (void)id;
    (void)name;
    (void)flags;
    return refuse(err);
}

int hutch_session_delete_file(struct hutch_engine *engine, uint64_t id, const char *name, struct hutch_error *err)
{
    (void)engine;
    (void)id;
    (void)name;
    return refuse(err);
}
