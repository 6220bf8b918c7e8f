#include "runtime/cell/feed.h"

#include "runtime/cell/frames.h"
#include "sandbox/fd.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

/* Marks that wait for their frames. More are there only when code inside makes them. */
#define MAX_MARKS 4096

/* Text of one stream that waits. More of it is told at once: then all that is lost is the order within 0.2 s. */
#define MAX_WAITING (4u << 20)

/* A larger buffer is given back when it is empty, and any between cells: a thousand sessions wait at little cost. */
#define KEPT_ROOM 65536

/* The most that an ordinary user's pipe holds (fs.pipe-max-size): a mark that is not in as many bytes is not there. */
#define MAX_PIPE (1u << 20)

struct mark {
    uint32_t n;
    uint64_t end; /* of the text before it, counted from the pipe's beginning */
};

struct stream {
    struct cell_marks marks;
    char cut[4];              /* a character whose end has not come */
    size_t n_cut;
    struct text_buffer text;   /* what waits, from byte @start on */
    size_t start;
    uint64_t begin;           /* where text.data[0] stands in the stream */
    uint64_t since;           /* when the first byte came of what waits for the next mark */
    struct mark *seen;        /* owned; marks whose frames have not come */
    size_t n_seen, seen_room;
    bool is_settled;          /* the waiting frame waits for nothing here */
    uint64_t n_read;          /* since it waits */
};

struct cell_feed {
    cell_event_fn *on_event;
    void *user;
    struct stream streams[2];
    struct cell_outputs *outputs;
    struct text_buffer idle[2];  /* what came between two cells */
    bool is_active;             /* a cell is on */
    bool is_broken;             /* frames are ignored */
    bool is_silent;             /* what is flushed is forgotten */
    cJSON *waiting;             /* a frame, owned */
    uint32_t waiting_n;
    uint64_t now_ms;
};

/* ---- life ---- */

struct cell_feed *hutch_cell_feed_new(const char *token, cell_event_fn *on_event, void *user)
{
    struct cell_feed *feed = calloc(1, sizeof(*feed));

    if (feed == NULL)
        return NULL;
    feed->on_event = on_event;
    feed->user = user;
    feed->outputs = hutch_cell_outputs_new(0);
    for (int i = 0; i < 2; i++)
        hutch_cell_marks_init(&feed->streams[i].marks, token);
    if (feed->outputs == NULL) {
        free(feed);
        return NULL;
    }
    return feed;
}

static void forget_text(struct stream *s)
{
    s->begin += s->text.len;
    hutch_text_done(&s->text);
    s->start = 0;
    s->n_seen = 0;
}

void hutch_cell_feed_discard(struct cell_feed *feed)
{
    for (int i = 0; i < 2; i++) {
        forget_text(&feed->streams[i]);
        feed->streams[i].n_cut = 0;
        feed->streams[i].marks.n_held = 0;
        hutch_text_done(&feed->idle[i]);
    }
    cJSON_Delete(feed->waiting);
    feed->waiting = NULL;
}

void hutch_cell_feed_free(struct cell_feed *feed)
{
    if (feed == NULL)
        return;
    hutch_cell_feed_discard(feed);
    for (int i = 0; i < 2; i++)
        free(feed->streams[i].seen);
    hutch_cell_outputs_free(feed->outputs);
    free(feed);
}

const struct cell_outputs *hutch_cell_feed_outputs(const struct cell_feed *feed)
{
    return feed->outputs;
}

/* ---- telling ---- */

static void tell_output(struct cell_feed *feed, const struct hutch_output *output)
{
    const struct cell_event event = { .kind = CELL_OUTPUT, .output = output, .is = "", .id = -1, .count = -1 };

    feed->on_event(feed->user, &event);
}

static void tell_text(struct cell_feed *feed, int stream, const char *text, size_t len)
{
    const struct hutch_output output = { .size = sizeof(output), .kind = HUTCH_STREAM, .stream = stream, .text = text, .text_len = len };

    if (len > 0)
        tell_output(feed, &output);
}

static void tell_json(struct cell_feed *feed, enum hutch_output_kind kind, const char *json)
{
    const struct hutch_output output = { .size = sizeof(output), .kind = kind, .json = json };

    if (json != NULL)
        tell_output(feed, &output);
}

static void put_text(struct cell_feed *feed, int stream, const char *text, size_t len)
{
    const char *notice = NULL;
    size_t kept = hutch_cell_outputs_add_text(feed->outputs, stream, text, len, &notice);

    tell_text(feed, stream, text, kept);
    if (notice != NULL)
        tell_text(feed, 2, notice, strlen(notice));
}

static void keep_idle_text(struct cell_feed *feed, int stream, const char *text, size_t len)
{
    size_t room = CELL_MAX_IDLE_BYTES - feed->idle[0].len - feed->idle[1].len;

    if (len > room)
        for (len = room; len > 0 && (text[len] & 0xc0) == 0x80;)
            len--; /* at the beginning of a character */
    hutch_text_add(&feed->idle[stream - 1], text, len);
}

void hutch_cell_feed_begin(struct cell_feed *feed, uint64_t max_bytes)
{
    struct cell_outputs *outputs = hutch_cell_outputs_new(max_bytes);

    /* Without memory for a new list the old one goes on, and says so when its JSON is asked for. */
    if (outputs != NULL) {
        hutch_cell_outputs_free(feed->outputs);
        feed->outputs = outputs;
    }
    feed->is_active = true;
    for (int stream = 1; stream <= 2; stream++) {
        struct text_buffer text = feed->idle[stream - 1];

        feed->idle[stream - 1] = (struct text_buffer)TEXT_BUFFER_INIT;
        put_text(feed, stream, text.data, text.len);
        hutch_text_done(&text);
    }
}

void hutch_cell_feed_forget(struct cell_feed *feed)
{
    struct cell_outputs *outputs = hutch_cell_outputs_new(0);

    if (outputs == NULL)
        return;
    hutch_cell_outputs_free(feed->outputs);
    feed->outputs = outputs;
    for (int i = 0; i < 2; i++) {
        struct stream *s = &feed->streams[i];

        if (s->text.len == 0)
            hutch_text_done(&s->text);
        if (s->n_seen == 0) {
            free(s->seen);
            s->seen = NULL;
            s->seen_room = 0;
        }
    }
}

/* ---- text ---- */

static struct stream *stream_of(struct cell_feed *feed, int stream)
{
    return &feed->streams[stream - 1];
}

static uint64_t text_end(const struct stream *s)
{
    return s->begin + s->text.len;
}

/* Where the text ends that waits for the first mark. */
static uint64_t head_end(const struct stream *s)
{
    return s->n_seen > 0 ? s->seen[0].end : text_end(s);
}

static bool has_head(const struct stream *s)
{
    return head_end(s) > s->begin + s->start;
}

/* Takes marks up to number @n of the list off it; text after them waits for the next one from now on. */
static void drop_marks(struct cell_feed *feed, struct stream *s, size_t n)
{
    if (n == 0)
        return;
    s->n_seen -= n;
    memmove(s->seen, s->seen + n, s->n_seen * sizeof(*s->seen));
    s->since = feed->now_ms;
}

/* Tells what waits before @end. */
static void flush_until(struct cell_feed *feed, int stream, uint64_t end)
{
    struct stream *s = stream_of(feed, stream);
    size_t from = s->start, len;

    if (end <= s->begin + from)
        return;
    len = (size_t)(end - s->begin) - from;
    if (feed->is_active && !feed->is_silent)
        put_text(feed, stream, s->text.data + from, len);
    else if (!feed->is_silent)
        keep_idle_text(feed, stream, s->text.data + from, len);
    s->start += len;
    if (s->start == s->text.len) {
        s->begin += s->text.len;
        s->start = 0;
        if (s->text.room > KEPT_ROOM || !feed->is_active)
            hutch_text_done(&s->text);
        s->text.len = 0;
    } else if (s->start > s->text.len / 2) { /* at least as much was told as is moved */
        s->text.len -= s->start;
        memmove(s->text.data, s->text.data + s->start, s->text.len);
        s->begin += s->start;
        s->start = 0;
    }
}

static void flush_all(struct cell_feed *feed)
{
    for (int stream = 1; stream <= 2; stream++) {
        struct stream *s = stream_of(feed, stream);

        drop_marks(feed, s, s->n_seen);
        flush_until(feed, stream, text_end(s));
    }
}

static void keep_text(struct cell_feed *feed, int stream, const char *text, size_t len)
{
    struct stream *s = stream_of(feed, stream);

    if (!has_head(s))
        s->since = feed->now_ms;
    hutch_text_add(&s->text, text, len);
    s->text.is_broken = false; /* without memory it is lost; so will be the outputs, which say so */
    if (s->text.len - s->start > MAX_WAITING)
        flush_all(feed);
}

/* What is UTF-8 in @data, and U+FFFD for what is not; but for the beginning of a character at the end, which is put aside. */
static void decode(struct cell_feed *feed, int stream, const char *data, size_t len)
{
    struct stream *s = stream_of(feed, stream);
    size_t from = 0;

    for (size_t i = 0; i < len;) {
        enum utf8_kind kind;
        size_t step;

        if ((unsigned char)data[i] < 0x80) {
            i++;
            continue;
        }
        step = hutch_utf8_next(data + i, len - i, &kind);
        if (kind != UTF8_CHAR) {
            keep_text(feed, stream, data + from, i - from);
            from = i + step;
        }
        if (kind == UTF8_BROKEN)
            keep_text(feed, stream, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
        if (kind == UTF8_CUT) {
            memcpy(s->cut, data + i, step);
            s->n_cut = step;
        }
        i += step;
    }
    if (from < len)
        keep_text(feed, stream, data + from, len - from);
}

/* The rest of a character that was begun does not come in this cell any more. */
static void finish_character(struct cell_feed *feed, int stream)
{
    struct stream *s = stream_of(feed, stream);

    if (s->n_cut == 0)
        return;
    s->n_cut = 0;
    keep_text(feed, stream, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
    flush_until(feed, stream, text_end(s));
}

/* ---- frames that wait ---- */

static void apply(struct cell_feed *feed, const cJSON *frame);

static bool find_mark(const struct stream *s, uint32_t n, size_t *ret_place)
{
    for (size_t i = 0; i < s->n_seen; i++)
        if (s->seen[i].n == n) {
            *ret_place = i;
            return true;
        }
    return false;
}

/* Tells what came before the waiting frame's mark. Without the mark that is everything: the pipe was empty after the frame had come. */
static void flush_before_mark(struct cell_feed *feed, int stream, bool is_told)
{
    struct stream *s = stream_of(feed, stream);
    size_t place;

    if (find_mark(s, feed->waiting_n, &place)) {
        if (is_told)
            flush_until(feed, stream, s->seen[place].end);
        if (is_told || !has_head(s))
            drop_marks(feed, s, place + 1);
        else /* goes on waiting, since when it does */
            memmove(s->seen, s->seen + place + 1, (s->n_seen -= place + 1) * sizeof(*s->seen));
    } else {
        if (is_told)
            flush_until(feed, stream, text_end(s));
        s->n_seen = 0;
    }
}

static void apply_if_settled(struct cell_feed *feed)
{
    cJSON *frame = feed->waiting;
    const cJSON *only;
    const char *is;

    if (frame == NULL || !feed->streams[0].is_settled || !feed->streams[1].is_settled)
        return;
    feed->waiting = NULL;
    is = cJSON_GetObjectItemCaseSensitive(frame, "is")->valuestring;
    only = cJSON_GetObjectItemCaseSensitive(frame, "stream");
    feed->is_silent = strcmp(is, "ready") == 0; /* what starting it said is no cell's */
    for (int stream = 1; stream <= 2; stream++) {
        flush_before_mark(feed, stream, !cJSON_IsNumber(only) || only->valuedouble == stream);
        if (strcmp(is, "done") == 0)
            finish_character(feed, stream);
    }
    feed->is_silent = false;
    apply(feed, frame);
    cJSON_Delete(frame);
}

static void settle(struct cell_feed *feed, int stream)
{
    if (feed->waiting == NULL)
        return;
    stream_of(feed, stream)->is_settled = true;
    apply_if_settled(feed);
}

bool hutch_cell_feed_wants(const struct cell_feed *feed, int stream)
{
    return feed->waiting != NULL && !feed->streams[stream - 1].is_settled;
}

void hutch_cell_feed_is_empty(struct cell_feed *feed, int stream, uint64_t now_ms)
{
    feed->now_ms = now_ms;
    settle(feed, stream);
}

/* ---- bytes ---- */

struct source {
    struct cell_feed *feed;
    int stream;
};

static void on_text(void *user, const char *data, size_t len)
{
    const struct source *source = user;
    struct stream *s = stream_of(source->feed, source->stream);

    while (s->n_cut > 0 && len > 0) { /* byte by byte until it is clear what the beginning was */
        char both[sizeof(s->cut) + 1];
        enum utf8_kind kind;
        size_t n = s->n_cut, step;

        memcpy(both, s->cut, n);
        both[n] = data[0];
        step = hutch_utf8_next(both, n + 1, &kind);
        s->n_cut = 0;
        if (step == n + 1) { /* it took the byte: whole, or still not */
            decode(source->feed, source->stream, both, step);
            data++;
            len--;
        } else { /* not this one's: U+FFFD */
            keep_text(source->feed, source->stream, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
        }
    }
    if (len > 0)
        decode(source->feed, source->stream, data, len);
}

static void on_mark(void *user, uint32_t n)
{
    const struct source *source = user;
    struct stream *s = stream_of(source->feed, source->stream);

    if (s->n_seen == MAX_MARKS)
        drop_marks(source->feed, s, MAX_MARKS / 2);
    if (s->n_seen == s->seen_room) {
        size_t room = s->seen_room != 0 ? 2 * s->seen_room : 8;
        struct mark *seen = realloc(s->seen, room * sizeof(*seen));

        if (seen == NULL)
            return; /* its frame will find the pipe empty */
        s->seen = seen;
        s->seen_room = room;
    }
    s->seen[s->n_seen++] = (struct mark){ .n = n, .end = text_end(s) };
    if (source->feed->waiting != NULL && n == source->feed->waiting_n)
        settle(source->feed, source->stream);
}

void hutch_cell_feed_bytes(struct cell_feed *feed, int stream, const char *data, size_t len, uint64_t now_ms)
{
    struct source source = { .feed = feed, .stream = stream };
    const struct cell_marks_sink sink = { .on_text = on_text, .on_mark = on_mark, .user = &source };
    struct stream *s = stream_of(feed, stream);

    feed->now_ms = now_ms;
    hutch_cell_marks_put(&s->marks, data, len, &sink);
    s->n_read += len;
    if (s->n_read > MAX_PIPE)
        settle(feed, stream);
}

/* ---- time ---- */

uint64_t hutch_cell_feed_deadline(const struct cell_feed *feed)
{
    uint64_t deadline = UINT64_MAX;

    if (!feed->is_active)
        return deadline;
    for (int i = 0; i < 2; i++)
        if (has_head(&feed->streams[i]) && feed->streams[i].since + CELL_FLUSH_MS < deadline)
            deadline = feed->streams[i].since + CELL_FLUSH_MS;
    return deadline;
}

void hutch_cell_feed_tick(struct cell_feed *feed, uint64_t now_ms)
{
    feed->now_ms = now_ms;
    for (;;) {
        uint64_t deadline = hutch_cell_feed_deadline(feed);
        int stream = has_head(&feed->streams[0]) && feed->streams[0].since + CELL_FLUSH_MS == deadline ? 1 : 2;

        if (deadline > now_ms)
            return;
        flush_until(feed, stream, head_end(stream_of(feed, stream)));
    }
}

void hutch_cell_feed_finish(struct cell_feed *feed)
{
    for (int stream = 1; stream <= 2; stream++) {
        struct source source = { .feed = feed, .stream = stream };
        const struct cell_marks_sink sink = { .on_text = on_text, .on_mark = on_mark, .user = &source };

        hutch_cell_marks_finish(&stream_of(feed, stream)->marks, &sink);
    }
    settle(feed, 1);
    settle(feed, 2);
    flush_all(feed);
    for (int stream = 1; stream <= 2; stream++)
        finish_character(feed, stream);
    feed->is_active = false;
}

/* ---- frames ---- */

static const struct nbjson_bounds frame_bounds = {
    .max_len = CELL_MAX_FRAME, .max_depth = 100, .max_nodes = 100000, .raw_depth = 2, .is_strict = true,
};

enum member_type { IS_TEXT, IS_OBJECT, IS_TEXTS, IS_BOOL, IS_INTEGER, MAY_BE_TEXT, MAY_BE_INTEGER };

#define MAX_DISPLAY_ID 1024        /* bytes; a longer one is none. Ids are kept with each output, and not counted as output */
#define MAX_TEXT       (64u << 10) /* bytes of a prompt, or of what an error came from */

/* What a frame must have; what is not here is not looked at. */
static const struct { const char *is, *key; enum member_type type; } members[] = {
    { "ready", "language_info", IS_OBJECT },
    { "begin", "id", MAY_BE_INTEGER },
    { "begin", "count", MAY_BE_INTEGER },
    { "flush", "stream", MAY_BE_INTEGER },
    { "display", "data", IS_OBJECT },
    { "display", "metadata", IS_OBJECT },
    { "display", "id", MAY_BE_TEXT },
    { "update", "data", IS_OBJECT },
    { "update", "metadata", IS_OBJECT },
    { "update", "id", IS_TEXT },
    { "result", "data", IS_OBJECT },
    { "result", "metadata", IS_OBJECT },
    { "result", "id", MAY_BE_TEXT },
    { "result", "count", IS_INTEGER },
    { "error", "ename", IS_TEXT },
    { "error", "evalue", IS_TEXT },
    { "error", "traceback", IS_TEXTS },
    { "clear", "wait", IS_BOOL },
    { "input", "prompt", IS_TEXT },
    { "input", "password", IS_BOOL },
    { "done", "id", MAY_BE_INTEGER },
    { "done", "status", IS_TEXT },
    { "done", "count", MAY_BE_INTEGER },
    { "done", "line", MAY_BE_INTEGER },
    { "done", "cause", MAY_BE_TEXT },
};

static bool has_type(const cJSON *value, enum member_type type)
{
    int64_t number;

    switch (type) {
    case IS_TEXT: return cJSON_IsString(value);
    case IS_OBJECT: return cJSON_IsObject(value);
    case IS_TEXTS: return cJSON_IsArray(value) && hutch_nbjson_is_lines(value);
    case IS_BOOL: return cJSON_IsBool(value);
    case IS_INTEGER: return hutch_nbjson_get_integer(value, &number) && number >= 0;
    case MAY_BE_TEXT: return value == NULL || cJSON_IsNull(value) || cJSON_IsString(value);
    case MAY_BE_INTEGER: return value == NULL || cJSON_IsNull(value) || (hutch_nbjson_get_integer(value, &number) && number >= 0);
    }
    return false;
}

int hutch_cell_parse_frame(const char *text, size_t len, struct cJSON **ret, struct hutch_err *err)
{
    cJSON *frame = NULL;
    const cJSON *is;
    bool needs_number = false;
    int64_t n;

    if (hutch_nbjson_parse("frame", text, len, &frame_bounds, &frame, err) < 0)
        return -1;
    is = cJSON_GetObjectItemCaseSensitive(frame, "is");
    if (!cJSON_IsObject(frame) || !cJSON_IsString(is)) {
        cJSON_Delete(frame);
        return hutch_err_set(err, 0, "frame: expected an object with the text \"is\"");
    }
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (strcmp(members[i].is, is->valuestring) != 0)
            continue;
        needs_number = true;
        if (!has_type(cJSON_GetObjectItemCaseSensitive(frame, members[i].key), members[i].type)) {
            hutch_err_set(err, 0, "frame: \"%s\" has no good \"%s\"", members[i].is, members[i].key);
            cJSON_Delete(frame);
            return -1;
        }
    }
    if (!hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(frame, "n"), &n))
        n = cJSON_GetObjectItemCaseSensitive(frame, "n") != NULL ? -1 : 0;
    if (n < 0 || n > UINT32_MAX || (n == 0 && needs_number)) {
        hutch_err_set(err, 0, "frame: \"%.40s\" has no good \"n\"", is->valuestring);
        cJSON_Delete(frame);
        return -1;
    }
    *ret = frame;
    return 0;
}

int hutch_cell_feed_frame(struct cell_feed *feed, const char *text, size_t len, uint64_t now_ms, struct hutch_err *err)
{
    cJSON *frame = NULL;
    int64_t n = 0;

    feed->now_ms = now_ms;
    if (feed->is_broken)
        return 0;
    if (feed->waiting != NULL) { /* nobody looked for its marks */
        settle(feed, 1);
        settle(feed, 2);
    }
    if (hutch_cell_parse_frame(text, len, &frame, err) < 0) {
        feed->is_broken = true;
        return -1;
    }
    if (!hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(frame, "n"), &n)) {
        apply(feed, frame);
        cJSON_Delete(frame);
        return 0;
    }
    feed->waiting = frame;
    feed->waiting_n = (uint32_t)n;
    for (int i = 0; i < 2; i++) {
        size_t place;

        feed->streams[i].is_settled = find_mark(&feed->streams[i], feed->waiting_n, &place);
        feed->streams[i].n_read = 0;
    }
    apply_if_settled(feed);
    return 0;
}

/* ---- what frames do ---- */

/* raw=True shows any object as a bundle, whatever nbformat says of it; nbclient keeps it, and so it stays here. */
static void show(struct cell_feed *feed, const cJSON *frame, const char *is)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(frame, "data"), *metadata = cJSON_GetObjectItemCaseSensitive(frame, "metadata");
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(frame, "id");
    int64_t count = 0;

    if (!cJSON_IsString(id) || strlen(id->valuestring) > MAX_DISPLAY_ID)
        id = NULL;
    if (strcmp(is, "update") == 0 && id == NULL) {
        return; /* nothing has such an id */
    } else if (strcmp(is, "update") == 0) {
        tell_json(feed, HUTCH_UPDATE, hutch_cell_outputs_update(feed->outputs, data, metadata, id));
    } else if (strcmp(is, "display") == 0) {
        tell_json(feed, HUTCH_DISPLAY, hutch_cell_outputs_add_display(feed->outputs, data, metadata, id));
    } else {
        hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(frame, "count"), &count);
        tell_json(feed, HUTCH_VALUE, hutch_cell_outputs_add_value(feed->outputs, data, metadata, id, count));
    }
}

static void show_error(struct cell_feed *feed, const cJSON *frame)
{
    tell_json(feed, HUTCH_ERROR_OUTPUT,
              hutch_cell_outputs_add_error(feed->outputs, cJSON_GetObjectItemCaseSensitive(frame, "ename"),
                                           cJSON_GetObjectItemCaseSensitive(frame, "evalue"),
                                           cJSON_GetObjectItemCaseSensitive(frame, "traceback")));
}

static void clear(struct cell_feed *feed, const cJSON *frame)
{
    bool wait = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(frame, "wait"));

    hutch_cell_outputs_clear(feed->outputs, wait);
    tell_json(feed, HUTCH_CLEAR, wait ? "{\"wait\":true}" : "{\"wait\":false}");
}

static int64_t integer_of(const cJSON *frame, const char *key, int64_t otherwise)
{
    int64_t value;

    return hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(frame, key), &value) ? value : otherwise;
}

/* Its first MAX_TEXT bytes. */
static char *text_of(const cJSON *frame, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(frame, key);
    char *text = cJSON_IsString(value) ? hutch_nbjson_c_text(value) : NULL;
    size_t len = text != NULL ? strlen(text) : 0;

    if (len > MAX_TEXT) {
        for (len = MAX_TEXT; len > 0 && (text[len] & 0xc0) == 0x80; len--) /* no character is cut */
            ;
        text[len] = '\0';
    }
    return text;
}

static void tell_frame(struct cell_feed *feed, enum cell_event_kind kind, const cJSON *frame)
{
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(frame, "status");
    auto_free char *prompt = text_of(frame, "prompt");
    auto_free char *cause = text_of(frame, "cause");
    const struct cell_event event = {
        .kind = kind,
        .is = cJSON_GetObjectItemCaseSensitive(frame, "is")->valuestring,
        .frame = frame,
        .id = integer_of(frame, "id", -1),
        .count = integer_of(frame, "count", -1),
        .prompt = prompt != NULL ? prompt : "",
        .is_password = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(frame, "password")),
        .is_error = cJSON_IsString(status) && strcmp(status->valuestring, "ok") != 0,
        .line = integer_of(frame, "line", 0),
        .cause = cause,
    };

    feed->on_event(feed->user, &event);
}

static void apply(struct cell_feed *feed, const cJSON *frame)
{
    const char *is = cJSON_GetObjectItemCaseSensitive(frame, "is")->valuestring;

    if (strcmp(is, "display") == 0 || strcmp(is, "update") == 0 || strcmp(is, "result") == 0) {
        if (feed->is_active) /* else no cell's, and nbclient would not show it either */
            show(feed, frame, is);
    } else if (strcmp(is, "error") == 0) {
        if (feed->is_active)
            show_error(feed, frame);
    } else if (strcmp(is, "clear") == 0) {
        if (feed->is_active)
            clear(feed, frame);
    } else if (strcmp(is, "begin") == 0) {
        tell_frame(feed, CELL_BEGIN, frame);
    } else if (strcmp(is, "input") == 0) {
        tell_frame(feed, CELL_INPUT, frame);
    } else if (strcmp(is, "done") == 0) {
        feed->is_active = false;
        tell_frame(feed, CELL_DONE, frame);
    } else if (strcmp(is, "ready") == 0) {
        hutch_text_done(&feed->idle[0]);
        hutch_text_done(&feed->idle[1]);
        tell_frame(feed, CELL_READY, frame);
    } else if (strcmp(is, "flush") != 0) {
        tell_frame(feed, CELL_OTHER, frame);
    }
}
