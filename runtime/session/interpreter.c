#include "runtime/engine/engine_priv.h"

#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define MAX_WAITING (16u << 20) /* of orders that it does not read */
#define MAX_IDLE_FRAMES (1u << 20) /* bytes, from the end of a cell to the next */
#define TURN_FRAMES 64
#define TURN_BYTES (1u << 20) /* of frames, before others have their turn */

static uint64_t now_ms(void)
{
    return (uint64_t)hutch_supervisor_now();
}

static void turn(struct agent *agent)
{
    uint64_t due = hutch_cell_feed_deadline(agent->feed);

    if (due != UINT64_MAX)
        hutch_engine_wake(agent->engine, (double)due + 1);
    agent->on_turn(agent->user);
}

/* --- listening ------------------------------------------------------------------------------------------------------ */

/* Why it is not going to be ready. */
static void keep_reason(struct agent *agent, const struct cJSON *why)
{
    auto_free char *text = cJSON_IsString(why) ? hutch_nbjson_c_text(why) : NULL;

    if (text)
        snprintf(agent->why, sizeof(agent->why), "%s", text);
}

static void on_event(void *user, const struct cell_event *event)
{
    struct agent *agent = user;

    if (event->kind == CELL_READY) {
        const struct cJSON *info = cJSON_GetObjectItemCaseSensitive(event->frame, "language_info");

        agent->is_ready = true;
        if (info && !agent->language_info)
            agent->language_info = hutch_nbjson_print(info, NBJSON_COMPACT, NULL);
    }
    if (!agent->is_ready && strcmp(event->is, "failed") == 0)
        keep_reason(agent, cJSON_GetObjectItemCaseSensitive(event->frame, "why"));
    agent->on_event(agent->user, event);
}

static void refuse(struct agent *agent, const struct hutch_err *why)
{
    agent->is_refused = true;
    snprintf(agent->why, sizeof(agent->why), "%.*s", (int)sizeof(agent->why) - 1, why->msg);
    hutch_watch_remove(&agent->watch);
    if (agent->slot)
        hutch_supervisor_end(agent->slot->supervisor, END_CANCELLED);
}

/* The bytes before a frame's mark come first: both pipes are read until it is seen, or they have nothing more. */
static void read_to_marks(struct agent *agent)
{
    struct supervisor *s = agent->slot->supervisor;
    struct out_stream *streams[] = { &s->out, &s->err_out };

    for (int i = 0; i < 2; i++)
        while (hutch_cell_feed_wants(agent->feed, i + 1)) {
            const struct pollfd ready = { .fd = streams[i]->pipe_fd, .revents = POLLIN }, none = { .fd = -1 };
            uint64_t seen = streams[i]->seen;

            if (streams[i]->pipe_fd < 0 || hutch_out_stream_run(streams[i], &ready, &none) < 0 || streams[i]->seen == seen)
                hutch_cell_feed_is_empty(agent->feed, i + 1, now_ms());
        }
}

/* True when there may be more. */
static bool take_frame(struct agent *agent, size_t *taken)
{
    struct hutch_err err;
    const char *frame;
    size_t len;
    int rc = hutch_cell_frames_next(&agent->frames, &frame, &len, &err);

    agent->heard_bytes += rc == CELL_FRAME_READY ? len : 0;
    if (!agent->is_in_cell && agent->heard_bytes + agent->frames.len > MAX_IDLE_FRAMES)
        rc = hutch_err_set(&err, 0, "it says more than %u bytes, and nobody has asked", MAX_IDLE_FRAMES);
    if (rc == CELL_FRAME_READY) {
        *taken += len;
        if (hutch_cell_feed_frame(agent->feed, frame, len, now_ms(), &err) == 0) {
            read_to_marks(agent);
            return true;
        }
        rc = -1;
    }
    if (rc < 0 && err.errnum != ECONNRESET) {
        refuse(agent, &err);
    } else if (rc < 0 || rc == CELL_FRAME_END) {
        agent->has_left = true;
        hutch_watch_remove(&agent->watch);
    }
    return false;
}

static void flush(struct agent *agent);

static void take_frames(struct agent *agent)
{
    size_t taken = 0;

    for (int i = 0; i < TURN_FRAMES && taken < TURN_BYTES && !agent->is_over && take_frame(agent, &taken); i++)
        turn(agent);
    turn(agent);
    if (!agent->is_refused && hutch_cell_frames_has_one(&agent->frames)) /* others have their turn first */
        hutch_engine_wake(agent->engine, 0);
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct agent *agent = w->owner;

    if (events & EPOLLOUT)
        flush(agent);
    if (events & ~(uint32_t)EPOLLOUT)
        take_frames(agent);
    else
        turn(agent);
}

static void keep_last_words(struct agent *agent, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        size_t *n = &agent->n_last_words;

        if (data[i] == '\n' || data[i] == '\0') { /* the line before stays until there is another one */
            *n = 0;
            continue;
        }
        if (*n < sizeof(agent->last_words) - 1) {
            agent->last_words[(*n)++] = data[i];
            agent->last_words[*n] = '\0';
        }
    }
}

void hutch_agent_hear(struct agent *agent, int stream, const char *data, size_t len)
{
    if (!agent->is_ready && stream == 2)
        keep_last_words(agent, data, len);
    hutch_cell_feed_bytes(agent->feed, stream, data, len, now_ms());
    turn(agent);
}

bool hutch_agent_is_there(const struct agent *agent)
{
    return agent->is_ready && !agent->has_left && !agent->is_refused && !agent->is_over;
}

void hutch_agent_set_in_cell(struct agent *agent, bool is_in_cell)
{
    agent->is_in_cell = is_in_cell;
    agent->heard_bytes = 0;
}

void hutch_agent_finish(struct agent *agent)
{
    size_t taken = 0;

    agent->is_over = true;
    while (!agent->is_refused && !agent->has_left && take_frame(agent, &taken))
        turn(agent);
    hutch_cell_feed_finish(agent->feed);
    turn(agent);
    hutch_watch_remove(&agent->watch);
}

double hutch_agent_clocks(struct agent *agent, double now)
{
    uint64_t due = hutch_cell_feed_deadline(agent->feed);

    /* What was read beyond its turn waits in our own buffer, where no event comes from. */
    if (!agent->is_refused && hutch_cell_frames_has_one(&agent->frames)) {
        take_frames(agent);
        if (!agent->is_refused && hutch_cell_frames_has_one(&agent->frames))
            return now;
        due = hutch_cell_feed_deadline(agent->feed);
    }
    if (due != UINT64_MAX && due <= (uint64_t)now) {
        hutch_cell_feed_tick(agent->feed, (uint64_t)now);
        turn(agent);
        due = hutch_cell_feed_deadline(agent->feed);
    }
    return due == UINT64_MAX ? ENGINE_NEVER : (double)due + 1;
}

/* --- speaking ------------------------------------------------------------------------------------------------------- */

static void flush(struct agent *agent)
{
    while (agent->out_len > 0) {
        ssize_t n = TEMP_FAILURE_RETRY(send(agent->fd, agent->out + agent->out_start, agent->out_len, MSG_NOSIGNAL | MSG_DONTWAIT));

        if (n < 0 && errno == EAGAIN) {
            hutch_watch_change(&agent->watch, EPOLLIN | EPOLLOUT);
            return;
        }
        if (n < 0) /* it is dead, or deaf: its end tells */
            n = (ssize_t)agent->out_len;
        agent->out_start += (size_t)n;
        agent->out_len -= (size_t)n;
    }
    free(agent->out); /* most orders are small, and most agents idle */
    agent->out = NULL;
    agent->out_start = agent->out_room = 0;
    hutch_watch_change(&agent->watch, EPOLLIN);
}

int hutch_agent_send_raw(struct agent *agent, const char *data, size_t len)
{
    size_t have;

    if (agent->is_over)
        return 0;
    if (agent->out_start > 0 && agent->out_len > 0)
        memmove(agent->out, agent->out + agent->out_start, agent->out_len);
    agent->out_start = 0;
    have = agent->out_len;
    if (have > 0 && have + len > MAX_WAITING) {
        struct hutch_err why;

        hutch_err_set(&why, 0, "it does not read what it is told");
        refuse(agent, &why);
        return -1;
    }
    if (have + len > agent->out_room) {
        char *more = realloc(agent->out, have + len);

        if (!more)
            return -1;
        agent->out = more;
        agent->out_room = have + len;
    }
    memcpy(agent->out + have, data, len);
    agent->out_len += len;
    flush(agent);
    return 0;
}

static void put_length(char head[4], size_t len)
{
    for (int i = 0; i < 4; i++)
        head[i] = (char)(uint8_t)(len >> 8 * i);
}

int hutch_agent_send(struct agent *agent, const struct cJSON *order, int fd, struct hutch_err *err)
{
    size_t len;
    auto_free char *text = hutch_nbjson_print(order, NBJSON_COMPACT, &len), *frame = text ? malloc(len + 4) : NULL;

    if (!frame)
        return hutch_err_set(err, ENOMEM, "tell an interpreter what to do");
    put_length(frame, len);
    memcpy(frame + 4, text, len);
    len += 4;
    if (fd >= 0 && agent->out_len > 0)
        return hutch_err_set(err, EAGAIN, "tell an interpreter what to do");
    if (fd >= 0 && hutch_fdpass_send(agent->fd, frame, len, &fd, 1, MSG_DONTWAIT) != (ssize_t)len) /* a few bytes, into an empty buffer */
        return hutch_err_set(err, errno, "tell an interpreter what to do");
    if (fd < 0 && hutch_agent_send_raw(agent, frame, len) < 0)
        return hutch_err_set(err, ENOMEM, "tell an interpreter what to do");
    return 0;
}

/* --- life ------------------------------------------------------------------------------------------------------------ */

struct agent *hutch_agent_create(struct slot *slot, int fd, const char *token, cell_event_fn *on_cell_event, void (*on_turn)(void *user),
                                 void *user, struct hutch_err *err)
{
    struct agent *agent = calloc(1, sizeof(*agent));

    if (agent)
        agent->feed = hutch_cell_feed_new(token, on_event, agent);
    if (!agent || !agent->feed) {
        free(agent);
        hutch_fd_closep(&fd);
        hutch_err_set(err, ENOMEM, "talk to an interpreter");
        return NULL;
    }
    agent->engine = slot->engine;
    agent->slot = slot;
    agent->on_event = on_cell_event;
    agent->on_turn = on_turn;
    agent->user = user;
    agent->watch.fd = -1;
    agent->fd = fd;
    agent->frames = (struct cell_frames)CELL_FRAMES_INIT;
    agent->frames.fd = fd;
    if (hutch_watch_add(&agent->watch, slot->engine, fd, EPOLLIN, on_ready, agent, err) < 0) {
        hutch_agent_free(agent);
        return NULL;
    }
    return agent;
}

struct agent *hutch_agent_create_for_worker(struct slot *slot, const char *token, cell_event_fn *on_cell_event,
                                            void (*on_turn)(void *user), void *user, struct hutch_err *err)
{
    hutch_watch_remove(&slot->job);
    return hutch_agent_create(slot, hutch_fd_take(&slot->supervisor->report_fd), token, on_cell_event, on_turn, user, err);
}

void hutch_agent_free(struct agent *agent)
{
    if (!agent)
        return;
    hutch_watch_remove(&agent->watch);
    hutch_fd_closep(&agent->fd);
    agent->frames.fd = -1;
    agent->is_over = true;
    agent->next = agent->engine->dead_agents;
    agent->engine->dead_agents = agent;
}

void hutch_agents_bury(struct hutch_engine *engine)
{
    while (engine->dead_agents) {
        struct agent *agent = engine->dead_agents;

        engine->dead_agents = agent->next;
        hutch_cell_frames_done(&agent->frames);
        hutch_cell_feed_free(agent->feed);
        free(agent->language_info);
        free(agent->out);
        free(agent);
    }
}
