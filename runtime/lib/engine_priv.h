/* engine_priv.h - the engine behind hutch.h: the parts of runtime/engine/ and runtime/session/, put together. */
#ifndef HUTCH_LIB_ENGINE_PRIV_H
#define HUTCH_LIB_ENGINE_PRIV_H

#include "rootfs/image_root.h"
#include "runtime/config/profile.h"
#include "runtime/engine/core.h"
#include "runtime/engine/function.h"
#include "runtime/engine/helper.h"
#include "runtime/engine/pool.h"
#include "runtime/engine/run.h"
#include "runtime/engine/slot.h"
#include "runtime/engine/template.h"
#include "runtime/engine/zygote_config.h"
#include "runtime/engine/zygotes.h"
#include "runtime/hutch.h"
#include "runtime/session/session.h"
#include "sandbox/spec.h"

struct hutch_engine {
    struct core core;
    struct profile profile;   /* owned */
    struct image_root image;  /* owned; in use as long as the engine is */
    struct sandbox_spec spec; /* what every run of the pool has, without program and /mnt/data */
    struct helper helper;
    struct templates templates;
    /* references; of sandboxes in the pools with the engine's policy, and of interpreters */
    struct template *worker_template, *zygote_template;
    struct zygote_configs configs;
    struct zygotes zygotes;
    struct slots slots;
    struct pools pools;
    struct functions functions;
    struct runs runs;
    struct sessions sessions;
    struct hutch_zygote_stats zygote_stats[ZYGOTE_MAX_CONFIGS];
    struct hutch_pool_stats pool_stats[ZYGOTE_MAX_CONFIGS + POOL_MAX_MORE];
};

/* --- engine_events.c: what the parts tell, passed on to those that it concerns --- */

/* The parts are initialised, and nothing is started. */
void hutch_engine_connect(struct hutch_engine *engine);

/* --- request.c: what a caller may ask for, checked and made into a run --- */

int hutch_request_accept(struct hutch_engine *engine, const struct hutch_request *request, struct engine_run **ret,
                         struct hutch_err *err);
/* What a session's sandboxes are made by. Its run executes cells with @token; NULL: it only makes processes. */
int hutch_request_accept_session(struct hutch_engine *engine, const struct hutch_session_options *options,
                                 const char *token, struct engine_run **ret, struct hutch_err *err);
/* What a profile asks for in the engine's image, without program and /mnt/data. */
int hutch_request_make_spec(const struct hutch_engine *engine, const struct profile *profile, struct sandbox_spec *ret,
                            struct hutch_err *err);
/* … with what a worker that comes from a zygote needs besides. */
int hutch_request_make_worker(const struct hutch_engine *engine, struct sandbox_spec *spec, struct hutch_err *err);

/* --- descriptors.c: whether the limit on descriptors allows what is asked for, beside all that was promised before.
 * Errors: EMFILE, with the numbers. --- */

/* Before it has opened anything, and when it knows its templates. */
int hutch_descriptors_for_engine(struct hutch_engine *engine, struct hutch_err *err);
int hutch_descriptors_for_session(struct hutch_engine *engine, bool has_spawner, struct hutch_err *err);
/* One of hutch_session_spawn(). */
int hutch_descriptors_for_process(struct hutch_engine *engine, struct hutch_err *err);
/* One of hutch_session_stat() and the like. */
int hutch_descriptors_for_path(struct hutch_engine *engine, struct hutch_err *err);
/* A checkpoint or branch. */
int hutch_descriptors_for_copy(struct hutch_engine *engine, struct hutch_err *err);
/* One that holds some from the moment when it is accepted: it has those already. */
int hutch_descriptors_for_function(struct hutch_engine *engine, const struct function *function, struct hutch_err *err);
int hutch_descriptors_for_run(struct hutch_engine *engine, struct hutch_err *err);
/* One more tree of zygotes, which nobody has asked for, leaves half of all descriptors to others. */
bool hutch_descriptors_allow_layout(const struct hutch_engine *engine);

/* --- session.c --- */

/* NULL, and @error says so, when there is none. */
struct session *hutch_engine_find_session(struct hutch_engine *engine, uint64_t id, struct hutch_error *error);
/* NULL when there is no such session @s, whose number is @id, or no room in its queue. */
struct order *hutch_engine_make_order(struct session *s, struct hutch_error *error);
/* UTF-8 without NUL, of @max bytes at most. @code_len 0: up to the NUL. */
int hutch_engine_check_code(const char *code, size_t code_len, size_t max, size_t *ret_len, struct hutch_err *err);
int hutch_engine_check_context(const char *name, struct hutch_err *err); /* NULL is fine */

/* --- engine.c --- */

/* For the caller: -1. @code 0: that of @err. */
int hutch_engine_tell(struct hutch_error *to, const struct hutch_err *err, int code);
/* A struct of the caller's, who may know fewer fields, or more. */
void hutch_engine_copy_sized(void *to, size_t to_size, const void *from);

#endif
