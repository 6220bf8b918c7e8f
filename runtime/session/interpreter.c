#include "runtime/session/interpreter.h"

#include "runtime/engine/run.h"
#include "runtime/engine/slot.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MAX_WAITING (16u << 20) /* of orders that it does not read */
#define MAX_IDLE_FRAMES (1u << 20) /* bytes, from the end of a cell to the next */
#define TURN_FRAMES 64
#define TURN_BYTES (1u << 20) /* of frames, before others have their turn */

static void set_clock(struct interpreter *interpreter)
{
    uint64_t due = hutch_cell_feed_deadline(interpreter->feed);

    if (due != UINT64_MAX && !interpreter->is_over)
        hutch_loop_advance_deadline(interpreter->loop, &interpreter->clock, (double)due + 1);
}

static void turn(struct interpreter *interpreter)
{
    set_clock(interpreter);
    interpreter->on_turn(interpreter->user);
}

/* --- listening ---------------------------------------------------------------------------------------------------- */

/* Why it is not going to be ready. */
static void keep_reason(struct interpreter *interpreter, const struct cJSON *why)
{
    auto_free char *text = cJSON_IsString(why) ? hutch_nbjson_c_text(why) : NULL;

    if (text)
        snprintf(interpreter->why, sizeof(interpreter->why), "%s", text);
}

static void on_event(void *user, const struct cell_event *event)
{
    struct interpreter *interpreter = user;

    if (event->kind == CELL_READY) {
        const struct cJSON *info = cJSON_GetObjectItemCaseSensitive(event->frame, "language_info");

        interpreter->is_ready = true;
        if (info && !interpreter->language_info)
            interpreter->language_info = hutch_nbjson_print(info, NBJSON_COMPACT, NULL);
    }
    if (!interpreter->is_ready && strcmp(event->is, "failed") == 0)
        keep_reason(interpreter, cJSON_GetObjectItemCaseSensitive(event->frame, "why"));
    interpreter->on_event(interpreter->user, event);
}

static void refuse(struct interpreter *interpreter, const struct hutch_err *why)
{
    interpreter->is_refused = true;
    interpreter->is_host_at_fault = why->errnum == ENOMEM;
    snprintf(interpreter->why, sizeof(interpreter->why), "%.*s", (int)sizeof(interpreter->why) - 1, why->msg);
    hutch_watch_remove(&interpreter->watch);
    if (interpreter->slot)
        hutch_slot_stop(interpreter->slot, END_CANCELLED);
}

/* The bytes before a frame's mark come first: both pipes are read until it is seen, or they have nothing more. */
static void read_to_marks(struct interpreter *interpreter)
{
    struct supervisor *s = interpreter->slot->supervisor;
    struct out_stream *streams[] = { &s->out, &s->err_out };

    for (int i = 0; i < 2; i++)
        while (hutch_cell_feed_wants(interpreter->feed, i + 1)) {
            const struct pollfd ready = { .fd = streams[i]->pipe_fd, .revents = POLLIN }, none = { .fd = -1 };
            uint64_t seen = streams[i]->seen;

            if (streams[i]->pipe_fd < 0 || hutch_out_stream_run(streams[i], &ready, &none) < 0 ||
                streams[i]->seen == seen)
                hutch_cell_feed_is_empty(interpreter->feed, i + 1, (uint64_t)hutch_clock_ms());
        }
}

/* True when there may be more. */
static bool take_frame(struct interpreter *interpreter, size_t *taken)
{
    struct hutch_err err;
    const char *frame;
    size_t len;
    int rc = hutch_cell_frames_next(&interpreter->frames, &frame, &len, &err);

    interpreter->heard_bytes += rc == CELL_FRAME_READY ? len : 0;
    if (!interpreter->is_in_cell && interpreter->heard_bytes + interpreter->frames.len > MAX_IDLE_FRAMES)
        rc = hutch_err_set(&err, 0, "it says more than %u bytes, and nobody has asked", MAX_IDLE_FRAMES);
    if (rc == CELL_FRAME_READY) {
        *taken += len;
        if (hutch_cell_feed_frame(interpreter->feed, frame, len, (uint64_t)hutch_clock_ms(), &err) == 0) {
            read_to_marks(interpreter);
            return true;
        }
        rc = -1;
    }
    if (rc < 0 && err.errnum != ECONNRESET) {
        refuse(interpreter, &err);
    } else if (rc < 0 || rc == CELL_FRAME_END) {
        interpreter->has_left = true;
        hutch_watch_remove(&interpreter->watch);
    }
    return false;
}

static void flush(struct interpreter *interpreter);

static void take_frames(struct interpreter *interpreter)
{
    size_t taken = 0;

    for (int i = 0; i < TURN_FRAMES && taken < TURN_BYTES && !interpreter->is_over && take_frame(interpreter, &taken);
         i++)
        turn(interpreter);
    turn(interpreter);
    /* others have their turn first */
    if (!interpreter->is_refused && !interpreter->is_over && hutch_cell_frames_has_one(&interpreter->frames))
        hutch_loop_advance_deadline(interpreter->loop, &interpreter->clock, 0);
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct interpreter *interpreter = w->owner;

    if (events & EPOLLOUT)
        flush(interpreter);
    if (events & ~(uint32_t)EPOLLOUT)
        take_frames(interpreter);
    else
        turn(interpreter);
}

static void keep_last_words(struct interpreter *interpreter, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        size_t *n = &interpreter->n_last_words;

        if (data[i] == '\n' || data[i] == '\0') { /* the line before stays until there is another one */
            *n = 0;
            continue;
        }
        if (*n < sizeof(interpreter->last_words) - 1) {
            interpreter->last_words[(*n)++] = data[i];
            interpreter->last_words[*n] = '\0';
        }
    }
}

void hutch_interpreter_hear(struct interpreter *interpreter, int stream, const char *data, size_t len)
{
    if (!interpreter->is_ready && stream == 2)
        keep_last_words(interpreter, data, len);
    hutch_cell_feed_bytes(interpreter->feed, stream, data, len, (uint64_t)hutch_clock_ms());
    turn(interpreter);
}

bool hutch_interpreter_is_there(const struct interpreter *interpreter)
{
    return interpreter->is_ready && !interpreter->has_left && !interpreter->is_refused && !interpreter->is_over;
}

void hutch_interpreter_set_in_cell(struct interpreter *interpreter, bool is_in_cell)
{
    interpreter->is_in_cell = is_in_cell;
    interpreter->heard_bytes = 0;
}

static void take_last_frames(struct interpreter *interpreter)
{
    size_t taken = 0;

    interpreter->is_over = true;
    while (!interpreter->is_refused && !interpreter->has_left && take_frame(interpreter, &taken))
        turn(interpreter);
    hutch_cell_feed_finish(interpreter->feed);
    turn(interpreter);
    hutch_watch_remove(&interpreter->watch);
}

/* One that ended by itself before it could execute a cell will do so again; one that was killed will not. */
static enum run_outcome conclude_unready(const struct interpreter *interpreter, const struct supervisor *s,
                                         struct hutch_err *why)
{
    const char *words = interpreter->why[0] ? interpreter->why : interpreter->last_words;

    if (!s->has_ended || !WIFEXITED(s->status))
        return OUTCOME_AGAIN;
    hutch_err_set(why, 0, "the interpreter ended with exit code %d before it could execute a cell%s%s",
                  WEXITSTATUS(s->status), words[0] ? ": " : "", words);
    return OUTCOME_REFUSE;
}

enum run_outcome hutch_interpreter_conclude(struct interpreter *interpreter, const struct supervisor *s,
                                            struct hutch_err *why)
{
    take_last_frames(interpreter);
    if (!interpreter->is_ready && s->reason == END_OWN) /* no code of a cell has run */
        return conclude_unready(interpreter, s, why);
    return OUTCOME_JUDGE;
}


static bool is_heard(const struct interpreter *interpreter)
{
    return !interpreter->is_over && !interpreter->is_refused;
}

static void on_due(void *owner, double now)
{
    struct interpreter *interpreter = owner;

    /* What was read beyond its turn waits in our own buffer, where no event comes from. */
    if (is_heard(interpreter) && hutch_cell_frames_has_one(&interpreter->frames))
        take_frames(interpreter);
    if (is_heard(interpreter) && hutch_cell_feed_deadline(interpreter->feed) <= (uint64_t)now) {
        hutch_cell_feed_tick(interpreter->feed, (uint64_t)now);
        turn(interpreter);
    }
    if (is_heard(interpreter))
        set_clock(interpreter);
}

/* --- speaking ----------------------------------------------------------------------------------------------------- */

static void flush(struct interpreter *interpreter)
{
    while (interpreter->out_len > 0) {
        ssize_t n = TEMP_FAILURE_RETRY(send(interpreter->fd, interpreter->out + interpreter->out_start,
                                            interpreter->out_len, MSG_NOSIGNAL | MSG_DONTWAIT));

        if (n < 0 && errno == EAGAIN) {
            hutch_watch_change(&interpreter->watch, EPOLLIN | EPOLLOUT);
            return;
        }
        if (n < 0) /* it is dead, or deaf: its end tells */
            n = (ssize_t)interpreter->out_len;
        interpreter->out_start += (size_t)n;
        interpreter->out_len -= (size_t)n;
    }
    free(interpreter->out); /* most orders are small, and most interpreters idle */
    interpreter->out = NULL;
    interpreter->out_start = interpreter->out_room = 0;
    hutch_watch_change(&interpreter->watch, EPOLLIN);
}

/* Room for @len more bytes. What waits is moved when at least as much has been sent before it, and the room doubles: an
 * interpreter that reads little at a time, and is told little at a time, costs no more than what it is told. */
static int make_room(struct interpreter *interpreter, size_t len)
{
    size_t have = interpreter->out_len, room = interpreter->out_room;
    char *more;

    if (interpreter->out_start > 0 && interpreter->out_start >= have) {
        memmove(interpreter->out, interpreter->out + interpreter->out_start, have);
        interpreter->out_start = 0;
    }
    if (interpreter->out_start + have + len <= room)
        return 0;
    room = interpreter->out_start + have + len + have;
    more = realloc(interpreter->out, room);
    if (!more)
        return -1;
    interpreter->out = more;
    interpreter->out_room = room;
    return 0;
}

int hutch_interpreter_send_raw(struct interpreter *interpreter, const char *data, size_t len)
{
    if (interpreter->is_over)
        return 0;
    if (interpreter->out_len > 0 && interpreter->out_len + len > MAX_WAITING) {
        struct hutch_err why;

        hutch_err_set(&why, 0, "it does not read what it is told");
        refuse(interpreter, &why);
        return -1;
    }
    if (make_room(interpreter, len) < 0)
        return -1;
    memcpy(interpreter->out + interpreter->out_start + interpreter->out_len, data, len);
    interpreter->out_len += len;
    flush(interpreter);
    return 0;
}

bool hutch_interpreter_has_room(const struct interpreter *interpreter, size_t len)
{
    return interpreter->out_len == 0 || interpreter->out_len + 2 * len + 4096 < MAX_WAITING; /* quotes may be escaped */
}

static void put_length(char head[4], size_t len)
{
    for (int i = 0; i < 4; i++)
        head[i] = (char)(uint8_t)(len >> 8 * i);
}

int hutch_interpreter_send(struct interpreter *interpreter, const struct cJSON *order, int fd, struct hutch_err *err)
{
    size_t len;
    auto_free char *text = hutch_nbjson_print(order, NBJSON_COMPACT, &len), *frame = text ? malloc(len + 4) : NULL;

    if (!frame)
        return hutch_err_set(err, ENOMEM, "tell an interpreter what to do");
    put_length(frame, len);
    memcpy(frame + 4, text, len);
    len += 4;
    if (fd >= 0 && interpreter->out_len > 0)
        return hutch_err_set(err, EAGAIN, "tell an interpreter what to do");
    /* a few bytes, into an empty buffer */
    if (fd >= 0 && hutch_fdpass_send(interpreter->fd, frame, len, &fd, 1, MSG_DONTWAIT) != (ssize_t)len)
        return hutch_err_set(err, errno, "tell an interpreter what to do");
    if (fd < 0 && hutch_interpreter_send_raw(interpreter, frame, len) < 0)
        return hutch_err_set(err, ENOMEM, "tell an interpreter what to do");
    return 0;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

int hutch_interpreter_make_token(char token[INTERPRETER_TOKEN_SIZE], struct hutch_err *err)
{
    unsigned char random[CELL_TOKEN_LEN / 2];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return hutch_err_set(err, errno, "draw a random number");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

struct interpreter *hutch_interpreter_create(struct slot *slot, int fd, const char *token, cell_event_fn *on_cell_event,
                                             void (*on_turn)(void *user), void *user, struct hutch_err *err)
{
    struct interpreter *interpreter = calloc(1, sizeof(*interpreter));

    if (interpreter)
        interpreter->feed = hutch_cell_feed_new(token, on_event, interpreter);
    if (!interpreter || !interpreter->feed) {
        free(interpreter);
        hutch_fd_closep(&fd);
        hutch_err_set(err, ENOMEM, "talk to an interpreter");
        return NULL;
    }
    interpreter->loop = &slot->slots->core->loop;
    interpreter->clock = (struct deadline)DEADLINE_INIT(on_due, interpreter);
    interpreter->slot = slot;
    interpreter->on_event = on_cell_event;
    interpreter->on_turn = on_turn;
    interpreter->user = user;
    interpreter->watch.fd = -1;
    interpreter->fd = fd;
    interpreter->frames = (struct cell_frames)CELL_FRAMES_INIT;
    interpreter->frames.fd = fd;
    if (hutch_watch_add(&interpreter->watch, &slot->slots->core->loop, fd, EPOLLIN, on_ready, interpreter, err) < 0) {
        hutch_interpreter_free(interpreter);
        return NULL;
    }
    return interpreter;
}

struct interpreter *hutch_interpreter_create_for_worker(struct slot *slot, const char *token,
                                                        cell_event_fn *on_cell_event, void (*on_turn)(void *user),
                                                        void *user, struct hutch_err *err)
{
    hutch_watch_remove(&slot->job);
    return hutch_interpreter_create(slot, hutch_fd_take(&slot->supervisor->report_fd), token, on_cell_event, on_turn,
                                    user, err);
}

static void free_interpreter(void *object)
{
    struct interpreter *interpreter = object;

    hutch_cell_frames_done(&interpreter->frames);
    hutch_cell_feed_free(interpreter->feed);
    free(interpreter->language_info);
    free(interpreter->out);
    free(interpreter);
}

void hutch_interpreter_free(struct interpreter *interpreter)
{
    if (!interpreter)
        return;
    hutch_watch_remove(&interpreter->watch);
    hutch_fd_closep(&interpreter->fd);
    interpreter->frames.fd = -1;
    interpreter->is_over = true;
    hutch_loop_set_deadline(interpreter->loop, &interpreter->clock, LOOP_NEVER);
    hutch_loop_free_later(interpreter->loop, &interpreter->doomed, interpreter, free_interpreter);
}
