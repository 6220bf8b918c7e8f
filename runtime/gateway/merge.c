#include "runtime/gateway/merge.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAMPLES 65536
#define MAX_NAME 512

/* ---- JSON ---- */

/* The elements of @from become @to's. */
static void move_elements(cJSON *to, cJSON *from)
{
    cJSON *each;

    while ((each = from->child))
        cJSON_AddItemToArray(to, cJSON_DetachItemViaPointer(from, each));
}

static void merge_lists(cJSON *to, cJSON *from)
{
    cJSON *field;

    if (cJSON_IsArray(to) && cJSON_IsArray(from))
        move_elements(to, from);
    if (!cJSON_IsObject(to))
        return;
    cJSON_ArrayForEach(field, to) {
        cJSON *other = cJSON_GetObjectItemCaseSensitive(from, field->string);

        if (cJSON_IsArray(field) && cJSON_IsArray(other))
            move_elements(field, other);
    }
}

static const char *name_of(const cJSON *item)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "name"));
}

static cJSON *find_named(const cJSON *array, const char *name)
{
    cJSON *each;

    cJSON_ArrayForEach(each, array)
        if (name_of(each) && strcmp(name_of(each), name) == 0)
            return each;
    return NULL;
}

static void merge_sums(cJSON *to, cJSON *from);

static void merge_named(cJSON *to, cJSON *from)
{
    cJSON *each, *next;

    for (each = from->child; each; each = next) {
        cJSON *same = name_of(each) ? find_named(to, name_of(each)) : NULL;

        next = each->next;
        if (same)
            merge_sums(same, each);
        else
            cJSON_AddItemToArray(to, cJSON_DetachItemViaPointer(from, each));
    }
}

/* As deep as answers of ours are. */
static void merge_sums(cJSON *to, cJSON *from)
{
    cJSON *field;

    cJSON_ArrayForEach(field, to) {
        cJSON *other = cJSON_GetObjectItemCaseSensitive(from, field->string);

        if (cJSON_IsNumber(field) && cJSON_IsNumber(other))
            cJSON_SetNumberValue(field, field->valuedouble + other->valuedouble);
        else if (cJSON_IsTrue(field) && cJSON_IsFalse(other))
            field->type = cJSON_False;
        else if (cJSON_IsArray(field) && cJSON_IsArray(other))
            merge_named(field, other);
    }
}

static char *merge_json(const char *const *texts, size_t n, size_t *ret_len, void (*merge)(cJSON *to, cJSON *from))
{
    cJSON *all = cJSON_Parse(texts[0]);
    char *text = NULL;

    for (size_t i = 1; i < n && all; i++) {
        cJSON *part = cJSON_Parse(texts[i]);

        if (part) {
            merge(all, part);
        } else {
            cJSON_Delete(all);
            all = NULL;
        }
        cJSON_Delete(part);
    }
    text = all ? cJSON_PrintUnformatted(all) : NULL;
    cJSON_Delete(all);
    *ret_len = text ? strlen(text) : 0;
    return text;
}

char *hutch_merge_lists(const char *const *texts, size_t n, size_t *ret_len)
{
    return merge_json(texts, n, ret_len, merge_lists);
}

char *hutch_merge_sums(const char *const *texts, size_t n, size_t *ret_len)
{
    return merge_json(texts, n, ret_len, merge_sums);
}

/* ---- Prometheus' text ---- */

struct sample {
    const char *name; /* with its labels; not terminated */
    size_t len;
    double value;
    bool is_taken;    /* it was added to the same one of the text */
};

struct samples {
    struct sample *list;
    size_t n, next;
};

/* A line "NAME{LABELS} VALUE". False: it is a comment. */
static bool read_sample(const char *line, size_t len, struct sample *ret)
{
    const char *blank = memrchr(line, ' ', len);

    if (len == 0 || line[0] == '#' || !blank)
        return false;
    *ret = (struct sample){ .name = line, .len = (size_t)(blank - line), .value = strtod(blank + 1, NULL) };
    return true;
}

static double put_together(const struct sample *s, double other)
{
    static const char state[] = "hutch_ready";

    if (s->len == strlen(state) && memcmp(s->name, state, s->len) == 0)
        return s->value < other ? s->value : other;
    return s->value + other;
}

/* The samples of another text: those of all workers come in the same order, so the next one is nearly always it. */
static double take_sample(struct samples *all, const struct sample *wanted)
{
    for (size_t i = 0; i < all->n; i++) {
        struct sample *s = &all->list[(all->next + i) % all->n];

        if (s->len == wanted->len && memcmp(s->name, wanted->name, s->len) == 0) {
            all->next = (all->next + i + 1) % all->n;
            s->is_taken = true;
            return s->value;
        }
    }
    return 0;
}

static size_t read_samples(const char *text, struct sample *ret)
{
    size_t n = 0;

    for (; *text && n < MAX_SAMPLES; text += strcspn(text, "\n"), text += *text == '\n')
        n += read_sample(text, strcspn(text, "\n"), &ret[n]);
    return n;
}

/* Whether a sample is of the metric @name, which is not terminated; a histogram has several of them. */
static bool is_of(const struct sample *s, const char *name, size_t len)
{
    static const char *const endings[] = { "", "_bucket", "_sum", "_count" };

    if (s->len < len || memcmp(s->name, name, len) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t end = len + strlen(endings[i]);

        if (s->len >= end && memcmp(s->name + len, endings[i], end - len) == 0 &&
            (s->len == end || s->name[end] == '{'))
            return true;
    }
    return false;
}

static void add_sample(struct text_buffer *t, const struct sample *s, double value)
{
    hutch_text_add(t, s->name, s->len);
    hutch_text_addf(t, " %.17g\n", value);
}

/* What only the other text has of a metric: all samples of it stand together. */
static void add_rest(struct text_buffer *t, struct samples *all, const char *name, size_t len)
{
    for (size_t i = 0; i < all->n && len > 0; i++) {
        struct sample *s = &all->list[i];

        if (!s->is_taken && is_of(s, name, len)) {
            add_sample(t, s, s->value);
            s->is_taken = true;
        }
    }
}

/* @text, and the numbers of @all. */
static char *add_samples(const char *text, struct samples *all, size_t *ret_len)
{
    static const char type[] = "# TYPE ", help[] = "# HELP ";
    struct text_buffer t = TEXT_BUFFER_INIT;
    const char *name = text;
    size_t name_len = 0;

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t len = strcspn(text, "\n");
        struct sample sample;

        if (read_sample(text, len, &sample)) {
            add_sample(&t, &sample, put_together(&sample, take_sample(all, &sample)));
            continue;
        }
        if (strncmp(text, help, strlen(help)) == 0) {
            add_rest(&t, all, name, name_len);
            name_len = 0;
        } else if (strncmp(text, type, strlen(type)) == 0) {
            name = text + strlen(type);
            name_len = strcspn(name, " \n");
        }
        hutch_text_add(&t, text, len);
        hutch_text_add(&t, "\n", 1);
    }
    add_rest(&t, all, name, name_len);
    return hutch_text_take(&t, ret_len);
}

char *hutch_merge_metrics(const char *const *texts, size_t n, size_t *ret_len)
{
    auto_free struct sample *list = calloc(MAX_SAMPLES, sizeof(*list));
    char *all = list ? strdup(texts[0]) : NULL;

    *ret_len = all ? strlen(all) : 0;
    for (size_t i = 1; i < n && all; i++) {
        struct samples samples = { .list = list, .n = read_samples(texts[i], list) };
        char *sum = add_samples(all, &samples, ret_len);

        free(all);
        all = sum;
    }
    return all;
}
