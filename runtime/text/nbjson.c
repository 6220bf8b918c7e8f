#include "runtime/text/nbjson.h"

#include "sandbox/fd.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/python_float.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_DEPTH 200

/* ---- reading ---- */

struct reader {
    const char *what, *start, *p, *end;
    struct nbjson_bounds bounds;
    size_t n_nodes;
    struct hutch_err *err;
};

static int fail(const struct reader *r, const char *why)
{
    size_t line = 1, column = 1;

    for (const char *p = r->start; p < r->p; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if ((*p & 0xc0) != 0x80) {
            column++;
        }
    }
    return hutch_err_set(r->err, 0, "%s: line %zu, column %zu: %s", r->what, line, column, why);
}

static int fail_memory(const struct reader *r)
{
    return hutch_err_set(r->err, ENOMEM, "%s: parse %zu bytes", r->what, (size_t)(r->end - r->start));
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool skip(struct reader *r, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(r->end - r->p) < len || memcmp(r->p, word, len) != 0)
        return false;
    r->p += len;
    return true;
}

static int hex4(const char *p, const char *end)
{
    int value = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i], letter = (char)(c | 0x20);

        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if (letter >= 'a' && letter <= 'f')
            value = value * 16 + letter - 'a' + 10;
        else
            return -1;
    }
    return value;
}

static char *put_utf8(char *to, unsigned code)
{
    if (code == 0)
        return mempcpy(to, NBJSON_NUL, 2);
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

/* One escape from its backslash on, and what it stands for. */
static int read_escape(struct reader *r, unsigned *ret_code)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = r->p + 1 < r->end ? r->p[1] : '\0';
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;
    int code, low;

    if (letter) {
        *ret_code = (unsigned char)meanings[letter - letters];
        r->p += 2;
        return 0;
    }
    if (c != 'u')
        return fail(r, "unknown escape in a string");
    code = hex4(r->p + 2, r->end);
    if (code < 0)
        return fail(r, "expected four hexadecimal digits after \\u");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail(r, "half a surrogate pair in a string");
    if (code >= 0xd800 && code <= 0xdbff) {
        low = r->end - r->p >= 8 && r->p[6] == '\\' && r->p[7] == 'u' ? hex4(r->p + 8, r->end) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "half a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        r->p += 6;
    }
    *ret_code = (unsigned)code;
    r->p += 6;
    return 0;
}

/* @ret NULL: it is only checked. */
static int read_string(struct reader *r, char **ret)
{
    const char *from = r->p;
    char *text, *to;

    /* First to the end of it, for its length: no escape is shorter than what it stands for. */
    for (r->p++;;) {
        enum utf8_kind kind;
        unsigned code;

        while (r->p < r->end && (unsigned char)*r->p >= 0x20 && (unsigned char)*r->p < 0x80 && *r->p != '"' && *r->p != '\\')
            r->p++;
        if (r->p == r->end)
            return fail(r, "the string does not end");
        if (*r->p == '"')
            break;
        if (*r->p == '\\') {
            if (read_escape(r, &code) < 0)
                return -1;
        } else if ((unsigned char)*r->p < 0x20) {
            return fail(r, "a control character in a string");
        } else {
            size_t len = hutch_utf8_next(r->p, (size_t)(r->end - r->p), &kind);

            if (kind != UTF8_CHAR)
                return fail(r, "a byte that is not UTF-8");
            r->p += len;
        }
    }
    r->p++;
    if (ret == NULL)
        return 0;
    text = to = cJSON_malloc((size_t)(r->p - from)); /* it frees it */
    if (text == NULL)
        return fail_memory(r);
    for (r->p = from + 1; *r->p != '"';) {
        unsigned code = 0;

        if (*r->p != '\\') {
            *to++ = *r->p++;
        } else {
            read_escape(r, &code); /* went well the first time */
            to = put_utf8(to, code);
        }
    }
    r->p++;
    *to = '\0';
    *ret = text;
    return 0;
}

static bool skip_digits(struct reader *r)
{
    const char *from = r->p;

    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > from;
}

static int set_number(const struct reader *r, cJSON *item, const char *token, size_t len, bool is_float)
{
    char repr[PYFLOAT_SIZE], *copy = cJSON_malloc((len > sizeof(repr) ? len : sizeof(repr)) + 1);

    if (copy == NULL)
        return fail_memory(r);
    memcpy(copy, token, len);
    copy[len] = '\0';
    item->type = cJSON_Number;
    item->valuestring = copy;
    item->valuedouble = hutch_pyfloat_parse(copy);
    item->valueint = item->valuedouble >= INT32_MAX   ? INT32_MAX
                     : item->valuedouble <= INT32_MIN ? INT32_MIN
                                                      : (int)item->valuedouble;
    if (is_float) {
        hutch_pyfloat_repr(item->valuedouble, repr);
        strcpy(copy, repr);
    } else if (strcmp(copy, "-0") == 0) {
        strcpy(copy, "0"); /* an int of Python's has no sign then */
    }
    return 0;
}

static int set_special(const struct reader *r, cJSON *item, const char *token, double value)
{
    item->valuestring = cJSON_malloc(strlen(token) + 1);
    if (item->valuestring == NULL)
        return fail_memory(r);
    strcpy(item->valuestring, token);
    item->type = cJSON_Number;
    item->valuedouble = value;
    return 0;
}

/* @item NULL: only checked, here and below. */
static int read_number(struct reader *r, cJSON *item)
{
    const char *from = r->p;
    bool is_float = false;
    size_t len;

    if (*r->p == '-')
        r->p++;
    if (r->p < r->end && *r->p == '0')
        r->p++;
    else if (!skip_digits(r))
        return fail(r, "expected a digit");
    if (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        return fail(r, "a number cannot start with 0 and go on");
    if (r->p < r->end && *r->p == '.') {
        is_float = true;
        r->p++;
        if (!skip_digits(r))
            return fail(r, "expected a digit");
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        is_float = true;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
            r->p++;
        if (!skip_digits(r))
            return fail(r, "expected a digit");
    }
    len = (size_t)(r->p - from);
    if (r->bounds.is_strict && is_float) {
        char copy[400] = "";

        if (len >= sizeof(copy))
            return fail(r, "a number with too many digits");
        memcpy(copy, from, len);
        if (isinf(hutch_pyfloat_parse(copy)))
            return fail(r, "a number that is too large");
    }
    return item != NULL ? set_number(r, item, from, len, is_float) : 0;
}

static int read_value(struct reader *r, unsigned depth, cJSON *item);

static cJSON *new_node(struct reader *r)
{
    cJSON *item;

    if (r->n_nodes++ >= r->bounds.max_nodes) {
        fail(r, "more values than allowed");
        return NULL;
    }
    item = cJSON_CreateNull();
    if (item == NULL)
        fail_memory(r);
    return item;
}

static int read_member(struct reader *r, unsigned depth, cJSON *container, bool is_object)
{
    cJSON *item = NULL;

    if (container != NULL) {
        item = new_node(r);
        if (item == NULL)
            return -1;
        cJSON_AddItemToArray(container, item); /* does for objects too, once there is a key */
    }
    if (is_object) {
        skip_space(r);
        if (r->p == r->end || *r->p != '"')
            return fail(r, "expected a key in double quotes");
        if (read_string(r, item != NULL ? &item->string : NULL) < 0)
            return -1;
        skip_space(r);
        if (!skip(r, ":"))
            return fail(r, "expected ':' after a key");
    }
    return read_value(r, depth, item);
}

static int drop_equal_keys(const struct reader *r, cJSON *object);

/* An object or an array: they differ in the brackets and in the keys. */
static int read_members(struct reader *r, unsigned depth, cJSON *container, bool is_object)
{
    const char *close = is_object ? "}" : "]";

    if (depth >= r->bounds.max_depth)
        return fail(r, "nested too deeply");
    r->p++;
    skip_space(r);
    if (skip(r, close))
        return 0;
    for (;;) {
        if (read_member(r, depth + 1, container, is_object) < 0)
            return -1;
        skip_space(r);
        if (skip(r, close))
            break;
        if (!skip(r, ","))
            return fail(r, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    return is_object && container != NULL ? drop_equal_keys(r, container) : 0;
}

static int read_container(struct reader *r, unsigned depth, cJSON *item)
{
    bool is_object = *r->p == '{', is_raw = r->bounds.raw_depth != 0 && depth >= r->bounds.raw_depth;
    const char *from = r->p;
    size_t len;

    if (item != NULL)
        item->type = is_object ? cJSON_Object : cJSON_Array;
    if (read_members(r, depth, is_raw ? NULL : item, is_object) < 0)
        return -1;
    if (item == NULL || !is_raw)
        return 0;
    len = (size_t)(r->p - from);
    item->valuestring = cJSON_malloc(len + 1);
    if (item->valuestring == NULL)
        return fail_memory(r);
    memcpy(item->valuestring, from, len);
    item->valuestring[len] = '\0';
    item->type = cJSON_Raw;
    return 0;
}

static int read_word(struct reader *r, cJSON *item)
{
    static const struct { const char *word; int type; double value; } words[] = {
        { "null", cJSON_NULL, 0 },         { "true", cJSON_True, 0 },
        { "false", cJSON_False, 0 },       { "NaN", cJSON_Number, NAN },
        { "Infinity", cJSON_Number, INFINITY }, { "-Infinity", cJSON_Number, -INFINITY },
    };

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        bool is_number = words[i].type == cJSON_Number;

        if ((is_number && r->bounds.is_strict) || !skip(r, words[i].word))
            continue;
        if (item != NULL && is_number)
            return set_special(r, item, words[i].word, words[i].value);
        if (item != NULL)
            item->type = words[i].type;
        return 0;
    }
    if (r->p < r->end && *r->p == '-')
        return read_number(r, item);
    return fail(r, r->p == r->end ? "the text ends where a value should stand" : "expected a value");
}

static int read_value(struct reader *r, unsigned depth, cJSON *item)
{
    int c;

    skip_space(r);
    c = r->p < r->end ? (unsigned char)*r->p : -1;
    if (c == '{' || c == '[')
        return read_container(r, depth, item);
    if (c == '"') {
        if (item != NULL)
            item->type = cJSON_String;
        return read_string(r, item != NULL ? &item->valuestring : NULL);
    }
    if (c >= '0' && c <= '9')
        return read_number(r, item);
    return read_word(r, item);
}

int hutch_nbjson_parse(const char *what, const char *text, size_t len, const struct nbjson_bounds *bounds, struct cJSON **ret,
                       struct hutch_err *err)
{
    struct reader r = { .what = what, .start = text, .p = text, .end = text + len, .bounds = *bounds, .err = err };
    cJSON *root;

    if (len > bounds->max_len)
        return hutch_err_set(err, 0, "%s: %zu bytes are more than %zu", what, len, bounds->max_len);
    if (r.bounds.max_depth > MAX_DEPTH)
        r.bounds.max_depth = MAX_DEPTH;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return fail(&r, "a byte order mark");
    root = new_node(&r);
    if (root == NULL)
        return -1;
    if (read_value(&r, 0, root) < 0) {
        cJSON_Delete(root);
        return -1;
    }
    skip_space(&r);
    if (r.p != r.end) {
        cJSON_Delete(root);
        return fail(&r, "something follows the end of the value");
    }
    *ret = root;
    return 0;
}

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

static int drop_equal_keys(const struct reader *r, cJSON *object)
{
    auto_free struct member *members = NULL;
    size_t n;

    if (object->child == NULL || object->child->next == NULL)
        return 0;
    members = sort_members(object, &n);
    if (members == NULL)
        return fail_memory(r);
    for (size_t i = 1; i < n; i++)
        if (strcmp(members[i - 1].item->string, members[i].item->string) == 0)
            cJSON_Delete(cJSON_DetachItemViaPointer(object, (cJSON *)members[i - 1].item));
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

char *hutch_nbjson_print(const struct cJSON *value, enum nbjson_form form, size_t *ret_len)
{
    struct text_buffer to = TEXT_BUFFER_INIT;

    print_value(&to, value, form, 0);
    if (form == NBJSON_FILE)
        hutch_text_add_string(&to, "\n");
    return hutch_text_take(&to, ret_len);
}
