/* The rows of runtime/config/limits.c, and whether policy, tests and documentation have them. Works in the root of the
 * tree. */
#include "runtime/config/limits.h"
#include "runtime/hutch.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void read_doc(const char *path, char **ret)
{
    struct hutch_err err;
    size_t len;

    if (hutch_fd_slurp_path(path, 1 << 20, ret, &len, &err) < 0)
        fail_msg("%s", err.msg);
}

/* The designated initializers leave a hole where a row is forgotten. */
static void test_every_row_is_whole(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct limit *row = &hutch_limit_rows[i];
        const char *name = hutch_limit_name((enum sandbox_limit)i);
        struct hutch_err err;
        uint64_t value;

        if (row->max <= row->min || row->min == 0 || !row->example)
            fail_msg("limit '%s' has no row", name);
        if (hutch_limit_parse(row->unit, row->example, &value, &err) < 0)
            fail_msg("limit '%s': %s", name, err.msg);
        if (hutch_limit_refuses(row, value))
            fail_msg("limit '%s': its own example is too %s", name, hutch_limit_refuses(row, value));
        if (!(row->enforcers & ~(1u << ENFORCER_NONE)) || row->enforcers >> ENFORCER_COUNT)
            fail_msg("nothing ever enforces limit '%s'", name);
        if (!row->option != !row->help || !row->field != !row->request_at || !row->field != !row->limits_at ||
            (row->session_at && !row->field))
            fail_msg("limit '%s' is described by half", name);
        if (row->option && !row->field)
            fail_msg("limit '%s' has an option, and no field of hutch.h for the commands that have an engine", name);
        if (row->is_built_in && (!row->request_at || !row->session_at))
            fail_msg("limit '%s' cannot be asked for, so no sandbox is built for it", name);
        for (unsigned k = 0; k < i; k++)
            if ((row->option && hutch_limit_rows[k].option && strcmp(row->option, hutch_limit_rows[k].option) == 0) ||
                (row->request_at && row->request_at == hutch_limit_rows[k].request_at))
                fail_msg("limits '%s' and '%s' are set by the same", name, hutch_limit_name((enum sandbox_limit)k));
    }
}

static void test_range(void **state)
{
    const struct limit *memory = &hutch_limit_rows[LIMIT_MEMORY];

    (void)state;
    assert_null(hutch_limit_refuses(memory, memory->min));
    assert_null(hutch_limit_refuses(memory, memory->max));
    assert_string_equal(hutch_limit_refuses(memory, memory->min - 1), "small");
    assert_string_equal(hutch_limit_refuses(memory, memory->max + 1), "large");
}

static const struct { const char *label; struct limit row; const char *want; } descriptions[] = {
    { "round sizes", { UNIT_BYTES, 4096, 1ull << 50, .example = "" }, "size 4K..1024T" },
    { "an odd size", { UNIT_BYTES, 1, 1025, .example = "" }, "size 1..1025" },
    { "a count is not shortened", { UNIT_COUNT, 1024, 1048576, .example = "" }, "whole number 1024..1048576" },
    { "parts of a CPU", { UNIT_CPUS, 10, 1500, .example = "" }, "number of CPUs 0.01..1.5" },
    { "durations", { UNIT_TIME, 500, 90000, .example = "" }, "duration 500ms..90s" },
    { "long durations", { UNIT_TIME, 3600000, 86400000, .example = "" }, "duration 1h..1d" },
};

static void test_descriptions(void **state)
{
    char text[LIMIT_TEXT_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(descriptions); i++)
        if (strcmp(hutch_limit_describe(&descriptions[i].row, text), descriptions[i].want) != 0)
            fail_msg("%s: '%s' instead of '%s'", descriptions[i].label, text, descriptions[i].want);
}

/* The limits of a request stand in it side by side, and those of a session. */
static void test_fields_of_requests_have_rows(void **state)
{
    (void)state;
    for (size_t at = offsetof(struct hutch_request, wall_ms); at < offsetof(struct hutch_request, on_output);
         at += sizeof(uint64_t)) {
        bool has_row = false;

        for (size_t i = 0; i < LIMIT_COUNT; i++)
            has_row |= hutch_limit_rows[i].request_at == at;
        if (!has_row)
            fail_msg("no limit has the field of struct hutch_request at %zu", at);
    }
    for (size_t at = offsetof(struct hutch_session_options, memory_bytes);
         at < offsetof(struct hutch_session_options, max_checkpoints); at += sizeof(uint64_t)) {
        bool has_row = false;

        for (size_t i = 0; i < LIMIT_COUNT; i++)
            has_row |= hutch_limit_rows[i].session_at == at;
        if (!has_row)
            fail_msg("no limit has the field of struct hutch_session_options at %zu", at);
    }
}

/* docs/policy.md says what a policy may set, docs/results.md who enforces it. */
static void test_documentation(void **state)
{
    auto_free char *policy = NULL, *results = NULL;

    (void)state;
    read_doc("docs/policy.md", &policy);
    read_doc("docs/results.md", &results);
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const char *name = hutch_limit_name((enum sandbox_limit)i);
        char accepted[LIMIT_TEXT_SIZE], start[200], by[200] = "|";
        const char *row, *end;

        snprintf(start, sizeof(start), "\n| `%s` | %s |", name, hutch_limit_describe(&hutch_limit_rows[i], accepted));
        if (!strstr(policy, start))
            fail_msg("docs/policy.md has no row that begins with '%s'", start + 1);
        for (unsigned e = 0; e < ENFORCER_COUNT; e++)
            if (hutch_limit_rows[i].enforcers & 1u << e)
                snprintf(by + strlen(by), sizeof(by) - strlen(by), " `%s`",
                         hutch_enforcer_name((enum sandbox_enforcer)e));
        strcat(by, " |\n");
        row = strstr(results, "| limit | unit |");
        snprintf(start, sizeof(start), "\n| `%s` |", name);
        row = row ? strstr(row, start) : NULL;
        end = row ? strchr(row + 1, '\n') : NULL;
        if (!end || (size_t)(end + 1 - row) < strlen(by) || strncmp(end + 1 - strlen(by), by, strlen(by)) != 0)
            fail_msg("docs/results.md has no row for limit '%s' that ends with '%s'", name, by);
    }
}

/* The policy that all others extend says of each limit what runs get. The Python tests have the fields of requests. */
static void test_policy_and_tests(void **state)
{
    auto_free char *policy = NULL, *engine = NULL;
    char key[64];

    (void)state;
    read_doc("policies/default.json", &policy);
    read_doc("tests/engine.py", &engine);
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        snprintf(key, sizeof(key), "\"%s\": ", hutch_limit_name((enum sandbox_limit)i));
        if (!strstr(policy, key))
            fail_msg("policies/default.json has no %s", key);
        snprintf(key, sizeof(key), "\"%s\"", hutch_limit_rows[i].field ? hutch_limit_rows[i].field : "size");
        if (!strstr(engine, key))
            fail_msg("tests/engine.py has no field %s", key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_whole), cmocka_unit_test(test_range), cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_fields_of_requests_have_rows), cmocka_unit_test(test_documentation),
        cmocka_unit_test(test_policy_and_tests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
