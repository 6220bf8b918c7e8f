/* session_life.c - what a caller asks of the life of a session: what it is like, how long it may live,
 * and whether it stands still. */
#include "runtime/lib/engine_priv.h"

#include "runtime/session/info.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hutch_session_get_info(struct hutch_engine *engine, uint64_t id, struct hutch_session_info *ret, char **ret_json,
                           struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, id, error);
    struct hutch_session_info info;
    struct hutch_err err;
    char *json = NULL;

    if (!s)
        return -1;
    hutch_session_describe(s, &info);
    if (ret_json && !(json = hutch_session_info_json(s, &info))) {
        hutch_err_set(&err, ENOMEM, "describe the session");
        return hutch_engine_tell(error, &err, 0);
    }
    if (ret_json)
        *ret_json = json;
    if (ret->size && ret->size < info.size)
        info.size = ret->size;
    memcpy(ret, &info, info.size);
    return 0;
}

int hutch_session_set_lifetime(struct hutch_engine *engine, uint64_t id, uint64_t idle_ms, uint64_t lifetime_ms,
                               struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, id, error);

    if (!s)
        return -1;
    hutch_session_set_lifetime_ms(s, idle_ms, lifetime_ms);
    return 0;
}

int hutch_session_pause(struct hutch_engine *engine, uint64_t id, struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, id, error);

    if (!s)
        return -1;
    hutch_session_begin_pause(s);
    return 0;
}

int hutch_session_resume(struct hutch_engine *engine, uint64_t id, struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, id, error);

    if (!s)
        return -1;
    hutch_session_end_pause(s);
    return 0;
}
