/* Multi-line strings and the bundles that hold them: the form that they have in a notebook's file, and the one in
 * memory. */
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <string.h>

/* How many bytes at the beginning of @p are what str.splitlines() takes for the end of a line. */
static size_t line_end_len(const char *p)
{
    if (*p == '\r')
        return p[1] == '\n' ? 2 : 1;
    if ((*p >= '\n' && *p <= '\f') || (*p >= 0x1c && *p <= 0x1e))
        return 1;
    if (strncmp(p, "\xc2\x85", 2) == 0)
        return 2;
    if (strncmp(p, "\xe2\x80\xa8", 3) == 0 || strncmp(p, "\xe2\x80\xa9", 3) == 0)
        return 3;
    return 0;
}

static bool add_part(cJSON *array, const char *text, size_t len)
{
    cJSON *item = cJSON_CreateNull();

    if (item == NULL)
        return false;
    cJSON_AddItemToArray(array, item);
    item->valuestring = cJSON_malloc(len + 1);
    if (item->valuestring == NULL)
        return false;
    item->type = cJSON_String;
    memcpy(item->valuestring, text, len);
    item->valuestring[len] = '\0';
    return true;
}

struct cJSON *hutch_nbjson_split_lines(const struct cJSON *string)
{
    cJSON *array = cJSON_CreateArray();
    const char *from = cJSON_IsString(string) ? string->valuestring : "", *p = from;

    while (array != NULL && *p != '\0') {
        size_t end = line_end_len(p);

        p += end ? end : 1;
        if ((end || *p == '\0') && !add_part(array, from, (size_t)(p - from))) {
            cJSON_Delete(array);
            return NULL;
        }
        if (end)
            from = p;
    }
    return array;
}

bool hutch_nbjson_is_lines(const struct cJSON *value)
{
    const cJSON *item;

    if (cJSON_IsString(value))
        return true;
    if (!cJSON_IsArray(value))
        return false;
    cJSON_ArrayForEach(item, value)
        if (!cJSON_IsString(item))
            return false;
    return true;
}

struct cJSON *hutch_nbjson_join_lines(const struct cJSON *value)
{
    cJSON *joined = hutch_nbjson_is_lines(value) ? cJSON_CreateNull() : NULL;
    const cJSON *item;
    size_t len = 0;
    char *to;

    if (joined == NULL)
        return NULL;
    if (cJSON_IsString(value))
        len = strlen(value->valuestring);
    else
        cJSON_ArrayForEach(item, value)
            len += strlen(item->valuestring);
    joined->valuestring = to = cJSON_malloc(len + 1);
    if (to == NULL) {
        cJSON_Delete(joined);
        return NULL;
    }
    joined->type = cJSON_String;
    if (cJSON_IsString(value))
        to = stpcpy(to, value->valuestring);
    else
        cJSON_ArrayForEach(item, value)
            to = stpcpy(to, item->valuestring);
    *to = '\0';
    return joined;
}

/* @with takes the place of @item, NULL is ENOMEM. */
static int replace(cJSON *object, cJSON *item, cJSON *with)
{
    if (with == NULL)
        return -1;
    with->string = item->string; /* keeps its key */
    item->string = NULL;
    cJSON_ReplaceItemViaPointer(object, item, with);
    return 0;
}

static int split_item(cJSON *object, cJSON *item)
{
    return cJSON_IsString(item) ? replace(object, item, hutch_nbjson_split_lines(item)) : 0;
}

static int join_item(cJSON *object, cJSON *item)
{
    return cJSON_IsArray(item) && hutch_nbjson_is_lines(item) ? replace(object, item, hutch_nbjson_join_lines(item))
                                                              : 0;
}

int hutch_nbjson_split_member(struct cJSON *object, const char *key)
{
    return split_item(object, cJSON_GetObjectItemCaseSensitive(object, key));
}

int hutch_nbjson_join_member(struct cJSON *object, const char *key)
{
    return join_item(object, cJSON_GetObjectItemCaseSensitive(object, key));
}

/* "application/json", or "application/…+json": its values are JSON and no text. */
static bool is_json_type(const char *mime)
{
    static const char prefix[] = "application/", suffix[] = "+json";
    size_t len = strlen(mime);

    return strcmp(mime, "application/json") == 0 ||
           (strncmp(mime, prefix, strlen(prefix)) == 0 && len >= strlen(suffix) &&
            strcmp(mime + len - strlen(suffix), suffix) == 0);
}

int hutch_nbjson_split_bundle(struct cJSON *data)
{
    cJSON *item, *next;

    for (item = data->child; item != NULL; item = next) {
        next = item->next;
        if (strncmp(item->string, "text/", 5) != 0 && strcmp(item->string, "application/javascript") != 0 &&
            strcmp(item->string, "image/svg+xml") != 0)
            continue;
        if (split_item(data, item) < 0)
            return -1;
    }
    return 0;
}

int hutch_nbjson_join_bundle(struct cJSON *data)
{
    cJSON *item, *next;

    for (item = data->child; item != NULL; item = next) {
        next = item->next;
        if (!is_json_type(item->string) && join_item(data, item) < 0)
            return -1;
    }
    return 0;
}
