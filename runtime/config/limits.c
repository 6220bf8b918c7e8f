#include "runtime/config/limits.h"

#include "runtime/hutch.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdio.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define TIB (1ull << 40)
#define DAY_MS 86400000ull

#define REQUEST(name) .field = #name, .request_at = offsetof(struct hutch_request, name), \
                      .limits_at = offsetof(struct hutch_limits, name)
#define SESSION(name) .session_at = offsetof(struct hutch_session_options, name)
#define BY(enforcer)  (1u << ENFORCER_##enforcer)

const struct limit hutch_limit_rows[] = {
    [LIMIT_MEMORY] = { UNIT_BYTES, 4 * MIB, 1024 * TIB, "512M",
        "--memory", "memory limit, e.g. 512m; 0 for none",
        REQUEST(memory_bytes), SESSION(memory_bytes), .is_built_in = true,
        .enforcers = BY(CGROUP) | BY(SUPERVISOR) },
    [LIMIT_PIDS] = { UNIT_COUNT, 1, 4194304, "64",
        "--pids-limit", "processes and threads at once; 0 for no limit",
        REQUEST(pids), SESSION(pids), .is_built_in = true, .enforcers = BY(CGROUP) | BY(RLIMIT) },
    [LIMIT_CPUS] = { UNIT_CPUS, 10, 1024000, "0.5",
        "--cpus", "CPUs, e.g. 1 or 0.5; 0 for all",
        REQUEST(cpus), SESSION(cpus), .is_built_in = true, .enforcers = BY(CGROUP) | BY(AFFINITY) | BY(NONE) },
    [LIMIT_CPU_TIME] = { UNIT_TIME, 1, 365 * DAY_MS, "30s",
        "--cpu-time", "CPU time limit of all processes together; 0 for none",
        REQUEST(cpu_ms), .enforcers = BY(RLIMIT) | BY(SUPERVISOR) },
    [LIMIT_WALL] = { UNIT_TIME, 1, 365 * DAY_MS, "30s",
        "--timeout", "wall clock limit, e.g. 30s; 0 for none",
        REQUEST(wall_ms), .enforcers = BY(SUPERVISOR) },
    [LIMIT_OUTPUT] = { UNIT_BYTES, 1, 1024 * TIB, "8M",
        REQUEST(output_bytes), SESSION(output_bytes), .enforcers = BY(SUPERVISOR) },
    [LIMIT_FILE_SIZE] = { UNIT_BYTES, 1, 1024 * TIB, "256M",
        REQUEST(file_bytes), SESSION(file_bytes), .enforcers = BY(RLIMIT) },
    [LIMIT_OPEN_FILES] = { UNIT_COUNT, 16, 1048576, "512", .enforcers = BY(RLIMIT) },
    [LIMIT_DATA_SIZE] = { UNIT_BYTES, 1, 1024 * TIB, "1G",
        REQUEST(data_bytes), SESSION(data_bytes), .enforcers = BY(KERNEL) | BY(SUPERVISOR) },
    [LIMIT_DATA_FILES] = { UNIT_COUNT, 1, 1000000000, "1000",
        REQUEST(data_files), SESSION(data_files), .enforcers = BY(KERNEL) | BY(SUPERVISOR) },
    [LIMIT_TMP_SIZE] = { UNIT_BYTES, 4 * KIB, 1024 * TIB, "64M", .enforcers = BY(KERNEL) },
};
_Static_assert(ARRAY_SIZE(hutch_limit_rows) == LIMIT_COUNT, "every limit of sandbox/spec.h has a row here");

static const struct {
    const char *noun;     /* in the description of what is accepted */
    const char *alone;    /* what a number without a unit counts, where there are units */
    const char *argument; /* in a list of options */
    int (*parse)(const char *text, uint64_t *ret, struct hutch_err *err);
} units[] = {
    [UNIT_BYTES] = { "size", "bytes", "SIZE", hutch_parse_bytes },
    [UNIT_COUNT] = { "whole number", NULL, "NUMBER", hutch_parse_u64 },
    [UNIT_CPUS] = { "number of CPUs", NULL, "NUMBER", hutch_parse_cpus },
    [UNIT_TIME] = { "duration", "seconds", "TIME", hutch_parse_duration_ms },
};

/* The shortest text that the unit's parser takes for @value, when @value is a whole number of some multiple. */
static void print_value(enum limit_unit unit, uint64_t value, char *to, size_t room)
{
    static const struct { const char *suffix; uint64_t factor; }
        sizes[] = { { "K", KIB }, { "M", KIB }, { "G", KIB }, { "T", KIB } },
        times[] = { { "s", 1000 }, { "m", 60 }, { "h", 60 }, { "d", 24 } };
    const char *suffix = unit == UNIT_TIME ? "ms" : "";

    if (unit == UNIT_CPUS) {
        snprintf(to, room, "%g", (double)value / 1000);
        return;
    }
    for (size_t i = 0; unit != UNIT_COUNT && i < ARRAY_SIZE(sizes); i++) {
        uint64_t factor = unit == UNIT_BYTES ? sizes[i].factor : times[i].factor;

        if (value == 0 || value % factor != 0)
            break;
        value /= factor;
        suffix = unit == UNIT_BYTES ? sizes[i].suffix : times[i].suffix;
    }
    snprintf(to, room, "%" PRIu64 "%s", value, suffix);
}

const char *hutch_limit_describe(const struct limit *row, char text[LIMIT_TEXT_SIZE])
{
    char min[24], max[24];

    print_value(row->unit, row->min, min, sizeof(min));
    print_value(row->unit, row->max, max, sizeof(max));
    snprintf(text, LIMIT_TEXT_SIZE, "%s %s..%s", units[row->unit].noun, min, max);
    return text;
}

int hutch_limit_parse(enum limit_unit unit, const char *text, uint64_t *ret, struct hutch_err *err)
{
    return units[unit].parse(text, ret, err);
}

const char *hutch_limit_argument(enum limit_unit unit)
{
    return units[unit].argument;
}

int hutch_limit_parse_option(const struct limit *row, const char *text, uint64_t *ret, struct hutch_err *err)
{
    const char *alone = units[row->unit].alone, *refusal;
    char accepted[LIMIT_TEXT_SIZE];
    uint64_t value;

    if (hutch_limit_parse(row->unit, text, &value, err) < 0)
        return hutch_err_wrap(err, "option '%s'", row->option);
    refusal = value ? hutch_limit_refuses(row, value) : NULL;
    if (refusal)
        return hutch_err_set(err, 0, "option '%s': '%s' is too %s: expected a %s%s%s%s, or 0 for no limit", row->option,
                             text, refusal, hutch_limit_describe(row, accepted), alone ? " (a number alone is in " : "",
                             alone ? alone : "", alone ? ")" : "");
    *ret = value;
    return 0;
}

const char *hutch_limit_refuses(const struct limit *row, uint64_t value)
{
    return value < row->min ? "small" : value > row->max ? "large" : NULL;
}
