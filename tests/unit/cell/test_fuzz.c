/* test_fuzz.c - however reads cut and mix what an interpreter says, the outputs are the same; and whatever code
 * inside says in its place, they are outputs, and bounded. */
#include "runtime/cell/feed.h"
#include "runtime/cell/frames.h"
#include "sandbox/fd.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

static uint64_t random_state = 88172645463325252ull;

static uint32_t below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static void add_mark(struct text_buffer *to, uint32_t n)
{
    hutch_text_add(to, "\0" TOKEN, 1 + CELL_TOKEN_LEN);
    hutch_text_addf(to, "%08x\n", n);
}

/* ---- marks, against a search in the whole text ---- */

static void add_near_mark(struct text_buffer *to)
{
    struct text_buffer mark = TEXT_BUFFER_INIT;

    add_mark(&mark, below(1u << 31));
    mark.data[below(CELL_MARK_LEN)] = "\0" "0f\nG"[below(5)];
    hutch_text_add(to, mark.data, below(2) ? CELL_MARK_LEN : below(CELL_MARK_LEN));
    hutch_text_done(&mark);
}

static bool is_mark(const char *p, size_t left, unsigned *ret_n)
{
    char copy[CELL_MARK_LEN + 1];

    if (left < CELL_MARK_LEN || memcmp(p, "\0" TOKEN, 1 + CELL_TOKEN_LEN) != 0 || p[CELL_MARK_LEN - 1] != '\n')
        return false;
    memcpy(copy, p + 1 + CELL_TOKEN_LEN, 8);
    copy[8] = '\0';
    return strspn(copy, "0123456789abcdef") == 8 && sscanf(copy, "%x", ret_n) == 1;
}

static void on_text(void *user, const char *data, size_t len)
{
    assert_true(len > 0);
    hutch_text_add(user, data, len);
}

static void on_mark(void *user, uint32_t n)
{
    hutch_text_addf(user, "<mark %u>", n);
}

static void test_marks(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct text_buffer said = TEXT_BUFFER_INIT, want = TEXT_BUFFER_INIT, got = TEXT_BUFFER_INIT;
        const struct cell_marks_sink sink = { .on_text = on_text, .on_mark = on_mark, .user = &got };
        struct cell_marks marks;

        for (uint32_t n = below(6); n > 0; n--) {
            switch (below(4)) {
            case 0: add_mark(&said, below(1000)); break;
            case 1: add_near_mark(&said); break;
            case 2: hutch_text_add(&said, "\0\0", 1 + below(2)); break;
            default: hutch_text_add(&said, "text 0", below(7)); break;
            }
        }
        for (size_t at = 0; at < said.len;) {
            unsigned n;

            if (is_mark(said.data + at, said.len - at, &n)) {
                hutch_text_addf(&want, "<mark %u>", n);
                at += CELL_MARK_LEN;
            } else {
                hutch_text_add(&want, said.data + at++, 1);
            }
        }
        hutch_cell_marks_init(&marks, TOKEN);
        for (size_t at = 0, len; at < said.len; at += len) {
            auto_free char *piece = NULL;

            len = 1 + below(below(2) ? 3 : 100);
            len = len < said.len - at ? len : said.len - at;
            piece = malloc(len);
            memcpy(piece, said.data + at, len);
            hutch_cell_marks_put(&marks, piece, len, &sink);
            assert_true(marks.n_held < CELL_MARK_LEN);
        }
        hutch_cell_marks_finish(&marks, &sink);
        assert_int_equal(got.len, want.len);
        if (got.len > 0)
            assert_memory_equal(got.data, want.data, got.len);
        hutch_text_done(&said);
        hutch_text_done(&want);
        hutch_text_done(&got);
    }
}

/* ---- frames through a pipe ---- */

static void put_len(char *to, size_t len)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(len >> 8 * i & 255);
}

#define N_FRAMES 200

/* Each is its number and so many bytes of it. */
static void test_frames(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct cell_frames frames = CELL_FRAMES_INIT;
        struct text_buffer stream = TEXT_BUFFER_INIT;
        static char filler[300000];
        size_t lengths[N_FRAMES], at = 0, len;
        unsigned n_read = 0;
        struct hutch_err err;
        const char *frame;
        int fds[2];

        for (int i = 0; i < N_FRAMES; i++) {
            char head[4];

            lengths[i] = below(10) ? below(50) : below(below(5) ? 5000 : 300000);
            put_len(head, lengths[i]);
            hutch_text_add(&stream, head, 4);
            hutch_text_add(&stream, memset(filler, i, lengths[i]), lengths[i]);
        }
        assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
        frames.fd = fds[0];
        while (n_read < N_FRAMES) {
            size_t step = 1 + below(below(2) ? 10 : 65536);
            ssize_t n = write(fds[1], stream.data + at, step < stream.len - at ? step : stream.len - at);

            at += n > 0 ? (size_t)n : 0;
            while (hutch_cell_frames_next(&frames, &frame, &len, &err) == CELL_FRAME_READY) {
                assert_int_equal(len, lengths[n_read]);
                assert_memory_equal(frame, memset(filler, (int)n_read, len), len);
                n_read++;
            }
        }
        assert_true(frames.room <= 2 * 65536 || lengths[N_FRAMES - 1] > 0);
        close(fds[1]);
        assert_int_equal(hutch_cell_frames_next(&frames, &frame, &len, &err), CELL_FRAME_END);
        close(fds[0]);
        hutch_cell_frames_done(&frames);
        hutch_text_done(&stream);
    }
}

static void test_bad_frames(void **state)
{
    static const struct { const char *bytes; size_t len; const char *message; } cases[] = {
        { "\x01\x00\x00\x02x", 5, "a frame of 33554433 bytes is more than 33554432" },
            { "\xff\xff\xff\xff", 4, "is more than" },
        { "\x01\x00", 2, "the end came within a frame" },
        { "\x05\x00\x00\x00" "abcd", 8, "the end came within a frame" },
        /* 32 MiB are announced; no such buffer is made for it */
        { "\x00\x00\x00\x02" "abcd", 8, "the end came within a frame" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cell_frames frames = CELL_FRAMES_INIT;
        struct hutch_err err = { 0 };
        const char *frame;
        size_t len;
        int fds[2];

        assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
        frames.fd = fds[0];
        assert_int_equal(write(fds[1], cases[i].bytes, cases[i].len), cases[i].len);
        close(fds[1]);
        assert_int_equal(hutch_cell_frames_next(&frames, &frame, &len, &err), -1);
        assert_non_null(strstr(err.msg, cases[i].message));
        assert_true(frames.room <= 65536);
        close(fds[0]);
        hutch_cell_frames_done(&frames);
    }
}

/* ---- an honest interpreter, read in any order ---- */

struct frame {
    char *text;
    uint32_t n;
    size_t after[2]; /* bytes of the two pipes that had been written by then */
};

struct talk {
    struct text_buffer pipes[2];
    struct frame frames[40];
    unsigned n_frames;
};

static void on_event(void *user, const struct cell_event *event)
{
    uint64_t *n = user;

    (*n)++;
    if (event->kind == CELL_OUTPUT && event->output->kind == HUTCH_STREAM)
        assert_true(hutch_utf8_is_valid(event->output->text, event->output->text_len));
}

static void say(struct talk *t, uint32_t *n, const char *members)
{
    struct frame *f = &t->frames[t->n_frames++];

    f->n = ++*n;
    add_mark(&t->pipes[0], f->n);
    add_mark(&t->pipes[1], f->n);
    f->after[0] = t->pipes[0].len;
    f->after[1] = t->pipes[1].len;
    assert_true(asprintf(&f->text, "{\"n\":%u,%s}", f->n, members) > 0);
}

static void make_talk(struct talk *t)
{
    static const char *const words[] = { "a", "line\n", "1%\r", "ä", "\xe2\x82", "\xac", "\xff", "\0", "漢\n" };
    static const char *const members[] = {
        "\"is\":\"display\",\"data\":{\"text/plain\":\"d\"},\"metadata\":{}",
        "\"is\":\"call\",\"id\":1,\"name\":\"tool\",\"args\":\"{\\\"args\\\":[1]}\"",
        "\"is\":\"display\",\"data\":{\"text/plain\":\"i\"},\"metadata\":{},\"id\":\"one\"",
        "\"is\":\"display\",\"data\":{\"text/plain\":\"j\"},\"metadata\":{},\"id\":\"two\"",
        "\"is\":\"update\",\"data\":{\"text/plain\":\"u\"},\"metadata\":{},\"id\":\"one\"",
        "\"is\":\"result\",\"data\":{\"text/plain\":\"r\"},\"metadata\":{},\"count\":1",
        "\"is\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[\"t\"]",
        "\"is\":\"clear\",\"wait\":true", "\"is\":\"clear\",\"wait\":false", "\"is\":\"flush\"",
        "\"is\":\"flush\",\"stream\":1", "\"is\":\"widget\",\"id\":\"w\",\"state\":{\"a\":[1]},\"buffers\":[]",
        "\"is\":\"flush\",\"stream\":2", "\"is\":\"parked\",\"lost\":[]",
    };
    uint32_t n = below(1000);

    *t = (struct talk){ .n_frames = 0 };
    for (uint32_t left = below(30); left > 0; left--) {
        for (uint32_t k = below(4); k > 0; k--) {
            const char *word = words[below(ARRAY_SIZE(words))];

            hutch_text_add(&t->pipes[below(2)], word, *word ? strlen(word) : 1);
        }
        say(t, &n, members[below(ARRAY_SIZE(members))]);
    }
    say(t, &n, "\"is\":\"done\",\"id\":1,\"status\":\"ok\",\"count\":1");
}

static void read_pipe(struct cell_feed *feed, const struct talk *t, int i, size_t at[2], size_t len)
{
    auto_free char *piece = NULL;

    len = len < t->pipes[i].len - at[i] ? len : t->pipes[i].len - at[i];
    if (len == 0) {
        hutch_cell_feed_is_empty(feed, i + 1, 0);
        return;
    }
    piece = malloc(len);
    memcpy(piece, t->pipes[i].data + at[i], len);
    hutch_cell_feed_bytes(feed, i + 1, piece, len, 0);
    at[i] += len;
}

/* What a cell shows when it is read so: at once each time, or by chance. */
static char *outputs_of(const struct talk *t, bool is_random)
{
    struct hutch_err err = { 0 };
    uint64_t n_events = 0;
    struct cell_feed *feed = hutch_cell_feed_new(TOKEN, on_event, &n_events);
    size_t at[2] = { 0, 0 };
    char *json;

    hutch_cell_feed_begin(feed, 0);
    for (unsigned i = 0; i < t->n_frames; i++) {
        for (uint32_t k = is_random ? below(4) : 0; k > 0; k--) { /* from before and after the frame */
            int stream = (int)below(2);

            if (at[stream] < t->pipes[stream].len)
                read_pipe(feed, t, stream, at, 1 + below(below(2) ? 10 : 200));
        }
        if (!is_random)
            for (int stream = 0; stream < 2; stream++)
                read_pipe(feed, t, stream, at, t->frames[i].after[stream] - at[stream]);
        if (hutch_cell_feed_frame(feed, t->frames[i].text, strlen(t->frames[i].text), 0, &err) < 0)
            fail_msg("%s", err.msg);
        for (int stream = 0; stream < 2; stream++)
            while (hutch_cell_feed_wants(feed, stream + 1))
                read_pipe(feed, t, stream, at, is_random ? 1 + below(100) : 1);
    }
    json = hutch_cell_outputs_json(hutch_cell_feed_outputs(feed), NULL);
    assert_non_null(json);
    hutch_cell_feed_free(feed);
    return json;
}

static void test_any_reading(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) {
        auto_free char *want = NULL;
        struct talk t;

        make_talk(&t);
        want = outputs_of(&t, false);
        for (int k = 0; k < 3; k++) {
            auto_free char *got = outputs_of(&t, true);

            assert_string_equal(got, want);
        }
        for (unsigned k = 0; k < t.n_frames; k++)
            free(t.frames[k].text);
        hutch_text_done(&t.pipes[0]);
        hutch_text_done(&t.pipes[1]);
    }
}

/* ---- a hostile one ---- */

static void check_outputs(const struct cell_feed *feed, uint64_t max_bytes)
{
    size_t len;
    auto_free char *json = hutch_cell_outputs_json(hutch_cell_feed_outputs(feed), &len);
    struct nbjson_bounds strict = NBJSON_NOTEBOOK;
    struct cell_error error;
    struct hutch_err err;
    cJSON *root = NULL, *output;
    uint64_t n = 0;

    strict.is_strict = true;
    assert_non_null(json);
    if (hutch_nbjson_parse("outputs", json, len, &strict, &root, &err) < 0)
        fail_msg("%s: %s", err.msg, json);
    cJSON_ArrayForEach(output, root) {
        assert_true(cJSON_IsString(cJSON_GetObjectItem(output, "output_type")));
        n++;
    }
    /* escapes are six bytes where the text has one */
    assert_true(len <= 6 * max_bytes + 300 * n + CELL_ERROR_RESERVE);
    cJSON_Delete(root);
    assert_int_equal(hutch_cell_outputs_error(hutch_cell_feed_outputs(feed), &error), 0);
    hutch_cell_error_done(&error);
}

static void put_hostile_frame(struct cell_feed *feed, const struct talk *t)
{
    struct hutch_err err = { 0 };
    const struct frame *f = &t->frames[below(t->n_frames)];
    size_t len = strlen(f->text);
    auto_free char *text = malloc(len);

    memcpy(text, f->text, len);
    if (!below(50))
        text[below((uint32_t)len)] = (char)below(256);
    if (hutch_cell_feed_frame(feed, text, len, 0, &err) < 0)
        assert_true(err.msg[0] != '\0');
}

static void test_hostile(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        uint64_t n_events = 0, now = 0, max_bytes = 1 + below(500);
        struct cell_feed *feed = hutch_cell_feed_new(TOKEN, on_event, &n_events);
        size_t at[2] = { 0, 0 };
        struct talk t;

        make_talk(&t);
        for (uint32_t k = 200; k > 0; k--) {
            int stream = (int)below(2);

            switch (below(12)) {
            case 0: hutch_cell_feed_begin(feed, max_bytes); break;
            case 1: hutch_cell_feed_finish(feed); break;
            case 2: hutch_cell_feed_discard(feed); break;
            case 3: hutch_cell_feed_forget(feed); break;
            case 4: hutch_cell_feed_tick(feed, now += below(300)); break;
            case 5: hutch_cell_feed_is_empty(feed, stream + 1, now); break;
            case 6: at[stream] = below((uint32_t)t.pipes[stream].len + 1); break;
            case 7: hutch_cell_feed_deadline(feed); break;
            case 8: put_hostile_frame(feed, &t); break;
            default: read_pipe(feed, &t, stream, at, 1 + below(100)); break;
            }
        }
        hutch_cell_feed_begin(feed, max_bytes);
        for (int k = 0; k < 50; k++) {
            read_pipe(feed, &t, k % 2, at, 1 + below(100));
            put_hostile_frame(feed, &t);
        }
        hutch_cell_feed_finish(feed);
        check_outputs(feed, max_bytes);
        hutch_cell_feed_free(feed);
        for (unsigned k = 0; k < t.n_frames; k++)
            free(t.frames[k].text);
        hutch_text_done(&t.pipes[0]);
        hutch_text_done(&t.pipes[1]);
    }
}

/* Each of these would take hours if a byte of it cost as much as all before it. */
static void test_floods(void **state)
{
    static const char *const pieces[] = { "x", "\n", "\r", "\0", "\0nul and text", "\xff", "\xe2\x82", "ab\rcd\r",
                                          "ä\r\n" };
    static const size_t lengths[] = { 1, 1, 1, 1, 13, 1, 2, 6, 4 };
    char flood[65536];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        uint64_t n_events = 0;
        struct cell_feed *feed = hutch_cell_feed_new(TOKEN, on_event, &n_events);

        for (size_t at = 0; at < sizeof(flood); at++)
            flood[at] = pieces[i][at % lengths[i]];
        hutch_cell_feed_begin(feed, 8 << 20);
        for (int k = 0; k < 160; k++)
            hutch_cell_feed_bytes(feed, 1 + k % 2, flood, sizeof(flood), 0);
        hutch_cell_feed_finish(feed);
        check_outputs(feed, 8 << 20);
        hutch_cell_feed_free(feed);
    }
}

/* Marks without frames, and frames without marks. */
static void test_flood_of_marks(void **state)
{
    static const char update[] = "{\"is\":\"update\",\"n\":7,\"data\":{},\"metadata\":{},\"id\":\"none\"}";
    uint64_t n_events = 0;
    struct cell_feed *feed = hutch_cell_feed_new(TOKEN, on_event, &n_events);
    struct text_buffer marks = TEXT_BUFFER_INIT;
    struct hutch_err err;

    (void)state;
    hutch_cell_feed_begin(feed, 1 << 20);
    for (uint32_t i = 0; i < 1000; i++) {
        add_mark(&marks, i);
        hutch_text_add(&marks, "x", 1);
    }
    for (int i = 0; i < 100; i++)
        hutch_cell_feed_bytes(feed, 1 + i % 2, marks.data, marks.len, 0);
    for (int i = 0; i < 50000; i++) {
        assert_int_equal(hutch_cell_feed_frame(feed, update, strlen(update), 0, &err), 0);
        hutch_cell_feed_is_empty(feed, 1, 0);
        hutch_cell_feed_is_empty(feed, 2, 0);
    }
    assert_in_range(n_events, 50000, 51000); /* the updates, and the text in a few pieces */
    hutch_cell_feed_finish(feed);
    check_outputs(feed, 1 << 20);
    hutch_cell_feed_free(feed);
    hutch_text_done(&marks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),       cmocka_unit_test(test_frames),  cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_any_reading), cmocka_unit_test(test_hostile), cmocka_unit_test(test_floods),
        cmocka_unit_test(test_flood_of_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
