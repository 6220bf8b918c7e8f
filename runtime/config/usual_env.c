#include "runtime/config/usual_env.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GIT_CONFIG INSIDE_OWN_DIR "/gitconfig"

typedef bool say_value_fn(const uint64_t limits[LIMIT_COUNT], char *text, size_t room);

static uint64_t count_cpus(const uint64_t limits[LIMIT_COUNT])
{
    return (limits[LIMIT_CPUS] + 999) / 1000;
}

/* Libraries that start a thread per CPU of the host would run into the limit on processes, or gain nothing. */
static bool say_threads(const uint64_t limits[LIMIT_COUNT], char *text, size_t room)
{
    snprintf(text, room, "%" PRIu64, count_cpus(limits));
    return limits[LIMIT_CPUS] != 0;
}

/* As -Xmx has it. */
static const char *say_kib(uint64_t kib, char text[24])
{
    const int steps = kib % 1024 ? 0 : kib % (1024 * 1024) ? 1 : 2;

    snprintf(text, 24, "%" PRIu64 "%c", kib >> (10 * steps), "kmg"[steps]);
    return text;
}

/* The JVM asks sysinfo(2) and the mounted cgroups for the size of the machine, finds the host's memory, takes a quarter
 * of that for its heap and collects nothing until it is used: it is killed, where its program would have gone on, or
 * have caught an OutOfMemoryError. Half of the limit is for the heap, a quarter for buffers outside of it (which have
 * the size of the heap otherwise), and the rest for classes, code, stacks and the JVM's own libraries. -Xmx rather
 * than -XX:MaxRAM, which JDK 26 warns of. A heap below 2 MiB is refused by the JVM; the smallest limit is 4 MiB. */
static bool say_java(const uint64_t limits[LIMIT_COUNT], char *text, size_t room)
{
    const uint64_t memory = limits[LIMIT_MEMORY] >> 10, cpus = count_cpus(limits);
    char heap[24], direct[24];
    int n = 0;

    if (memory)
        n = snprintf(text, room, "-Xmx%s -XX:MaxDirectMemorySize=%s", say_kib(memory / 2, heap),
                     say_kib(memory / 4, direct));
    if (cpus)
        snprintf(text + n, room - (size_t)n, "%s-XX:ActiveProcessorCount=%" PRIu64, n ? " " : "", cpus);
    return memory || cpus;
}

/* Each gives way to what the policy, the image, --env, a configuration file or the program's own options say. */
static const struct {
    const char *name, *value;
    say_value_fn *say; /* writes the value; false: the variable is not set, as there is no such limit */
} rows[] = {
    { "OMP_NUM_THREADS", NULL, say_threads },
    { "OPENBLAS_NUM_THREADS", NULL, say_threads },
    { "MKL_NUM_THREADS", NULL, say_threads },
    { "JAVA_TOOL_OPTIONS", NULL, say_java },
    /* LeakSanitizer stops the program by ptrace(2), which no sandbox has, and ends every program with status 1. It is
     * part of AddressSanitizer and also a sanitizer of its own. */
    { "ASAN_OPTIONS", "detect_leaks=0", NULL },
    { "LSAN_OPTIONS", "detect_leaks=0", NULL },
    /* Compilers whose cache or intermediate files are larger than a /tmp in memory. Go does not make GOTMPDIR; the data
     * directory is always there, and Go removes what it has made in it. */
    { "GOCACHE", INSIDE_DATA_DIR "/.cache/go-build", NULL },
    { "GOTMPDIR", INSIDE_DATA_DIR, NULL },
    { "CARGO_TARGET_DIR", INSIDE_DATA_DIR "/target", NULL },
    { "SCREENDIR", "/tmp/.screen", NULL }, /* screen(1) makes it; its own place is in /run, which is read-only */
    /* The weakest of git's files, so that a repository's and the user's own configuration, and GIT_AUTHOR_NAME and its
     * like, come first. */
    { "GIT_CONFIG_SYSTEM", GIT_CONFIG, NULL },
};
_Static_assert(ARRAY_SIZE(rows) <= USUAL_ENV_MAX, "hutch_usual_env_follow() has room for each");

/* git takes this file in the place of the image's, which it therefore includes; a missing one is no error. */
static const char git_config[] = "# This is a sandbox of hutch. An identity of yours, in a repository or in\n"
                                 "# ~/.gitconfig, comes first.\n"
                                 "[user]\n"
                                 "\tname = hutch sandbox\n"
                                 "\temail = sandbox@hutch.invalid\n"
                                 "[include]\n"
                                 "\tpath = /etc/gitconfig\n";

/* The value of row @i, or NULL. */
static const char *find_value(size_t i, const uint64_t limits[LIMIT_COUNT], char text[USUAL_ENV_SIZE])
{
    if (!rows[i].say)
        return rows[i].value;
    return rows[i].say(limits, text, USUAL_ENV_SIZE) ? text : NULL;
}

static bool is_left_out(const struct sandbox_spec *spec, const char *name)
{
    for (char *const *left_out = spec->env_left_out; left_out && *left_out; left_out++)
        if (strcmp(*left_out, name) == 0)
            return true;
    return false;
}

int hutch_usual_env_add(struct sandbox_spec *spec, struct hutch_err *err)
{
    char text[USUAL_ENV_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *value = find_value(i, spec->limits, text);

        if (!value || hutch_spec_get_env(spec, rows[i].name) || is_left_out(spec, rows[i].name))
            continue;
        if (hutch_spec_set_env(spec, rows[i].name, value, err) < 0)
            return -1;
    }
    return hutch_spec_add_file(spec, GIT_CONFIG, git_config, sizeof(git_config) - 1, 0444, err);
}

/* Row @i, as long as its value in @spec is hutch's own. */
static bool is_own(const struct sandbox_spec *spec, size_t i)
{
    const char *has = hutch_spec_get_env(spec, rows[i].name);
    char text[USUAL_ENV_SIZE];
    const char *value = has ? find_value(i, spec->limits, text) : NULL;

    return value && strcmp(has, value) == 0;
}

bool hutch_usual_env_is_own(const struct sandbox_spec *spec, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return is_own(spec, i);
    return false;
}

size_t hutch_usual_env_follow(const struct sandbox_spec *spec, const uint64_t limits[LIMIT_COUNT],
                              char ret[USUAL_ENV_MAX][USUAL_ENV_SIZE])
{
    char text[USUAL_ENV_SIZE];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *value = rows[i].say && is_own(spec, i) ? find_value(i, limits, text) : NULL;

        if (value && strcmp(value, hutch_spec_get_env(spec, rows[i].name)) != 0)
            n += snprintf(ret[n], USUAL_ENV_SIZE, "%s=%s", rows[i].name, value) < USUAL_ENV_SIZE;
    }
    return n;
}
