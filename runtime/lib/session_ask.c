/* session_ask.c - questions to the shell of a session and orders about its contexts, checked. */
#include "runtime/lib/engine_priv.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_QUESTION (256u << 10)
#define DEFAULT_MS 5000

static const char *const names[] = {
    [HUTCH_ASK_COMPLETION] = "complete",
    [HUTCH_ASK_INSPECTION] = "inspect",
    [HUTCH_ASK_IS_COMPLETE] = "is_complete",
};

/* Fills @order with what @given says. */
static int read_question(const struct hutch_question *given, struct order *order, struct hutch_err *err)
{
    struct hutch_question question;
    auto_free char *code = NULL;
    struct cJSON *o;
    size_t len;

    hutch_engine_copy_sized(&question, sizeof(question), given);
    if ((unsigned)question.kind >= ARRAY_SIZE(names))
        return hutch_err_say(err, EINVAL, "there is no question %d", (int)question.kind);
    if (hutch_engine_check_code(question.code, question.code_len, MAX_QUESTION, &len, err) < 0 ||
        hutch_engine_check_context(question.context, err) < 0)
        return -1;
    code = strndup(question.code, len);
    if (question.cursor > (int64_t)len)
        question.cursor = -1;
    order->kind = ORDER_ASK;
    order->timeout_ms = question.timeout_ms ? question.timeout_ms : DEFAULT_MS;
    o = order->question = cJSON_CreateObject();
    if (code && o && cJSON_AddStringToObject(o, "do", names[question.kind]) &&
        cJSON_AddStringToObject(o, "code", code) &&
        cJSON_AddNumberToObject(o, "cursor", (double)question.cursor) &&
        cJSON_AddStringToObject(o, "context", question.context ? question.context : "main") &&
        cJSON_AddNumberToObject(o, "detail", question.detail ? 1 : 0))
        return 0;
    return hutch_err_set(err, ENOMEM, "keep the question");
}

static int enqueue(struct session *s, struct order *order, hutch_on_reply on_reply, void *user)
{
    order->on_reply = on_reply;
    order->user = user;
    hutch_session_enqueue(s, order);
    return 0;
}

int hutch_session_ask(struct hutch_engine *engine, uint64_t id, const struct hutch_question *question,
                      hutch_on_reply on_reply, void *user, struct hutch_error *error)
{
    struct session *s = hutch_session_find(&engine->sessions, id);
    struct order *order = hutch_engine_make_order(s, error);
    struct hutch_err err;

    if (!order)
        return -1;
    if (read_question(question, order, &err) < 0) {
        hutch_order_free(order);
        return hutch_engine_tell(error, &err, 0);
    }
    return enqueue(s, order, on_reply, user);
}

/* --- contexts ----------------------------------------------------------------------------------------------------- */

static void on_reset(struct session *s, const struct order *order)
{
    hutch_contexts_reset(&s->contexts, order->context);
}

static void on_dropped(struct session *s, const struct order *order)
{
    hutch_contexts_drop(&s->contexts, order->context);
}

/* Fills @order with what the interpreter is to @do_what with @context. */
static int read_context(const char *do_what, const char *context, struct order *order, struct hutch_err *err)
{
    const bool is_drop = strcmp(do_what, "drop_context") == 0;
    struct cJSON *o;

    if (!context)
        context = CONTEXTS_MAIN;
    if (hutch_engine_check_context(context, err) < 0)
        return -1;
    if (is_drop && strcmp(context, CONTEXTS_MAIN) == 0)
        return hutch_err_say(err, EINVAL, "the context '%s' cannot be dropped; it can be reset", context);
    order->kind = ORDER_ASK;
    order->timeout_ms = DEFAULT_MS;
    order->on_answered = is_drop ? on_dropped : on_reset;
    order->context = strdup(context);
    o = order->question = cJSON_CreateObject();
    if (order->context && o && cJSON_AddStringToObject(o, "do", do_what) &&
        cJSON_AddStringToObject(o, "context", context))
        return 0;
    return hutch_err_set(err, ENOMEM, "keep the order");
}

static int order_context(struct hutch_engine *engine, uint64_t id, const char *do_what, const char *context,
                         hutch_on_reply on_reply, void *user, struct hutch_error *error)
{
    struct session *s = hutch_session_find(&engine->sessions, id);
    struct order *order = hutch_engine_make_order(s, error);
    struct hutch_err err;

    if (!order)
        return -1;
    if (read_context(do_what, context, order, &err) < 0) {
        hutch_order_free(order);
        return hutch_engine_tell(error, &err, 0);
    }
    return enqueue(s, order, on_reply, user);
}

int hutch_session_reset_context(struct hutch_engine *engine, uint64_t id, const char *context, hutch_on_reply on_reply,
                                void *user, struct hutch_error *error)
{
    return order_context(engine, id, "reset_context", context, on_reply, user, error);
}

int hutch_session_drop_context(struct hutch_engine *engine, uint64_t id, const char *context, hutch_on_reply on_reply,
                               void *user, struct hutch_error *error)
{
    return order_context(engine, id, "drop_context", context, on_reply, user, error);
}
