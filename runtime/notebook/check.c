/* What nbformat's schemas demand of a cell, as far as anything here relies on it. */
#include "runtime/notebook/notebook_priv.h"

#include "runtime/text/nbjson.h"

#include <string.h>

static const char *check_output(const struct cJSON *output)
{
    const char *type = get_text(output, "output_type");
    const struct cJSON *text = get_member(output, "text");

    if (!type)
        return "has an output without 'output_type'";
    if (strcmp(type, "stream") == 0 &&
        (!get_text(output, "name") || (!cJSON_IsString(text) && !hutch_nbjson_is_lines(text))))
        return "has a stream without 'name' or 'text'";
    if ((strcmp(type, "display_data") == 0 || strcmp(type, "execute_result") == 0) &&
        !cJSON_IsObject(get_member(output, "data")))
        return "has an output without 'data'";
    return NULL;
}

const char *hutch_notebook_check_cell(const struct cJSON *cell)
{
    const char *type = get_text(cell, "cell_type");
    const struct cJSON *source = get_member(cell, "source"), *attachments = get_member(cell, "attachments"), *entry;

    if (!cJSON_IsObject(cell))
        return "is no object";
    if (!type)
        return "has no 'cell_type'";
    if (!cJSON_IsObject(get_member(cell, "metadata")))
        return "has no 'metadata'";
    if (!cJSON_IsString(source) && !hutch_nbjson_is_lines(source))
        return "has no 'source' that is a text or a list of texts";
    if (get_member(cell, "id") && !get_text(cell, "id"))
        return "has an 'id' that is no text";
    if (attachments && !cJSON_IsObject(attachments))
        return "has 'attachments' that are no object";
    cJSON_ArrayForEach(entry, attachments)
        if (!cJSON_IsObject(entry))
            return "has an attachment that is no object";
    if (strcmp(type, "code") != 0)
        return NULL;
    if (!cJSON_IsArray(get_member(cell, "outputs")))
        return "has no 'outputs'";
    cJSON_ArrayForEach(entry, get_member(cell, "outputs")) {
        const char *wrong = check_output(entry);

        if (wrong)
            return wrong;
    }
    return NULL;
}
