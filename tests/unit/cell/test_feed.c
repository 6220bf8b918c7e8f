/* test_feed.c - what an interpreter says, in order: marks, frames, streams, and the outputs that a notebook gets of
 * it. */
#include "runtime/text/ansi.h"
#include "runtime/cell/feed.h"
#include "sandbox/fd.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

/* ---- a feed, and what it tells, as text: "1:abc|{json}|begin 1 5|…" ---- */

struct talk {
    struct cell_feed *feed;
    struct text_buffer told;
    uint32_t n;
    bool starts_next; /* the next cell is begun in the call that tells of the end of the last */
};

static void put_told(struct talk *t, const char *text, size_t len)
{
    if (t->told.len > 0)
        hutch_text_add(&t->told, "|", 1);
    for (size_t i = 0; i < len; i++) /* NUL is shown */
        hutch_text_add(&t->told, text[i] ? text + i : "0", 1);
}

static void on_event(void *user, const struct cell_event *event)
{
    static const char *const kinds[] = { [HUTCH_DISPLAY] = "display ", [HUTCH_VALUE] = "value ",
                                         [HUTCH_ERROR_OUTPUT] = "error ",
                                         [HUTCH_UPDATE] = "update ", [HUTCH_CLEAR] = "clear ",
                                         [HUTCH_WIDGET] = "widget " };
    struct talk *t = user;
    char text[300];

    if (event->kind == CELL_OUTPUT && event->output->kind == HUTCH_STREAM) {
        auto_free char *line = malloc(event->output->text_len + 2);

        line[0] = (char)('0' + event->output->stream);
        line[1] = ':';
        memcpy(line + 2, event->output->text, event->output->text_len);
        put_told(t, line, event->output->text_len + 2);
        return;
    }
    if (event->kind == CELL_OUTPUT) {
        snprintf(text, sizeof(text), "%s%s", kinds[event->output->kind], event->output->json);
    } else {
        snprintf(text, sizeof(text), "%s %d %d%s%s%s%s%s", event->is, (int)event->id, (int)event->count, event->prompt,
                 event->is_error ? " error" : "", event->cause ? event->cause : "", event->name,
                 event->value ? event->value : "");
        assert_string_equal(cJSON_GetObjectItem(event->frame, "is")->valuestring, event->is);
    }
    put_told(t, text, strlen(text));
    if (event->kind == CELL_DONE && t->starts_next)
        hutch_cell_feed_begin(t->feed, 0);
}

static void start(struct talk *t, uint64_t max_bytes)
{
    *t = (struct talk){ .told = TEXT_BUFFER_INIT };
    t->feed = hutch_cell_feed_new(TOKEN, on_event, t);
    assert_non_null(t->feed);
    hutch_cell_feed_begin(t->feed, max_bytes);
}

static void stop(struct talk *t)
{
    hutch_cell_feed_free(t->feed);
    hutch_text_done(&t->told);
}

static void say(struct talk *t, int stream, const char *text, uint64_t now)
{
    hutch_cell_feed_bytes(t->feed, stream, text, strlen(text), now);
}

static void mark(struct talk *t, int stream, uint32_t n, uint64_t now)
{
    char bytes[CELL_MARK_LEN + 1];

    bytes[0] = '\0';
    snprintf(bytes + 1, sizeof(bytes) - 1, TOKEN "%08x\n", n);
    hutch_cell_feed_bytes(t->feed, stream, bytes, CELL_MARK_LEN, now);
}

/* @members: of the frame, behind "n". */
static int frame(struct talk *t, uint32_t n, const char *members, uint64_t now, struct hutch_err *err)
{
    auto_free char *text = NULL;

    assert_true(asprintf(&text, "{\"n\":%u,%s}", n, members) > 0);
    return hutch_cell_feed_frame(t->feed, text, strlen(text), now, err);
}

/* As the interpreter does it. */
static void send(struct talk *t, const char *members, uint64_t now)
{
    struct hutch_err err = { 0 };

    t->n++;
    mark(t, 1, t->n, now);
    mark(t, 2, t->n, now);
    if (frame(t, t->n, members, now, &err) < 0)
        fail_msg("%s: %s", members, err.msg);
    assert_false(hutch_cell_feed_wants(t->feed, 1) || hutch_cell_feed_wants(t->feed, 2));
}

static void check_told(struct talk *t, const char *want)
{
    hutch_text_add(&t->told, "", 0);
    assert_string_equal(t->told.data, want);
    t->told.len = 0;
}

static void check_outputs(struct talk *t, const char *want)
{
    auto_free char *got = hutch_cell_outputs_json(hutch_cell_feed_outputs(t->feed), NULL);

    assert_string_equal(got, want);
}

#define DONE "\"is\":\"done\",\"id\":1,\"status\":\"ok\",\"count\":1"
#define SHOW(x) "\"is\":\"display\",\"data\":{\"text/plain\":\"" x "\"},\"metadata\":{}"
#define SHOWN(x) "{\"data\":{\"text/plain\":\"" x "\"},\"metadata\":{},\"output_type\":\"display_data\"}"
#define OUT(x) "{\"name\":\"stdout\",\"output_type\":\"stream\",\"text\":\"" x "\"}"
#define ERR(x) "{\"name\":\"stderr\",\"output_type\":\"stream\",\"text\":\"" x "\"}"

/* ---- order ---- */

/* print('o1'); print('e1', file=sys.stderr); print('o2'): two outputs, not three. */
static void test_stretch(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 1, "o1\n", 0);
    say(&t, 2, "e1\n", 0);
    say(&t, 1, "o2\n", 10);
    check_told(&t, "");
    send(&t, DONE, 20);
    check_told(&t, "1:o1\no2\n|2:e1\n|done 1 1");
    check_outputs(&t, "[" OUT("o1\\no2\\n") "," ERR("e1\\n") "]");
    stop(&t);
}

static void test_around_display(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 2, "e1\n", 0);
    say(&t, 1, "o1\n", 0);
    send(&t, SHOW("x"), 1);
    say(&t, 2, "e2\n", 2);
    send(&t, "\"is\":\"result\",\"data\":{\"text/plain\":\"3\"},\"metadata\":{},\"count\":7", 1);
    say(&t, 1, "o2", 2);
    send(&t, DONE, 3);
    check_outputs(&t, "[" OUT("o1\\n") "," ERR("e1\\n") "," SHOWN("x") "," ERR("e2\\n")
                      ",{\"data\":{\"text/plain\":\"3\"},\"execution_count\":7,\"metadata\":{},"
                      "\"output_type\":\"execute_result\"}," OUT("o2") "]");
    stop(&t);
}

/* The engine reads the pipes far ahead of the socket, and one further than the other. */
static void test_pipes_ahead(void **state)
{
    struct hutch_err err;
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 1, "a", 0);
    mark(&t, 1, 1, 0);
    say(&t, 1, "b", 0);
    mark(&t, 1, 2, 0);
    say(&t, 1, "c", 0);
    say(&t, 2, "x", 0);
    mark(&t, 2, 1, 0);
    assert_int_equal(frame(&t, 1, SHOW("1"), 5, &err), 0);
    check_told(&t, "1:a|2:x|display " SHOWN("1"));
    assert_int_equal(frame(&t, 2, SHOW("2"), 5, &err), 0);
    assert_false(hutch_cell_feed_wants(t.feed, 1));
    assert_true(hutch_cell_feed_wants(t.feed, 2));
    check_told(&t, "");
    say(&t, 2, "y", 6);
    assert_true(hutch_cell_feed_wants(t.feed, 2));
    mark(&t, 2, 2, 6);
    assert_false(hutch_cell_feed_wants(t.feed, 2));
    check_told(&t, "1:b|2:y|display " SHOWN("2"));
    hutch_cell_feed_finish(t.feed);
    check_told(&t, "1:c");
    stop(&t);
}

/* Someone inside took the mark out of the pipe, or wrote so much that it is not worth waiting. */
static void test_lost_marks(void **state)
{
    static char flood[70000];
    struct hutch_err err;
    struct talk t;
    int reads = 0;

    (void)state;
    memset(flood, 'f', sizeof(flood));
    start(&t, 0);
    say(&t, 1, "a", 0);
    mark(&t, 1, 1, 0);
    assert_int_equal(frame(&t, 1, SHOW("1"), 0, &err), 0);
    hutch_cell_feed_is_empty(t.feed, 1, 0);
    check_told(&t, "");
    hutch_cell_feed_is_empty(t.feed, 2, 0);
    check_told(&t, "1:a|display " SHOWN("1"));
    assert_int_equal(frame(&t, 2, SHOW("2"), 0, &err), 0);
    hutch_cell_feed_is_empty(t.feed, 1, 0);
    for (; hutch_cell_feed_wants(t.feed, 2) && reads < 100; reads++)
        hutch_cell_feed_bytes(t.feed, 2, flood, sizeof(flood), 0);
    assert_int_equal(reads, 15); /* a mebibyte */
    stop(&t);
}

static void test_flush_of_one(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 1, "o1\n", 0);
    say(&t, 2, "e1\n", 0);
    send(&t, "\"is\":\"flush\",\"stream\":2", 0);
    say(&t, 1, "o2\n", 0);
    send(&t, "\"is\":\"flush\"", 0);
    send(&t, DONE, 0);
    check_told(&t, "2:e1\n|1:o1\no2\n|done 1 1");
    stop(&t);
}

static void test_pauses(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    assert_int_equal(hutch_cell_feed_deadline(t.feed), UINT64_MAX);
    say(&t, 2, "e1", 1000);
    say(&t, 1, "o1", 1100);
    assert_int_equal(hutch_cell_feed_deadline(t.feed), 1200);
    hutch_cell_feed_tick(t.feed, 1199);
    check_told(&t, "");
    hutch_cell_feed_tick(t.feed, 1200);
    check_told(&t, "2:e1");
    assert_int_equal(hutch_cell_feed_deadline(t.feed), 1300);
    say(&t, 1, "o2", 1250);
    say(&t, 2, "e2", 1290);
    hutch_cell_feed_tick(t.feed, 1400); /* late; its time began with o1 */
    check_told(&t, "1:o1o2");
    say(&t, 2, "e3", 1401); /* was in the pipe by then */
    hutch_cell_feed_tick(t.feed, 2000);
    check_told(&t, "2:e2e3");
    assert_int_equal(hutch_cell_feed_deadline(t.feed), UINT64_MAX);
    /* both late: the older first, or stdout */
    say(&t, 2, "e", 3000);
    say(&t, 1, "o", 3000);
    hutch_cell_feed_tick(t.feed, 4000);
    check_told(&t, "1:o|2:e");
    say(&t, 2, "e", 5000);
    say(&t, 1, "o", 5001);
    hutch_cell_feed_tick(t.feed, 6000);
    check_told(&t, "2:e|1:o");
    /* behind a mark it waits for the frame */
    mark(&t, 1, 9, 7000);
    say(&t, 1, "o", 7000);
    assert_int_equal(hutch_cell_feed_deadline(t.feed), UINT64_MAX);
    hutch_cell_feed_tick(t.feed, 9000);
    check_told(&t, "");
    stop(&t);
}

static void test_between_cells(void **state)
{
    static char much[CELL_MAX_IDLE_BYTES + 10];
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 1, "starting", 0);
    send(&t, "\"is\":\"ready\",\"language_info\":{\"name\":\"python\"}", 0);
    check_told(&t, "ready -1 -1");
    t.starts_next = true;
    send(&t, DONE, 0);
    send(&t, "\"is\":\"begin\",\"id\":2,\"count\":4", 0);
    check_told(&t, "done 1 1|begin 2 4");
    t.starts_next = false;
    send(&t, DONE, 0);
    say(&t, 2, "late", 0);
    say(&t, 1, "r", 0);
    send(&t, SHOW("nobody's"), 0);
    send(&t, "\"is\":\"parked\",\"lost\":[\"a thread\"]", 0);
    check_told(&t, "done 1 1|parked -1 -1");
    check_outputs(&t, "[]");
    assert_int_equal(hutch_cell_feed_deadline(t.feed), UINT64_MAX);
    hutch_cell_feed_begin(t.feed, 0);
    check_told(&t, "1:r|2:late");
    check_outputs(&t, "[" OUT("r") "," ERR("late") "]");
    send(&t, DONE, 0);
    hutch_cell_feed_bytes(t.feed, 1, memset(much, 'm', sizeof(much)), sizeof(much), 0);
    send(&t, "\"is\":\"flush\"", 0);
    t.told.len = 0;
    hutch_cell_feed_begin(t.feed, 0);
    assert_int_equal(t.told.len, 2 + CELL_MAX_IDLE_BYTES);
    t.told.len = 0;
    send(&t, DONE, 0);
    say(&t, 1, "gone", 0);
    hutch_cell_feed_discard(t.feed);
    hutch_cell_feed_begin(t.feed, 0);
    hutch_cell_feed_finish(t.feed);
    check_told(&t, "done 1 1");
    stop(&t);
}

/* Half a character belongs to the cell that wrote it. */
static void test_half_character(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 1, "x \xc3", 0);
    send(&t, SHOW("1"), 0);
    say(&t, 1, "\xa4\xc3", 0);
    send(&t, DONE, 0);
    check_told(&t, "1:x |display " SHOWN("1") "|1:ä|1:\xef\xbf\xbd|done 1 1");
    hutch_cell_feed_begin(t.feed, 0);
    say(&t, 1, "\xa4", 0);
    send(&t, DONE, 0);
    check_told(&t, "1:\xef\xbf\xbd|done 1 1");
    stop(&t);
}

static void test_death(void **state)
{
    struct hutch_err err;
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 2, "e", 0);
    mark(&t, 1, 1, 0);
    hutch_cell_feed_bytes(t.feed, 1, "o\xe2\x82", 3, 0);
    hutch_cell_feed_bytes(t.feed, 1, "\0" "0123", 5, 0);
    assert_int_equal(frame(&t, 1, "\"is\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]", 0, &err), 0);
    check_told(&t, "");
    hutch_cell_feed_finish(t.feed);
    /* the mark of the frame never came in stderr, so what is there was before */
    check_told(&t, "2:e|error {\"ename\":\"E\",\"evalue\":\"\",\"output_type\":\"error\","
                   "\"traceback\":[]}|1:o\xef\xbf\xbd" "00123");
    stop(&t);
}

/* ---- text ---- */

static const struct { const char *label, *bytes[4]; const char *want; } decoding[] = {
    { "split character", { "a\xe2", "\x82", "\xac" }, "a€" },
    { "split and broken", { "\xf0\x9f", "x" }, "\xef\xbf\xbdx" },
    { "split and another begins", { "\xe2\x82", "\xe2\x82\xac" }, "\xef\xbf\xbd€" },
    { "lone bytes", { "\x80\xff\xfe" }, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
    { "overlong", { "\xc0\x80\xe0\x80\x80" }, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
    { "surrogate", { "\xed", "\xa0\x80" }, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
    { "cut at the end", { "ok\xf0\x9f\x98" }, "ok\xef\xbf\xbd" },
    { "cut twice", { "\xf0", "\x9f", "\x98", "\x80" }, "😀" },
};

static void test_decoding(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(decoding); i++) {
        auto_free char *got = NULL;
        struct talk t;

        start(&t, 0);
        for (size_t k = 0; k < ARRAY_SIZE(decoding[i].bytes) && decoding[i].bytes[k]; k++)
            say(&t, 1, decoding[i].bytes[k], 0);
        hutch_cell_feed_finish(t.feed);
        got = hutch_cell_outputs_text(hutch_cell_feed_outputs(t.feed), 1, NULL);
        if (strcmp(got, decoding[i].want) != 0)
            fail_msg("%s: %s", decoding[i].label, got);
        stop(&t);
    }
}

/* nbconvert 6.5: re.sub(r".*\r(?=[^\n])", "", text) */
static const struct { const char *text, *want; } returns[] = {
    { "abc\rXY\n", "XY\\n" }, { "abc\r\n", "abc\\r\\n" }, { "a\rb\r\n", "b\\r\\n" }, { "a\rb\r", "b\\r" },
        { "\r\r\n", "\\r\\n" },
    { "1\n2\r3\n4\r\n5\r6", "1\\n3\\n4\\r\\n6" }, { "\r", "\\r" }, { "a\r\rb", "b" }, { "x\n\ry", "x\\ny" },
    { "a\r\x0b" "b", "\\u000bb" },
    { "10%\r20%\r100%\n", "100%\\n" }, { "a\n\r\n", "a\\n\\r\\n" }, { "a\b\rb", "b" },
};

static void test_returns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(returns); i++)
        for (size_t step = 1; step <= strlen(returns[i].text); step++) {
            auto_free char *want = NULL;
            struct talk t;

            start(&t, 0);
            for (size_t at = 0; at < strlen(returns[i].text); at += step) {
                size_t len = strlen(returns[i].text + at);

                hutch_cell_feed_bytes(t.feed, 1, returns[i].text + at, len < step ? len : step, 0);
                send(&t, "\"is\":\"flush\"", 0);
            }
            assert_true(asprintf(&want, "[" OUT("%s") "]", returns[i].want) > 0);
            check_outputs(&t, want);
            stop(&t);
        }
}

/* ---- displays ---- */

#define SHOW_AS(x, id) SHOW(x) ",\"id\":\"" id "\""
#define SHOWN_AS(x, id)                                                                      \
    "{\"data\":{\"text/plain\":\"" x "\"},\"metadata\":{},\"output_type\":\"display_data\"," \
    "\"transient\":{\"display_id\":\"" id "\"}}"

static void test_display_ids(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    send(&t, SHOW_AS("1", "a"), 0);
    send(&t, SHOW_AS("2", "b"), 0);
    send(&t, SHOW("3") ",\"id\":null", 0);
    send(&t, SHOW_AS("4", ""), 0);
    send(&t, SHOW_AS("5", "a"), 0); /* and the first of them becomes that too */
    check_outputs(&t,
                  "[" SHOWN_AS("5", "a") "," SHOWN_AS("2", "b") "," SHOWN("3") "," SHOWN("4") ","
                  SHOWN_AS("5", "a") "]");
    t.told.len = 0;
    send(&t, "\"is\":\"update\",\"data\":{\"text/html\":\"<b>\"},\"metadata\":{\"m\":{}},\"id\":\"a\"", 0);
    check_told(&t, "update {\"data\":{\"text/html\":\"<b>\"},\"id\":\"a\",\"metadata\":{\"m\":{}}}");
    send(&t, "\"is\":\"update\",\"data\":{},\"metadata\":{},\"id\":\"other cell's\"", 0);
    check_told(&t, "update {\"data\":{},\"id\":\"other cell's\",\"metadata\":{}}");
#define UPDATED                                                                                       \
    "{\"data\":{\"text/html\":\"<b>\"},\"metadata\":{\"m\":{}},\"output_type\":\"display_data\"," \
    "\"transient\":{\"display_id\":\"a\"}}"
    check_outputs(&t, "[" UPDATED "," SHOWN_AS("2", "b") "," SHOWN("3") "," SHOWN("4") "," UPDATED "]");
    /* what is gone is not updated, and its id is free */
    send(&t, "\"is\":\"clear\",\"wait\":false", 0);
    send(&t, "\"is\":\"update\",\"data\":{},\"metadata\":{},\"id\":\"a\"", 0);
    check_outputs(&t, "[]");
    send(&t, SHOW_AS("6", "a"), 0);
    check_outputs(&t, "[" SHOWN_AS("6", "a") "]");
    stop(&t);
}

/* What is kept beside the outputs is not counted as output, so it is bounded. */
static void test_long_texts(void **state)
{
    struct talk t;
    auto_free char *members = NULL, *got = NULL;
    char id[1026];

    (void)state;
    start(&t, 0);
    memset(id, 'i', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    assert_true(asprintf(&members, "%s,\"id\":\"%s\"", SHOW("1"), id) > 0);
    send(&t, members, 0);
    members[strlen(members) - 2] = '"'; /* as long as it may be */
    members[strlen(members) - 1] = '\0';
    send(&t, members, 0);
    got = hutch_cell_outputs_json(hutch_cell_feed_outputs(t.feed), NULL);
    assert_int_equal(strncmp(got, "[" SHOWN("1") ",", strlen("[" SHOWN("1") ",")), 0);
    assert_non_null(strstr(got, "display_id"));
    stop(&t);
}

static void test_clear(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    say(&t, 1, "x", 0);
    send(&t, "\"is\":\"clear\",\"wait\":true", 0);
    check_told(&t, "1:x|clear {\"wait\":true}");
    check_outputs(&t, "[" OUT("x") "]"); /* when nothing follows it stays */
    send(&t, "\"is\":\"update\",\"data\":{},\"metadata\":{},\"id\":\"a\"", 0);
    check_outputs(&t, "[" OUT("x") "]");
    send(&t, SHOW("y"), 0);
    check_outputs(&t, "[" SHOWN("y") "]");
    send(&t, SHOW("z"), 0);
    check_outputs(&t, "[" SHOWN("y") "," SHOWN("z") "]");
    send(&t, "\"is\":\"clear\",\"wait\":false", 0);
    check_outputs(&t, "[]");
    stop(&t);
}

/* Any bundle can be displayed with raw=True, and nbclient keeps it. */
static void test_data(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    send(&t, "\"is\":\"display\",\"metadata\":{},\"data\":{\"text/plain\":3,\"text/html\":[\"a\\n\",\"b\"],"
             "\"text/x\":[1],\"image/png\":{\"a\":1},"
             "\"application/json\":{\"b\":[1.50,{}]},\"application/x+json\":null,\"a\":\"\\u0000\"}", 0);
    check_outputs(&t, "[{\"data\":{\"a\":\"\\u0000\",\"application/json\":{\"b\":[1.50,{}]},"
                      "\"application/x+json\":null,\"image/png\":{\"a\":1},"
                      "\"text/html\":[\"a\\n\",\"b\"],\"text/plain\":3,\"text/x\":[1]},\"metadata\":{},"
                      "\"output_type\":\"display_data\"}]");
    stop(&t);
}

static void test_error(void **state)
{
    struct cell_error error;
    struct talk t;

    (void)state;
    start(&t, 0);
    assert_int_equal(hutch_cell_outputs_error(hutch_cell_feed_outputs(t.feed), &error), 0);
    assert_null(error.name);
    send(&t, "\"is\":\"error\",\"ename\":\"KeyError\",\"evalue\":\"'x\\u0000'\",\"traceback\":"
             "[\"\\u001b[0;31mKeyError\\u001b[0m  Traceback\",\"b\"]", 0);
    assert_int_equal(hutch_cell_outputs_error(hutch_cell_feed_outputs(t.feed), &error), 0);
    assert_string_equal(error.name, "KeyError");
    assert_string_equal(error.value, "'x\xef\xbf\xbd'");
    assert_string_equal(error.traceback, "KeyError  Traceback\nb");
    assert_string_equal(error.traceback_ansi, "\x1b[0;31mKeyError\x1b[0m  Traceback\nb");
    hutch_cell_error_done(&error);
    stop(&t);
}

/* ---- bounds ---- */

static void test_text_limit(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 10);
    say(&t, 1, "12345", 0);
    send(&t, "\"is\":\"flush\"", 0);
    say(&t, 2, "678\xc3\xa4\xc3\xa4", 0); /* the second of these does not fit whole */
    send(&t, "\"is\":\"flush\"", 0);
    check_told(&t, "1:12345|2:678ä|2:\n[output beyond 10 bytes left out]\n");
    say(&t, 1, "more", 0);
    send(&t, SHOW("x"), 0);
    check_told(&t, "display " SHOWN("[output of 20 bytes left out: more than 10]"));
    assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    send(&t, "\"is\":\"clear\",\"wait\":false", 0); /* there is room again */
    assert_false(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    for (int i = 0; i < 100; i++)
        say(&t, 1, "123456789\r", 0);
    send(&t, "\"is\":\"flush\"", 0);
    check_outputs(&t, "[" OUT("123456789\\r") "]"); /* a progress bar does not fill it */
    stop(&t);
}

/* One display of a megabyte with an id can be shown ten thousand times; it counts as often. */
static void test_display_limit(void **state)
{
    auto_free char *big = malloc(200001), *members = NULL, *json = NULL;
    struct talk t;

    (void)state;
    memset(big, 'b', 200000);
    big[200000] = '\0';
    assert_true(asprintf(&members, "\"is\":\"display\",\"data\":{\"a\":\"%s\"},\"metadata\":{},\"id\":\"i\"", big) > 0);
    start(&t, 1000000);
    for (int i = 0; i < 6; i++) {
        send(&t, members, 0);
        t.told.len = 0;
    }
    json = hutch_cell_outputs_json(hutch_cell_feed_outputs(t.feed), NULL);
    assert_true(strlen(json) < 1000000);
    assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    stop(&t);
}

/* What was too long for a frame is missing, whether or not the limit has room for it. */
static void test_omitted(void **state)
{
    static const struct {
        const char *frame;
        uint64_t max;
        enum cell_outputs_limit reached;
    } cases[] = {
        { SHOW("notice") ",\"omitted\":17000000", 1000000, CELL_OUTPUTS_BYTES },
        { SHOW("notice") ",\"omitted\":17000000", 0, CELL_OUTPUTS_NO_LIMIT },
        { "\"is\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[],\"omitted\":17000000", 0,
          CELL_OUTPUTS_NO_LIMIT },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct talk t;

        start(&t, cases[i].max);
        send(&t, cases[i].frame, 0);
        assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
        assert_int_equal(hutch_cell_outputs_reached(hutch_cell_feed_outputs(t.feed)), cases[i].reached);
        stop(&t);
    }
}

#define WIDGET(id, state) "\"is\":\"widget\",\"id\":\"" id "\",\"state\":" state ",\"buffers\":[]"

/* Told, and no output: neither kept nor cleared. */
static void test_widgets(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 100);
    say(&t, 1, "x", 0);
    send(&t, WIDGET("w", "{\"b\":{\"c\":[1]},\"a\":null}"), 0);
    check_told(&t, "1:x|widget {\"buffers\":[],\"id\":\"w\",\"state\":{\"a\":null,\"b\":{\"c\":[1]}}}");
    check_outputs(&t, "[{\"name\":\"stdout\",\"output_type\":\"stream\",\"text\":\"x\"}]");
    assert_false(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    send(&t, WIDGET("w", "{\"more\":\"than there is room for in one hundred bytes\"}"), 0);
    check_told(&t, "widget {\"id\":\"w\",\"lost\":true}");
    send(&t, "\"is\":\"clear\",\"wait\":false", 0); /* it is missing all the same */
    assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    assert_int_equal(hutch_cell_outputs_reached(hutch_cell_feed_outputs(t.feed)), CELL_OUTPUTS_NO_LIMIT);
    stop(&t);
}

static void test_widgets_are_bounded(void **state)
{
    struct talk t;

    (void)state;
    start(&t, 0);
    for (int i = 0; i < CELL_MAX_OUTPUTS; i++)
        send(&t, WIDGET("w", "{}"), 0);
    assert_false(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    t.told.len = 0;
    send(&t, WIDGET("w", "{}"), 0);
    check_told(&t, "widget {\"id\":\"w\",\"lost\":true}");
    assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    stop(&t);
    start(&t, 0);
    send(&t, WIDGET("w", "{}") ",\"omitted\":17000000", 0);
    check_told(&t, "widget {\"id\":\"w\",\"lost\":true}");
    assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    stop(&t);
}

static void test_many_outputs(void **state)
{
    auto_free char *json = NULL;
    struct hutch_err err;
    cJSON *root = NULL;
    struct talk t;

    (void)state;
    start(&t, 0);
    for (int i = 0; i < CELL_MAX_OUTPUTS + 500; i++) {
        say(&t, 1 + i % 2, "x", 0);
        send(&t, "\"is\":\"flush\"", 0);
        t.told.len = 0;
    }
    send(&t, SHOW("no"), 0);
    send(&t, "\"is\":\"error\",\"ename\":\"E\",\"evalue\":\"\",\"traceback\":[]", 0);
    json = hutch_cell_outputs_json(hutch_cell_feed_outputs(t.feed), NULL);
    assert_int_equal(hutch_nbjson_parse("x", json, strlen(json), &NBJSON_NOTEBOOK, &root, &err), 0);
    assert_int_equal(cJSON_GetArraySize(root), CELL_MAX_OUTPUTS + 1);
    assert_non_null(strstr(json, "[outputs after the first 10000 left out]"));
    assert_non_null(strstr(json, "\"ename\":\"E\""));
    assert_true(hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(t.feed)));
    assert_int_equal(hutch_cell_outputs_reached(hutch_cell_feed_outputs(t.feed)), CELL_OUTPUTS_NUMBER);
    cJSON_Delete(root);
    stop(&t);
}

/* What went wrong is told when there is no more room; at last without the traceback. */
static void test_error_limit(void **state)
{
    auto_free char *big = malloc(3000001), *members = NULL;
    struct cell_error error;
    struct talk t;

    (void)state;
    memset(big, 'b', 3000000);
    big[3000000] = '\0';
    start(&t, 100);
    send(&t, "\"is\":\"error\",\"ename\":\"First\",\"evalue\":\"\","
             "\"traceback\":[\"ttttttttttttttttttttttttttttttttttttttttttttttttttttttt\"]", 0);
    assert_int_equal(hutch_cell_outputs_error(hutch_cell_feed_outputs(t.feed), &error), 0);
    assert_string_equal(error.name, "First");
    assert_int_equal(strlen(error.traceback), 55);
    hutch_cell_error_done(&error);
    assert_true(asprintf(&members, "\"is\":\"error\",\"ename\":\"Second\",\"evalue\":\"%s\",\"traceback\":[\"%s\"]",
                         big, big) > 0);
    send(&t, members, 0);
    assert_int_equal(hutch_cell_outputs_error(hutch_cell_feed_outputs(t.feed), &error), 0);
    assert_string_equal(error.name, "Second");
    assert_int_equal(strlen(error.value), 64 << 10);
    assert_string_equal(error.traceback, "");
    hutch_cell_error_done(&error);
    for (int i = 0; i < 40; i++) { /* nor do many of them fill the memory */
        t.told.len = 0;
        send(&t, members, 0);
    }
    {
        auto_free char *json = hutch_cell_outputs_json(hutch_cell_feed_outputs(t.feed), NULL);

        assert_true(strlen(json) < CELL_ERROR_RESERVE + 200);
    }
    stop(&t);
}

/* ---- frames that are none ---- */

static const struct { const char *frame, *message; } bad_frames[] = {
    { "", "the text ends" }, { "[]", "expected an object with the text \"is\"" },
        { "{\"is\":3}", "expected an object" },
    { "{\"is\":\"display\",\"n\":1,\"data\":[],\"metadata\":{}}", "\"display\" has no good \"data\"" },
    { "{\"is\":\"display\",\"n\":1,\"data\":{}}", "no good \"metadata\"" },
    { "{\"is\":\"display\",\"n\":1,\"data\":{},\"metadata\":{},\"id\":7}", "no good \"id\"" },
    { "{\"is\":\"update\",\"n\":1,\"data\":{},\"metadata\":{}}", "no good \"id\"" },
    { "{\"is\":\"display\",\"data\":{},\"metadata\":{}}", "no good \"n\"" },
    { "{\"is\":\"flush\",\"n\":4294967296}", "no good \"n\"" }, { "{\"is\":\"flush\",\"n\":0}", "no good \"n\"" },
    { "{\"is\":\"flush\",\"n\":1.0}", "no good \"n\"" }, { "{\"is\":\"flush\",\"n\":-1}", "no good \"n\"" },
    { "{\"is\":\"parked\",\"n\":\"1\"}", "no good \"n\"" },
    { "{\"is\":\"error\",\"n\":1,\"ename\":\"\",\"evalue\":\"\",\"traceback\":[\"\",1]}", "no good \"traceback\"" },
    { "{\"is\":\"error\",\"n\":1,\"ename\":\"\",\"evalue\":\"\",\"traceback\":\"x\"}", "no good \"traceback\"" },
    { "{\"is\":\"error\",\"n\":1,\"ename\":\"\",\"evalue\":null,\"traceback\":[]}", "no good \"evalue\"" },
    { "{\"is\":\"done\",\"n\":1,\"id\":\"x\",\"status\":\"ok\"}", "no good \"id\"" },
    { "{\"is\":\"clear\",\"n\":1,\"wait\":1}", "no good \"wait\"" },
    { "{\"is\":\"done\",\"n\":1,\"id\":1,\"status\":\"ok\",\"value\":7}", "no good \"value\"" },
    { "{\"is\":\"call\",\"n\":1,\"id\":-1,\"name\":\"f\",\"args\":\"{}\"}", "no good \"id\"" },
    { "{\"is\":\"call\",\"n\":1,\"id\":1,\"args\":\"{}\"}", "no good \"name\"" },
    { "{\"is\":\"call\",\"n\":1,\"id\":1,\"name\":\"f\",\"args\":{}}", "no good \"args\"" },
    { "{\"is\":\"call\",\"id\":1,\"name\":\"f\",\"args\":\"{}\"}", "no good \"n\"" },
    { "{\"is\":\"widget\",\"n\":1,\"id\":\"w\",\"state\":[],\"buffers\":[]}", "no good \"state\"" },
    { "{\"is\":\"widget\",\"n\":1,\"id\":\"w\",\"state\":{},\"buffers\":{}}", "no good \"buffers\"" },
    { "{\"is\":\"widget\",\"n\":1,\"state\":{},\"buffers\":[]}", "no good \"id\"" },
    { "{\"is\":\"result\",\"n\":1,\"data\":{\"a\":NaN},\"metadata\":{},\"count\":1}", "expected a value" },
    { "{\"is\":\"result\",\"n\":1,\"data\":{},\"metadata\":{},\"count\":1e3}", "no good \"count\"" },
    { "{\"is\":\"result\",\"n\":1,\"data\":{\"a\":\"\\ud800\"},\"metadata\":{},\"count\":1}", "surrogate" },
};

static void test_bad_frames(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_frames); i++) {
        struct hutch_err err = { 0 };
        struct talk t;

        start(&t, 0);
        assert_int_equal(hutch_cell_feed_frame(t.feed, bad_frames[i].frame, strlen(bad_frames[i].frame), 0, &err), -1);
        if (strstr(err.msg, bad_frames[i].message) == NULL)
            fail_msg("%s: %s", bad_frames[i].frame, err.msg);
        assert_int_equal(frame(&t, 1, DONE, 0, &err), 0); /* once */
        assert_false(hutch_cell_feed_wants(t.feed, 1));
        check_told(&t, "");
        stop(&t);
    }
}

/* As many levels as one frame can have. */
static void test_deep_frame(void **state)
{
    struct hutch_err err = { 0 };
    auto_free char *text = malloc(300000);
    struct talk t;
    size_t len;

    (void)state;
    start(&t, 0);
    len = (size_t)sprintf(text, "{\"is\":\"x\",\"y\":");
    memset(text + len, '[', 200000);
    assert_int_equal(hutch_cell_feed_frame(t.feed, text, len + 200000, 0, &err), -1);
    assert_non_null(strstr(err.msg, "nested too deeply"));
    stop(&t);
}

static void test_other_frames(void **state)
{
    static const char here[] = "{\"is\":\"here\",\"pid\":7}";
    struct hutch_err err = { 0 };
    struct talk t;

    (void)state;
    start(&t, 0);
    assert_int_equal(hutch_cell_feed_frame(t.feed, here, strlen(here), 0, &err), 0);
    send(&t, "\"is\":\"input\",\"prompt\":\"? \\u0000\",\"password\":true", 0);
    send(&t, "\"is\":\"done\",\"id\":3,\"status\":\"error\",\"count\":2,\"line\":4,\"cause\":\" why\"", 0);
    check_told(&t, "here -1 -1|input -1 -1? \xef\xbf\xbd|done 3 2 error why");
    stop(&t);
}

/* A text that is JSON itself is told where it harms no reader. */
static void test_json_in_frames(void **state)
{
    static const struct { const char *text, *told; } rows[] = {
        { "42", "42" }, { "{\\\"a\\\":[1,\\\"x\\\"]}", "{\"a\":[1,\"x\"]}" }, { "", "" }, { "{", "" },
        { "1 2", "" }, { "NaN", "" }, { "1\\n", "" }, { "\\\"\\u009b\\\"", "" }, { "\\\"\\u001b\\\"", "" },
        { "\\\"\\\\ud800\\\"", "" },
        { "\\\"\\u0000\\\"", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char members[200], want[200];
        struct talk t;

        start(&t, 0);
        snprintf(members, sizeof(members), "\"is\":\"call\",\"id\":5,\"name\":\"f\",\"args\":\"%s\"", rows[i].text);
        send(&t, members, 0);
        snprintf(members, sizeof(members), DONE ",\"value\":\"%s\"", rows[i].text);
        send(&t, members, 0);
        snprintf(want, sizeof(want), "call 5 -1f%s|done 1 1%s", rows[i].told, rows[i].told);
        check_told(&t, want);
        stop(&t);
    }
}

static void test_long_values(void **state)
{
    auto_free char *members = malloc(CELL_MAX_VALUE + 200);
    struct talk t;

    (void)state;
    for (size_t more = 0; more < 2; more++) {
        size_t len = (size_t)sprintf(members, DONE ",\"value\":\"");

        memset(members + len, '1', CELL_MAX_VALUE + more);
        strcpy(members + len + CELL_MAX_VALUE + more, "\"");
        start(&t, 0);
        send(&t, members, 0);
        assert_int_equal(t.told.len > strlen("done 1 1"), more == 0);
        stop(&t);
    }
}

/* ---- escape sequences ---- */

static const struct { const char *text, *want; } ansi_cases[] = {
    { "\x1b[0;31mred\x1b[0m", "red" }, { "a\x1b[38;5;12mb", "ab" }, { "\x1b]0;title\x07x", "x" },
        { "\x1b]8;;http://x\x1b\\link", "link" },
    { "\x1b(Bx", "x" }, { "\x1b" "cx", "x" }, { "x\x1b", "x" }, { "x\x1b[", "x" }, { "x\x1b[31", "x" },
    { "\x1b]never ends\nx", "\nx" },
    { "\x1b[31\nx", "\nx" }, { "\x1b\x1b[0mx", "x" }, { "\x1bPq#0\x1b\\x", "x" }, { "plain", "plain" },
    { "\x1b\nx", "\nx" },
};

static void test_ansi(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ansi_cases); i++) {
        auto_free char *text = strdup(ansi_cases[i].text);

        text[hutch_ansi_strip(text, strlen(text))] = '\0';
        assert_string_equal(text, ansi_cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stretch),      cmocka_unit_test(test_around_display), cmocka_unit_test(test_pipes_ahead),
        cmocka_unit_test(test_lost_marks),   cmocka_unit_test(test_flush_of_one),   cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_between_cells), cmocka_unit_test(test_death),         cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_half_character),
        cmocka_unit_test(test_returns),      cmocka_unit_test(test_display_ids), cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_data),         cmocka_unit_test(test_error),          cmocka_unit_test(test_text_limit),
        cmocka_unit_test(test_omitted),      cmocka_unit_test(test_widgets),
        cmocka_unit_test(test_widgets_are_bounded),
        cmocka_unit_test(test_display_limit), cmocka_unit_test(test_many_outputs),  cmocka_unit_test(test_error_limit),
        cmocka_unit_test(test_bad_frames),   cmocka_unit_test(test_deep_frame),     cmocka_unit_test(test_other_frames),
        cmocka_unit_test(test_ansi),         cmocka_unit_test(test_json_in_frames), cmocka_unit_test(test_long_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
