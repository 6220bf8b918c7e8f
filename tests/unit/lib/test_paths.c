/* test_paths.c - what a session's sandbox answers about paths is judged, whatever it says, and while calls of libc
 * fail. */
#include "tests/unit/lib/passages.h" /* the first: it makes calls of libc fail */

#include "sandbox/clock.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATHS 64
static struct {
    unsigned replies;
    int ok, code;
    size_t n_entries;
    char message[160];
} paths[MAX_PATHS];
static unsigned n_replies;

static void on_path(void *user, uint64_t session, const struct hutch_path_reply *reply)
{
    const bool was_armed = failpoint.is_armed;
    const size_t i = (size_t)(uintptr_t)user;
    char *json;

    (void)session;
    failpoint.is_armed = false; /* what the caller does is not tried */
    assert_true(reply->ok ? reply->code == 0 && !reply->message[0] : reply->code > 0 && reply->message[0]);
    paths[i].replies++;
    paths[i].ok = reply->ok;
    paths[i].code = reply->code;
    paths[i].n_entries = reply->n_entries;
    snprintf(paths[i].message, sizeof(paths[i].message), "%s", reply->message);
    if (reply->fd >= 0)
        assert_true(fcntl(reply->fd, F_GETFD) >= 0);
    json = hutch_path_reply_to_json(reply);
    assert_non_null(json);
    free(json);
    n_replies++;
    failpoint.is_armed = was_armed;
}

static int order_path(struct lair *p, uint64_t session, enum path_kind kind, const char *path, size_t number,
                      uint64_t timeout_ms, struct hutch_error *error)
{
    struct hutch_path_options options;

    hutch_path_options_init(&options);
    options.on_reply = on_path;
    options.user = (void *)(uintptr_t)number;
    options.timeout_ms = timeout_ms;
    switch (kind) {
    case PATH_LIST: return hutch_session_list(p->engine, session, path, &options, error);
    case PATH_MAKE: return hutch_session_make_directory(p->engine, session, path, &options, error);
    case PATH_RENAME: return hutch_session_rename(p->engine, session, path, "new", &options, error);
    case PATH_REMOVE: return hutch_session_remove(p->engine, session, path, &options, error);
    case PATH_OPEN: return hutch_session_open_path(p->engine, session, path, O_RDONLY, &options, error);
    default: return hutch_session_stat(p->engine, session, path, &options, error);
    }
}

static uint64_t open_for_paths(struct lair *p, struct hutch_error *error)
{
    struct hutch_session_options options;
    uint64_t id = 0;

    memset(paths, 0, sizeof(paths));
    memset(&last_word, 0, sizeof(last_word));
    n_replies = 0;
    hutch_session_options_init(&options);
    options.paths = 1;
    options.on_end = on_end;
    return hutch_session_open(p->engine, &options, &id, error) < 0 ? 0 : id;
}

/* What inside answers is judged: a descriptor that may not be used, a name that leads elsewhere, more than was asked
 * for. */
static void test_forged_answers_about_paths(void **state)
{
    static const struct {
        const char *path;
        enum path_kind kind;
        int code; /* 0: it is well */
    } rows[] = {
        { "good", PATH_STAT, 0 }, { "good", PATH_LIST, 0 }, { "good", PATH_OPEN, 0 }, { "good", PATH_MAKE, 0 },
        { "deny", PATH_STAT, EACCES },
        { "memory", PATH_OPEN, EINVAL }, { "device", PATH_OPEN, EINVAL }, { "proc", PATH_OPEN, EINVAL },
        { "directory", PATH_OPEN, EINVAL }, { "handle", PATH_OPEN, EINVAL }, { "nothing", PATH_OPEN, EPROTO },
        { "silent", PATH_STAT, EPROTO }, { "name", PATH_STAT, EPROTO }, { "up", PATH_LIST, EPROTO },
        { "flood", PATH_STAT, EPROTO }, { "flood", PATH_LIST, 0 }, { "flood", PATH_OPEN, EPROTO },
        { "leave", PATH_STAT, ECANCELED }, { "hang", PATH_STAT, ETIMEDOUT }, { "hang", PATH_OPEN, ETIMEDOUT },
    };
    struct lair *p = *state;
    struct hutch_error error;
    uint64_t id;

    open_engine(p, "lives");
    id = open_for_paths(p, &error);
    assert_true(id > 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(order_path(p, id, rows[i].kind, rows[i].path, i, 400, &error), 0);
    assert_int_equal(n_replies, 0);
    while (n_replies < ARRAY_SIZE(rows))
        turn(p);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (paths[i].replies != 1 || paths[i].code != rows[i].code)
            fail_msg("'%s' of order %zu: %u replies, code %d: %s", rows[i].path, i, paths[i].replies, paths[i].code,
                     paths[i].message);
    assert_int_equal(order_path(p, id, PATH_STAT, "hang", 0, 0, &error), 0);
    assert_int_equal(hutch_session_close(p->engine, id), 1);
    while (last_word.ends == 0)
        turn(p);
    assert_int_equal(paths[0].replies, 2); /* before the session's end */
    assert_int_equal(paths[0].code, ECANCELED);
    close_engine(p);
}

static void go_through_paths(struct lair *p, const char *label)
{
    static const enum path_kind kinds[] = { PATH_LIST, PATH_STAT, PATH_OPEN, PATH_RENAME };
    struct hutch_error error = { .message = "" };
    uint64_t id = open_for_paths(p, &error);

    if (id == 0) {
        if (!error.message[0])
            fail_msg("%s: a session is refused without a reason", label);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        error.message[0] = '\0';
        if (order_path(p, id, kinds[i], "good", i, 0, &error) < 0) {
            if (!error.message[0])
                fail_msg("%s: order %zu is refused without a reason", label, i);
            continue;
        }
        while (i % 2 == 1 && paths[i].replies == 0) /* two at a time */
            turn(p);
    }
    close_session(p, id, label);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (paths[i].replies > 1)
            fail_msg("%s: order %zu has %u replies", label, i, paths[i].replies);
}

static void check_all_paths(void)
{
    for (size_t i = 0; i < 4; i++)
        if (paths[i].replies != 1 || !paths[i].ok)
            fail_msg("nothing fails, and order %zu does: %s", i, paths[i].message);
}

static void test_failpoints_of_paths(void **state)
{
    static const struct passage passage = { "paths", go_through_paths, check_all_paths, 500 };

    try_each_call(*state, &passage);
}

/* Whatever comes: each order has one reply. */
static void test_anything_about_paths(void **state)
{
    struct lair *p = *state;
    unsigned n_ok = 0;

    for (int seed = 1; seed <= 8; seed++) {
        struct hutch_error error;
        uint64_t id;
        char how[16];

        snprintf(how, sizeof(how), "%d lives", seed);
        open_engine(p, how);
        p->engine->core.setup_ms = p->engine->core.import_ms = p->engine->core.answer_ms = 300;
        id = open_for_paths(p, &error);
        assert_true(id > 0);
        for (size_t i = 0; i < MAX_PATHS; i++)
            assert_int_equal(order_path(p, id, (enum path_kind)(i % PATH_KINDS), "good", i, 300, &error), 0);
        for (double until = hutch_clock_ms() + 1500; n_replies < MAX_PATHS && hutch_clock_ms() < until;)
            turn_within(p, 100);
        hutch_session_close(p->engine, id);
        while (last_word.ends == 0)
            turn(p);
        for (size_t i = 0; i < MAX_PATHS; i++) {
            assert_int_equal(paths[i].replies, 1);
            n_ok += paths[i].ok != 0;
        }
        close_engine(p);
    }
    print_message("%u of %u orders about paths were done\n", n_ok, 8 * MAX_PATHS);
    assert_true(n_ok > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_forged_answers_about_paths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failpoints_of_paths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_anything_about_paths, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("paths of an engine", tests, NULL, NULL);
}
