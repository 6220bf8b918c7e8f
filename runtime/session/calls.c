#include "runtime/session/calls.h"

#include "runtime/session/session_priv.h"
#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const struct nbjson_bounds
    names_bounds = { .max_len = 64u << 10, .max_depth = 3, .max_nodes = 1000, .is_strict = true },
    answer_bounds = { .max_len = CALLS_MAX_ANSWER, .max_depth = 100, .max_nodes = 1u << 20, .is_strict = true };

/* --- declared ---------------------------------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    size_t len = strspn(name, letters);

    return len > 0 && len <= CALLS_MAX_NAME && name[len] == '\0' && (name[0] < '0' || name[0] > '9');
}

/* "name", or {"name", "async"}. */
static struct cJSON *read_name(const struct cJSON *entry, struct hutch_err *err)
{
    const struct cJSON *name = cJSON_IsObject(entry) ? cJSON_GetObjectItemCaseSensitive(entry, "name") : entry;
    const struct cJSON *mode = cJSON_IsObject(entry) ? cJSON_GetObjectItemCaseSensitive(entry, "async") : NULL;
    struct cJSON *pair, *first, *second;

    if (!cJSON_IsString(name) || !is_name(name->valuestring)) {
        hutch_err_say(err, EINVAL, "a call's name is 1 to %d ASCII letters, digits and '_', and no digit first",
                      CALLS_MAX_NAME);
        return NULL;
    }
    if (mode && !cJSON_IsBool(mode)) {
        hutch_err_say(err, EINVAL, "\"async\" of the call '%s' is neither true nor false", name->valuestring);
        return NULL;
    }
    pair = cJSON_CreateArray();
    first = cJSON_CreateString(name->valuestring);
    second = mode ? cJSON_CreateBool(cJSON_IsTrue(mode)) : cJSON_CreateNull();
    if (pair && first && second) {
        cJSON_AddItemToArray(pair, first);
        cJSON_AddItemToArray(pair, second);
        return pair;
    }
    cJSON_Delete(pair);
    cJSON_Delete(first);
    cJSON_Delete(second);
    hutch_err_set(err, ENOMEM, "keep the names of calls");
    return NULL;
}

int hutch_calls_read(const char *json, struct cJSON **ret, struct hutch_err *err)
{
    struct cJSON *given, *list;
    const struct cJSON *entry;
    int rc = 0;

    if (hutch_nbjson_parse("calls", json, strlen(json), &names_bounds, &given, err) < 0) {
        err->errnum = err->errnum ? err->errnum : EINVAL;
        return -1;
    }
    list = cJSON_CreateArray();
    if (!list)
        rc = hutch_err_set(err, ENOMEM, "keep the names of calls");
    else if (!cJSON_IsArray(given) || cJSON_GetArraySize(given) > CALLS_MAX)
        rc = hutch_err_say(err, EINVAL, "calls are an array of at most %d names", CALLS_MAX);
    cJSON_ArrayForEach(entry, given) {
        struct cJSON *pair = rc == 0 ? read_name(entry, err) : NULL;

        if (!pair) {
            rc = -1;
            break;
        }
        cJSON_AddItemToArray(list, pair);
    }
    cJSON_Delete(given);
    if (rc == 0)
        *ret = list;
    else
        cJSON_Delete(list);
    return rc;
}

static bool is_declared(const struct order *order, const char *name)
{
    const struct cJSON *pair;

    cJSON_ArrayForEach(pair, order->calls)
        if (strcmp(cJSON_GetArrayItem(pair, 0)->valuestring, name) == 0)
            return true;
    return false;
}

/* --- made -------------------------------------------------------------------------------------------------------- */

void hutch_calls_begin(struct session *s)
{
    s->cell.calls.n = 0;
}

/* @json was checked. */
static int tell(struct session *s, int64_t inside, const char *json, bool is_error, struct hutch_err *err)
{
    struct cJSON *o = cJSON_CreateObject();
    int rc = o && cJSON_AddStringToObject(o, "do", "answer") && cJSON_AddNumberToObject(o, "id", (double)inside) &&
                     cJSON_AddBoolToObject(o, "error", is_error) && cJSON_AddStringToObject(o, "value", json)
                 ? hutch_interpreter_send(s->interpreter, o, -1, err)
                 : hutch_err_set(err, ENOMEM, "answer a call");

    cJSON_Delete(o);
    return rc;
}

static void refuse(struct session *s, int64_t inside, const char *json)
{
    struct hutch_err err;

    if (tell(s, inside, json, true, &err) < 0)
        hutch_session_kill_interpreter(s); /* no memory: it would wait for ever */
}

void hutch_calls_hear(struct session *s, const struct hutch_cell *cell, const struct cell_event *event)
{
    struct session_calls *calls = &s->cell.calls;
    const struct order *order = TAILQ_FIRST(&s->orders);

    if (!s->cell.execution.has_begun || s->cell.execution.is_done || event->id < 0)
        return;
    if (!cell->on_call || !is_declared(order, event->name)) {
        refuse(s, event->id, "\"there is no such call in this cell\"");
    } else if (calls->n == CALLS_MAX) {
        refuse(s, event->id, "\"64 calls wait for an answer already, which is the most that may\"");
    } else if (!event->value) {
        refuse(s, event->id, "\"the arguments are no JSON, or too much\"");
    } else {
        calls->list[calls->n].id = ++calls->last_id;
        calls->list[calls->n++].inside = event->id;
        cell->on_call(cell->user, s->id, calls->last_id, event->name, event->value);
    }
}

int hutch_calls_answer(struct session *s, uint64_t call, const char *json, bool is_error, struct hutch_err *err)
{
    struct session_calls *calls = &s->cell.calls;
    const struct order *order = hutch_session_at_work(s);
    struct cJSON *tree;
    unsigned at = 0;

    while (at < calls->n && calls->list[at].id != call)
        at++;
    if (at == calls->n || !order || order->kind != ORDER_CELL || s->cell.execution.is_done || s->cell.is_over ||
        !hutch_interpreter_is_there(s->interpreter))
        return hutch_err_say(err, ENOENT, "no call %" PRIu64 " waits for an answer", call);
    if (!json)
        json = "null";
    if (hutch_nbjson_parse("the answer to a call", json, strlen(json), &answer_bounds, &tree, err) < 0) {
        err->errnum = err->errnum ? err->errnum : EINVAL;
        return -1;
    }
    cJSON_Delete(tree);
    if (!hutch_interpreter_has_room(s->interpreter, strlen(json)))
        return hutch_err_say(err, EAGAIN, "the interpreter has not read earlier answers yet");
    if (tell(s, calls->list[at].inside, json, is_error, err) < 0)
        return -1;
    calls->list[at] = calls->list[--calls->n];
    return 0;
}
