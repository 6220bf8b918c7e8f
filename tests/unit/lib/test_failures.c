/* test_failures.c - runs of an engine while calls of libc fail. */
#include "tests/unit/lib/passages.h" /* the first: it makes calls of libc fail */

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the failpoints go through: open, runs of each end, one whose files are kept, free. Nothing is asserted but what
 * has to hold whatever fails. */
static void go_through(struct lair *p, const char *label)
{
    static const char *const codes[] = { "#! out err", "#! out file", "#! echo fail" };
    struct hutch_error error = { .message = "" };
    struct hutch_request request;
    uint64_t ids[ARRAY_SIZE(codes)] = { 0 };
    unsigned n = 0;

    memset(runs, 0, sizeof(runs));
    n_results = 0;
    if (hutch_engine_open(&p->options, &p->engine, &error) < 0) {
        if (!error.message[0])
            fail_msg("%s: the engine does not say why it does not open", label);
        p->engine = NULL;
        return;
    }
    p->engine->core.setup_ms = p->engine->core.import_ms = 200; /* much of what it waits for never comes */
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        request = request_for(codes[i]);
        request.keep_data = 1;
        request.memory_bytes = i == 0 ? 64 << 20 : 0;
        request.input = "given\n";
        request.input_len = 6;
        error.message[0] = '\0';
        if (hutch_engine_submit(p->engine, &request, &ids[i], &error) == 0)
            n++;
        else if (!error.message[0])
            fail_msg("%s: a request is refused without a reason", label);
        else
            ids[i] = 0;
    }
    await(p, n);
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        char made[200];

        if (ids[i] == 0)
            continue;
        if (runs[ids[i]].results != 1)
            fail_msg("%s: '%s' has %u results", label, codes[i], runs[ids[i]].results);
        if (runs[ids[i]].verdict == (i == 2 ? HUTCH_ERROR : HUTCH_OK)) {
            if (strcmp(runs[ids[i]].out, i == 2 ? "given\n" : "said\n") != 0)
                fail_msg("%s: '%s' is well and has said '%s'", label, codes[i], runs[ids[i]].out);
            snprintf(made, sizeof(made), "%s/made", runs[ids[i]].directory);
            if (i == 1 && access(made, F_OK) < 0)
                fail_msg("%s: '%s' is well, and its file is not in '%s'", label, codes[i], runs[ids[i]].directory);
        } else if (runs[ids[i]].verdict != HUTCH_SETUP_FAILED && runs[ids[i]].verdict != HUTCH_KILLED) {
            fail_msg("%s: '%s' ended with verdict %d: %s", label, codes[i], runs[ids[i]].verdict, runs[ids[i]].message);
        } else if (!runs[ids[i]].message[0]) {
            fail_msg("%s: '%s' does not say why it failed", label, codes[i]);
        }
    }
}

/* How many calls an engine makes until it is open: a policy and a filter are thousands of allocations of one kind. */
static unsigned count_calls_of_open(struct lair *p, enum failpoint_kind kind)
{
    failpoint_arm(kind, UINT_MAX, 0);
    open_engine(p, "");
    failpoint_disarm();
    hutch_engine_free(p->engine);
    p->engine = NULL;
    return failpoint.seen;
}

#define OPEN_STEPS 30

static unsigned next_failpoint(unsigned n, unsigned n_open)
{
    unsigned next = n + n_open / OPEN_STEPS + 1;

    return n >= n_open ? n + 1 : next < n_open ? next : n_open;
}

static void test_failpoints(void **state)
{
    static const unsigned lengths[] = { 1, 5, 40 };
    struct lair *p = *state;

    setenv("HUTCH_FAKE", "", 1);
    go_through(p, "none"); /* what libc keeps for itself it has now */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    for (int kind = 0; kind < FAILPOINT_COUNT; kind++) {
        const unsigned n_open = count_calls_of_open(p, (enum failpoint_kind)kind);
        unsigned n = 1, n_tried = 0;

        if (kind == FAILPOINT_ALLOCATION && !FAILPOINT_HAS_MALLOC)
            continue;
        for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
            bool has_failed = true;

            for (n = 1; has_failed; n = next_failpoint(n, n_open)) {
                long blocks = failpoint.blocks;
                char label[64];

                snprintf(label, sizeof(label), "%s %u to %u", failpoint_names[kind], n, n + lengths[l] - 1);
                n_tried++;
                failpoint_arm((enum failpoint_kind)kind, n, lengths[l]);
                go_through(p, label);
                has_failed = end_of_failpoint(p, label, blocks);
            }
        }
        print_message("%s: the last of %u calls, %u runs\n", failpoint_names[kind], n - 2, n_tried);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_failpoints, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("failures of an engine", tests, NULL, NULL);
}
