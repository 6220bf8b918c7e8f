/* test_batch.c - a batch in an engine while calls of libc fail, and how it goes on. */
#include "tests/unit/lib/passages.h" /* the first: it makes calls of libc fail */

#include "runtime/batch/output.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/schedule.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Programs as the worker plays them, and the verdict of each. */
static const char batch_tasks[] = "{\"id\":\"a\",\"code\":\"#! out\",\"expected\":\"said\"}\n"
                                  "{\"id\":\"b\",\"code\":\"#! err\",\"expected\":\"said\"}\n"
                                  "{\"id\":\"c\",\"code\":\"#! fail\",\"expected\":\"said\"}\n"
                                  "{\"id\":\"d\",\"code\":\"#! echo\",\"stdin\":\"1\",\"expected\":\"1\"}\n"
                                  "{\"id\":\"e\",\"code\":\"#! out\",\"files\":{\"f/g\":\"h\"},"
                                  "\"expected\":\"said\"}\n";
static const struct {
    const char *id, *verdict;
} batch_items[] = {
    { "a", "pass" }, { "b", "wrong_answer" }, { "c", "runtime_error" }, { "d", "pass" }, { "e", "pass" }
};

/* A batch, or what is left of it, in an engine that is ready. What hutch_batch_schedule() says. */
static int run_batch(struct lair *p, int files_fd, const char *files_path, struct hutch_err *err)
{
    const struct batch_engine engine = { p->engine, hutch_engine_submit, hutch_engine_cancel, hutch_engine_fd,
                                         hutch_engine_dispatch };
    const struct batch_task_options options = { .format = BATCH_GENERIC };
    struct batch_progress progress = { .is_terminal = false };
    struct batch_settings settings = { .jobs = 2, .stop_fd = -1, .progress = &progress, .proc = "/nonexistent" };
    struct batch_output output = BATCH_OUTPUT_INIT;
    struct batch_plan plan = BATCH_PLAN_INIT;
    struct batch_tally tally = { .n_done = 0 };
    char tasks[80], out[80];
    int rc;

    snprintf(tasks, sizeof(tasks), "%s/tasks", p->dir);
    snprintf(out, sizeof(out), "%s/out", p->dir);
    settings.manner.limits.cpu_ms = 1000;
    settings.manner.files_fd = files_fd;
    settings.manner.files_path = files_path;
    rc = hutch_batch_plan_make(tasks, NULL, &options, 7, false, &plan, err);
    if (rc == 0)
        rc = hutch_batch_output_open(out, true, true, &plan, &output, err);
    if (rc == 0)
        rc = hutch_batch_schedule(&plan, &output, &engine, &settings, &tally, err);
    hutch_batch_tally_done(&tally);
    hutch_batch_output_done(&output);
    hutch_batch_plan_done(&plan);
    return rc;
}

/* The file has each of the items once, with its verdict; where it is not whole, at most once, or with a reason why it
 * was not judged. */
static void check_records(struct lair *p, const char *label, bool is_whole)
{
    unsigned n[ARRAY_SIZE(batch_items)] = { 0 };
    auto_free char *text = NULL;
    struct hutch_err err;
    char path[80];
    size_t len;

    snprintf(path, sizeof(path), "%s/out", p->dir);
    if (access(path, F_OK) == 0 && hutch_fd_slurp_path(path, 1 << 20, &text, &len, &err) < 0)
        fail_msg("%s: %s", label, err.msg);
    for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        bool is_internal, is_known = false;

        *end = '\0';
        is_internal = strstr(line, "\"verdict\": \"internal\"") && !strstr(line, "\"result\": \"internal: \"");
        for (size_t i = 0; i < ARRAY_SIZE(batch_items); i++) {
            char id[16], verdict[48];

            snprintf(id, sizeof(id), "{\"id\": \"%s\"", batch_items[i].id);
            snprintf(verdict, sizeof(verdict), "\"verdict\": \"%s\"", batch_items[i].verdict);
            if (strncmp(line, id, strlen(id)) != 0)
                continue;
            n[i]++;
            is_known = strstr(line, verdict) || (!is_whole && is_internal);
        }
        if (!is_known)
            fail_msg("%s: this was written: %s", label, line);
    }
    for (size_t i = 0; i < ARRAY_SIZE(batch_items); i++)
        if (n[i] > 1 || (is_whole && n[i] == 0))
            fail_msg("%s: the results have program '%s' %u times", label, batch_items[i].id, n[i]);
}

/* As an interruption leaves it. */
static void tear_last_line(struct lair *p)
{
    char path[80];
    struct stat st;

    snprintf(path, sizeof(path), "%s/out", p->dir);
    if (stat(path, &st) == 0 && st.st_size > 9)
        assert_int_equal(truncate(path, st.st_size - 9), 0);
}

/* A batch, and how it goes on after an interruption; at the end, when nothing fails any more, all of it is there. */
static void go_through_batch(struct lair *p, const char *label)
{
    const bool was_armed = failpoint.is_armed;
    struct hutch_err err;
    auto_fd dirfd = -1;

    failpoint.is_armed = false; /* but within hutch_batch_…() */
    dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unlinkat(dirfd, "out", 0);
    for (int i = 0; i < 3; i++) {
        const bool is_last = i == 2;
        auto_fd files_fd = -1;
        char files_path[80];
        int rc;

        snprintf(files_path, sizeof(files_path), "%s/files", p->dir);
        assert_int_equal(mkdir(files_path, 0700), 0);
        files_fd = open(files_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        err.msg[0] = '\0';
        /* while something fails, much of what it waits for never comes */
        p->engine->core.setup_ms = p->engine->core.import_ms = is_last ? CORE_SETUP_MS : 200;
        failpoint.is_armed = was_armed && !is_last;
        rc = run_batch(p, files_fd, files_path, &err);
        failpoint.is_armed = false;
        if (rc < 0 && (is_last || !err.msg[0]))
            fail_msg("%s: batch %d fails: '%s'", label, i, err.msg);
        check_records(p, label, is_last);
        if (i == 0)
            tear_last_line(p);
        if (hutch_rmtree(dirfd, "files", &err) < 0) /* hutch itself says what is left there */
            fail_msg("%s: batch %d: %s", label, i, err.msg);
    }
    failpoint.is_armed = was_armed;
}

static bool try_batch(struct lair *p, enum failpoint_kind kind, unsigned first, unsigned n)
{
    const long blocks = failpoint.blocks;
    char label[64];

    snprintf(label, sizeof(label), "%s %u to %u of a batch", failpoint_names[kind], first, first + n - 1);
    open_engine(p, "");
    await_full_pool(p);
    failpoint_arm(kind, first, n);
    go_through_batch(p, label);
    return end_of_failpoint(p, label, blocks);
}

static void test_failpoints_of_a_batch(void **state)
{
    static const unsigned lengths[] = { 1, 5, 40 };
    struct lair *p = *state;
    char tasks[80];

    snprintf(tasks, sizeof(tasks), "%s/tasks", p->dir);
    write_file(tasks, batch_tasks);
    open_engine(p, "");
    await_full_pool(p);
    go_through_batch(p, "none"); /* what libc keeps for itself it has now */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    for (int kind = 0; kind < FAILPOINT_FORK; kind++) {
        unsigned first = 1;

        if (kind == FAILPOINT_ALLOCATION && !FAILPOINT_HAS_MALLOC)
            continue;
        for (size_t l = 0; l < ARRAY_SIZE(lengths); l++)
            for (first = 1; try_batch(p, (enum failpoint_kind)kind, first, lengths[l]);)
                first += (lengths[l] + 1) / 2;
        print_message("%s: about %u calls of a batch\n", failpoint_names[kind], first - 1);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_failpoints_of_a_batch, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("batch of an engine", tests, NULL, NULL);
}
