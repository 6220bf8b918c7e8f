/* test_caps.c - every capability goes, and does not come back. Each test runs in a child, in a user namespace where it
 * has them all. */
#include "sandbox/caps.h"

#include "sandbox/fd.h"

#include <linux/securebits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { NO_USER_NS = 77 };

/* Runs @body with every capability over a user namespace of its own. */
static int with_all_caps(int (*body)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER) < 0)
            _exit(NO_USER_NS);
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_USER_NS) {
        print_message("skip: user namespaces: not for this user here\n");
        skip();
    }
    return WEXITSTATUS(status);
}

static int count_effective(void)
{
    int n = 0;

    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        n += hutch_caps_has_effective(cap);
    return n;
}

static int has_nothing(void)
{
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
        cap_t caps = cap_get_proc();
        int any = 0;

        for (int set = 0; set < 3; set++) {
            cap_flag_value_t value = CAP_SET;

            cap_get_flag(caps, cap, (cap_flag_t[]){ CAP_EFFECTIVE, CAP_PERMITTED, CAP_INHERITABLE }[set], &value);
            any |= value == CAP_SET;
        }
        cap_free(caps);
        if (any || hutch_caps_has_effective(cap) || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) != 0)
            return 0;
    }
    return 1;
}

static int drop_all(void)
{
    struct hutch_err err = { .errnum = -7 };
    int bits;

    if (count_effective() < 30)
        return 1;
    /* an ambient one too: those survive an exec */
    {
        cap_t caps = cap_get_proc();
        cap_value_t chown = CAP_CHOWN;

        if (cap_set_flag(caps, CAP_INHERITABLE, 1, &chown, CAP_SET) < 0 || cap_set_proc(caps) < 0 ||
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0) < 0)
            return 2;
        cap_free(caps);
    }
    if (hutch_caps_drop_all(&err) < 0 || err.errnum != -7)
        return 3;
    if (!has_nothing())
        return 4;
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) != 0)
            return 5;
    bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
    if (!(bits & SECBIT_NOROOT) || !(bits & SECBIT_NOROOT_LOCKED) || !(bits & SECBIT_NO_SETUID_FIXUP_LOCKED) ||
        !(bits & SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED) || (bits & SECBIT_KEEP_CAPS))
        return 6;
    if (prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0)
        return 7;
    /* Programs may ask to keep what they have: it is nothing. */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || !has_nothing() || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0)
        return 9;
    /* again, by a child that has nothing left to drop: as the worker does after init */
    if (hutch_caps_drop_all(&err) < 0)
        return 8;
    return 0;
}

static void test_drop_all(void **state)
{
    (void)state;
    assert_int_equal(with_all_caps(drop_all), 0);
}

/* Without CAP_SETPCAP the bounding set stays, and that is said instead of going on with half of it. */
static int drop_all_without_setpcap(void)
{
    struct hutch_err err = { .msg = "" };
    cap_t none = cap_init();

    if (!none || cap_set_proc(none) < 0 || cap_free(none) < 0 || hutch_caps_drop_all(&err) != -1 || err.errnum != 0)
        return 1;
    return strcmp(err.msg, "the capability bounding set is not empty and cannot be emptied") == 0 ? 0 : 2;
}

static void test_a_bounding_set_that_stays(void **state)
{
    (void)state;
    assert_int_equal(with_all_caps(drop_all_without_setpcap), 0);
}

static void test_has_effective(void **state)
{
    (void)state;
    if (geteuid() != 0)
        assert_false(hutch_caps_has_effective(CAP_SYS_ADMIN));
    assert_false(hutch_caps_has_effective(1000)); /* none of that number */
    assert_false(hutch_caps_has_effective(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drop_all),
        cmocka_unit_test(test_a_bounding_set_that_stays),
        cmocka_unit_test(test_has_effective),
    };

    return cmocka_run_group_tests_name("caps", tests, NULL, NULL);
}
