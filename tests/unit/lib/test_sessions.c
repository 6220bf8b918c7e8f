/* test_sessions.c - cells and checkpoints of a session while calls of libc fail. */
#include "tests/unit/lib/passages.h" /* the first: it makes calls of libc fail */

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What became of the orders of a session. */
static struct {
    unsigned answers;
    bool is_ok;
    char said[64], message[256], lost[64];
} orders[5];
enum { FILES, FIRST_CELL, CHECKPOINT, SECOND_CELL, ROLLBACK };

static void on_cell(void *user, uint64_t session, const struct hutch_cell_result *r)
{
    const size_t i = (size_t)user;

    (void)session;
    orders[i].answers++;
    orders[i].is_ok = r->verdict == HUTCH_OK;
    snprintf(orders[i].said, sizeof(orders[i].said), "%s", r->truncated ? "said\\n, or more" : r->outputs);
    snprintf(orders[i].message, sizeof(orders[i].message), "%s", r->message);
}

static void on_reply(void *user, uint64_t session, const struct hutch_reply *reply)
{
    const size_t i = (size_t)user;

    (void)session;
    orders[i].answers++;
    orders[i].is_ok = reply->ok;
    snprintf(orders[i].lost, sizeof(orders[i].lost), "%s", reply->lost);
    snprintf(orders[i].message, sizeof(orders[i].message), "%s", reply->message);
}

static int give_order(struct lair *p, uint64_t id, size_t i, struct hutch_error *error)
{
    struct hutch_cell cell;

    if (i == FILES)
        return hutch_session_await_files(p->engine, id, on_reply, (void *)i, error);
    if (i == CHECKPOINT)
        return hutch_session_checkpoint(p->engine, id, on_reply, (void *)i, error);
    if (i == ROLLBACK)
        return hutch_session_rollback(p->engine, id, 1, on_reply, (void *)i, error);
    hutch_cell_init(&cell);
    cell.code = i == FIRST_CELL ? "#! out file" : "#! out";
    cell.on_result = on_cell;
    cell.user = (void *)i;
    return hutch_session_execute(p->engine, id, &cell, error);
}

static void check_orders(const char *label)
{
    char made[160];

    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        if (orders[i].answers > 0 && !orders[i].is_ok && !orders[i].message[0])
            fail_msg("%s: order %zu does not say why it failed", label, i);
        if (orders[i].is_ok && (i == FIRST_CELL || i == SECOND_CELL) && !strstr(orders[i].said, "said\\n"))
            fail_msg("%s: order %zu is well, and has said '%s'", label, i, orders[i].said);
        if (orders[i].is_ok && (i == CHECKPOINT || i == ROLLBACK) && strcmp(orders[i].lost, "[]") == 0)
            fail_msg("%s: order %zu is well, and has lost nothing", label, i);
    }
    if (orders[ROLLBACK].is_ok && !orders[CHECKPOINT].is_ok)
        fail_msg("%s: there is no checkpoint that was gone back to", label);
    snprintf(made, sizeof(made), "%s/made", last_word.directory);
    if (orders[FIRST_CELL].is_ok && access(made, F_OK) < 0 && !strstr(last_word.message, "files are lost"))
        fail_msg("%s: the file of the first cell is not in '%s': %s", label, last_word.directory, last_word.message);
}

/* The same for a session, in an engine that is ready: cells, a checkpoint, a way back, the end. */
static void go_through_session(struct lair *p, const char *label)
{
    struct hutch_session_options options;
    struct hutch_error error = { .message = "" };
    uint64_t id = 0;

    memset(orders, 0, sizeof(orders));
    memset(&last_word, 0, sizeof(last_word));
    hutch_session_options_init(&options);
    options.keep_data = 1;
    options.on_end = on_end;
    if (hutch_session_open(p->engine, &options, &id, &error) < 0) {
        if (!error.message[0])
            fail_msg("%s: a session is refused without a reason", label);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        error.message[0] = '\0';
        if (give_order(p, id, i, &error) < 0) {
            if (!error.message[0])
                fail_msg("%s: order %zu is refused without a reason", label, i);
            continue;
        }
        while (orders[i].answers == 0)
            turn(p);
    }
    close_session(p, id, label);
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
        if (orders[i].answers > 1)
            fail_msg("%s: order %zu has %u answers", label, i, orders[i].answers);
    check_orders(label);
}

static void check_all_orders(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
        if (!orders[i].is_ok)
            fail_msg("nothing fails, and order %zu does: %s", i, orders[i].message);
}

static void test_failpoints_of_a_session(void **state)
{
    static const struct passage passage = { "a session", go_through_session, check_all_orders, 0 };

    try_each_call(*state, &passage);
}

/* Those who wait are told when there is a sandbox, and when there will be none. */
static void test_files_are_waited_for(void **state)
{
    struct hutch_session_options options;
    struct lair *p = *state;
    struct hutch_error error;
    uint64_t id;

    for (size_t is_closed = 0; is_closed < 2; is_closed++) {
        open_engine(p, "lives");
        memset(orders, 0, sizeof(orders));
        memset(&last_word, 0, sizeof(last_word));
        hutch_session_options_init(&options);
        options.on_end = on_end;
        assert_int_equal(hutch_session_open(p->engine, &options, &id, &error), 0);
        assert_true(hutch_session_open_file(p->engine, id, "file", O_WRONLY, &error) < 0 && error.code == EAGAIN);
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(hutch_session_await_files(p->engine, id, on_reply, (void *)FILES, &error), 0);
        assert_int_equal(hutch_session_await_files(p->engine, id, on_reply, (void *)FILES, &error), -1);
        assert_int_equal(error.code, EAGAIN);
        assert_int_equal(orders[FILES].answers, 0);
        if (is_closed)
            assert_int_equal(hutch_session_close(p->engine, id), 1);
        while (orders[FILES].answers < 64)
            turn(p);
        assert_int_equal(orders[FILES].is_ok, !is_closed);
        assert_string_equal(orders[FILES].message, is_closed ? "the session was closed" : "");
        if (!is_closed) {
            auto_fd fd = hutch_session_open_file(p->engine, id, "file", O_WRONLY, &error);

            assert_true(fd >= 0);
            assert_int_equal(hutch_session_close(p->engine, id), 1);
        }
        while (last_word.ends == 0)
            turn(p);
        assert_int_equal(hutch_session_await_files(p->engine, id, on_reply, (void *)FILES, &error), -1);
        assert_int_equal(error.code, ENOENT);
        close_engine(p);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_failpoints_of_a_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_are_waited_for, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("sessions of an engine", tests, NULL, NULL);
}
