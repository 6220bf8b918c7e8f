/* function.c - what hutch.h's calls say of functions. */
#include "runtime/lib/engine_priv.h"

#include <errno.h>

int hutch_engine_set_function(struct hutch_engine *engine, const struct hutch_function *given,
                              struct hutch_error *error)
{
    struct hutch_function options;
    struct function *function;
    struct hutch_err err = { 0 };

    hutch_engine_copy_sized(&options, sizeof(options), given);
    if (engine->core.is_broken)
        return hutch_engine_tell(error, &engine->core.why, EIO);
    if (hutch_functions_set(&engine->functions, &options, &function, &err) < 0)
        return hutch_engine_tell(error, &err, err.errnum ? err.errnum : EINVAL);
    if (hutch_descriptors_for_function(engine, function, &err) < 0) {
        hutch_functions_take_back(function);
        return hutch_engine_tell(error, &err, 0);
    }
    return 0;
}

int hutch_engine_drop_function(struct hutch_engine *engine, const char *name)
{
    return hutch_functions_drop(&engine->functions, name) ? 1 : 0;
}

int hutch_engine_get_function(struct hutch_engine *engine, const char *name, struct hutch_function_info *ret,
                              struct hutch_error *error)
{
    struct hutch_function_info info;
    struct hutch_err err = { 0 };
    size_t size = ret->size && ret->size < sizeof(info) ? ret->size : sizeof(info);

    if (!hutch_functions_describe(&engine->functions, name, &info)) {
        hutch_err_set(&err, 0, "there is no function '%s'", name);
        return hutch_engine_tell(error, &err, ENOENT);
    }
    info.size = size;
    memcpy(ret, &info, size);
    return 0;
}
