/* test_ids.c - each id of a range is one borrower's at a time, whichever lender it has it from. */
#include "sandbox/ids.h"

#include "sandbox/fd.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RANGE(n) { .uid = 700000, .gid = 800000, .count = n }

/* The locks lie where the host has them, so these tests have a /run of their own. */
static int hide_run(void **state)
{
    static const char *why = "skip: only root can have a mount namespace in which /run is another\n";

    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/run", "tmpfs", 0, "mode=755") < 0)
        *state = (void *)why;
    return 0;
}

static void require_run(void **state)
{
    if (!*state)
        return;
    print_message("%s", (const char *)*state);
    skip();
}

static void open_or_fail(struct id_lender *lender, unsigned count)
{
    struct id_range range = RANGE(count);
    struct hutch_err err;

    if (hutch_ids_open(lender, &range, &err) < 0)
        fail_msg("%s", err.msg);
}

static unsigned lend(struct id_lender *lender)
{
    struct hutch_err err = { 0 };
    unsigned offset = hutch_ids_lend(lender, &err);

    if (offset == 0 && (err.errnum != EAGAIN || !strstr(err.msg, "in use")))
        fail_msg("%d: %s", err.errnum, err.msg);
    return offset;
}

static void test_two_lenders_share_a_range(void **state)
{
    struct id_lender one, other;
    bool seen[9] = { true }; /* 0 is never lent */

    require_run(state);
    open_or_fail(&one, 9);
    open_or_fail(&other, 9);
    for (int i = 0; i < 8; i++) {
        unsigned offset = lend(i % 2 ? &one : &other);

        assert_in_range(offset, 1, 8);
        assert_false(seen[offset]);
        seen[offset] = true;
    }
    assert_int_equal(lend(&one), 0);
    assert_int_equal(lend(&other), 0);
    hutch_ids_close(&one); /* and all of its own are free */
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(lend(&other), 0);
    assert_int_equal(lend(&other), 0);
    hutch_ids_return(&other, 700005);
    assert_int_equal(lend(&other), 5);
    hutch_ids_return(&other, 0); /* none that it has lent */
    hutch_ids_return(&other, 700000);
    hutch_ids_return(&other, 700009);
    assert_int_equal(lend(&other), 0);
    hutch_ids_close(&other);
}

/* A table that was changed while some are lent: the same uid has another place in another range. */
static void test_ranges_that_overlap(void **state)
{
    struct id_range before = { 700000, 800000, 2 }, after = { 699999, 799999, 3 };
    struct id_lender one, other;
    struct hutch_err err;

    require_run(state);
    assert_int_equal(hutch_ids_open(&one, &before, &err), 0);
    assert_int_equal(hutch_ids_open(&other, &after, &err), 0);
    assert_int_equal(lend(&one), 1);
    assert_int_equal(lend(&other), 1); /* 700000, which is no sandbox's there */
    assert_int_equal(lend(&other), 0); /* not 700001 */
    hutch_ids_close(&one);
    assert_int_equal(lend(&other), 2);
    hutch_ids_close(&other);
}

/* Behind a long row of others' the next ones are found. */
static void test_a_long_row_of_others(void **state)
{
    struct id_lender one, other;
    unsigned offset = 0;

    require_run(state);
    open_or_fail(&one, 10000);
    open_or_fail(&other, 10000);
    one.last = other.last = 500;
    for (int i = 0; i < 600; i++)
        assert_int_equal(lend(&one), 501 + i);
    for (int i = 0; i < 3 && offset == 0; i++)
        offset = lend(&other);
    assert_int_equal(offset, 1101);
    hutch_ids_close(&one);
    hutch_ids_close(&other);
}

static void test_a_file_that_is_removed(void **state)
{
    struct id_lender one, other;

    require_run(state);
    open_or_fail(&one, 4);
    assert_int_not_equal(lend(&one), 0);
    assert_int_equal(unlink(LENDER_PATH), 0);
    assert_int_not_equal(lend(&one), 0); /* and the first is locked anew */
    open_or_fail(&other, 4);
    assert_int_not_equal(lend(&other), 0);
    assert_int_equal(lend(&other), 0);
    assert_int_equal(lend(&one), 0);
    hutch_ids_close(&one);
    hutch_ids_close(&other);
}

/* A program that has an engine may fork. What the engine had lent is free when it is closed, whatever the copy does. */
static void test_a_copy_of_the_process_keeps_nothing(void **state)
{
    struct id_lender one, other;
    int status;
    pid_t pid;

    require_run(state);
    open_or_fail(&one, 2);
    open_or_fail(&other, 2);
    assert_int_equal(lend(&one), 1);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(lend(&other), 0);
    hutch_ids_close(&one);
    assert_int_equal(lend(&other), 1);
    hutch_ids_close(&other);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* One that was given back a moment ago is not the next, so what its last owner left behind has time to go. */
static void test_in_turn(void **state)
{
    struct id_lender lender;
    unsigned last;

    require_run(state);
    open_or_fail(&lender, 100);
    last = lend(&lender);
    for (int i = 0; i < 300; i++) {
        unsigned next;

        hutch_ids_return(&lender, 700000 + last);
        next = lend(&lender);
        assert_int_equal(next, last % 99 + 1);
        last = next;
    }
    hutch_ids_close(&lender);
}

static void test_borrowing_ends_with_the_process(void **state)
{
    struct id_plan plan = { .range = RANGE(2) }, again = plan;
    struct hutch_err err;
    int fd = -1, unused, status;
    pid_t pid;

    require_run(state);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(hutch_ids_borrow(&plan, &fd, &err) < 0 || plan.host_uid != 700001 || plan.host_gid != 800001);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(hutch_ids_borrow(&plan, &fd, &err), 0);
    assert_int_equal(hutch_ids_borrow(&again, &unused, &err), -1);
    assert_string_equal(err.msg, "all ids of the range are in use");
    assert_int_equal(again.host_uid, 0);
    close(fd);
    assert_int_equal(hutch_ids_borrow(&again, &fd, &err), 0);
    close(fd);
}

static void test_ranges_that_are_too_small_or_large(void **state)
{
    struct id_range huge = RANGE(ID_RANGE_MAX + 1);
    struct id_lender lender;
    struct hutch_err err;

    require_run(state);
    for (unsigned count = 0; count < 2; count++) {
        open_or_fail(&lender, count);
        assert_int_equal(lend(&lender), 0);
        hutch_ids_close(&lender);
    }
    assert_int_equal(hutch_ids_open(&lender, &huge, &err), -1);
    assert_int_equal(lender.fd, -1);
    assert_int_equal(hutch_ids_lend(&lender, &err), 0);
    assert_int_equal(err.errnum, EBADF);
    hutch_ids_return(&lender, 700001);
    open_or_fail(&lender, ID_RANGE_MAX);
    lender.last = ID_RANGE_MAX - 2;
    assert_int_equal(lend(&lender), ID_RANGE_MAX - 1);
    assert_int_equal(lend(&lender), 1);
    hutch_ids_close(&lender);
}

/* Who can open the file could hold locks on it, and who can write to its directory could swap it. */
static void test_a_file_of_somebody_elses(void **state)
{
    static const struct {
        mode_t dir_mode, file_mode;
        uid_t owner;
        const char *says;
    } places[] = {
        { 0755, 0600, 0, "'/run/hutch' belongs to uid 0 with mode 755; it has to be the caller's alone" },
        { 0700, 0644, 0, "'/run/hutch/ids' belongs to uid 0 with mode 644; it has to be the caller's alone" },
        { 0700, 0600, 1234, "'/run/hutch/ids' belongs to uid 1234 with mode 600; it has to be the caller's alone" },
    };
    struct id_range range = RANGE(10);
    struct id_lender lender;
    struct hutch_err err;

    require_run(state);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        open_or_fail(&lender, 10);
        hutch_ids_close(&lender);
        assert_int_equal(chmod(LENDER_DIR, places[i].dir_mode), 0);
        assert_int_equal(chmod(LENDER_PATH, places[i].file_mode), 0);
        assert_int_equal(chown(LENDER_PATH, places[i].owner, 0), 0);
        assert_int_equal(hutch_ids_open(&lender, &range, &err), -1);
        assert_string_equal(err.msg, places[i].says);
        assert_int_equal(unlink(LENDER_PATH), 0);
        assert_int_equal(rmdir(LENDER_DIR), 0);
    }
    assert_int_equal(symlink("/tmp", LENDER_DIR), 0);
    assert_int_equal(hutch_ids_open(&lender, &range, &err), -1);
    assert_int_equal(unlink(LENDER_DIR), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_lenders_share_a_range),
        cmocka_unit_test(test_ranges_that_overlap),
        cmocka_unit_test(test_a_long_row_of_others),
        cmocka_unit_test(test_a_file_that_is_removed),
        cmocka_unit_test(test_a_copy_of_the_process_keeps_nothing),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_borrowing_ends_with_the_process),
        cmocka_unit_test(test_ranges_that_are_too_small_or_large),
        cmocka_unit_test(test_a_file_of_somebody_elses),
    };

    return cmocka_run_group_tests(tests, hide_run, NULL);
}
