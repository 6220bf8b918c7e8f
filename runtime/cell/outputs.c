#include "runtime/cell/outputs.h"

#include "runtime/text/ansi.h"
#include "sandbox/fd.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAME (4u << 10)   /* bytes of an error's name and value, when there is no more room */
#define MAX_VALUE (64u << 10)

/* What a display shows. All outputs with one id show the same, because each of them replaces what the others do. */
struct shown {
    char *id;              /* owned; as JSON; NULL: none, and one output */
    char *data, *metadata; /* owned; JSON */
    size_t len;            /* of both */
    size_t n_outputs;
};

enum item_kind { ITEM_STREAM, ITEM_DISPLAY, ITEM_VALUE, ITEM_ERROR };

struct item {
    enum item_kind kind;
    int stream;
    struct text_buffer text; /* of a stream; of an error its JSON */
    size_t line_start;      /* where the last line of the text begins */
    bool ends_in_return;    /* which removes that line if anything but a newline follows */
    struct shown *shown;    /* of a display and value */
    int64_t count;          /* of a value */
};

struct cell_outputs {
    struct item *items; /* owned */
    size_t n, room;
    void *ids;          /* tsearch(3) of the struct shown that have an id: a tree, as hashes of hostile ids would collide */
    uint64_t max_bytes, n_bytes, n_reserve;
    bool is_truncated, is_text_cut, is_clear_pending, is_broken;
    struct text_buffer told; /* what was returned last */
    char notice[80];
};

/* ---- life ---- */

struct cell_outputs *hutch_cell_outputs_new(uint64_t max_bytes)
{
    struct cell_outputs *o = calloc(1, sizeof(*o));

    if (o != NULL)
        o->max_bytes = max_bytes != 0 ? max_bytes : UINT64_MAX;
    return o;
}

static void free_shown(void *p)
{
    struct shown *shown = p;

    if (shown == NULL)
        return;
    free(shown->id);
    free(shown->data);
    free(shown->metadata);
    free(shown);
}

static void drop_all(struct cell_outputs *o)
{
    for (size_t i = 0; i < o->n; i++) {
        hutch_text_done(&o->items[i].text);
        if (o->items[i].shown != NULL && o->items[i].shown->id == NULL)
            free_shown(o->items[i].shown);
    }
    tdestroy(o->ids, free_shown);
    o->ids = NULL;
    o->n = 0;
    o->n_bytes = o->n_reserve = 0;
    o->is_truncated = o->is_text_cut = o->is_clear_pending = false;
}

void hutch_cell_outputs_free(struct cell_outputs *o)
{
    if (o == NULL)
        return;
    drop_all(o);
    hutch_text_done(&o->told);
    free(o->items);
    free(o);
}

/* A new last item; NULL when there are too many, or no memory. */
static struct item *add_item(struct cell_outputs *o, enum item_kind kind, size_t max)
{
    if (o->n >= max) {
        o->is_truncated = true;
        return NULL;
    }
    if (o->n == o->room) {
        size_t room = o->room != 0 ? 2 * o->room : 4;
        struct item *items = realloc(o->items, room * sizeof(*items));

        if (items == NULL) {
            o->is_broken = true;
            return NULL;
        }
        o->items = items;
        o->room = room;
    }
    o->items[o->n] = (struct item){ .kind = kind, .text = TEXT_BUFFER_INIT };
    return &o->items[o->n++];
}

static uint64_t bytes_left(const struct cell_outputs *o)
{
    return o->n_bytes < o->max_bytes ? o->max_bytes - o->n_bytes : 0;
}

static void clear_if_pending(struct cell_outputs *o)
{
    if (o->is_clear_pending)
        drop_all(o);
}

void hutch_cell_outputs_clear(struct cell_outputs *o, bool wait)
{
    if (wait)
        o->is_clear_pending = true;
    else
        drop_all(o);
}

/* ---- text ---- */

static struct item *stream_item(struct cell_outputs *o, int stream, size_t max)
{
    struct item *last = o->n > 0 ? &o->items[o->n - 1] : NULL;

    if (last != NULL && last->kind == ITEM_STREAM && last->stream == stream)
        return last;
    last = add_item(o, ITEM_STREAM, max);
    if (last != NULL)
        last->stream = stream;
    return last;
}

/* Adds what ends in the only carriage return that it has, or has none. nbconvert 6.5 replaces r".*\r(?=[^\n])" by nothing, when all
 * text is there; removing each line at the moment at which it turns out to be overwritten comes to the same. */
static void add_run(struct cell_outputs *o, struct item *item, const char *text, size_t len)
{
    const char *newline;
    size_t before;

    if (item->ends_in_return && text[0] != '\n') {
        o->n_bytes -= item->text.len - item->line_start;
        item->text.len = item->line_start;
    }
    before = item->text.len;
    hutch_text_add(&item->text, text, len);
    o->n_bytes += len;
    newline = memrchr(text, '\n', len);
    if (newline != NULL)
        item->line_start = before + (size_t)(newline - text) + 1;
    item->ends_in_return = text[len - 1] == '\r';
    if (item->text.is_broken)
        o->is_broken = true;
}

static size_t cut_within_char(const char *text, size_t len)
{
    while (len > 0 && (text[len] & 0xc0) == 0x80)
        len--;
    return len;
}

static const char *say_cut(struct cell_outputs *o)
{
    struct item *item;

    o->is_truncated = o->is_text_cut = true;
    if (o->n >= CELL_MAX_OUTPUTS)
        snprintf(o->notice, sizeof(o->notice), "\n[outputs after the first %d left out]\n", CELL_MAX_OUTPUTS);
    else
        snprintf(o->notice, sizeof(o->notice), "\n[output beyond %" PRIu64 " bytes left out]\n", o->max_bytes);
    item = stream_item(o, 2, CELL_MAX_OUTPUTS + 1);
    if (item == NULL)
        return NULL;
    item->ends_in_return = false;
    hutch_text_add(&item->text, o->notice, strlen(o->notice));
    return o->notice;
}

size_t hutch_cell_outputs_add_text(struct cell_outputs *o, int stream, const char *text, size_t len, const char **ret_notice)
{
    size_t done = 0;

    *ret_notice = NULL;
    if (len == 0)
        return 0;
    clear_if_pending(o);
    if (o->is_text_cut || o->is_broken)
        return 0;
    while (done < len) {
        const char *back = memchr(text + done, '\r', len - done);
        size_t run = back != NULL ? (size_t)(back - (text + done)) + 1 : len - done;
        struct item *item = stream_item(o, stream, CELL_MAX_OUTPUTS);
        uint64_t left = bytes_left(o);

        if (item != NULL && item->ends_in_return && text[done] != '\n')
            left += item->text.len - item->line_start; /* which goes */
        if (item != NULL && run <= left) {
            add_run(o, item, text + done, run);
            done += run;
            continue;
        }
        if (o->is_broken)
            return done;
        run = item != NULL ? cut_within_char(text + done, (size_t)left) : 0;
        if (run > 0)
            add_run(o, item, text + done, run);
        else if (item != NULL && item->text.len == 0)
            o->n--; /* it was made for this text */
        *ret_notice = say_cut(o);
        return done + run;
    }
    return done;
}

/* ---- JSON of one output ---- */

static void put(struct text_buffer *to, const char *text)
{
    hutch_text_add(to, text, strlen(text));
}

static void put_item(struct text_buffer *to, const struct item *item)
{
    switch (item->kind) {
    case ITEM_STREAM:
        put(to, item->stream == 1 ? "{\"name\":\"stdout\"" : "{\"name\":\"stderr\"");
        put(to, ",\"output_type\":\"stream\",\"text\":");
        hutch_json_quote(to, item->text.data, item->text.len);
        break;
    case ITEM_ERROR:
        hutch_text_add(to, item->text.data, item->text.len);
        return;
    case ITEM_DISPLAY:
    case ITEM_VALUE:
        put(to, "{\"data\":");
        put(to, item->shown->data);
        if (item->kind == ITEM_VALUE)
            hutch_text_addf(to, ",\"execution_count\":%" PRId64, item->count);
        put(to, ",\"metadata\":");
        put(to, item->shown->metadata);
        put(to, item->kind == ITEM_VALUE ? ",\"output_type\":\"execute_result\"" : ",\"output_type\":\"display_data\"");
        if (item->shown->id != NULL) {
            put(to, ",\"transient\":{\"display_id\":");
            put(to, item->shown->id);
            put(to, "}");
        }
        break;
    }
    put(to, "}");
}

static const char *told(struct cell_outputs *o)
{
    if (o->told.is_broken)
        o->is_broken = true;
    return o->is_broken ? NULL : o->told.data;
}

static const char *tell_item(struct cell_outputs *o, const struct item *item)
{
    hutch_text_done(&o->told);
    put_item(&o->told, item);
    return told(o);
}

/* ---- displays ---- */

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct shown *)a)->id, ((const struct shown *)b)->id);
}

static struct shown *find_shown(const struct cell_outputs *o, char *id)
{
    const struct shown key = { .id = id };
    struct shown *const *found = id != NULL ? tfind(&key, &o->ids, compare_ids) : NULL;

    return found != NULL ? *found : NULL;
}

/* What @n outputs are to show: @data and @metadata, or that these are left out when it becomes too much; without an id. @freed: bytes that
 * it takes the place of. */
static struct shown *make_shown(struct cell_outputs *o, const cJSON *data, const cJSON *metadata, uint64_t n, uint64_t freed)
{
    struct shown *shown = calloc(1, sizeof(*shown));

    if (shown != NULL) {
        shown->data = hutch_nbjson_print(data, NBJSON_COMPACT, NULL);
        shown->metadata = hutch_nbjson_print(metadata, NBJSON_COMPACT, NULL);
    }
    if (shown == NULL || shown->data == NULL || shown->metadata == NULL) {
        free_shown(shown);
        o->is_broken = true;
        return NULL;
    }
    shown->len = strlen(shown->data) + strlen(shown->metadata);
    if (shown->len > (bytes_left(o) + freed) / (n > 0 ? n : 1)) {
        char notice[140];

        snprintf(notice, sizeof(notice), "{\"text/plain\":\"[output of %zu bytes left out: more than %" PRIu64 "]\"}", shown->len,
                 o->max_bytes);
        free(shown->data);
        free(shown->metadata);
        shown->data = strdup(notice);
        shown->metadata = strdup("{}");
        shown->len = 0; /* notices are bounded by the number of outputs */
        o->is_truncated = true;
        if (shown->data == NULL || shown->metadata == NULL) {
            free_shown(shown);
            o->is_broken = true;
            return NULL;
        }
    }
    return shown;
}

static void account(struct cell_outputs *o, const struct shown *shown, bool is_added)
{
    uint64_t bytes = (uint64_t)shown->len * shown->n_outputs;

    o->n_bytes = is_added ? o->n_bytes + bytes : o->n_bytes - bytes;
}

/* @with, which is freed, takes the place of what @shown is. */
static void replace_shown(struct cell_outputs *o, struct shown *shown, struct shown *with)
{
    char *data = shown->data, *metadata = shown->metadata;

    account(o, shown, false);
    shown->data = with->data;
    shown->metadata = with->metadata;
    shown->len = with->len;
    with->data = data;
    with->metadata = metadata;
    account(o, shown, true);
    free_shown(with);
}

static const char *add_shown(struct cell_outputs *o, enum item_kind kind, const cJSON *data, const cJSON *metadata, const cJSON *id,
                             int64_t count)
{
    auto_free char *id_json = NULL;
    struct shown *shown, *old;
    struct item *item;

    clear_if_pending(o);
    if (o->is_broken)
        return NULL;
    /* nbclient takes an empty id for none */
    id_json = id != NULL && id->valuestring[0] != '\0' ? hutch_nbjson_print(id, NBJSON_COMPACT, NULL) : NULL;
    if (id != NULL && id->valuestring[0] != '\0' && id_json == NULL) {
        o->is_broken = true;
        return NULL;
    }
    old = find_shown(o, id_json);
    shown = make_shown(o, data, metadata, old != NULL ? old->n_outputs + 1 : 1, old != NULL ? (uint64_t)old->len * old->n_outputs : 0);
    if (shown == NULL)
        return NULL;
    if (old != NULL) {
        replace_shown(o, old, shown);
        shown = old;
    }
    item = add_item(o, kind, CELL_MAX_OUTPUTS);
    if (item == NULL) {
        if (old == NULL)
            free_shown(shown);
        return NULL;
    }
    if (old == NULL && id_json != NULL) {
        shown->id = id_json;
        id_json = NULL;
        if (tsearch(shown, &o->ids, compare_ids) == NULL) {
            o->n--;
            free_shown(shown);
            o->is_broken = true;
            return NULL;
        }
    }
    item->shown = shown;
    item->count = count;
    shown->n_outputs++;
    o->n_bytes += shown->len;
    return tell_item(o, item);
}

const char *hutch_cell_outputs_add_display(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                           const struct cJSON *id)
{
    return add_shown(o, ITEM_DISPLAY, data, metadata, id, 0);
}

const char *hutch_cell_outputs_add_value(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                         const struct cJSON *id, int64_t count)
{
    return add_shown(o, ITEM_VALUE, data, metadata, id, count);
}

const char *hutch_cell_outputs_update(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                      const struct cJSON *id)
{
    auto_free char *id_json = hutch_nbjson_print(id, NBJSON_COMPACT, NULL);
    struct shown *old, *shown;

    if (id_json == NULL)
        o->is_broken = true;
    if (o->is_broken)
        return NULL;
    old = find_shown(o, id_json);
    shown = make_shown(o, data, metadata, old != NULL ? old->n_outputs : 1, old != NULL ? (uint64_t)old->len * old->n_outputs : 0);
    if (shown == NULL)
        return NULL;
    hutch_text_done(&o->told);
    put(&o->told, "{\"data\":");
    put(&o->told, shown->data);
    put(&o->told, ",\"id\":");
    put(&o->told, id_json);
    put(&o->told, ",\"metadata\":");
    put(&o->told, shown->metadata);
    put(&o->told, "}");
    if (old != NULL)
        replace_shown(o, old, shown);
    else
        free_shown(shown);
    return told(o);
}

/* ---- errors ---- */

static void put_error(struct text_buffer *to, const cJSON *ename, const cJSON *evalue, const cJSON *traceback)
{
    const struct { const char *key; const cJSON *value; } parts[] = {
        { "{\"ename\":", ename }, { ",\"evalue\":", evalue }, { ",\"output_type\":\"error\",\"traceback\":", traceback },
    };

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        auto_free char *json = hutch_nbjson_print(parts[i].value, NBJSON_COMPACT, NULL);

        put(to, parts[i].key);
        if (json != NULL)
            put(to, json);
        else
            to->is_broken = true;
    }
    put(to, "}");
}

static cJSON *shortened(const cJSON *string, size_t max)
{
    size_t len = strlen(string->valuestring);

    return hutch_nbjson_string(string->valuestring, len > max ? cut_within_char(string->valuestring, max) : len);
}

/* Without its traceback, when that does not fit any more: what went wrong is to be told in any case. */
static void put_short_error(struct text_buffer *to, const cJSON *ename, const cJSON *evalue)
{
    cJSON *name = shortened(ename, MAX_NAME), *value = shortened(evalue, MAX_VALUE), *traceback = cJSON_CreateArray();

    if (name != NULL && value != NULL && traceback != NULL)
        put_error(to, name, value, traceback);
    else
        to->is_broken = true;
    cJSON_Delete(name);
    cJSON_Delete(value);
    cJSON_Delete(traceback);
}

const char *hutch_cell_outputs_add_error(struct cell_outputs *o, const struct cJSON *ename, const struct cJSON *evalue,
                                         const struct cJSON *traceback)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    struct item *item;

    clear_if_pending(o);
    if (o->is_broken)
        return NULL;
    put_error(&text, ename, evalue, traceback);
    if (text.len > bytes_left(o)) {
        o->is_truncated = true;
        if (text.len > CELL_ERROR_RESERVE - o->n_reserve) {
            hutch_text_done(&text);
            put_short_error(&text, ename, evalue);
        }
        if (text.len > CELL_ERROR_RESERVE - o->n_reserve) {
            hutch_text_done(&text);
            return NULL;
        }
        o->n_reserve += text.len;
    }
    item = add_item(o, ITEM_ERROR, CELL_MAX_OUTPUTS + 10);
    if (item == NULL || text.is_broken) {
        o->is_broken = o->is_broken || text.is_broken;
        o->n -= item != NULL;
        hutch_text_done(&text);
        return NULL;
    }
    item->text = text;
    o->n_bytes += text.len;
    return tell_item(o, item);
}

/* The parts of a traceback, a newline between them. NULL: ENOMEM. */
static char *join_traceback(const cJSON *parts)
{
    struct text_buffer to = TEXT_BUFFER_INIT;
    const cJSON *part;

    cJSON_ArrayForEach(part, parts) {
        auto_free char *text = hutch_nbjson_c_text(part);

        if (part != parts->child)
            put(&to, "\n");
        if (text != NULL)
            put(&to, text);
        else
            to.is_broken = true;
    }
    return hutch_text_take(&to, NULL);
}

int hutch_cell_outputs_error(const struct cell_outputs *o, struct cell_error *ret)
{
    struct cell_error error = CELL_ERROR_INIT;
    const struct item *item = NULL;
    cJSON *root = NULL;

    for (size_t i = o->n; i > 0 && item == NULL; i--)
        if (o->items[i - 1].kind == ITEM_ERROR)
            item = &o->items[i - 1];
    if (item == NULL) {
        *ret = error;
        return 0;
    }
    if (hutch_nbjson_parse("error", item->text.data, item->text.len, &NBJSON_NOTEBOOK, &root, &(struct hutch_err){ 0 }) < 0)
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

void hutch_cell_error_done(struct cell_error *error)
{
    free(error->name);
    free(error->value);
    free(error->traceback);
    free(error->traceback_ansi);
    *error = (struct cell_error)CELL_ERROR_INIT;
}

/* ---- all of them ---- */

char *hutch_cell_outputs_json(const struct cell_outputs *o, size_t *ret_len)
{
    struct text_buffer to = TEXT_BUFFER_INIT;

    to.is_broken = o->is_broken;
    put(&to, "[");
    for (size_t i = 0; i < o->n; i++) {
        if (i > 0)
            put(&to, ",");
        put_item(&to, &o->items[i]);
    }
    put(&to, "]");
    return hutch_text_take(&to, ret_len);
}

bool hutch_cell_outputs_is_truncated(const struct cell_outputs *o)
{
    return o->is_truncated;
}

char *hutch_cell_outputs_text(const struct cell_outputs *o, int stream, size_t *ret_len)
{
    struct text_buffer to = TEXT_BUFFER_INIT;

    for (size_t i = 0; i < o->n; i++)
        if (o->items[i].kind == ITEM_STREAM && o->items[i].stream == stream)
            hutch_text_add(&to, o->items[i].text.data, o->items[i].text.len);
    return hutch_text_take(&to, ret_len);
}
