#include "runtime/lib/run_env.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

void hutch_run_env_done(struct run_env *env)
{
    free(env->list);
    env->list = NULL;
}

/* Compares what is ahead of the '='. */
static int by_name(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t x_len = strcspn(x, "="), y_len = strcspn(y, "=");
    int order = memcmp(x, y, x_len < y_len ? x_len : y_len);

    return order ? order : (x_len > y_len) - (x_len < y_len);
}

static void keep_place(void *place)
{
    (void)place; /* the tree does not own it */
}

/* @places: a tree of tsearch(3), which points to the entries of the list: a caller may have thousands. */
static int put_variable(struct run_env *env, void **places, const char *text)
{
    const char **last = &env->list[env->n], ***found;

    *last = text;
    found = tsearch(last, places, by_name);
    if (!found)
        return -1;
    **found = text;
    env->n += *found == last;
    return 0;
}

int hutch_run_env_merge(const struct sandbox_spec *spec, const uint64_t limits[LIMIT_COUNT], const char *const *more,
                        struct run_env *ret, struct hutch_err *err)
{
    size_t n_base = 0, n_more = 0, n_followed = hutch_usual_env_follow(spec, limits, ret->followed);
    void *places = NULL;
    int rc = 0;

    while (spec->envp && spec->envp[n_base])
        n_base++;
    while (more && more[n_more])
        n_more++;
    ret->n = 0;
    ret->list = calloc(n_base + n_followed + n_more + 1, sizeof(*ret->list));
    if (!ret->list)
        return hutch_err_set(err, ENOMEM, "set the environment");
    for (size_t i = 0; rc == 0 && i < n_base; i++)
        rc = put_variable(ret, &places, spec->envp[i]);
    for (size_t i = 0; rc == 0 && i < n_followed; i++)
        rc = put_variable(ret, &places, ret->followed[i]);
    for (size_t i = 0; rc == 0 && i < n_more; i++)
        rc = put_variable(ret, &places, more[i]);
    tdestroy(places, keep_place);
    ret->list[ret->n] = NULL;
    return rc < 0 ? hutch_err_set(err, ENOMEM, "set the environment") : 0;
}
