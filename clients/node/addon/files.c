/* Files below /mnt/data of a session. */
#include "call.h"
#include "values.h"

#include <fcntl.h>
#include <stdlib.h>

/* files(engine, session): JSON */
static napi_value list_files(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX], result;
    struct engine *e = hutch_node_args(env, info, args);
    struct hutch_error error;
    char *json;

    if (!e)
        return NULL;
    json = hutch_session_files(e->engine, hutch_node_id(env, args[1]), &error);
    if (!json)
        return hutch_node_throw(env, &error);
    result = hutch_node_make_text(env, json);
    free(json);
    return result;
}

/* openFile(engine, session, name, isForWriting): a descriptor, the caller's */
static napi_value open_file(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    napi_value args[ARGS_MAX], result = NULL;
    struct engine *e = hutch_node_args(env, info, args);
    struct hutch_error error;
    bool is_for_writing = false;
    const char *name;
    int fd;

    if (!e)
        return NULL;
    name = hutch_node_plain(&v, args[2], "name");
    napi_get_value_bool(env, args[3], &is_for_writing);
    if (!hutch_node_values_throw(&v)) {
        fd = hutch_session_open_file(e->engine, hutch_node_id(env, args[1]), name, is_for_writing ? O_WRONLY : O_RDONLY,
                                     &error);
        if (fd < 0)
            hutch_node_throw(env, &error);
        else
            napi_create_int32(env, fd, &result);
    }
    hutch_node_values_done(&v);
    return result;
}

/* deleteFile(engine, session, name) */
static napi_value delete_file(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    napi_value args[ARGS_MAX], result = NULL;
    struct engine *e = hutch_node_args(env, info, args);
    struct hutch_error error;
    const char *name;

    if (!e)
        return NULL;
    name = hutch_node_plain(&v, args[2], "name");
    if (!hutch_node_values_throw(&v))
        result = hutch_node_done(env, hutch_session_delete_file(e->engine, hutch_node_id(env, args[1]), name, &error),
                                 &error);
    hutch_node_values_done(&v);
    return result;
}

/* dataLimit(engine): what a session may have below /mnt/data that asks for no limit itself; 0: none */
static napi_value data_limit(napi_env env, napi_callback_info info)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);

    if (!e)
        return NULL;
    hutch_engine_get_limits(e->engine, &limits);
    return hutch_node_make_number(env, limits.data_bytes);
}

const struct function hutch_node_file_functions[] = {
    { "files", list_files }, { "openFile", open_file }, { "deleteFile", delete_file }, { "dataLimit", data_limit },
    { NULL, NULL },
};
