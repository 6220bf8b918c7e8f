#include "runtime/notebook/params.h"

#include "runtime/notebook/notebook.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
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

/* What is Python's and not JSON's, as papermill takes it. NULL: @text is none of that. */
static const char *find_word(const char *text)
{
    static const struct { const char *text, *python; } words[] = {
        { "True", "True" }, { "False", "False" }, { "None", "None" },
        { "nan", "float('nan')" }, { "NaN", "float('nan')" },
        { "inf", "float('inf')" }, { "Infinity", "float('inf')" },
        { "-inf", "float('-inf')" }, { "-Infinity", "float('-inf')" },
    };
    double number;
    char *end;

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcmp(text, words[i].text) == 0)
            return words[i].python;
    if (!isdigit((unsigned char)text[*text == '-']) || text[strspn(text, "-+.0123456789eE")])
        return NULL;
    number = strtod(text, &end); /* 1e400: Python's float() has no error for it */
    return *end || !isinf(number) ? NULL : number > 0 ? "float('inf')" : "float('-inf')";
}

static void print_param(struct text_buffer *to, const char *param)
{
    struct nbjson_bounds bounds = NBJSON_NOTEBOOK;
    const char *text = strchr(param, '=') + 1;
    const char *word = find_word(text);
    struct cJSON *value = NULL;
    struct hutch_err ignored;

    bounds.is_strict = true;
    if (!word && hutch_nbjson_parse("value", text, strlen(text), &bounds, &value, &ignored) < 0)
        value = hutch_nbjson_string(text, strlen(text));
    hutch_text_add(to, param, (size_t)(text - 1 - param));
    hutch_text_add_string(to, " = ");
    if (word)
        hutch_text_add_string(to, word);
    else if (value)
        print_value(to, value);
    else
        to->is_broken = true;
    hutch_text_add_string(to, "\n");
    cJSON_Delete(value);
}

static bool is_keyword(const char *name, size_t len)
{
    static const char *const keywords[] = {
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
        "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
        "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    };

    for (size_t i = 0; i < ARRAY_SIZE(keywords); i++)
        if (strlen(keywords[i]) == len && memcmp(keywords[i], name, len) == 0)
            return true;
    return false;
}

int hutch_notebook_check_param(const char *param, struct hutch_err *err)
{
    const char *p = param;

    if (isalpha((unsigned char)*p) || *p == '_')
        while (isalnum((unsigned char)*p) || *p == '_')
            p++;
    if (p == param || *p != '=')
        return hutch_err_set(err, 0, "option '--param': expected NAME=VALUE, got '%s'", param);
    if (is_keyword(param, (size_t)(p - param)))
        return hutch_err_set(err, 0, "option '--param': '%.*s' is a keyword of Python, not a name", (int)(p - param),
                             param);
    return 0;
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
