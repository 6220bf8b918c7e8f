/* call.h - what the functions that JavaScript calls have in common: arguments, results, and errors of the library. */
#ifndef HUTCH_NODE_CALL_H
#define HUTCH_NODE_CALL_H

#include "engine.h"

#define ARGS_MAX 5

/* The engine of the first argument, and all of them. NULL: an exception is pending. */
struct engine *hutch_node_args(napi_env env, napi_callback_info info, napi_value args[ARGS_MAX]);
/* A number that a function here has returned; 0, which is nobody's, for what is none. */
uint64_t hutch_node_id(napi_env env, napi_value value);

napi_value hutch_node_undefined(napi_env env);
napi_value hutch_node_make_number(napi_env env, uint64_t number);
napi_value hutch_node_make_bool(napi_env env, bool value);
napi_value hutch_node_make_text(napi_env env, const char *text);
/* NULL, and an exception is pending that has the error's name, as "EAGAIN", for a code. */
napi_value hutch_node_throw(napi_env env, const struct hutch_error *error);
/* undefined, or the error of a call that has returned @rc. */
napi_value hutch_node_done(napi_env env, int rc, const struct hutch_error *error);

/* A function of the addon's. */
struct function {
    const char *name;
    napi_callback call;
};
/* In clients/node/addon/session.c and clients/node/addon/files.c; the last has no name. */
extern const struct function hutch_node_session_functions[], hutch_node_file_functions[];

#endif
