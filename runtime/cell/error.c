#include "runtime/cell/error.h"

#include "runtime/text/ansi.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <string.h>

#define MAX_NAME (4u << 10) /* bytes in the short form */
#define MAX_VALUE (64u << 10)

void hutch_cell_error_done(struct cell_error *error)
{
    free(error->name);
    free(error->value);
    free(error->traceback);
    free(error->traceback_ansi);
    *error = (struct cell_error)CELL_ERROR_INIT;
}

void hutch_cell_error_print(struct text_buffer *to, const struct cJSON *ename, const struct cJSON *evalue,
                            const struct cJSON *traceback)
{
    const struct { const char *key; const cJSON *value; } parts[] = {
        { "{\"ename\":", ename },
        { ",\"evalue\":", evalue },
        { ",\"output_type\":\"error\",\"traceback\":", traceback },
    };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        hutch_text_add_string(to, parts[i].key);
        hutch_nbjson_add(to, parts[i].value, NBJSON_COMPACT);
    }
    hutch_text_add_string(to, "}");
}

static cJSON *copy_beginning(const cJSON *string, size_t max)
{
    size_t len = strlen(string->valuestring);

    return hutch_nbjson_string(string->valuestring, hutch_utf8_cut(string->valuestring, len, max));
}

void hutch_cell_error_print_short(struct text_buffer *to, const struct cJSON *ename, const struct cJSON *evalue)
{
    cJSON *name = copy_beginning(ename, MAX_NAME), *value = copy_beginning(evalue, MAX_VALUE);
    cJSON *traceback = cJSON_CreateArray();

    if (name != NULL && value != NULL && traceback != NULL)
        hutch_cell_error_print(to, name, value, traceback);
    else
        to->is_broken = true;
    cJSON_Delete(name);
    cJSON_Delete(value);
    cJSON_Delete(traceback);
}

/* The parts of a traceback, a newline between them. NULL: ENOMEM. */
static char *join_traceback(const cJSON *parts)
{
    struct text_buffer to = TEXT_BUFFER_INIT;
    const cJSON *part;

    cJSON_ArrayForEach(part, parts) {
        auto_free char *text = hutch_nbjson_c_text(part);

        if (part != parts->child)
            hutch_text_add_string(&to, "\n");
        if (text != NULL)
            hutch_text_add_string(&to, text);
        else
            to.is_broken = true;
    }
    return hutch_text_take(&to, NULL);
}

int hutch_cell_error_parse(const char *json, size_t len, struct cell_error *ret)
{
    struct cell_error error = CELL_ERROR_INIT;
    cJSON *root = NULL;

    if (hutch_nbjson_parse("error", json, len, &NBJSON_NOTEBOOK, &root, &(struct hutch_err){ 0 }) < 0)
        return -1; /* it was written here: there is no memory */
    error.name = hutch_nbjson_c_text(cJSON_GetObjectItemCaseSensitive(root, "ename"));
    error.value = hutch_nbjson_c_text(cJSON_GetObjectItemCaseSensitive(root, "evalue"));
    error.traceback_ansi = join_traceback(cJSON_GetObjectItemCaseSensitive(root, "traceback"));
    error.traceback = error.traceback_ansi != NULL ? strdup(error.traceback_ansi) : NULL;
    cJSON_Delete(root);
    if (error.name == NULL || error.value == NULL || error.traceback == NULL) {
        hutch_cell_error_done(&error);
        return -1;
    }
    error.traceback[hutch_ansi_strip(error.traceback, strlen(error.traceback))] = '\0';
    *ret = error;
    return 0;
}
