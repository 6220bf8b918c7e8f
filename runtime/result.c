#include "result.h"

#include "fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const verdict_names[VERDICT_COUNT] = {
    [VERDICT_OK] = "ok",                       [VERDICT_ERROR] = "error",
    [VERDICT_TIMEOUT] = "timeout",             [VERDICT_CPU_TIME] = "cpu_time",
    [VERDICT_OUT_OF_MEMORY] = "out_of_memory", [VERDICT_OUTPUT_LIMIT] = "output_limit",
    [VERDICT_KILLED] = "killed",               [VERDICT_DENIED] = "denied",
    [VERDICT_SETUP_FAILED] = "setup_failed",
};

static const char *const need_names[] = { [NEED_OFF] = "off", [NEED_TRY] = "try", [NEED_REQUIRE] = "require" };

const char *hutch_verdict_name(enum run_verdict verdict)
{
    return (unsigned)verdict < VERDICT_COUNT ? verdict_names[verdict] : "unknown";
}

int hutch_verdict_parse(const char *name, enum run_verdict *ret)
{
    for (unsigned i = 0; i < VERDICT_COUNT; i++) {
        if (strcmp(name, verdict_names[i]) == 0) {
            *ret = (enum run_verdict)i;
            return 0;
        }
    }
    return -1;
}

void hutch_result_init(struct run_result *r)
{
    memset(r, 0, sizeof(*r));
    r->exit_code = -1;
    r->cpu_user_ms = r->cpu_system_ms = r->memory_peak_bytes = r->pids_peak = USAGE_UNKNOWN;
}

void hutch_result_done(struct run_result *r)
{
    free(r->out.data);
    free(r->err_out.data);
    hutch_error_report_done(&r->error);
    free(r->directory);
    hutch_file_changes_done(&r->files);
    hutch_result_init(r);
}

/* ---- text ---- */

/* How many of the bytes at @p are one UTF-8 character (*@ret_ok), or the beginning of one that is broken there:
 * table 3-7 of the Unicode standard, which leaves out overlong forms, surrogates and what is above U+10FFFF. */
static size_t utf8_len(const uint8_t *p, size_t len, bool *ret_ok)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t need, i;

    *ret_ok = true;
    if (p[0] < 0x80)
        return 1;
    *ret_ok = false;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 1;
    need = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    for (i = 1; i < need; i++) {
        if (i == len || p[i] < low || p[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *ret_ok = true;
    return need;
}

static bool is_utf8(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    bool ok;

    for (size_t i = 0; i < len;) {
        i += utf8_len(p + i, len - i, &ok);
        if (!ok)
            return false;
    }
    return true;
}

/* @data as a JSON string with its quotes: cJSON takes C strings only, so it would end at the first NUL. NULL on ENOMEM. */
static char *quote(const char *data, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = (const uint8_t *)data;
    size_t size = 3, step;
    char *json, *to;
    bool ok;

    for (size_t i = 0; i < len; i++) /* at worst: \u00xx, U+FFFD for one bad byte */
        size += p[i] < 0x20 || p[i] == 0x7f ? 6 : p[i] >= 0x80 ? 3 : 2;
    json = to = malloc(size);
    if (json == NULL)
        return NULL;
    *to++ = '"';
    for (size_t i = 0; i < len; i += step) {
        step = utf8_len(p + i, len - i, &ok);
        if (!ok) {
            to = mempcpy(to, "\xef\xbf\xbd", 3);
        } else if (step > 1) {
            to = mempcpy(to, p + i, step);
        } else if (p[i] == '"' || p[i] == '\\') {
            *to++ = '\\';
            *to++ = (char)p[i];
        } else if (p[i] == '\n') {
            to = mempcpy(to, "\\n", 2);
        } else if (p[i] == '\t') {
            to = mempcpy(to, "\\t", 2);
        } else if (p[i] == '\r') {
            to = mempcpy(to, "\\r", 2);
        } else if (p[i] < 0x20 || p[i] == 0x7f) {
            to = mempcpy(to, "\\u00", 4);
            *to++ = hex[p[i] >> 4];
            *to++ = hex[p[i] & 15];
        } else {
            *to++ = (char)p[i];
        }
    }
    *to++ = '"';
    *to = '\0';
    return json;
}

static char *base64(const char *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = (const uint8_t *)data;
    char *text = malloc((len + 2) / 3 * 4 + 1), *to = text;

    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);

        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = n > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = n > 2 ? digits[bits & 63] : '=';
    }
    *to = '\0';
    return text;
}

/* ---- values; false on ENOMEM ---- */

static bool add(cJSON *object, const char *key, cJSON *item)
{
    if (item == NULL)
        return false;
    /* our own keys: static text, not copied. Fails only for a NULL object, whose making failed before. */
    if (cJSON_AddItemToObjectCS(object, key, item))
        return true;
    cJSON_Delete(item);
    return false;
}

static bool add_text(cJSON *object, const char *key, const char *data, size_t len)
{
    auto_free char *quoted = quote(data, len);

    return quoted != NULL && add(object, key, cJSON_CreateRaw(quoted));
}

static bool add_string(cJSON *object, const char *key, const char *text)
{
    return text != NULL ? add_text(object, key, text, strlen(text)) : add(object, key, cJSON_CreateNull());
}

static bool add_bool(cJSON *object, const char *key, bool value)
{
    return add(object, key, cJSON_CreateBool(value));
}

/* cJSON keeps numbers as doubles, which lose the low bits of large ones. */
static bool add_u64(cJSON *object, const char *key, uint64_t value)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    return add(object, key, cJSON_CreateRaw(digits));
}

static bool add_u64_or_null(cJSON *object, const char *key, uint64_t value, uint64_t unknown)
{
    return value == unknown ? add(object, key, cJSON_CreateNull()) : add_u64(object, key, value);
}

/* Three decimals, and a point in every locale. */
static bool add_ms(cJSON *object, const char *key, double ms)
{
    uint64_t us = ms > 0 && ms < 1e15 ? (uint64_t)(ms * 1000 + 0.5) : 0;
    char digits[32];

    snprintf(digits, sizeof(digits), "%" PRIu64 ".%03u", us / 1000, (unsigned)(us % 1000));
    return add(object, key, cJSON_CreateRaw(digits));
}

/* A new object or array inside @object, which owns it. */
static cJSON *add_new(cJSON *object, const char *key, cJSON *item)
{
    return add(object, key, item) ? item : NULL;
}

/* ---- parts ---- */

static bool add_error(cJSON *root, const struct error_report *error)
{
    cJSON *object;

    if (error->name == NULL)
        return add(root, "error", cJSON_CreateNull());
    object = add_new(root, "error", cJSON_CreateObject());
    return object != NULL && add_string(object, "name", error->name) && add_string(object, "value", error->value) &&
           add_string(object, "traceback", error->traceback);
}

static bool add_path(cJSON *object, const char *path)
{
    size_t len = strlen(path);
    auto_free char *encoded = NULL;

    if (!add_text(object, "path", path, len))
        return false;
    if (is_utf8(path, len))
        return true;
    encoded = base64(path, len);
    return encoded != NULL && add_string(object, "path_base64", encoded);
}

static bool add_changes(cJSON *files, const char *key, const struct file_change_list *list, bool is_there)
{
    cJSON *array = add_new(files, key, cJSON_CreateArray());

    if (array == NULL)
        return false;
    for (size_t i = 0; i < list->n; i++) {
        const struct file_change *change = &list->items[i];
        cJSON *object = cJSON_CreateObject();

        if (object == NULL)
            return false;
        cJSON_AddItemToArray(array, object);
        if (!add_path(object, change->path))
            return false;
        if (is_there && (!add_u64(object, "size", change->size) || !add_string(object, "mime", change->mime)))
            return false;
        if (change->type != FILE_REGULAR && !add_string(object, "type", hutch_file_type_name(change->type)))
            return false;
    }
    return true;
}

static bool add_files(cJSON *root, const struct run_result *r)
{
    cJSON *files = add_new(root, "files", cJSON_CreateObject());

    return files != NULL && add_string(files, "directory", r->directory) &&
           add_changes(files, "added", &r->files.added, true) &&
           add_changes(files, "modified", &r->files.modified, true) &&
           add_changes(files, "deleted", &r->files.deleted, false) &&
           add_bool(files, "truncated", r->files.truncated);
}

static bool add_timings(cJSON *root, const struct run_result *r)
{
    cJSON *timings = add_new(root, "timings_ms", cJSON_CreateObject());

    return timings != NULL && add_ms(timings, "queued", r->queued_ms) && add_ms(timings, "prepared", r->prepared_ms) &&
           add_ms(timings, "run", r->run_ms) && add_ms(timings, "total", r->total_ms);
}

static bool add_usage(cJSON *root, const struct run_result *r)
{
    cJSON *usage = add_new(root, "usage", cJSON_CreateObject());

    return usage != NULL && add_u64_or_null(usage, "cpu_user_ms", r->cpu_user_ms, USAGE_UNKNOWN) &&
           add_u64_or_null(usage, "cpu_system_ms", r->cpu_system_ms, USAGE_UNKNOWN) &&
           add_u64_or_null(usage, "memory_peak_bytes", r->memory_peak_bytes, USAGE_UNKNOWN) &&
           add_u64_or_null(usage, "pids_peak", r->pids_peak, USAGE_UNKNOWN);
}

static bool add_limits(cJSON *root, const struct run_result *r)
{
    cJSON *limits = add_new(root, "limits", cJSON_CreateObject());

    if (limits == NULL)
        return false;
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct run_limit_report *report = &r->limits[i];
        cJSON *limit = add_new(limits, hutch_limit_name((enum sandbox_limit)i), cJSON_CreateObject());
        unsigned enforcers = report->enforcers;
        cJSON *names;

        if (limit == NULL || !add_u64_or_null(limit, "asked", report->asked, 0))
            return false;
        names = add_new(limit, "enforced_by", cJSON_CreateArray());
        if (names == NULL)
            return false;
        if (report->asked == 0)
            continue;
        if (enforcers != 1u << ENFORCER_NONE)
            enforcers &= ~(1u << ENFORCER_NONE);
        if (enforcers == 0)
            enforcers = 1u << ENFORCER_NONE;
        for (unsigned e = 0; e < ENFORCER_COUNT; e++) {
            cJSON *name;

            if (!(enforcers & 1u << e))
                continue;
            name = cJSON_CreateString(hutch_enforcer_name((enum sandbox_enforcer)e));
            if (name == NULL)
                return false;
            cJSON_AddItemToArray(names, name);
        }
    }
    return true;
}

static bool add_layers(cJSON *root, const struct run_result *r)
{
    cJSON *layers = add_new(root, "layers", cJSON_CreateObject());

    if (layers == NULL)
        return false;
    for (unsigned i = 0; i < LAYER_COUNT; i++) {
        const struct run_layer_report *report = &r->layers[i];
        cJSON *layer = add_new(layers, hutch_layer_name((enum sandbox_layer)i), cJSON_CreateObject());

        if (layer == NULL || !add_string(layer, "asked", need_names[report->asked]) ||
            !add_bool(layer, "active", report->is_active) ||
            !add_text(layer, "detail", report->detail, strnlen(report->detail, sizeof(report->detail))))
            return false;
    }
    return true;
}

static bool add_signal(cJSON *root, int number)
{
    const char *abbrev = sigabbrev_np(number);
    char name[24];

    if (number == 0)
        return add(root, "signal", cJSON_CreateNull());
    if (abbrev != NULL)
        snprintf(name, sizeof(name), "SIG%s", abbrev);
    else if (number >= SIGRTMIN && number <= SIGRTMAX)
        snprintf(name, sizeof(name), "SIGRTMIN+%d", number - SIGRTMIN);
    else
        snprintf(name, sizeof(name), "SIG%d", number);
    return add_string(root, "signal", name);
}

static bool fill(cJSON *root, const struct run_result *r)
{
    bool is_plain = r->verdict == VERDICT_OK || r->verdict == VERDICT_ERROR;
    const char *message = is_plain || r->message[0] == '\0' ? NULL : r->message;

    return add_u64(root, "version", 1) && add_string(root, "verdict", hutch_verdict_name(r->verdict)) &&
           (r->exit_code < 0 ? add(root, "exit_code", cJSON_CreateNull())
                             : add_u64(root, "exit_code", (uint64_t)r->exit_code)) &&
           add_signal(root, r->signal) && add_string(root, "message", message) &&
           add_text(root, "stdout", r->out.data, r->out.len) &&
           add_bool(root, "stdout_truncated", r->out.truncated) &&
           add_text(root, "stderr", r->err_out.data, r->err_out.len) &&
           add_bool(root, "stderr_truncated", r->err_out.truncated) && add_error(root, &r->error) &&
           add_files(root, r) && add_timings(root, r) && add_usage(root, r) && add_limits(root, r) &&
           add_layers(root, r);
}

int hutch_result_json(const struct run_result *r, char **ret_json, size_t *ret_len, struct hutch_err *err)
{
    cJSON *root = cJSON_CreateObject();
    char *json = root != NULL && fill(root, r) ? cJSON_PrintUnformatted(root) : NULL;

    cJSON_Delete(root);
    if (json == NULL)
        return hutch_err_set(err, ENOMEM, "write the result as JSON");
    *ret_json = json;
    *ret_len = strlen(json);
    return 0;
}
