/* process.c - hutch.h's functions for the processes of a session: which one is meant, and how it is told. */
#include "runtime/lib/engine_priv.h"

#include <errno.h>
#include <inttypes.h>

static struct process *find_process(struct hutch_engine *engine, uint64_t session, uint64_t id,
                                    struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, session, error);
    struct process *p = s ? hutch_processes_find(s, id) : NULL;
    struct hutch_err err;

    if (p || !s)
        return p;
    hutch_err_set(&err, 0, "the session has no process %" PRIu64, id);
    hutch_engine_tell(error, &err, ENOENT);
    return NULL;
}

int hutch_session_spawn(struct hutch_engine *engine, uint64_t session, const struct hutch_process_options *given,
                        uint64_t *ret_process, struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, session, error);
    struct hutch_process_options options;
    struct hutch_err err = { 0 };
    struct process *p;

    if (!s)
        return -1;
    hutch_engine_copy_sized(&options, sizeof(options), given);
    if (s->processes.max == 0) {
        hutch_err_set(&err, 0, "the session was opened without max_processes");
        return hutch_engine_tell(error, &err, EINVAL);
    }
    if (s->processes.n >= s->processes.max) {
        hutch_err_set(&err, 0, "the session has %u processes, which is the most that it may", s->processes.n);
        return hutch_engine_tell(error, &err, EAGAIN);
    }
    if (hutch_descriptors_for_process(engine, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    p = hutch_process_create(s, &options, &err);
    if (!p)
        return hutch_engine_tell(error, &err, 0);
    hutch_processes_add(s, p);
    if (ret_process)
        *ret_process = p->id;
    return 0;
}

int hutch_process_write(struct hutch_engine *engine, uint64_t session, uint64_t process, const char *data, size_t len,
                        struct hutch_error *error)
{
    struct process *p = find_process(engine, session, process, error);
    struct hutch_err err;
    int n;

    if (!p)
        return -1;
    n = hutch_process_give(p, data, len, &err);
    return n < 0 ? hutch_engine_tell(error, &err, 0) : n;
}

int hutch_process_close_stdin(struct hutch_engine *engine, uint64_t session, uint64_t process,
                              struct hutch_error *error)
{
    struct process *p = find_process(engine, session, process, error);
    struct hutch_err err;

    if (!p)
        return -1;
    return hutch_process_end_input(p, &err) < 0 ? hutch_engine_tell(error, &err, 0) : 0;
}

int hutch_process_signal(struct hutch_engine *engine, uint64_t session, uint64_t process, int signal,
                         struct hutch_error *error)
{
    struct process *p = find_process(engine, session, process, error);
    struct hutch_err err;

    if (!p)
        return -1;
    return hutch_process_pass_signal(p, signal, &err) < 0 ? hutch_engine_tell(error, &err, 0) : 0;
}

int hutch_process_resize(struct hutch_engine *engine, uint64_t session, uint64_t process, unsigned rows, unsigned cols,
                         struct hutch_error *error)
{
    struct process *p = find_process(engine, session, process, error);
    struct hutch_err err;

    if (!p)
        return -1;
    return hutch_process_set_size(p, rows, cols, &err) < 0 ? hutch_engine_tell(error, &err, 0) : 0;
}

int hutch_process_hold(struct hutch_engine *engine, uint64_t session, uint64_t process, int hold,
                       struct hutch_error *error)
{
    struct process *p = find_process(engine, session, process, error);

    if (!p)
        return -1;
    hutch_process_set_held(p, hold != 0);
    return 0;
}

char *hutch_session_processes(struct hutch_engine *engine, uint64_t session, struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, session, error);
    struct hutch_err err;
    char *json;

    if (!s)
        return NULL;
    json = hutch_processes_list(s);
    if (!json) {
        hutch_err_set(&err, ENOMEM, "list the processes of a session");
        hutch_engine_tell(error, &err, 0);
    }
    return json;
}
