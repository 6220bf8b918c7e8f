#include "runtime/cli/result_read.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *get_text(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(get(object, key));
}

static double get_number(const cJSON *object, const char *key, double usual)
{
    const cJSON *value = get(object, key);

    if (!cJSON_IsNumber(value) || value->valuedouble < 0 || value->valuedouble > 0x1p53)
        return usual;
    return value->valuedouble;
}

static int read_verdict(const cJSON *json, struct run_result *r)
{
    const char *text = get_text(json, "verdict");

    for (int v = HUTCH_OK; text && v <= HUTCH_SETUP_FAILED; v++)
        if (strcmp(text, hutch_verdict_text((enum hutch_verdict)v)) == 0) {
            r->verdict = (enum hutch_verdict)v;
            return 0;
        }
    return -1;
}

/* "SIGKILL", "SIGRTMIN+3" */
static int signal_of(const char *name)
{
    int beyond = 0;

    if (!name || strncmp(name, "SIG", 3) != 0)
        return 0;
    if (sscanf(name, "SIGRTMIN+%d", &beyond) == 1)
        return SIGRTMIN + beyond;
    for (int n = 1; n < SIGRTMIN; n++) {
        const char *abbrev = sigabbrev_np(n);

        if (abbrev && strcmp(abbrev, name + 3) == 0)
            return n;
    }
    return 0;
}

static bool copy_text(const cJSON *object, const char *key, char **to)
{
    const char *text = get_text(object, key);

    *to = text ? strdup(text) : NULL;
    return !text || *to;
}

static unsigned enforcer_of(const char *name)
{
    for (unsigned e = 0; name && e < ENFORCER_COUNT; e++)
        if (strcmp(name, hutch_enforcer_name((enum sandbox_enforcer)e)) == 0)
            return 1u << e;
    return 0;
}

static void read_limits(const cJSON *limits, struct run_result *r)
{
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const cJSON *limit = get(limits, hutch_limit_name((enum sandbox_limit)i)), *by = get(limit, "enforced_by");

        r->limits[i].asked = (uint64_t)get_number(limit, "asked", 0);
        for (const cJSON *name = by ? by->child : NULL; name; name = name->next)
            r->limits[i].enforcers |= enforcer_of(cJSON_GetStringValue(name));
    }
}

static void read_layers(const cJSON *layers, struct run_result *r)
{
    for (unsigned i = 0; i < LAYER_COUNT; i++) {
        const cJSON *layer = get(layers, hutch_layer_name((enum sandbox_layer)i));
        const char *detail = get_text(layer, "detail");

        r->layers[i].is_active = cJSON_IsTrue(get(layer, "active"));
        snprintf(r->layers[i].detail, sizeof(r->layers[i].detail), "%s", detail ? detail : "");
    }
}

int hutch_result_read(const struct cJSON *json, struct run_result *r, struct hutch_err *err)
{
    const cJSON *error = get(json, "error"), *timings = get(json, "timings_ms");
    const char *message = get_text(json, "message");

    hutch_result_init(r);
    if (!cJSON_IsObject(json) || read_verdict(json, r) < 0)
        return hutch_err_set(err, 0, "what the server has answered is no result");
    r->exit_code = (int)get_number(json, "exit_code", -1);
    r->signal = signal_of(get_text(json, "signal"));
    snprintf(r->message, sizeof(r->message), "%s", message ? message : "");
    r->prepared_ms = get_number(timings, "prepared", 0);
    r->run_ms = get_number(timings, "run", 0);
    r->total_ms = get_number(timings, "total", 0);
    read_limits(get(json, "limits"), r);
    read_layers(get(json, "layers"), r);
    if (!copy_text(get(json, "files"), "directory", &r->directory) || !copy_text(error, "name", &r->error.name) ||
        !copy_text(error, "value", &r->error.value) || !copy_text(error, "traceback", &r->error.traceback))
        return hutch_err_set(err, ENOMEM, "read the result");
    return 0;
}
