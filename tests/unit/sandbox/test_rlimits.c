/* test_rlimits.c - who is limited to what when no cgroup counts, and that it holds. */
#include "sandbox/rlimits.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static void test_plan(void **state)
{
    static const struct {
        const char *label;
        enum sandbox_limit limit;
        uint64_t asked;
        int resource;
        rlim_t want;
    } rows[] = {
        { "memory is counted, not what is reserved", LIMIT_MEMORY, 64 * MIB, RLIMIT_DATA, RLIM_INFINITY },
        { "nor address space", LIMIT_MEMORY, 64 * MIB, RLIMIT_AS, RLIM_INFINITY },
        { "processes, and our init", LIMIT_PIDS, 10, RLIMIT_NPROC, 11 },
        { "no limit on processes", LIMIT_PIDS, 0, RLIMIT_NPROC, RLIM_INFINITY },
        { "CPU time, later than the supervisor", LIMIT_CPU_TIME, 1500, RLIMIT_CPU, 3 },
        { "a millisecond of it", LIMIT_CPU_TIME, 1, RLIMIT_CPU, 2 },
        { "file size", LIMIT_FILE_SIZE, 12345, RLIMIT_FSIZE, 12345 },
        { "descriptors", LIMIT_OPEN_FILES, 64, RLIMIT_NOFILE, 64 },
        { "never a core file", LIMIT_OPEN_FILES, 0, RLIMIT_CORE, 0 },
        { "never a real-time priority", LIMIT_OPEN_FILES, 0, RLIMIT_RTPRIO, 0 },
        { "never a better nice value", LIMIT_OPEN_FILES, 0, RLIMIT_NICE, 0 },
        { "little locked memory", LIMIT_OPEN_FILES, 0, RLIMIT_MEMLOCK, 64 << 10 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sandbox_spec spec = { 0 };
        struct rlimit_plan plan;

        print_message("  %s\n", rows[i].label);
        memset(&plan, 0xaa, sizeof(plan));
        spec.limits[rows[i].limit] = rows[i].asked;
        hutch_rlimits_plan(&spec, false, &plan);
        assert_true(plan.max[rows[i].resource] == rows[i].want);
        assert_false(plan.pin);
        assert_int_equal(CPU_COUNT(&plan.cpus), 0); /* a zygote is sent these, too */
    }
}

/* What was planned for one set of limits, for another: what stands beside the limit stays beside it. */
static void test_lower(void **state)
{
    struct sandbox_spec spec = { 0 }, less;
    struct rlimit_plan plan, want;

    (void)state;
    spec.limits[LIMIT_MEMORY] = 512 * MIB;
    spec.limits[LIMIT_PIDS] = 64;
    spec.limits[LIMIT_FILE_SIZE] = 1000;
    less = spec;
    hutch_rlimits_plan(&spec, true, &plan);
    plan.max[RLIMIT_NPROC] += 5;
    want = plan;
    hutch_rlimits_lower(&plan, spec.limits, less.limits);
    assert_memory_equal(&plan, &want, sizeof(plan));
    less.limits[LIMIT_MEMORY] = 64 * MIB;
    less.limits[LIMIT_PIDS] = 10;
    hutch_rlimits_plan(&less, true, &want);
    want.max[RLIMIT_NPROC] += 5;
    hutch_rlimits_lower(&plan, spec.limits, less.limits);
    assert_memory_equal(&plan, &want, sizeof(plan));
    hutch_rlimits_lower(&plan, less.limits, spec.limits); /* never up */
    assert_memory_equal(&plan, &want, sizeof(plan));
}

/* Sandbox after sandbox gets the next CPU, as many as before, and round. */
static void test_cpus_are_spread(void **state)
{
    struct sandbox_spec spec = { 0 };
    struct rlimit_plan plan = { .pin = false };
    cpu_set_t allowed, seen;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    hutch_rlimits_spread(&plan, 3);
    assert_false(plan.pin); /* what is not pinned stays so */
    CPU_ZERO(&seen);
    spec.limits[LIMIT_CPUS] = 1000;
    for (unsigned i = 0; i < (unsigned)CPU_COUNT(&allowed); i++) {
        hutch_rlimits_plan(&spec, false, &plan);
        hutch_rlimits_spread(&plan, i + 7 * (unsigned)CPU_COUNT(&allowed));
        assert_int_equal(CPU_COUNT(&plan.cpus), 1);
        CPU_OR(&seen, &seen, &plan.cpus);
    }
    assert_true(CPU_EQUAL(&seen, &allowed));
}

static bool is_subset(const cpu_set_t *part, const cpu_set_t *whole)
{
    cpu_set_t both;

    CPU_AND(&both, part, whole);
    return CPU_EQUAL(&both, part);
}

static void test_cpus(void **state)
{
    struct sandbox_spec spec = { 0 };
    struct rlimit_plan plan;
    cpu_set_t allowed;
    int have;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    have = CPU_COUNT(&allowed);
    for (int thousandths = 1; thousandths <= (have + 2) * 1000; thousandths += 333) {
        int want = (thousandths + 999) / 1000;

        spec.limits[LIMIT_CPUS] = (uint64_t)thousandths;
        hutch_rlimits_plan(&spec, false, &plan);
        assert_true(plan.pin); /* pinned even to all of them: a fork of the caller's own mask cannot widen it */
        assert_int_equal(CPU_COUNT(&plan.cpus), want < have ? want : have);
        assert_true(is_subset(&plan.cpus, &allowed));
    }
    hutch_rlimits_plan(&spec, true, &plan);
    assert_false(plan.pin); /* the cgroup does it */
    spec.limits[LIMIT_CPUS] = 0;
    hutch_rlimits_plan(&spec, false, &plan);
    assert_false(plan.pin);
}

/* One CPU is the one we are on: the scheduler has found it best. It may move us meanwhile, so only a try without
 * counts. */
static void test_cpus_start_here(void **state)
{
    struct sandbox_spec spec = { 0 };
    struct rlimit_plan plan;
    int counted = 0;

    (void)state;
    spec.limits[LIMIT_CPUS] = 1000;
    for (int tries = 0; tries < 200; tries++) {
        int before = sched_getcpu();

        hutch_rlimits_plan(&spec, false, &plan);
        if (before < 0 || sched_getcpu() != before)
            continue;
        counted++;
        assert_int_equal(CPU_COUNT(&plan.cpus), 1);
        assert_true(CPU_ISSET(before, &plan.cpus));
    }
    assert_true(counted > 0);
}

/* Runs @body in a child and hands back its exit status. */
static int in_child(int (*body)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int apply_all(void)
{
    static const int resources[] = { RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_RTPRIO,
                                     RLIMIT_NICE, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE };
    struct sandbox_spec spec = { 0 };
    struct rlimit_plan plan;
    struct hutch_err err;
    cpu_set_t now;

    spec.limits[LIMIT_CPUS] = 500;
    spec.limits[LIMIT_MEMORY] = 256 * MIB;
    spec.limits[LIMIT_PIDS] = 10;
    spec.limits[LIMIT_CPU_TIME] = 5000;
    spec.limits[LIMIT_FILE_SIZE] = MIB;
    spec.limits[LIMIT_OPEN_FILES] = 32;
    hutch_rlimits_plan(&spec, false, &plan);
    if (hutch_rlimits_apply(&plan, &err) < 0)
        return 1;
    for (size_t i = 0; i < ARRAY_SIZE(resources); i++) {
        struct rlimit limit;

        if (getrlimit(resources[i], &limit) < 0 || limit.rlim_max > plan.max[resources[i]] ||
            limit.rlim_cur > limit.rlim_max)
            return 2;
    }
    if (sched_getaffinity(0, sizeof(now), &now) < 0 || !CPU_EQUAL(&now, &plan.cpus))
        return 3;
    /* twice is fine, and so is a plan that asks for more than is left: the tighter one stays */
    plan.max[RLIMIT_NOFILE] = 64;
    if (hutch_rlimits_apply(&plan, &err) < 0)
        return 4;
    {
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur != 32 || limit.rlim_max != 32)
            return 5;
    }
    return 0;
}

/* Without a limit, a program has not what hutch has raised its own to. */
static int apply_without_open_files(void)
{
    struct sandbox_spec spec = { 0 };
    struct rlimit_plan plan;
    struct rlimit limit, now;
    struct hutch_err err;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1;
    for (rlim_t hard = limit.rlim_max; hard > 100; hard = hard > 2000 ? 2000 : hard / 2) {
        limit.rlim_cur = limit.rlim_max = hard;
        hutch_rlimits_plan(&spec, false, &plan);
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || hutch_rlimits_apply(&plan, &err) < 0 ||
            getrlimit(RLIMIT_NOFILE, &now) < 0)
            return 2;
        if (now.rlim_max != hard || now.rlim_cur != (hard < 1024 ? hard : 1024))
            return 3;
    }
    return 0;
}

static void test_apply_without_open_files(void **state)
{
    (void)state;
    assert_int_equal(in_child(apply_without_open_files), 0);
}

static void test_apply(void **state)
{
    (void)state;
    assert_int_equal(in_child(apply_all), 0);
}

static int apply_no_cpus(void)
{
    struct rlimit_plan plan = { .pin = true };
    struct hutch_err err = { .msg = "" };

    for (int i = 0; i < RLIMIT_NLIMITS; i++)
        plan.max[i] = RLIM_INFINITY;
    if (hutch_rlimits_apply(&plan, &err) != -1)
        return 1;
    return err.errnum == EINVAL && strcmp(err.msg, "pin to 0 CPUs: Invalid argument") == 0 ? 0 : 2;
}

static void test_failure_is_told(void **state)
{
    (void)state;
    assert_int_equal(in_child(apply_no_cpus), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_lower),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_cpus_are_spread),
        cmocka_unit_test(test_cpus_start_here),
        cmocka_unit_test(test_apply),
        cmocka_unit_test(test_apply_without_open_files),
        cmocka_unit_test(test_failure_is_told),
    };

    return cmocka_run_group_tests_name("rlimits", tests, NULL, NULL);
}
