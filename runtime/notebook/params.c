#include "runtime/notebook/params.h"

#include "runtime/notebook/notebook.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

/* As Python: three words are others than JSON's, numbers and strings are the same in both. */
static void print_value(struct text_buffer *to, const struct cJSON *value)
{
    bool is_object = cJSON_IsObject(value);
    const struct cJSON *entry;

    if (cJSON_IsBool(value) || cJSON_IsNull(value)) {
        hutch_text_add_string(to, cJSON_IsTrue(value) ? "True" : cJSON_IsFalse(value) ? "False" : "None");
        return;
    }
    if (!is_object && !cJSON_IsArray(value)) {
        hutch_nbjson_add(to, value, NBJSON_COMPACT);
        return;
    }
    hutch_text_add_string(to, is_object ? "{" : "[");
    cJSON_ArrayForEach(entry, value) {
        if (entry != value->child)
            hutch_text_add_string(to, ", ");
        if (is_object) {
            hutch_json_quote_python(to, entry->string);
            hutch_text_add_string(to, ": ");
        }
        print_value(to, entry);
    }
    hutch_text_add_string(to, is_object ? "}" : "]");
}

static void print_param(struct text_buffer *to, const char *param)
{
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;
    const char *text = strchr(param, '=') + 1;
    struct cJSON *value = NULL;
    struct hutch_err ignored;

    bounds.is_strict = true;
    if (hutch_nbjson_parse("value", text, strlen(text), &bounds, &value, &ignored) < 0)
        value = hutch_nbjson_string(text, strlen(text));
    hutch_text_add(to, param, (size_t)(text - 1 - param));
    hutch_text_add_string(to, " = ");
    if (value)
        print_value(to, value);
    else
        to->is_broken = true;
    hutch_text_add_string(to, "\n");
    cJSON_Delete(value);
}

int hutch_notebook_set_params(struct notebook *nb, const char *const *params, size_t n_params, struct hutch_err *err)
{
    struct text_buffer to = TEXT_BUFFER_INIT;
    auto_free char *source = NULL;
    bool in_place = false;
    size_t at = 0;

    hutch_text_add_string(&to, "# Parameters\n");
    for (size_t i = 0; i < n_params; i++)
        print_param(&to, params[i]);
    source = hutch_text_take(&to, NULL);
    if (!source)
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
