/* function.h - functions: an operator's file with a handler, executed in a zygote of its own, called by name.
 *
 * A function is set again while calls of it run: the new file's zygote gets ready first, and then takes the place of
 * the old one, which stays until the last call that was accepted for it is over. One that cannot be imported takes no
 * place. */
#ifndef HUTCH_ENGINE_FUNCTION_H
#define HUTCH_ENGINE_FUNCTION_H

#include "runtime/engine/pool.h"
#include "runtime/engine/zygotes.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#define FUNCTION_MAX_EVENT (4u << 20) /* bytes of JSON; of values likewise: rootfs/python/zygote/functions.py */
#define FUNCTION_MAX_VALUE (4u << 20)
#define FUNCTION_VALUE_MAGIC "HUTCHRV1"
#define FUNCTION_VALUE_HEADER 12

enum function_state {
    FUNCTION_STARTING, /* its file is imported */
    FUNCTION_READY,
    FUNCTION_FAILED,   /* was ready, and its zygote cannot be had any more */
    FUNCTION_RETIRED   /* another one has its name; calls of it run */
};

/* One file of one name. */
struct function {
    LIST_ENTRY(function) link;
    struct functions *functions;
    unsigned index;           /* of its zygote */
    enum function_state state;
    unsigned min, max;        /* prepared sandboxes */
    unsigned n_calls;         /* that are not over */
    void (*on_ready)(void *user, const char *name, const struct hutch_error *why);
    void *user;
};
LIST_HEAD(function_list, function);

/* All of one engine. */
struct functions {
    struct core *core;
    struct zygotes *zygotes;
    struct pools *pools;
    struct template *template; /* not owned; of their sandboxes; set by the owner before there is one */
    struct function_list list;
    struct deadline clock;
};

void hutch_functions_init(struct functions *functions, struct zygotes *zygotes, struct pools *pools);
void hutch_functions_done(struct functions *functions);

/* As hutch_engine_set_function(). */
int hutch_functions_set(struct functions *functions, const struct hutch_function *given, struct function **ret,
                        struct hutch_err *err);
/* It was set just now, and is taken back. */
void hutch_functions_take_back(struct function *function);
/* False when there is none. */
bool hutch_functions_drop(struct functions *functions, const char *name);
/* What a call goes to. NULL: there is none of that name, or none that can be called yet or any more. */
struct function *hutch_functions_find(struct functions *functions, const char *name, struct hutch_err *err);
void hutch_function_release(struct function *function); /* a call is over */
/* What is known of @name. False when there is none. */
bool hutch_functions_describe(const struct functions *functions, const char *name, struct hutch_function_info *ret);

/* A zygote is ready, or was given up. */
void hutch_functions_on_zygote(struct functions *functions);
/* The engine is broken: those that are still to be imported are not. */
void hutch_functions_refuse_all(struct functions *functions);

#endif
