#include "runtime/text/nbjson.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_scan.h"
#include "runtime/text/json_write.h"
#include "runtime/text/python_float.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- keys ---- */

/* By code point: UTF-8's own order, but for U+0000. */
static int compare_keys(const char *a, const char *b)
{
    static const unsigned char nul = (unsigned char)NBJSON_NUL[0];
    int x, y;

    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    x = *a == '\0' ? -1 : (unsigned char)*a == nul ? 0 : (unsigned char)*a;
    y = *b == '\0' ? -1 : (unsigned char)*b == nul ? 0 : (unsigned char)*b;
    return x - y;
}

struct member {
    const cJSON *item;
    size_t place;
};

static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    int order = compare_keys(x->item->string, y->item->string);

    return order != 0 ? order : (x->place > y->place) - (x->place < y->place);
}

/* By key, equal ones in their order. The caller frees it. NULL on ENOMEM. */
static struct member *sort_members(const cJSON *object, size_t *ret_n)
{
    struct member *members;
    const cJSON *item;
    size_t n = 0;

    cJSON_ArrayForEach(item, object)
        n++;
    members = calloc(n + 1, sizeof(*members));
    if (members == NULL)
        return NULL;
    n = 0;
    cJSON_ArrayForEach(item, object) {
        members[n].item = item;
        members[n].place = n;
        n++;
    }
    qsort(members, n, sizeof(*members), compare_members);
    *ret_n = n;
    return members;
}

/* ---- reading ---- */

struct reader {
    struct json_scan scan;
    const struct nbjson_bounds *bounds;
    size_t n_nodes;
    cJSON *open[JSON_SCAN_MAX_DEPTH]; /* the containers around what comes next, with their @n_open */
    unsigned n_open;
    char *key; /* owned; of what comes next, NULL in an array */
};

static int refuse_memory(const struct json_scan *s)
{
    return hutch_err_set(s->err, ENOMEM, "%s: parse %zu bytes", s->what, s->len);
}

static int drop_equal_keys(const struct json_scan *s, cJSON *object)
{
    auto_free struct member *members = NULL;
    size_t n;

    if (object->child == NULL || object->child->next == NULL)
        return 0;
    members = sort_members(object, &n);
    if (members == NULL)
        return refuse_memory(s);
    for (size_t i = 1; i < n; i++)
        if (strcmp(members[i - 1].item->string, members[i].item->string) == 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(object, (cJSON *)members[i - 1].item));
    return 0;
}

/* The text of a string or key. NULL: ENOMEM. */
static char *copy_text(const struct json_scan *s)
{
    char *text = cJSON_malloc(s->token_len); /* it frees it */

    if (text == NULL)
        refuse_memory(s);
    else
        hutch_json_scan_unescape(s->token, s->token_len, NBJSON_NUL, strlen(NBJSON_NUL), text);
    return text;
}

static int set_text(const struct json_scan *s, cJSON *item, int type, const char *text, size_t len)
{
    item->valuestring = cJSON_malloc(len + 1);
    if (item->valuestring == NULL)
        return refuse_memory(s);
    item->type = type;
    memcpy(item->valuestring, text, len);
    item->valuestring[len] = '\0';
    return 0;
}

static int set_number(const struct json_scan *s, cJSON *item)
{
    char repr[PYFLOAT_SIZE];
    double value;

    if (set_text(s, item, cJSON_Number, s->token, s->token_len) < 0)
        return -1;
    value = hutch_pyfloat_parse(item->valuestring);
    item->valuedouble = value;
    item->valueint = isnan(value) ? 0 : value >= INT32_MAX ? INT32_MAX : value <= INT32_MIN ? INT32_MIN : (int)value;
    if (!s->is_float) {
        if (strcmp(item->valuestring, "-0") == 0)
            strcpy(item->valuestring, "0"); /* an int of Python's has no sign then */
        return 0;
    }
    hutch_pyfloat_repr(value, repr);
    cJSON_free(item->valuestring);
    return set_text(s, item, cJSON_Number, repr, strlen(repr));
}

static int check_number(const struct json_scan *s)
{
    char copy[400] = "";

    if (s->token_len >= sizeof(copy))
        return hutch_json_scan_refuse(s, "a number with too many digits");
    memcpy(copy, s->token, s->token_len);
    return isinf(hutch_pyfloat_parse(copy)) ? hutch_json_scan_refuse(s, "a number that is too large") : 0;
}

static enum json_token read_token(struct reader *r)
{
    enum json_token token = hutch_json_scan_next(&r->scan);

    if (token == JSON_NUMBER && r->bounds->is_strict && r->scan.is_float && check_number(&r->scan) < 0)
        return JSON_ERROR;
    return token;
}

/* An array or object that stays text, from its first token on. */
static int read_raw(struct reader *r, cJSON *item)
{
    const char *from = r->scan.token;
    unsigned depth = r->scan.depth;

    while (r->scan.depth >= depth)
        if (read_token(r) < 0)
            return -1;
    return set_text(&r->scan, item, cJSON_Raw, from, (size_t)(r->scan.token + r->scan.token_len - from));
}

static int read_container(struct reader *r, enum json_token token, cJSON *item)
{
    if (r->bounds->raw_depth != 0 && r->n_open >= r->bounds->raw_depth)
        return read_raw(r, item);
    item->type = token == JSON_OBJECT ? cJSON_Object : cJSON_Array;
    r->open[r->n_open++] = item;
    return 0;
}

/* A new node for what comes next, within what is open. */
static cJSON *add_node(struct reader *r)
{
    cJSON *item;

    if (r->n_nodes++ >= r->bounds->max_nodes) {
        hutch_json_scan_refuse(&r->scan, "more values than allowed");
        return NULL;
    }
    item = cJSON_CreateNull();
    if (item == NULL) {
        refuse_memory(&r->scan);
        return NULL;
    }
    item->string = r->key;
    r->key = NULL;
    if (r->n_open > 0)
        cJSON_AddItemToArray(r->open[r->n_open - 1], item); /* does for objects too, once there is a key */
    return item;
}

static int read_value(struct reader *r, enum json_token token, cJSON *item)
{
    switch (token) {
    case JSON_OBJECT:
    case JSON_ARRAY: return read_container(r, token, item);
    case JSON_STRING: item->valuestring = copy_text(&r->scan); item->type = cJSON_String; break;
    case JSON_NUMBER: return set_number(&r->scan, item);
    case JSON_TRUE: item->type = cJSON_True; return 0;
    case JSON_FALSE: item->type = cJSON_False; return 0;
    default: return 0; /* null, as it was made */
    }
    return item->valuestring != NULL ? 0 : -1;
}

/* The value at @token and all that is in it. @ret_root is set as soon as there is one, on failure too. */
static int read_tree(struct reader *r, cJSON **ret_root)
{
    enum json_token token;

    while ((token = read_token(r)) > JSON_END) {
        cJSON *item;

        if (token == JSON_KEY) {
            r->key = copy_text(&r->scan);
            if (r->key == NULL)
                return -1;
        } else if (token == JSON_CLOSE) {
            item = r->open[--r->n_open];
            if (cJSON_IsObject(item) && drop_equal_keys(&r->scan, item) < 0)
                return -1;
        } else {
            item = add_node(r);
            if (item == NULL)
                return -1;
            if (*ret_root == NULL)
                *ret_root = item;
            if (read_value(r, token, item) < 0)
                return -1;
        }
    }
    return token;
}

int hutch_nbjson_parse(const char *what, const char *text, size_t len, const struct nbjson_bounds *bounds,
                       struct cJSON **ret, struct hutch_err *err)
{
    struct reader r = {
        .scan = { .what = what, .text = text, .len = len, .line = 1, .column = 1, .err = err,
                  .max_depth = bounds->max_depth, .flags = bounds->is_strict ? 0 : JSON_TAKES_NAN },
        .bounds = bounds,
    };
    cJSON *root = NULL;

    if (len > bounds->max_len)
        return hutch_err_set(err, 0, "%s: %zu bytes are more than %zu", what, len, bounds->max_len);
    if (r.scan.max_depth > JSON_SCAN_MAX_DEPTH)
        r.scan.max_depth = JSON_SCAN_MAX_DEPTH;
    if (read_tree(&r, &root) < 0) {
        cJSON_free(r.key);
        cJSON_Delete(root);
        return -1;
    }
    *ret = root;
    return 0;
}

/* ---- writing ---- */

static void print_number(struct text_buffer *to, const cJSON *item)
{
    char repr[PYFLOAT_SIZE];

    if (item->valuestring != NULL) {
        hutch_text_add_string(to, item->valuestring);
    } else if (fabs(item->valuedouble) <= 0x1p53 && item->valuedouble == (double)(int64_t)item->valuedouble) {
        hutch_text_addf(to, "%" PRId64, (int64_t)item->valuedouble);
    } else {
        hutch_pyfloat_repr(item->valuedouble, repr);
        hutch_text_add_string(to, repr);
    }
}

static void print_break(struct text_buffer *to, enum nbjson_form form, unsigned depth)
{
    if (form == NBJSON_COMPACT)
        return;
    hutch_text_add_string(to, "\n");
    for (unsigned i = 0; i < depth; i++)
        hutch_text_add_string(to, " ");
}

static void print_value(struct text_buffer *to, const cJSON *value, enum nbjson_form form, unsigned depth);

static void print_object(struct text_buffer *to, const cJSON *object, enum nbjson_form form, unsigned depth)
{
    size_t n = 0;
    auto_free struct member *members = sort_members(object, &n);

    if (members == NULL)
        to->is_broken = true;
    hutch_text_add_string(to, "{");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            hutch_text_add_string(to, ",");
        print_break(to, form, depth + 1);
        hutch_json_quote_python(to, members[i].item->string);
        hutch_text_add(to, ": ", form == NBJSON_COMPACT ? 1 : 2);
        print_value(to, members[i].item, form, depth + 1);
    }
    if (n > 0)
        print_break(to, form, depth);
    hutch_text_add_string(to, "}");
}

static void print_array(struct text_buffer *to, const cJSON *array, enum nbjson_form form, unsigned depth)
{
    const cJSON *item;

    hutch_text_add_string(to, "[");
    cJSON_ArrayForEach(item, array) {
        if (item != array->child)
            hutch_text_add_string(to, ",");
        print_break(to, form, depth + 1);
        print_value(to, item, form, depth + 1);
    }
    if (array->child != NULL)
        print_break(to, form, depth);
    hutch_text_add_string(to, "]");
}

static void print_value(struct text_buffer *to, const cJSON *value, enum nbjson_form form, unsigned depth)
{
    switch (value->type & 0xff) {
    case cJSON_Object: print_object(to, value, form, depth); break;
    case cJSON_Array: print_array(to, value, form, depth); break;
    case cJSON_String: hutch_json_quote_python(to, value->valuestring); break;
    case cJSON_Raw: hutch_text_add_string(to, value->valuestring); break;
    case cJSON_Number: print_number(to, value); break;
    case cJSON_True: hutch_text_add_string(to, "true"); break;
    case cJSON_False: hutch_text_add_string(to, "false"); break;
    default: hutch_text_add_string(to, "null"); break;
    }
}

void hutch_nbjson_add(struct text_buffer *to, const struct cJSON *value, enum nbjson_form form)
{
    print_value(to, value, form, 0);
    if (form == NBJSON_FILE)
        hutch_text_add_string(to, "\n");
}

char *hutch_nbjson_print(const struct cJSON *value, enum nbjson_form form, size_t *ret_len)
{
    struct text_buffer to = TEXT_BUFFER_INIT;

    hutch_nbjson_add(&to, value, form);
    return hutch_text_take(&to, ret_len);
}
