#include "call.h"

#include <errno.h>

struct engine *hutch_node_args(napi_env env, napi_callback_info info, napi_value args[ARGS_MAX])
{
    size_t n = ARGS_MAX;
    void *box = NULL;

    if (napi_get_cb_info(env, info, &n, args, NULL, NULL) != napi_ok ||
        napi_get_value_external(env, args[0], &box) != napi_ok || !((struct box *)box)->engine ||
        ((struct box *)box)->engine->is_closing) {
        napi_throw_error(env, NULL, "the engine is closed");
        return NULL;
    }
    return ((struct box *)box)->engine;
}

uint64_t hutch_node_id(napi_env env, napi_value value)
{
    double number = 0;

    napi_get_value_double(env, value, &number);
    return number >= 1 && number < 9007199254740992.0 ? (uint64_t)number : 0;
}

napi_value hutch_node_undefined(napi_env env)
{
    napi_value value = NULL;

    napi_get_undefined(env, &value);
    return value;
}

napi_value hutch_node_make_number(napi_env env, uint64_t number)
{
    napi_value value = NULL;

    napi_create_double(env, (double)number, &value);
    return value;
}

napi_value hutch_node_make_bool(napi_env env, bool flag)
{
    napi_value value = NULL;

    napi_get_boolean(env, flag, &value);
    return value;
}

napi_value hutch_node_make_text(napi_env env, const char *text)
{
    napi_value value = NULL;

    napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &value);
    return value;
}

napi_value hutch_node_throw(napi_env env, const struct hutch_error *error)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {
        { EAGAIN, "EAGAIN" }, { ENOENT, "ENOENT" }, { EMFILE, "EMFILE" }, { ENFILE, "ENFILE" },
        { ENOMEM, "ENOMEM" }, { EIO, "EIO" },
    };
    const char *name = "EINVAL";

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].code == error->code)
            name = names[i].name;
    napi_throw_error(env, name, error->message);
    return NULL;
}

napi_value hutch_node_done(napi_env env, int rc, const struct hutch_error *error)
{
    return rc < 0 ? hutch_node_throw(env, error) : hutch_node_undefined(env);
}
