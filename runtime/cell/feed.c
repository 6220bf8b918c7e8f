#include "runtime/cell/feed.h"

#include "runtime/cell/frame.h"
#include "runtime/cell/stream.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

/* Text of one stream that waits. More of it is told at once: then all that is lost is the order within 0.2 s. */
#define MAX_WAITING (4u << 20)

/* The most that an ordinary user's pipe holds (fs.pipe-max-size): a mark that is not in as many bytes is not there. */
#define MAX_PIPE (1u << 20)

struct pipe {
    struct cell_marks marks;
    struct cell_stream text;
    bool is_settled; /* the waiting frame waits for nothing here */
    uint64_t n_read; /* since it waits */
};

struct cell_feed {
    cell_event_fn *on_event;
    void *user;
    struct pipe pipes[2];
    struct cell_outputs *outputs;
    struct text_buffer idle[2]; /* what came between two cells */
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
        hutch_cell_marks_init(&feed->pipes[i].marks, token);
    if (feed->outputs == NULL) {
        free(feed);
        return NULL;
    }
    return feed;
}

void hutch_cell_feed_discard(struct cell_feed *feed)
{
    for (int i = 0; i < 2; i++) {
        hutch_cell_stream_forget(&feed->pipes[i].text);
        feed->pipes[i].marks.n_held = 0;
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
        hutch_cell_stream_done(&feed->pipes[i].text);
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
    const struct hutch_output output = {
        .size = sizeof(output), .kind = HUTCH_STREAM, .stream = stream, .text = text, .text_len = len,
    };

    if (len > 0)
        tell_output(feed, &output);
}

static void tell_json(struct cell_feed *feed, enum hutch_output_kind kind, const char *json)
{
    const struct hutch_output output = { .size = sizeof(output), .kind = kind, .json = json };

    if (json != NULL)
        tell_output(feed, &output);
}

static void tell_stream(struct cell_feed *feed, int stream, const char *text, size_t len)
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

    hutch_text_add(&feed->idle[stream - 1], text, hutch_utf8_cut(text, len, room));
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
        tell_stream(feed, stream, text.data, text.len);
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
    for (int i = 0; i < 2; i++)
        hutch_cell_stream_shrink(&feed->pipes[i].text);
}

/* ---- text ---- */

static struct pipe *pipe_of(struct cell_feed *feed, int stream)
{
    return &feed->pipes[stream - 1];
}

static struct cell_stream *text_of(struct cell_feed *feed, int stream)
{
    return &pipe_of(feed, stream)->text;
}

/* Tells what waits before @end. */
static void flush_until(struct cell_feed *feed, int stream, uint64_t end)
{
    struct cell_stream *s = text_of(feed, stream);
    size_t len;
    const char *text = hutch_cell_stream_text(s, end, &len);

    if (len == 0)
        return;
    if (feed->is_active && !feed->is_silent)
        tell_stream(feed, stream, text, len);
    else if (!feed->is_silent)
        keep_idle_text(feed, stream, text, len);
    hutch_cell_stream_consume(s, len);
    if (!feed->is_active)
        hutch_cell_stream_shrink(s); /* a thousand sessions wait at little cost */
}

static void flush_all(struct cell_feed *feed)
{
    for (int stream = 1; stream <= 2; stream++) {
        struct cell_stream *s = text_of(feed, stream);

        hutch_cell_stream_pass_marks(s, s->n_marks, feed->now_ms);
        flush_until(feed, stream, hutch_cell_stream_end(s));
    }
}

/* The rest of a character that was begun does not come in this cell any more. */
static void finish_character(struct cell_feed *feed, int stream)
{
    struct cell_stream *s = text_of(feed, stream);

    if (hutch_cell_stream_end_character(s, feed->now_ms))
        flush_until(feed, stream, hutch_cell_stream_end(s));
}

/* ---- frames that wait ---- */

static void apply_frame(struct cell_feed *feed, const cJSON *frame);

/* Tells what came before the waiting frame's mark. Without the mark that is everything: the pipe was empty after the
 * frame had come. */
static void flush_before_mark(struct cell_feed *feed, int stream, bool is_told)
{
    struct cell_stream *s = text_of(feed, stream);
    size_t index;

    if (hutch_cell_stream_find_mark(s, feed->waiting_n, &index)) {
        if (is_told)
            flush_until(feed, stream, s->marks[index].end);
        if (is_told || !hutch_cell_stream_has_head(s))
            hutch_cell_stream_pass_marks(s, index + 1, feed->now_ms);
        else
            hutch_cell_stream_drop_marks(s, index + 1);
    } else {
        if (is_told)
            flush_until(feed, stream, hutch_cell_stream_end(s));
        hutch_cell_stream_drop_marks(s, s->n_marks);
    }
}

static void apply_if_settled(struct cell_feed *feed)
{
    cJSON *frame = feed->waiting;
    const cJSON *only;
    const char *is;

    if (frame == NULL || !feed->pipes[0].is_settled || !feed->pipes[1].is_settled)
        return;
    feed->waiting = NULL;
    is = hutch_cell_frame_kind(frame);
    only = hutch_cell_frame_get(frame, "stream");
    feed->is_silent = strcmp(is, "ready") == 0; /* what starting it said is no cell's */
    for (int stream = 1; stream <= 2; stream++) {
        flush_before_mark(feed, stream, !cJSON_IsNumber(only) || only->valuedouble == stream);
        if (strcmp(is, "done") == 0)
            finish_character(feed, stream);
    }
    feed->is_silent = false;
    apply_frame(feed, frame);
    cJSON_Delete(frame);
}

static void settle_pipe(struct cell_feed *feed, int stream)
{
    if (feed->waiting == NULL)
        return;
    pipe_of(feed, stream)->is_settled = true;
    apply_if_settled(feed);
}

bool hutch_cell_feed_wants(const struct cell_feed *feed, int stream)
{
    return feed->waiting != NULL && !feed->pipes[stream - 1].is_settled;
}

void hutch_cell_feed_is_empty(struct cell_feed *feed, int stream, uint64_t now_ms)
{
    feed->now_ms = now_ms;
    settle_pipe(feed, stream);
}

/* ---- bytes ---- */

struct source {
    struct cell_feed *feed;
    int stream;
};

static void on_text(void *user, const char *data, size_t len)
{
    const struct source *source = user;
    struct cell_stream *s = text_of(source->feed, source->stream);

    hutch_cell_stream_add(s, data, len, source->feed->now_ms);
    if (s->has_lost && source->feed->is_active)
        hutch_cell_outputs_break(source->feed->outputs);
    s->has_lost = false;
    if (hutch_cell_stream_waiting(s) > MAX_WAITING)
        flush_all(source->feed);
}

static void on_mark(void *user, uint32_t n)
{
    const struct source *source = user;

    hutch_cell_stream_add_mark(text_of(source->feed, source->stream), n, source->feed->now_ms);
    if (source->feed->waiting != NULL && n == source->feed->waiting_n)
        settle_pipe(source->feed, source->stream);
}

void hutch_cell_feed_bytes(struct cell_feed *feed, int stream, const char *data, size_t len, uint64_t now_ms)
{
    struct source source = { .feed = feed, .stream = stream };
    const struct cell_marks_sink sink = { .on_text = on_text, .on_mark = on_mark, .user = &source };
    struct pipe *pipe = pipe_of(feed, stream);

    feed->now_ms = now_ms;
    hutch_cell_marks_put(&pipe->marks, data, len, &sink);
    pipe->n_read += len;
    if (pipe->n_read > MAX_PIPE)
        settle_pipe(feed, stream);
}

/* ---- time ---- */

static uint64_t deadline_of(const struct cell_stream *s)
{
    return hutch_cell_stream_has_head(s) ? s->since_ms + CELL_FLUSH_MS : UINT64_MAX;
}

uint64_t hutch_cell_feed_deadline(const struct cell_feed *feed)
{
    uint64_t first = deadline_of(&feed->pipes[0].text), second = deadline_of(&feed->pipes[1].text);

    return !feed->is_active ? UINT64_MAX : first < second ? first : second;
}

void hutch_cell_feed_tick(struct cell_feed *feed, uint64_t now_ms)
{
    uint64_t deadline;

    feed->now_ms = now_ms;
    while ((deadline = hutch_cell_feed_deadline(feed)) <= now_ms) {
        int stream = deadline_of(&feed->pipes[0].text) == deadline ? 1 : 2;

        flush_until(feed, stream, hutch_cell_stream_head_end(text_of(feed, stream)));
    }
}

void hutch_cell_feed_finish(struct cell_feed *feed)
{
    for (int stream = 1; stream <= 2; stream++) {
        struct source source = { .feed = feed, .stream = stream };
        const struct cell_marks_sink sink = { .on_text = on_text, .on_mark = on_mark, .user = &source };

        hutch_cell_marks_finish(&pipe_of(feed, stream)->marks, &sink);
    }
    settle_pipe(feed, 1);
    settle_pipe(feed, 2);
    flush_all(feed);
    for (int stream = 1; stream <= 2; stream++)
        finish_character(feed, stream);
    feed->is_active = false;
}

/* ---- frames ---- */

int hutch_cell_feed_frame(struct cell_feed *feed, const char *text, size_t len, uint64_t now_ms, struct hutch_err *err)
{
    cJSON *frame = NULL;
    int64_t n = 0;

    feed->now_ms = now_ms;
    if (feed->is_broken)
        return 0;
    if (feed->waiting != NULL) { /* its marks were not looked for */
        settle_pipe(feed, 1);
        settle_pipe(feed, 2);
    }
    if (hutch_cell_frame_parse(text, len, &frame, err) < 0) {
        feed->is_broken = true;
        return -1;
    }
    if (!hutch_nbjson_get_integer(hutch_cell_frame_get(frame, "n"), &n)) {
        apply_frame(feed, frame);
        cJSON_Delete(frame);
        return 0;
    }
    feed->waiting = frame;
    feed->waiting_n = (uint32_t)n;
    for (int i = 0; i < 2; i++) {
        size_t index;

        feed->pipes[i].is_settled = hutch_cell_stream_find_mark(&feed->pipes[i].text, feed->waiting_n, &index);
        feed->pipes[i].n_read = 0;
    }
    apply_if_settled(feed);
    return 0;
}

/* ---- what frames do ---- */

#define MAX_DISPLAY_ID 1024 /* bytes; a longer one is none. Ids are kept with each output, and not counted as output */

/* raw=True shows any object as a bundle, whatever nbformat says of it; nbclient keeps it, and so it stays here. */
static void show_display(struct cell_feed *feed, const cJSON *frame, const char *is)
{
    const cJSON *data = hutch_cell_frame_get(frame, "data"), *metadata = hutch_cell_frame_get(frame, "metadata");
    const cJSON *id = hutch_cell_frame_get(frame, "id");
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
        hutch_nbjson_get_integer(hutch_cell_frame_get(frame, "count"), &count);
        tell_json(feed, HUTCH_VALUE, hutch_cell_outputs_add_value(feed->outputs, data, metadata, id, count));
    }
}

static void show_error(struct cell_feed *feed, const cJSON *frame)
{
    tell_json(feed, HUTCH_ERROR_OUTPUT,
              hutch_cell_outputs_add_error(feed->outputs, hutch_cell_frame_get(frame, "ename"),
                                           hutch_cell_frame_get(frame, "evalue"),
                                           hutch_cell_frame_get(frame, "traceback")));
}

/* A frame has a bound. What is longer is told by its size. */
static void note_omitted(struct cell_feed *feed, const cJSON *frame)
{
    int64_t bytes = hutch_cell_frame_integer(frame, "omitted", 0);

    if (bytes > 0)
        hutch_cell_outputs_note_omitted(feed->outputs, (uint64_t)bytes);
}

static void clear_outputs(struct cell_feed *feed, const cJSON *frame)
{
    bool wait = cJSON_IsTrue(hutch_cell_frame_get(frame, "wait"));

    hutch_cell_outputs_clear(feed->outputs, wait);
    tell_json(feed, HUTCH_CLEAR, wait ? "{\"wait\":true}" : "{\"wait\":false}");
}

static void tell_widget(struct cell_feed *feed, const cJSON *frame)
{
    const cJSON *id = hutch_cell_frame_get(frame, "id");

    if (strlen(id->valuestring) > MAX_DISPLAY_ID) /* nothing is known by that id */
        hutch_cell_outputs_lose_widget(feed->outputs, id);
    else if (hutch_cell_frame_integer(frame, "omitted", 0) > 0)
        tell_json(feed, HUTCH_WIDGET, hutch_cell_outputs_lose_widget(feed->outputs, id));
    else
        tell_json(feed, HUTCH_WIDGET,
                  hutch_cell_outputs_add_widget(feed->outputs, id, hutch_cell_frame_get(frame, "state"),
                                                hutch_cell_frame_get(frame, "buffers")));
}

/* A text of the frame that is JSON itself, which harms no reader: it is one line of ASCII. NULL: it is not. */
static char *json_of(const cJSON *frame, const char *key)
{
    static const struct nbjson_bounds bounds = {
        .max_len = CELL_MAX_VALUE, .max_depth = 64, .max_nodes = 100000, .is_strict = true,
    };
    const cJSON *value = hutch_cell_frame_get(frame, key);
    const char *text = cJSON_IsString(value) ? value->valuestring : "";
    const size_t len = strlen(text);
    struct hutch_err err;
    cJSON *tree;

    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return NULL;
    if (len == 0 || hutch_nbjson_parse("value", text, len, &bounds, &tree, &err) < 0)
        return NULL;
    cJSON_Delete(tree);
    return strdup(text);
}

static void tell_frame(struct cell_feed *feed, enum cell_event_kind kind, const cJSON *frame)
{
    const cJSON *status = hutch_cell_frame_get(frame, "status");
    auto_free char *prompt = hutch_cell_frame_text(frame, "prompt");
    auto_free char *cause = hutch_cell_frame_text(frame, "cause");
    auto_free char *value = kind == CELL_DONE   ? json_of(frame, "value")
                            : kind == CELL_CALL ? json_of(frame, "args")
                                                : NULL;
    auto_free char *name = kind == CELL_CALL ? hutch_cell_frame_text(frame, "name") : NULL;
    const struct cell_event event = {
        .kind = kind,
        .is = hutch_cell_frame_kind(frame),
        .frame = frame,
        .id = hutch_cell_frame_integer(frame, "id", -1),
        .count = hutch_cell_frame_integer(frame, "count", -1),
        .prompt = prompt != NULL ? prompt : "",
        .is_password = cJSON_IsTrue(hutch_cell_frame_get(frame, "password")),
        .is_error = cJSON_IsString(status) && strcmp(status->valuestring, "ok") != 0,
        .line = hutch_cell_frame_integer(frame, "line", 0),
        .cause = cause,
        .name = name != NULL ? name : "",
        .value = value,
    };

    feed->on_event(feed->user, &event);
}

static void apply_frame(struct cell_feed *feed, const cJSON *frame)
{
    const char *is = hutch_cell_frame_kind(frame);

    if (strcmp(is, "display") == 0 || strcmp(is, "update") == 0 || strcmp(is, "result") == 0) {
        if (feed->is_active) { /* else no cell's, and nbclient would not show it either */
            show_display(feed, frame, is);
            note_omitted(feed, frame);
        }
    } else if (strcmp(is, "error") == 0) {
        if (feed->is_active) {
            show_error(feed, frame);
            note_omitted(feed, frame);
        }
    } else if (strcmp(is, "clear") == 0) {
        if (feed->is_active)
            clear_outputs(feed, frame);
    } else if (strcmp(is, "widget") == 0) {
        if (feed->is_active)
            tell_widget(feed, frame);
    } else if (strcmp(is, "begin") == 0) {
        tell_frame(feed, CELL_BEGIN, frame);
    } else if (strcmp(is, "input") == 0) {
        tell_frame(feed, CELL_INPUT, frame);
    } else if (strcmp(is, "call") == 0) {
        tell_frame(feed, CELL_CALL, frame);
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
