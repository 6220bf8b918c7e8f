#include "runtime/cell/outputs.h"

#include "runtime/cell/display.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum item_kind { ITEM_STREAM, ITEM_DISPLAY, ITEM_VALUE, ITEM_ERROR };

struct item {
    enum item_kind kind;
    int stream;
    struct text_buffer text; /* of a stream; of an error its JSON */
    size_t line_start;       /* where the last line of the text begins */
    bool ends_in_return;     /* which removes that line if anything but a newline follows */
    struct cell_display *display; /* of a display and value */
    int64_t count;           /* of a value */
};

struct cell_outputs {
    struct item *items; /* owned */
    size_t n, room;
    void *ids; /* the displays that have one: runtime/cell/display.h */
    uint64_t max_bytes, n_bytes, n_reserve;
    enum cell_outputs_limit reached;
    bool is_truncated, is_text_cut, is_clear_pending, is_broken;
    uint64_t n_widget_bytes; /* these three are not cleared with the outputs */
    size_t n_widgets;
    bool has_lost_widget;
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

static void drop_all(struct cell_outputs *o)
{
    for (size_t i = 0; i < o->n; i++) {
        hutch_text_done(&o->items[i].text);
        if (o->items[i].display != NULL && o->items[i].display->id == NULL)
            hutch_cell_display_free(o->items[i].display);
    }
    hutch_cell_display_free_all(&o->ids);
    o->n = 0;
    o->n_bytes = o->n_reserve = 0;
    o->reached = CELL_OUTPUTS_NO_LIMIT;
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

static void reach(struct cell_outputs *o, enum cell_outputs_limit limit)
{
    o->is_truncated = true;
    if (o->reached == CELL_OUTPUTS_NO_LIMIT)
        o->reached = limit;
}

/* A new last item; NULL when there are too many, or no memory. */
static struct item *add_item(struct cell_outputs *o, enum item_kind kind, size_t max)
{
    if (o->n >= max) {
        reach(o, CELL_OUTPUTS_NUMBER);
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

/* Adds what ends in the only carriage return that it has, or has none. nbconvert 6.5 replaces r".*\r(?=[^\n])" by
 * nothing, when all text is there; removing each line at the moment at which it turns out to be overwritten comes to
 * the same. */
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

static const char *tell_cut(struct cell_outputs *o)
{
    struct item *item;

    reach(o, o->n >= CELL_MAX_OUTPUTS ? CELL_OUTPUTS_NUMBER : CELL_OUTPUTS_BYTES);
    o->is_text_cut = true;
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

size_t hutch_cell_outputs_add_text(struct cell_outputs *o, int stream, const char *text, size_t len,
                                   const char **ret_notice)
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
        run = item != NULL ? hutch_utf8_cut(text + done, len - done, (size_t)left) : 0;
        if (run > 0)
            add_run(o, item, text + done, run);
        else if (item != NULL && item->text.len == 0)
            o->n--; /* it was made for this text */
        *ret_notice = tell_cut(o);
        return done + run;
    }
    return done;
}

/* ---- JSON of one output ---- */

static void print_item(struct text_buffer *to, const struct item *item)
{
    switch (item->kind) {
    case ITEM_STREAM:
        hutch_text_add_string(to, item->stream == 1 ? "{\"name\":\"stdout\"" : "{\"name\":\"stderr\"");
        hutch_text_add_string(to, ",\"output_type\":\"stream\",\"text\":");
        hutch_json_quote(to, item->text.data, item->text.len);
        break;
    case ITEM_ERROR:
        hutch_text_add(to, item->text.data, item->text.len);
        return;
    case ITEM_DISPLAY:
    case ITEM_VALUE:
        hutch_text_add_string(to, "{\"data\":");
        hutch_text_add_string(to, item->display->data);
        if (item->kind == ITEM_VALUE)
            hutch_text_addf(to, ",\"execution_count\":%" PRId64, item->count);
        hutch_text_add_string(to, ",\"metadata\":");
        hutch_text_add_string(to, item->display->metadata);
        hutch_text_addf(to, ",\"output_type\":\"%s\"", item->kind == ITEM_VALUE ? "execute_result" : "display_data");
        if (item->display->id != NULL) {
            hutch_text_add_string(to, ",\"transient\":{\"display_id\":");
            hutch_text_add_string(to, item->display->id);
            hutch_text_add_string(to, "}");
        }
        break;
    }
    hutch_text_add_string(to, "}");
}

static const char *told_text(struct cell_outputs *o)
{
    if (o->told.is_broken)
        o->is_broken = true;
    return o->is_broken ? NULL : o->told.data;
}

static const char *tell_item(struct cell_outputs *o, const struct item *item)
{
    hutch_text_done(&o->told);
    print_item(&o->told, item);
    return told_text(o);
}

/* ---- displays ---- */

static uint64_t bytes_of(const struct cell_display *display)
{
    return display != NULL ? (uint64_t)display->len * display->n_outputs : 0;
}

/* What @n outputs are to show, in place of @old, which may be NULL: @data and @metadata, or that these are left out. */
static struct cell_display *make_display(struct cell_outputs *o, const cJSON *data, const cJSON *metadata, size_t n,
                                         const struct cell_display *old)
{
    struct cell_display *display = hutch_cell_display_new(data, metadata);
    uint64_t room = (bytes_left(o) + bytes_of(old)) / (n > 0 ? n : 1);

    if (display != NULL && display->len > room) {
        reach(o, CELL_OUTPUTS_BYTES);
        if (hutch_cell_display_omit(display, o->max_bytes) < 0) {
            hutch_cell_display_free(display);
            display = NULL;
        }
    }
    if (display == NULL)
        o->is_broken = true;
    return display;
}

/* @with, which is freed, takes the place of what @display is. */
static void replace_display(struct cell_outputs *o, struct cell_display *display, struct cell_display *with)
{
    o->n_bytes -= bytes_of(display);
    hutch_cell_display_replace(display, with);
    o->n_bytes += bytes_of(display);
}

/* @ret: as JSON, for the caller to free; NULL where there is none, or an empty one, which nbclient takes for none. */
static int print_id(struct cell_outputs *o, const cJSON *id, char **ret)
{
    *ret = NULL;
    if (id == NULL || id->valuestring[0] == '\0')
        return 0;
    *ret = hutch_nbjson_print(id, NBJSON_COMPACT, NULL);
    if (*ret == NULL)
        o->is_broken = true;
    return *ret != NULL ? 0 : -1;
}

/* A new last item that shows @display; NULL when there is no room or no memory. */
static struct item *add_display_item(struct cell_outputs *o, enum item_kind kind, struct cell_display *display)
{
    struct item *item = add_item(o, kind, CELL_MAX_OUTPUTS);

    if (item == NULL)
        return NULL;
    if (display->id != NULL && display->n_outputs == 0 && hutch_cell_display_insert(&o->ids, display) < 0) {
        o->n--;
        o->is_broken = true;
        return NULL;
    }
    item->display = display;
    display->n_outputs++;
    o->n_bytes += display->len;
    return item;
}

static const char *add_display(struct cell_outputs *o, enum item_kind kind, const cJSON *data, const cJSON *metadata,
                               const cJSON *id, int64_t count)
{
    auto_free char *id_json = NULL;
    struct cell_display *display, *old;
    struct item *item;

    clear_if_pending(o);
    if (o->is_broken || print_id(o, id, &id_json) < 0)
        return NULL;
    old = id_json != NULL ? hutch_cell_display_find(&o->ids, id_json) : NULL;
    display = make_display(o, data, metadata, old != NULL ? old->n_outputs + 1 : 1, old);
    if (display == NULL)
        return NULL;
    if (old != NULL) {
        replace_display(o, old, display);
        display = old;
    } else {
        display->id = id_json;
        id_json = NULL;
    }
    item = add_display_item(o, kind, display);
    if (item == NULL) {
        if (old == NULL)
            hutch_cell_display_free(display);
        return NULL;
    }
    item->count = count;
    return tell_item(o, item);
}

const char *hutch_cell_outputs_add_display(struct cell_outputs *o, const struct cJSON *data,
                                           const struct cJSON *metadata, const struct cJSON *id)
{
    return add_display(o, ITEM_DISPLAY, data, metadata, id, 0);
}

const char *hutch_cell_outputs_add_value(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                         const struct cJSON *id, int64_t count)
{
    return add_display(o, ITEM_VALUE, data, metadata, id, count);
}

const char *hutch_cell_outputs_update(struct cell_outputs *o, const struct cJSON *data, const struct cJSON *metadata,
                                      const struct cJSON *id)
{
    auto_free char *id_json = hutch_nbjson_print(id, NBJSON_COMPACT, NULL);
    struct cell_display *old, *display;

    if (id_json == NULL)
        o->is_broken = true;
    if (o->is_broken)
        return NULL;
    old = hutch_cell_display_find(&o->ids, id_json);
    display = make_display(o, data, metadata, old != NULL ? old->n_outputs : 1, old);
    if (display == NULL)
        return NULL;
    hutch_text_done(&o->told);
    hutch_text_add_string(&o->told, "{\"data\":");
    hutch_text_add_string(&o->told, display->data);
    hutch_text_add_string(&o->told, ",\"id\":");
    hutch_text_add_string(&o->told, id_json);
    hutch_text_add_string(&o->told, ",\"metadata\":");
    hutch_text_add_string(&o->told, display->metadata);
    hutch_text_add_string(&o->told, "}");
    if (old != NULL)
        replace_display(o, old, display);
    else
        hutch_cell_display_free(display);
    return told_text(o);
}

/* ---- widgets ---- */

const char *hutch_cell_outputs_lose_widget(struct cell_outputs *o, const struct cJSON *id)
{
    o->has_lost_widget = true;
    hutch_text_done(&o->told);
    hutch_text_add_string(&o->told, "{\"id\":");
    hutch_nbjson_add(&o->told, id, NBJSON_COMPACT);
    hutch_text_add_string(&o->told, ",\"lost\":true}");
    return told_text(o);
}

const char *hutch_cell_outputs_add_widget(struct cell_outputs *o, const struct cJSON *id, const struct cJSON *state,
                                          const struct cJSON *buffers)
{
    hutch_text_done(&o->told);
    hutch_text_add_string(&o->told, "{\"buffers\":");
    hutch_nbjson_add(&o->told, buffers, NBJSON_COMPACT);
    hutch_text_add_string(&o->told, ",\"id\":");
    hutch_nbjson_add(&o->told, id, NBJSON_COMPACT);
    hutch_text_add_string(&o->told, ",\"state\":");
    hutch_nbjson_add(&o->told, state, NBJSON_COMPACT);
    hutch_text_add_string(&o->told, "}");
    if (o->told.len > o->max_bytes - o->n_widget_bytes || o->n_widgets == CELL_MAX_OUTPUTS)
        return hutch_cell_outputs_lose_widget(o, id);
    o->n_widget_bytes += o->told.len;
    o->n_widgets++;
    return told_text(o);
}

/* ---- errors ---- */

const char *hutch_cell_outputs_add_error(struct cell_outputs *o, const struct cJSON *ename, const struct cJSON *evalue,
                                         const struct cJSON *traceback)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    struct item *item;

    clear_if_pending(o);
    if (o->is_broken)
        return NULL;
    hutch_cell_error_print(&text, ename, evalue, traceback);
    if (text.len > bytes_left(o)) {
        reach(o, CELL_OUTPUTS_BYTES);
        if (text.len > CELL_ERROR_RESERVE - o->n_reserve) {
            hutch_text_done(&text);
            hutch_cell_error_print_short(&text, ename, evalue); /* what went wrong is to be told in any case */
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

int hutch_cell_outputs_error(const struct cell_outputs *o, struct cell_error *ret)
{
    for (size_t i = o->n; i > 0; i--) {
        const struct item *item = &o->items[i - 1];

        if (item->kind == ITEM_ERROR)
            return hutch_cell_error_parse(item->text.data, item->text.len, ret);
    }
    *ret = (struct cell_error)CELL_ERROR_INIT;
    return 0;
}

/* ---- all of them ---- */

char *hutch_cell_outputs_json(const struct cell_outputs *o, size_t *ret_len)
{
    struct text_buffer to = TEXT_BUFFER_INIT;

    to.is_broken = o->is_broken;
    hutch_text_add_string(&to, "[");
    for (size_t i = 0; i < o->n; i++) {
        if (i > 0)
            hutch_text_add_string(&to, ",");
        print_item(&to, &o->items[i]);
    }
    hutch_text_add_string(&to, "]");
    return hutch_text_take(&to, ret_len);
}

void hutch_cell_outputs_note_omitted(struct cell_outputs *o, uint64_t bytes)
{
    o->is_truncated = true;
    if (bytes > o->max_bytes)
        reach(o, CELL_OUTPUTS_BYTES);
}

enum cell_outputs_limit hutch_cell_outputs_reached(const struct cell_outputs *o)
{
    return o->reached;
}

void hutch_cell_outputs_break(struct cell_outputs *o)
{
    o->is_broken = true;
}

bool hutch_cell_outputs_is_truncated(const struct cell_outputs *o)
{
    return o->is_truncated || o->has_lost_widget;
}

char *hutch_cell_outputs_text(const struct cell_outputs *o, int stream, size_t *ret_len)
{
    struct text_buffer to = TEXT_BUFFER_INIT;

    for (size_t i = 0; i < o->n; i++)
        if (o->items[i].kind == ITEM_STREAM && o->items[i].stream == stream)
            hutch_text_add(&to, o->items[i].text.data, o->items[i].text.len);
    return hutch_text_take(&to, ret_len);
}
