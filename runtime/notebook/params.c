#include "runtime/notebook/params.h"

#include "sandbox/fd.h"
#include "runtime/text/nbjson.h"
#include "runtime/notebook/notebook.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* The three words that Python has otherwise than JSON; numbers and strings are the same in both. */
static void print_word(FILE *to, const struct cJSON *value)
{
    fputs(cJSON_IsTrue(value) ? "True" : cJSON_IsFalse(value) ? "False" : "None", to);
}

static int print_scalar(FILE *to, const struct cJSON *value)
{
    auto_free char *text = hutch_nbjson_print(value, NBJSON_COMPACT, NULL);

    return text && fputs(text, to) >= 0 ? 0 : -1;
}

static int print_value(FILE *to, const struct cJSON *value)
{
    bool is_object = cJSON_IsObject(value);
    const struct cJSON *entry;

    if (cJSON_IsBool(value) || cJSON_IsNull(value)) {
        print_word(to, value);
        return 0;
    }
    if (!is_object && !cJSON_IsArray(value))
        return print_scalar(to, value);
    fputc(is_object ? '{' : '[', to);
    cJSON_ArrayForEach(entry, value) {
        if (entry->prev->next) /* not the first: a list's first has the last before it */
            fputs(", ", to);
        if (is_object) {
            struct cJSON *key = cJSON_CreateString(entry->string);
            int rc = key ? print_scalar(to, key) : -1;

            cJSON_Delete(key);
            if (rc < 0)
                return -1;
            fputs(": ", to);
        }
        if (print_value(to, entry) < 0)
            return -1;
    }
    fputc(is_object ? '}' : ']', to);
    return 0;
}

static int print_param(FILE *to, const char *param)
{
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;
    const char *text = strchr(param, '=') + 1;
    struct cJSON *value = NULL;
    struct hutch_err ignored;
    int rc;

    bounds.is_strict = true;
    if (hutch_nbjson_parse("value", text, strlen(text), &bounds, &value, &ignored) < 0)
        value = hutch_nbjson_string(text, strlen(text));
    fprintf(to, "%.*s = ", (int)(text - 1 - param), param);
    rc = value ? print_value(to, value) : -1;
    fputc('\n', to);
    cJSON_Delete(value);
    return rc;
}

int hutch_notebook_set_params(struct notebook *nb, const char *const *params, size_t n_params, struct hutch_err *err)
{
    auto_free char *source = NULL;
    size_t len, at = 0;
    bool in_place = false;
    FILE *to = open_memstream(&source, &len);
    int rc = to ? 0 : -1;

    if (to)
        fputs("# Parameters\n", to);
    for (size_t i = 0; rc == 0 && i < n_params; i++)
        rc = print_param(to, params[i]);
    if (!to || fclose(to) != 0 || rc < 0)
        return hutch_err_set(err, ENOMEM, "write the cell with the parameters");
    for (size_t i = nb->n_cells; i-- > 0;)
        if (nb->cells[i].is_code && nb->cells[i].is_parameters)
            at = i + 1;
    for (size_t i = nb->n_cells; i-- > 0;)
        if (nb->cells[i].is_code && nb->cells[i].is_injected) {
            at = i;
            in_place = true;
        }
    return hutch_notebook_put_cell(nb, at, in_place, source, "injected-parameters", err);
}
