/* lair.h - an engine in a directory of its own, with helpers that the program itself plays, and what came of its
 * runs. Real sandboxes are for the other lanes. */
#ifndef HUTCH_TEST_LIB_LAIR_H
#define HUTCH_TEST_LIB_LAIR_H

#include "tests/unit/failpoint.h" /* the first: see there */

#include "tests/unit/lib/players.h"

#include "runtime/lib/engine_priv.h"
#include "sandbox/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct lair {
    char dir[48], home[64], policy[64], exe[PATH_MAX];
    struct hutch_engine_options options;
    struct hutch_engine *engine;
    int n_fds;
};

#define MAX_RUNS 4096
static struct {
    unsigned results, begun;
    enum hutch_verdict verdict;
    int exit_code, restarts, was_prepared;
    char out[64], err[64], message[128], zygote[16], directory[128], streamed[64];
} runs[MAX_RUNS];
static unsigned n_results;

static inline void on_result(void *user, uint64_t id, const struct hutch_result *r)
{
    const bool was_armed = failpoint.is_armed;
    char *json;

    (void)user;
    failpoint.is_armed = false; /* what the caller does is not tried */
    assert_in_range(id, 1, MAX_RUNS - 1);
    runs[id].results++;
    runs[id].verdict = r->verdict;
    runs[id].exit_code = r->exit_code;
    runs[id].restarts = r->restarts;
    runs[id].was_prepared = r->was_prepared;
    snprintf(runs[id].out, sizeof(runs[id].out), "%s", r->out);
    snprintf(runs[id].err, sizeof(runs[id].err), "%s", r->err);
    snprintf(runs[id].message, sizeof(runs[id].message), "%s", r->message);
    snprintf(runs[id].zygote, sizeof(runs[id].zygote), "%s", r->zygote ? r->zygote : "");
    snprintf(runs[id].directory, sizeof(runs[id].directory), "%s", r->directory ? r->directory : "");
    json = hutch_result_to_json(r);
    assert_non_null(json);
    free(json);
    n_results++;
    failpoint.is_armed = was_armed;
}

static inline void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    (void)user;
    snprintf(runs[id].streamed + strlen(runs[id].streamed), sizeof(runs[id].streamed) - strlen(runs[id].streamed),
             "%d:%.*s", stream, (int)len, data);
}

static inline int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static inline void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static inline int set_up(void **state)
{
    static const char *const modules[] = { "numpy", "no_such_module", NULL };
    static const struct hutch_zygote zygotes[] = {
        { .name = "bare", .min = 2, .max = 4 },
        { .name = "data", .parent = "bare", .modules = modules, .min = 1, .max = 4 },
    };
    struct lair *p = calloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/hutch-test-engine.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->home, sizeof(p->home), "%s/home", p->dir);
    assert_true(readlink("/proc/self/exe", p->exe, sizeof(p->exe) - 1) > 0);
    /* No control group: where the one above cannot be opened, as a failpoint has it, an engine makes one in its own and
     * steps into that, and it would be left behind. */
    snprintf(p->policy, sizeof(p->policy), "%s/policy.json", p->dir);
    write_file(p->policy, "{\"schema\": 1, \"extends\": \"default\", \"layers\": {\"cgroup\": \"off\"}}");
    hutch_engine_options_init(&p->options);
    p->options.layouts = 1;
    p->options.home = p->home;
    p->options.policy = p->policy;
    p->options.image = "/";
    p->options.launcher = p->exe;
    p->options.policy_dir = "policies";
    p->options.zygotes = zygotes;
    p->options.n_zygotes = ARRAY_SIZE(zygotes);
    p->options.max_running = 4;
    memset(runs, 0, sizeof(runs));
    n_results = 0;
    p->n_fds = count_fds();
    *state = p;
    return 0;
}

static inline void open_engine(struct lair *p, const char *how)
{
    struct hutch_error error;

    setenv("HUTCH_FAKE", how, 1);
    if (hutch_engine_open(&p->options, &p->engine, &error) < 0)
        fail_msg("%s", error.message);
}

/* Nothing is left: no descriptor, no process, no directory. */
static inline void close_engine(struct lair *p)
{
    char path[96];
    struct dirent *entry;
    DIR *dir;

    hutch_engine_free(p->engine);
    p->engine = NULL;
    assert_int_equal(count_fds(), p->n_fds);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    snprintf(path, sizeof(path), "%s/runs", p->home);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && strchr(entry->d_name, '.'))
            /* N.data, which nobody has touched */
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR), 0);
    closedir(dir);
}

static inline void close_engine_without_runs(struct lair *p)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/runs", p->home);
    assert_int_equal(mkdir(path, 0700), 0);
    close_engine(p);
}

static inline int tear_down(void **state)
{
    struct lair *p = *state;
    struct hutch_err err = { .msg = "" };
    auto_fd fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    hutch_engine_free(p->engine);
    assert_int_equal(hutch_rmtree(fd, p->dir + strlen("/tmp/"), &err), 0);
    free(p);
    return 0;
}

/* Whether anything came before it. */
static inline bool turn_within(struct lair *p, int ms)
{
    struct pollfd fd = { .fd = hutch_engine_fd(p->engine), .events = POLLIN };
    const bool has_come = poll(&fd, 1, ms) == 1;

    hutch_engine_dispatch(p->engine, NULL);
    return has_come;
}

static inline void turn(struct lair *p)
{
    if (!turn_within(p, 60000))
        fail_msg("the engine waits for nothing");
}

static inline void await(struct lair *p, unsigned n)
{
    while (n_results < n)
        turn(p);
}

static inline struct hutch_engine_stats stats_of(struct lair *p)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(p->engine, &stats);
    return stats;
}

static inline void await_full_pool(struct lair *p)
{
    while (stats_of(p).prepared < 3 || stats_of(p).building > 0)
        turn(p);
}

static inline struct hutch_request request_for(const char *code)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.code = code;
    request.on_result = on_result;
    return request;
}

static inline uint64_t submit(struct lair *p, const struct hutch_request *request)
{
    struct hutch_error error;
    uint64_t id = 0;

    if (hutch_engine_submit(p->engine, request, &id, &error) < 0)
        fail_msg("%s", error.message);
    return id;
}

/* The first thing of main(): as "hutch-launcher" the program is the helpers; an argument says which tests are run. */
static inline void begin_program(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "hutch-launcher") == 0)
        play();
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
}

#endif
