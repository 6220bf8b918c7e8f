/* library.c - what hutch.h promises, one scenario at a time: library NAME. tests/e2e/test_library.py compiles it
 * against the installed library and runs each in a process of its own. Ends with 1 and one line when a promise is
 * broken. */
#define _GNU_SOURCE
#include <hutch.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STALL_S 60 /* a scenario that takes longer hangs */

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);             \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static const char *image;

/* --- kit --- */

struct outcome {
    struct hutch_engine *engine;
    uint64_t id;
    int results;
    enum hutch_verdict verdict;
    int exit_code, was_prepared;
    double queued_ms;
    char out[4096], err[4096], message[512], directory[4096];
    size_t streamed[3];  /* by stream */
};

static struct hutch_engine_options default_options(void)
{
    static const char *const none[] = { NULL };
    static const struct hutch_zygote bare = { .name = "bare", .modules = none, .min = 2, .max = 3 };
    struct hutch_engine_options options;

    hutch_engine_options_init(&options);
    options.image = image;
    options.zygotes = &bare;
    options.n_zygotes = 1;
    return options;
}

static struct hutch_engine *open_engine(const struct hutch_engine_options *options)
{
    struct hutch_engine *engine;
    struct hutch_error err;

    if (hutch_engine_open(options, &engine, &err) < 0) {
        printf("open: %s\n", err.message);
        exit(1);
    }
    return engine;
}

static struct hutch_engine *open_default(void)
{
    struct hutch_engine_options options = default_options();

    return open_engine(&options);
}

static void turn(struct hutch_engine *engine)
{
    struct pollfd pfd = { .fd = hutch_engine_fd(engine), .events = POLLIN };
    struct hutch_error err;

    CHECK(poll(&pfd, 1, STALL_S * 1000) >= 0 || errno == EINTR);
    if (hutch_engine_dispatch(engine, &err) < 0) {
        printf("dispatch: %s\n", err.message);
        exit(1);
    }
}

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

static void on_result(void *user, uint64_t id, const struct hutch_result *r)
{
    struct outcome *o = user;

    CHECK(id == o->id && id != 0);
    CHECK(r->size >= sizeof(*r));
    o->results++;
    o->verdict = r->verdict;
    o->exit_code = r->exit_code;
    o->was_prepared = r->was_prepared;
    o->queued_ms = r->queued_ms;
    CHECK(r->out[r->out_len] == '\0' && r->err[r->err_len] == '\0');
    copy(o->out, sizeof(o->out), r->out);
    copy(o->err, sizeof(o->err), r->err);
    copy(o->message, sizeof(o->message), r->message);
    copy(o->directory, sizeof(o->directory), r->directory);
}

static struct hutch_request request_for(const char *code, struct outcome *o)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.code = code;
    request.on_result = on_result;
    request.user = o;
    return request;
}

static int try_submit(struct hutch_engine *engine, const struct hutch_request *request, struct outcome *o,
                      struct hutch_error *err)
{
    memset(o, 0, sizeof(*o));
    o->engine = engine;
    return hutch_engine_submit(engine, request, &o->id, err);
}

static void submit(struct hutch_engine *engine, const struct hutch_request *request, struct outcome *o)
{
    struct hutch_error err;

    if (try_submit(engine, request, o, &err) < 0) {
        printf("submit: %s\n", err.message);
        exit(1);
    }
}

static void submit_code(struct hutch_engine *engine, const char *code, struct outcome *o)
{
    struct hutch_request request = request_for(code, o);

    submit(engine, &request, o);
}

static void wait_for(struct outcome *o)
{
    while (o->results == 0)
        turn(o->engine);
    CHECK(o->results == 1);
}

static void run(struct hutch_engine *engine, const char *code, struct outcome *o)
{
    submit_code(engine, code, o);
    wait_for(o);
}

static void check_works(struct hutch_engine *engine)
{
    struct outcome o;

    run(engine, "print('works')", &o);
    if (o.verdict != HUTCH_OK || strcmp(o.out, "works\n") != 0)
        printf("%s: %s %s\n", hutch_verdict_text(o.verdict), o.message, o.err);
    CHECK(o.verdict == HUTCH_OK && strcmp(o.out, "works\n") == 0);
}

static unsigned prepared(struct hutch_engine *engine)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(engine, &stats);
    return stats.building ? 0 : stats.prepared;
}

static void wait_for_pool(struct hutch_engine *engine)
{
    while (prepared(engine) < 2)
        turn(engine);
}

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    unsigned n = 0;

    CHECK(dir != NULL);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* The value of a line of /proc/self/status. */
static void read_status(const char *name, char *value, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/self/status", "re");

    *value = '\0';
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            copy(value, size, line + strlen(name));
    fclose(file);
    CHECK(*value);
}

static unsigned count_children(void)
{
    char path[64];
    unsigned n = 0;
    FILE *file;
    int pid;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    file = fopen(path, "re");
    CHECK(file != NULL);
    while (fscanf(file, "%d", &pid) == 1)
        n++;
    fclose(file);
    return n;
}

/* --- scenarios --- */

/* No thread, no signal handler, one child for each engine; and nothing of it afterwards. */
static void leaves_the_process_alone(void)
{
    char caught[64], ignored[64], blocked[64], now[64], cwd[4096], cwd_now[4096];
    unsigned fds = count_entries("/proc/self/fd");
    mode_t mask = umask(022);
    struct hutch_engine *engine;

    umask(mask);
    CHECK(getcwd(cwd, sizeof(cwd)));
    read_status("SigCgt:", caught, sizeof(caught));
    read_status("SigIgn:", ignored, sizeof(ignored));
    read_status("SigBlk:", blocked, sizeof(blocked));
    engine = open_default();
    for (int i = 0; i < 5; i++)
        check_works(engine);
    CHECK(count_entries("/proc/self/task") == 1);
    CHECK(count_children() == 1);
    read_status("SigCgt:", now, sizeof(now));
    CHECK(strcmp(caught, now) == 0);
    read_status("SigIgn:", now, sizeof(now));
    CHECK(strcmp(ignored, now) == 0);
    read_status("SigBlk:", now, sizeof(now));
    CHECK(strcmp(blocked, now) == 0);
    CHECK(getcwd(cwd_now, sizeof(cwd_now)) && strcmp(cwd, cwd_now) == 0);
    CHECK(umask(mask) == mask);
    hutch_engine_free(engine);
    CHECK(count_children() == 0);
    CHECK(count_entries("/proc/self/task") == 1);
    CHECK(count_entries("/proc/self/fd") == fds);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* What the host executes inherits nothing. */
static void descriptors_close_on_exec(void)
{
    struct hutch_engine *engine = open_default();
    struct outcome running;
    struct dirent *entry;
    DIR *dir;

    wait_for_pool(engine);
    submit_code(engine, "import time; time.sleep(0.3)", &running);
    for (int i = 0; i < 3; i++)
        turn(engine);
    dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    while ((entry = readdir(dir))) {
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(dir) && !(fcntl(fd, F_GETFD) & FD_CLOEXEC)) {
            printf("descriptor %d is inherited\n", fd);
            exit(1);
        }
    }
    closedir(dir);
    hutch_engine_free(engine);
}

static void two_engines(void)
{
    struct hutch_engine_options options = default_options();
    struct hutch_engine *first, *second;
    struct outcome a, b;
    bool is_over = false;

    options.max_running = 1;
    first = open_engine(&options);
    second = open_engine(&options);
    CHECK(hutch_engine_fd(first) != hutch_engine_fd(second));
    wait_for_pool(first);
    wait_for_pool(second);
    CHECK(count_children() == 2);
    submit_code(first, "import time; time.sleep(0.2); print('a')", &a);
    submit_code(second, "print('b')", &b);
    while (!is_over) {
        struct pollfd fds[2] = { { hutch_engine_fd(first), POLLIN, 0 }, { hutch_engine_fd(second), POLLIN, 0 } };

        CHECK(poll(fds, 2, STALL_S * 1000) > 0);
        CHECK(hutch_engine_dispatch(first, NULL) == 0 && hutch_engine_dispatch(second, NULL) == 0);
        is_over = a.results && b.results;
    }
    CHECK(strcmp(a.out, "a\n") == 0 && strcmp(b.out, "b\n") == 0);
    /* The end of one, with a run under way, is nothing to the other. */
    submit_code(first, "import time; time.sleep(60)", &a);
    submit_code(second, "import time; time.sleep(0.2); print('b')", &b);
    turn(first);
    hutch_engine_free(first);
    CHECK(a.results == 0);
    wait_for(&b);
    CHECK(b.verdict == HUTCH_OK && strcmp(b.out, "b\n") == 0);
    check_works(second);
    hutch_engine_free(second);
    CHECK(count_children() == 0);
}

static void *run_in_thread(void *unused)
{
    struct hutch_engine *engine = open_default();

    (void)unused;
    for (int i = 0; i < 20; i++)
        check_works(engine);
    hutch_engine_free(engine);
    return NULL;
}

static void an_engine_for_each_thread(void)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, run_in_thread, NULL) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(count_children() == 0);
}

/* At once, and room again as soon as a result has come. */
static void a_full_queue(void)
{
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine;
    struct outcome taken[4], refused;
    struct hutch_request request = request_for("print(1)", &refused);
    struct hutch_error err;

    options.max_running = 1;
    options.max_queued = 3;
    engine = open_engine(&options);
    wait_for_pool(engine);
    for (int i = 0; i < 4; i++)
        submit_code(engine, "print('taken')", &taken[i]);
    for (int i = 0; i < 100; i++) {
        CHECK(try_submit(engine, &request, &refused, &err) == -1);
        CHECK(err.code == EAGAIN && err.message[0]);
        CHECK(hutch_engine_submit(engine, &request, &refused.id, NULL) == -1);
    }
    wait_for(&taken[0]);
    submit(engine, &request, &refused);
    for (int i = 1; i < 4; i++)
        wait_for(&taken[i]);
    wait_for(&refused);
    CHECK(refused.verdict == HUTCH_OK);
    for (int i = 0; i < 4; i++)
        CHECK(taken[i].results == 1 && taken[i].verdict == HUTCH_OK && strcmp(taken[i].out, "taken\n") == 0);
    hutch_engine_free(engine);
}

static void on_output_cancel(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct outcome *o = user;

    (void)stream;
    (void)data;
    o->streamed[1] += len;
    hutch_engine_cancel(o->engine, id);
}

static void cancel(void)
{
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine;
    struct outcome running, queued, from_callback, fresh;
    struct hutch_request request;

    options.max_running = 1;
    engine = open_engine(&options);
    CHECK(hutch_engine_cancel(engine, 12345) == 0);
    /* before anything is ready */
    submit_code(engine, "print('never')", &fresh);
    CHECK(hutch_engine_cancel(engine, fresh.id) == 1);
    CHECK(fresh.results == 0); /* results come by dispatch */
    wait_for(&fresh);
    CHECK(fresh.verdict == HUTCH_KILLED);
    wait_for_pool(engine);
    /* one that runs, and one behind it */
    submit_code(engine, "import time\nprint('begun', flush=True)\ntime.sleep(60)", &running);
    submit_code(engine, "print('never')", &queued);
    for (int i = 0; i < 3; i++)
        turn(engine);
    CHECK(hutch_engine_cancel(engine, queued.id) == 1);
    wait_for(&queued);
    CHECK(queued.verdict == HUTCH_KILLED && queued.out[0] == '\0' && queued.message[0]);
    CHECK(running.results == 0);
    CHECK(hutch_engine_cancel(engine, running.id) == 1);
    CHECK(hutch_engine_cancel(engine, running.id) >= 0); /* twice does no harm */
    wait_for(&running);
    CHECK(running.verdict == HUTCH_KILLED && strncmp(running.out, "begun\n", strlen(running.out)) == 0);
    CHECK(hutch_engine_cancel(engine, running.id) == 0);
    /* from a callback, when it says something */
    request = request_for("import time\nprint('begun', flush=True)\ntime.sleep(60)", &from_callback);
    request.on_output = on_output_cancel;
    submit(engine, &request, &from_callback);
    wait_for(&from_callback);
    CHECK(from_callback.verdict == HUTCH_KILLED && from_callback.streamed[1] > 0 &&
          from_callback.streamed[1] <= strlen("begun\n"));
    check_works(engine);
    hutch_engine_free(engine);
}

/* The second waits for longer than it may run. */
static void the_queue_counts_against_no_limit(void)
{
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine;
    struct outcome first, second, third;
    struct hutch_request request = request_for("import time; time.sleep(0.1); print('done')", &second);

    options.max_running = 1;
    engine = open_engine(&options);
    submit_code(engine, "import time; time.sleep(1.5)", &first);
    request.wall_ms = 1000;
    submit(engine, &request, &second);
    request.user = &third;
    request.cpu_ms = 1000;
    submit(engine, &request, &third);
    wait_for(&first);
    wait_for(&second);
    wait_for(&third);
    CHECK(second.verdict == HUTCH_OK && strcmp(second.out, "done\n") == 0);
    CHECK(third.verdict == HUTCH_OK);
    CHECK(second.queued_ms > 1000 && third.queued_ms > second.queued_ms);
    hutch_engine_free(engine);
}

static char go_path[4096];

static void on_output_go(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct outcome *o = user;

    CHECK(id == o->id && (stream == 1 || stream == 2));
    CHECK(o->results == 0); /* all of it before the result */
    o->streamed[stream] += len;
    if (stream == 1 && memmem(data, len, "one", 3)) {
        int fd = open(go_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

        CHECK(fd >= 0);
        close(fd);
    }
}

/* The program waits for what the host does when it hears it. */
static void output_as_it_comes(void)
{
    static const char code[] = "import os, sys, time\n"
                               "print('one', flush=True)\n"
                               "while not os.path.exists('/mnt/data/go'): time.sleep(0.005)\n"
                               "print('two'); print('three', file=sys.stderr)\n";
    struct hutch_engine *engine = open_default();
    struct outcome o;
    struct hutch_request request = request_for(code, &o);
    char dir[] = "/tmp/hutch-library.XXXXXX";

    CHECK(mkdtemp(dir));
    snprintf(go_path, sizeof(go_path), "%s/go", dir);
    request.on_output = on_output_go;
    request.data_dir = dir;
    request.wall_ms = 30000;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK);
    CHECK(o.streamed[1] == strlen("one\ntwo\n") && o.streamed[2] == strlen("three\n"));
    CHECK(o.out[0] == '\0' && o.err[0] == '\0');
    unlink(go_path);
    rmdir(dir);
    hutch_engine_free(engine);
}

static void on_output_count(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct outcome *o = user;

    (void)id;
    for (size_t i = 0; i < len; i++)
        CHECK(data[i] == 'y');
    o->streamed[stream] += len;
}

static long rss_kb(void)
{
    char value[64];

    read_status("VmRSS:", value, sizeof(value));
    return atol(value);
}

/* A host that does not come to dispatch holds the program up, and loses nothing. */
static void back_pressure(void)
{
    struct hutch_engine *engine = open_default();
    struct outcome o;
    struct hutch_request request = request_for("import os\nfor _ in range(100): os.write(1, b'y' * 65536)", &o);
    long before;

    wait_for_pool(engine);
    before = rss_kb();
    request.on_output = on_output_count;
    request.output_bytes = 100 * 65536;
    submit(engine, &request, &o);
    for (int i = 0; o.results == 0; i++) {
        if (i % 20 == 0)
            usleep(50000);
        turn(engine);
    }
    CHECK(o.verdict == HUTCH_OK && o.streamed[1] == 100 * 65536);
    CHECK(rss_kb() - before < 8192); /* it is not kept anywhere */
    hutch_engine_free(engine);
}

static struct outcome chain[20];
static int chain_len;

static void on_result_submit(void *user, uint64_t id, const struct hutch_result *r)
{
    struct outcome *o = user;
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    on_result(user, id, r);
    hutch_engine_get_stats(o->engine, &stats);
    CHECK(stats.finished >= (uint64_t)chain_len);
    if (++chain_len < 20) {
        struct hutch_request request = request_for("print('next')", &chain[chain_len]);

        request.on_result = on_result_submit;
        submit(o->engine, &request, &chain[chain_len]);
    }
}

static void calls_from_callbacks(void)
{
    struct hutch_engine *engine = open_default();
    struct hutch_request request = request_for("print('first')", &chain[0]);

    request.on_result = on_result_submit;
    submit(engine, &request, &chain[0]);
    while (chain_len < 20)
        turn(engine);
    for (int i = 0; i < 20; i++)
        CHECK(chain[i].results == 1 && chain[i].verdict == HUTCH_OK);
    hutch_engine_free(engine);
}

/* Whatever the caller does with it after the call. */
static void what_is_passed_in_is_copied(void)
{
    struct hutch_engine_options options = default_options();
    struct hutch_zygote *zygote = malloc(sizeof(*zygote));
    char *name = strdup("bare"), *image_name = strdup(image),
         *code = strdup("import sys, os\nprint(sys.argv[1:], os.environ['X'], input())"), *arg = strdup("argument"),
         *env = strdup("X=variable"), *input = strdup("line\n");
    const char **args = calloc(2, sizeof(*args)), **envs = calloc(2, sizeof(*envs)),
               **modules = calloc(2, sizeof(*modules));
    struct hutch_engine *engine;
    struct outcome o;
    struct hutch_request request = request_for(code, &o);

    modules[0] = strdup("json");
    *zygote = (struct hutch_zygote){ .name = name, .modules = modules, .min = 1, .max = 1 };
    options.zygotes = zygote;
    options.image = image_name;
    engine = open_engine(&options);
    memset((char *)modules[0], '#', 4);
    memset(name, '#', 4);
    memset(image_name, '#', strlen(image_name));
    memset(zygote, 0xff, sizeof(*zygote));
    args[0] = arg;
    envs[0] = env;
    request.args = args;
    request.env = envs;
    request.input = input;
    request.input_len = strlen(input);
    submit(engine, &request, &o);
    memset(code, '#', strlen(code));
    memset(arg, '#', strlen(arg));
    memset(env, '#', strlen(env));
    memset(input, '#', strlen(input));
    memset(args, 0xff, 2 * sizeof(*args));
    memset(envs, 0xff, 2 * sizeof(*envs));
    memset(&request, 0xff, sizeof(request));
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && strcmp(o.out, "['argument'] variable line\n") == 0);
    hutch_engine_free(engine);
    free((char *)modules[0]);
    free(modules);
    free(zygote);
    free(name);
    free(image_name);
    free(code);
    free(arg);
    free(env);
    free(input);
    free(args);
    free(envs);
}

static void expect_open_error(struct hutch_engine_options options, int code, const char *says)
{
    struct hutch_engine *engine = NULL;
    struct hutch_error err = { 0, "" };
    unsigned fds = count_entries("/proc/self/fd");

    CHECK(hutch_engine_open(&options, &engine, &err) == -1);
    if ((code && err.code != code) || !strstr(err.message, says) || strchr(err.message, '\n')) {
        printf("the error is %d, %s; expected %d with '%s'\n", err.code, err.message, code, says);
        exit(1);
    }
    CHECK(hutch_engine_open(&options, &engine, NULL) == -1);
    CHECK(count_entries("/proc/self/fd") == fds && count_children() == 0);
}

static void errors_of_open(void)
{
    static const char *const none[] = { NULL };
    static const struct hutch_zygote twice[] = { { .name = "a", .modules = none }, { .name = "a", .modules = none } };
    static const struct hutch_zygote orphan[] = { { .name = "a", .modules = none },
                                                  { .name = "b", .parent = "nobody", .modules = none } };
    static const struct hutch_zygote odd[] = { { .name = "a b\n", .modules = none } };
    struct hutch_engine_options options = default_options();

    options.launcher = "/nonexistent/hutch-launcher";
    expect_open_error(options, ENOENT, "/nonexistent/hutch-launcher");
    options = default_options();
    options.image = "no-such-image";
    expect_open_error(options, 0, "no-such-image");
    options = default_options();
    options.policy = "no-such-policy";
    expect_open_error(options, 0, "no-such-policy");
    options = default_options();
    options.zygotes = twice;
    options.n_zygotes = 2;
    expect_open_error(options, 0, "'a'");
    options.zygotes = orphan;
    expect_open_error(options, 0, "nobody");
    options.zygotes = odd;
    options.n_zygotes = 1;
    expect_open_error(options, 0, "a b");
    hutch_engine_free(NULL);
}

static void expect_submit_error(struct hutch_engine *engine, struct hutch_request request, const char *says)
{
    struct hutch_error err = { 0, "" };
    uint64_t id = 0;

    if (hutch_engine_submit(engine, &request, &id, &err) == 0) {
        printf("taken, where '%s' was expected\n", says);
        exit(1);
    }
    if (err.code == 0 || err.code == EAGAIN || !strstr(err.message, says) || strchr(err.message, '\n')) {
        printf("the error is %d, %s; expected one with '%s'\n", err.code, err.message, says);
        exit(1);
    }
    CHECK(hutch_engine_submit(engine, &request, &id, NULL) == -1);
}

static void errors_of_submit(void)
{
    static const char *const bad_env[] = { "NOEQUALS", NULL };
    struct hutch_engine *engine = open_default();
    struct outcome o;
    struct hutch_request good = request_for("print(1)", &o), request;

    request = good, request.code = NULL;
    expect_submit_error(engine, request, "code");
    request = good, request.language = "klingon";
    expect_submit_error(engine, request, "klingon");
    request = good, request.name = "../escape.py";
    expect_submit_error(engine, request, "../escape.py");
    request = good, request.env = bad_env;
    expect_submit_error(engine, request, "NOEQUALS");
    request = good, request.code = "a\0b", request.code_len = 3;
    expect_submit_error(engine, request, "NUL");
    request = good, request.data_dir = "/nonexistent/data";
    expect_submit_error(engine, request, "/nonexistent/data");
    request = good, request.wall_ms = 1000ull * 3600 * 24 * 365;
    expect_submit_error(engine, request, "wall_ms");
    request = good, request.memory_bytes = 1ull << 50;
    expect_submit_error(engine, request, "memory_bytes");
    request = good, request.policy = "no-such-policy";
    expect_submit_error(engine, request, "no-such-policy");
    check_works(engine);
    hutch_engine_free(engine);
}

/* Programs that were made for an older or a newer header. */
/* What the functions of these names did in the first version: a program of that time has no room for more. */
static void structs_of_the_first_version(void)
{
    const size_t sizes[] = { offsetof(struct hutch_engine_options, rootfs),
                             offsetof(struct hutch_request, has_input_fd) };
    struct hutch_engine *engine = open_default();
    struct hutch_error err;
    char *bytes;

    for (int i = 0; i < 2; i++) {
        size_t size;

        bytes = malloc(sizes[i] + 64);
        CHECK(bytes != NULL);
        memset(bytes, 0x5a, sizes[i] + 64);
        if (i == 0)
            (hutch_engine_options_init)((struct hutch_engine_options *)(void *)bytes);
        else
            (hutch_request_init)((struct hutch_request *)(void *)bytes);
        memcpy(&size, bytes, sizeof(size));
        CHECK(size <= sizes[i] && size + sizeof(void *) > sizes[i] && bytes[size - 1] == 0);
        for (size_t at = sizes[i]; at < sizes[i] + 64; at++)
            CHECK(bytes[at] == 0x5a);
        if (i == 1) /* what lies behind the size is not looked at: there is no input_fd */
            CHECK(hutch_engine_submit(engine, (struct hutch_request *)(void *)bytes, NULL, &err) < 0 &&
                  strcmp(err.message, "there is no code") == 0);
        free(bytes);
    }
    hutch_engine_free(engine);
}

static void sizes_of_structs(void)
{
    struct {
        struct hutch_request request;
        char more[64];
    } newer = { .more = "" };
    struct {
        char bytes[offsetof(struct hutch_engine_stats, launcher_pid)];
        char guard[64];
    } older;
    struct hutch_engine *engine = open_default();
    struct outcome o;
    size_t size = sizeof(older.bytes);

    newer.request = request_for("print('newer')", &o);
    newer.request.size = sizeof(newer);
    submit(engine, &newer.request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK);
    memset(&older, 0x5a, sizeof(older));
    memcpy(older.bytes, &size, sizeof(size));
    hutch_engine_get_stats(engine, (struct hutch_engine_stats *)(void *)older.bytes);
    for (size_t i = 0; i < sizeof(older.guard); i++)
        CHECK(older.guard[i] == 0x5a);
    memcpy(&size, older.bytes, sizeof(size));
    CHECK(size <= sizeof(older.bytes));
    hutch_engine_free(engine);
}

/* A host that ignores SIGCHLD, or reaps every child that it has. */
static void hosts_that_reap(void)
{
    struct hutch_engine *engine;

    signal(SIGCHLD, SIG_IGN);
    engine = open_default();
    check_works(engine);
    hutch_engine_free(engine);
    signal(SIGCHLD, SIG_DFL);
    engine = open_default();
    check_works(engine);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    check_works(engine);
    hutch_engine_free(engine);
}

static void *reap_all(void *unused)
{
    (void)unused;
    for (;;)
        if (waitpid(-1, NULL, 0) < 0)
            usleep(200);
    return NULL;
}

/* … and one that does so all the time, when the engine ends too. */
static void a_host_with_a_reaper(void)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, reap_all, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        struct hutch_engine *engine = open_default();

        check_works(engine);
        hutch_engine_free(engine);
    }
}

/* Daemons have none. */
static void no_standard_descriptors(void)
{
    struct hutch_engine *engine;
    struct outcome o;
    int out = dup(1);

    CHECK(out > 2 && fcntl(out, F_SETFD, FD_CLOEXEC) == 0);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    engine = open_default();
    run(engine, "import sys\nprint('works')\nprint(sys.stdin.read() == '', file=sys.stderr)", &o);
    hutch_engine_free(engine);
    CHECK(dup2(out, 1) == 1);
    CHECK(o.verdict == HUTCH_OK && strcmp(o.out, "works\n") == 0 && strcmp(o.err, "True\n") == 0);
}

/* When descriptors run out, each run still has one result, and the engine recovers. */
static void few_descriptors(void)
{
    struct hutch_engine_options options = default_options();
    struct rlimit limit, low;
    struct hutch_engine *engine;
    struct outcome many[40];

    options.max_running = 40;
    engine = open_engine(&options);
    wait_for_pool(engine);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = count_entries("/proc/self/fd") + 12;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int i = 0; i < 40; i++)
        submit_code(engine, "print('few')", &many[i]);
    for (int i = 0; i < 40; i++)
        wait_for(&many[i]);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 0; i < 40; i++)
        CHECK(many[i].results == 1 && (many[i].verdict == HUTCH_OK || many[i].verdict == HUTCH_SETUP_FAILED));
    check_works(engine);
    hutch_engine_free(engine);
}

/* Any event loop, and calls that nothing called for. */
static void epoll_and_idle_calls(void)
{
    struct hutch_engine *engine = open_default();
    int set = epoll_create1(EPOLL_CLOEXEC), fd = hutch_engine_fd(engine);
    struct epoll_event event = { .events = EPOLLIN };
    struct outcome o;

    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    submit_code(engine, "import time; time.sleep(0.2); print(1)", &o);
    while (o.results == 0) {
        CHECK(epoll_wait(set, &event, 1, STALL_S * 1000) == 1);
        CHECK(hutch_engine_dispatch(engine, NULL) == 0);
        CHECK(hutch_engine_fd(engine) == fd);
    }
    for (int i = 0; i < 10000; i++)
        CHECK(hutch_engine_dispatch(engine, NULL) == 0);
    CHECK(o.verdict == HUTCH_OK);
    close(set);
    hutch_engine_free(engine);
}

static void limits_and_languages(void)
{
    struct hutch_engine *engine = open_default();
    struct outcome o;
    struct hutch_request request;
    char path[8192];
    struct stat st;

    wait_for_pool(engine);
    run(engine, "print('warm')", &o);
    CHECK(o.was_prepared);
    request = request_for("echo $0 $1; exit 5", &o);
    request.language = "sh";
    request.args = (const char *const[]){ "x", NULL };
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_ERROR && o.exit_code == 5 && strstr(o.out, " x\n") && !o.was_prepared);
    request = request_for("print('small')", &o);
    request.memory_bytes = 200 << 20;
    wait_for_pool(engine);
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && o.was_prepared);
    request.policy = "default"; /* the engine's own */
    wait_for_pool(engine);
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && o.was_prepared);
    request = request_for("while True: pass", &o);
    request.cpu_ms = 200;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_CPU_TIME);
    request = request_for("import time; print('a', flush=True); time.sleep(60)", &o);
    request.wall_ms = 400;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_TIMEOUT && strcmp(o.out, "a\n") == 0);
    request = request_for("print('x' * 100000)", &o);
    request.output_bytes = 10000;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OUTPUT_LIMIT);
    request = request_for("open('/mnt/data/kept', 'w').write('kept')", &o);
    request.keep_data = 1;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && o.directory[0] == '/');
    snprintf(path, sizeof(path), "%s/kept", o.directory);
    CHECK(stat(path, &st) == 0 && st.st_size == 4 && st.st_uid == geteuid());
    CHECK(unlink(path) == 0 && rmdir(o.directory) == 0);
    hutch_engine_free(engine);
}

/* An engine that is not dispatched has to be freed all the same; so has one whose runs are everywhere. */
static void free_at_any_time(void)
{
    for (int turns = 0; turns < 60; turns += turns < 10 ? 1 : 7) {
        struct hutch_engine *engine = open_default();
        struct outcome outcomes[6];

        for (int i = 0; i < 6; i++)
            submit_code(engine, i % 2 ? "import time; time.sleep(0.02)" : "print(1)", &outcomes[i]);
        for (int i = 0; i < turns && !outcomes[5].results; i++)
            turn(engine);
        hutch_engine_free(engine);
        CHECK(count_children() == 0);
    }
}

/* A copy of the process, made by fork(2), has nothing to do with the engine and does not keep it alive. */
static void host_that_forks(void)
{
    struct hutch_engine *engine = open_default();
    struct outcome o;
    pid_t child;
    int status;

    wait_for_pool(engine);
    submit_code(engine, "import time; time.sleep(0.2); print('parent')", &o);
    turn(engine);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(300000);
        _exit(0);
    }
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && strcmp(o.out, "parent\n") == 0);
    check_works(engine);
    hutch_engine_free(engine);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(count_children() == 0);
}

/* What an operator chooses for all runs of an engine, which may be more than the policy gives. */
static void options_for_all_runs(void)
{
    static const char *const env[] = { "COLOUR=blue", NULL };
    char dir[] = "/tmp/hutch-library.XXXXXX", volume[64];
    const char *volumes[] = { volume, NULL };
    static const char *const tmpfs[] = { "/scratch:1m", NULL };
    const struct hutch_limits wanted = { .size = sizeof(wanted),
                                         .memory_bytes = 1234u << 20,
                                         .pids = 77,
                                         .cpu_ms = HUTCH_NO_LIMIT,
                                         .output_bytes = 5000,
                                         .file_bytes = 4096 };
    struct hutch_limits limits = { .size = sizeof(limits) }, policy = limits;
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine = open_default();
    struct hutch_request request;
    struct hutch_error err;
    struct outcome o;
    char *languages;

    hutch_engine_get_limits(engine, &policy);
    CHECK(policy.size == sizeof(policy) && policy.memory_bytes > 0 && policy.wall_ms > 0);
    languages = hutch_engine_languages(engine);
    CHECK(languages && strstr(languages, "{\"name\":\"python\",\"ending\":\".py\"}"));
    free(languages);
    hutch_engine_free(engine);

    CHECK(mkdtemp(dir));
    snprintf(volume, sizeof(volume), "%s:/shared:ro", dir);
    options.limits = &wanted;
    options.env = env;
    options.volumes = volumes;
    options.tmpfs = tmpfs;
    options.workdir = "/scratch";
    options.network = "none";
    engine = open_engine(&options);
    memset(volume, 'x', sizeof(volume) - 1); /* what was passed in is copied */
    hutch_engine_get_limits(engine, &limits);
    CHECK(limits.memory_bytes == 1234u << 20 && limits.pids == 77 && limits.cpu_ms == 0 &&
          limits.output_bytes == 5000 && limits.file_bytes == 4096 && limits.wall_ms == policy.wall_ms &&
          limits.data_bytes == policy.data_bytes);
    /* of a caller who knows two of them */
    limits = (struct hutch_limits){ .size = 2 * sizeof(uint64_t) + sizeof(size_t) };
    hutch_engine_get_limits(engine, &limits);
    CHECK(limits.wall_ms == policy.wall_ms && limits.memory_bytes == 0);
    run(engine,
        "import os\nprint(os.environ['COLOUR'], os.getcwd(), os.listdir('/shared'))\nopen('mine', 'w').write('x')\n"
        "try:\n    open('/shared/theirs', 'w')\nexcept OSError as e:\n    print(e.strerror)\n"
        "try:\n    open('/mnt/data/long', 'wb', buffering=0).write(bytes(5000)) == 4096 and print('cut')\n"
        "except OSError as e:\n    print(e.strerror)",
        &o);
    if (strcmp(o.out, "blue /scratch []\nRead-only file system\ncut\n") != 0)
        printf("%s%s%s\n", o.out, o.err, o.message);
    CHECK(strcmp(o.out, "blue /scratch []\nRead-only file system\ncut\n") == 0);
    run(engine, "import os\nprint(os.listdir())", &o); /* nothing is left of the run before */
    CHECK(strcmp(o.out, "[]\n") == 0);
    request = request_for("print(1)", &o);
    request.memory_bytes = 1235u << 20; /* a request may only ask for less */
    CHECK(try_submit(engine, &request, &o, &err) < 0 && err.code == EINVAL);
    hutch_engine_free(engine);
    CHECK(rmdir(dir) == 0);

    options = default_options();
    options.image = NULL;
    options.rootfs = "host";
    engine = open_engine(&options);
    run(engine, "import os\nprint(len(os.listdir('/usr')) > 0)", &o);
    CHECK(strcmp(o.out, "True\n") == 0);
    hutch_engine_free(engine);
}

static void errors_of_options(void)
{
    static const char *const bad_env[] = { "NOVALUE", NULL }, *const bad_volume[] = { "/tmp", NULL },
                             *const bad_tmpfs[] = { "/proc", NULL };
    const struct hutch_limits small = { .size = sizeof(small), .memory_bytes = 1 }, no_size = { .size = 0, .pids = 9 };
    struct hutch_engine_options cases[9];
    static const char *const words[] = { "NOVALUE", "SRC:DST", "set up by hutch", "memory",      "size",
                                         "workdir", "network", "exclude",         "/nonexistent" };
    struct hutch_engine *engine;
    struct hutch_error err;

    for (size_t i = 0; i < 9; i++)
        cases[i] = default_options();
    cases[0].env = bad_env;
    cases[1].volumes = bad_volume;
    cases[2].tmpfs = bad_tmpfs;
    cases[3].limits = &small;
    cases[4].limits = &no_size;
    cases[5].workdir = "here";
    cases[6].network = "some";
    cases[7].rootfs = "host";
    cases[8].image = NULL;
    cases[8].rootfs = "/nonexistent";
    for (size_t i = 0; i < 9; i++) {
        CHECK(hutch_engine_open(&cases[i], &engine, &err) == -1);
        if (!strstr(err.message, words[i]))
            printf("%zu: %s\n", i, err.message);
        CHECK(strstr(err.message, words[i]));
    }
}

/* Read as the program reads, and closed by the engine: a duplicate. */
static void input_from_a_descriptor(void)
{
    struct hutch_engine *engine = open_default();
    unsigned fds;
    struct hutch_request request;
    struct hutch_error err;
    struct outcome o;
    int ends[2], file;
    FILE *text;

    wait_for_pool(engine);
    check_works(engine);
    fds = count_entries("/proc/self/fd");
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    request = request_for("import sys\nprint(sys.stdin.readline(), end='')\nprint(len(sys.stdin.read()))", &o);
    request.has_input_fd = 1;
    request.input_fd = ends[0];
    submit(engine, &request, &o);
    close(ends[0]);
    CHECK(write(ends[1], "first\n", 6) == 6);
    for (int i = 0; i < 20; i++) {
        struct pollfd pfd = { .fd = hutch_engine_fd(engine), .events = POLLIN };

        poll(&pfd, 1, 10);
        hutch_engine_dispatch(engine, NULL);
    }
    CHECK(o.results == 0); /* the pipe is open yet */
    CHECK(write(ends[1], "rest", 4) == 4);
    close(ends[1]);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && strcmp(o.out, "first\n4\n") == 0);

    text = tmpfile(); /* a file, which an epoll set does not take, and larger than any pipe */
    CHECK(text != NULL);
    for (int i = 0; i < 300000; i++)
        fputs("0123456789\n", text);
    rewind(text);
    file = fileno(text);
    request.input_fd = file;
    request.code = "import sys\nprint(sum(1 for _ in sys.stdin))";
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(strcmp(o.out, "300000\n") == 0);
    fclose(text);

    /* A program that ends without reading, while its input is open. */
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    request.input_fd = ends[0];
    request.code = "print('done')";
    for (int i = 0; i < 30; i++) {
        submit(engine, &request, &o);
        wait_for(&o);
        CHECK(o.verdict == HUTCH_OK && strcmp(o.out, "done\n") == 0);
        CHECK(write(ends[1], "x", 1) == 1); /* nothing of the run listens */
    }
    wait_for_pool(engine);
    check_works(engine);
    CHECK(count_entries("/proc/self/fd") < fds + 30);
    close(ends[0]);
    close(ends[1]);

    request.input_fd = 999;
    CHECK(try_submit(engine, &request, &o, &err) < 0 && err.code == EBADF);
    request.input = "two";
    CHECK(try_submit(engine, &request, &o, &err) < 0 && err.code == EINVAL);
    hutch_engine_free(engine);
}

static void on_ready(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct outcome *o = user;

    (void)data;
    o->streamed[stream] += len;
    if (hutch_engine_signal(o->engine, id, SIGTERM) != 1)
        o->streamed[0]++;
}

static void signals(void)
{
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine;
    struct hutch_request request;
    struct outcome o, second;

    options.max_running = 1;
    engine = open_engine(&options);
    /* It has a handler, and some time for it. */
    request = request_for("import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: "
                          "sys.exit(7))\nos.write(1, b'ready\\n')\n"
                          "time.sleep(60)",
                          &o);
    request.on_output = on_ready;
    submit(engine, &request, &o);
    CHECK(hutch_engine_signal(engine, o.id, 0) == 0 && hutch_engine_signal(engine, o.id, 1000) == 0);
    wait_for(&o);
    CHECK(o.streamed[1] == 6 && o.streamed[0] == 0 && o.exit_code == 7);
    CHECK(hutch_engine_signal(engine, o.id, SIGTERM) == 0); /* it is over */
    /* It has not begun. */
    submit_code(engine, "print(1)", &o);
    submit_code(engine, "print(2)", &second);
    CHECK(hutch_engine_signal(engine, second.id, SIGINT) == 1);
    wait_for(&second);
    CHECK(second.verdict == HUTCH_KILLED && second.out[0] == '\0');
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK);
    hutch_engine_free(engine);
}

/* What a request was checked for is what the run gets, or it does not begin. */
static void a_data_directory_that_is_replaced(void)
{
    static const char *const languages[] = { NULL, "sh" }; /* a worker's, and one that init executes */
    static const char *const codes[] = { "open('/mnt/data/made', 'w')", "echo made > /mnt/data/made" };
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine;
    char dir[] = "/tmp/hutch-replaced.XXXXXX", path[128], moved[160];
    struct stat st;

    options.max_running = 1;
    engine = open_engine(&options);
    CHECK(mkdtemp(dir));
    for (int i = 0; i < 2; i++)
        for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
            struct outcome first, o;
            struct hutch_request request = request_for(codes[i], &o);

            snprintf(path, sizeof(path), "%s/%d-%d", dir, i, is_replaced);
            snprintf(moved, sizeof(moved), "%s.moved", path);
            CHECK(mkdir(path, 0755) == 0);
            request.language = languages[i];
            request.data_dir = path;
            submit_code(engine, "import time; time.sleep(0.2)", &first);
            submit(engine, &request, &o);
            if (is_replaced)
                CHECK(rename(path, moved) == 0 && mkdir(path, 0755) == 0);
            wait_for(&o);
            CHECK((o.verdict == HUTCH_OK) == !is_replaced);
            CHECK(!is_replaced || (o.verdict == HUTCH_SETUP_FAILED && strstr(o.message, "was replaced")));
            snprintf(path + strlen(path), sizeof(path) - strlen(path), "/made");
            CHECK((stat(path, &st) == 0) == !is_replaced);
            CHECK(is_replaced ? rmdir(moved) == 0 : unlink(path) == 0);
            *strrchr(path, '/') = '\0';
            CHECK(rmdir(path) == 0);
        }
    CHECK(rmdir(dir) == 0);
    hutch_engine_free(engine);
}

static void on_reported(void *user, uint64_t id, const struct hutch_result *r)
{
    struct outcome *o = user;
    struct { struct hutch_limit_report report; char guard; } limit = { { .size = sizeof(limit.report) }, 'g' };
    struct hutch_layer_report layer = { .size = sizeof(layer) };
    bool has_wall = false, has_seccomp = false, has_memory = false;
    char *json = hutch_result_to_json(r), key[80];
    unsigned i;

    (void)id;
    o->results++;
    CHECK(json != NULL);
    for (i = 0; hutch_result_get_limit(r, i, &limit.report); i++) {
        snprintf(key, sizeof(key), "\"%s", limit.report.name);
        CHECK(limit.guard == 'g' && limit.report.size == sizeof(limit.report) && strstr(json, key));
        has_memory |=
            strcmp(limit.report.name, "memory") == 0 && limit.report.value == 100u << 20 && limit.report.enforcers[0];
        has_wall |= strcmp(limit.report.name, "wall") == 0 && limit.report.value == 5000 &&
                    strstr(limit.report.enforcers, "supervisor");
    }
    CHECK(i > 5 && has_wall && has_memory && !hutch_result_get_limit(r, ~0u, &limit.report));
    for (i = 0; hutch_result_get_layer(r, i, &layer); i++) {
        snprintf(key, sizeof(key), "\"%s\"", layer.name);
        CHECK(strstr(json, key) && layer.detail);
        has_seccomp |= strcmp(layer.name, "seccomp") == 0 && layer.is_active;
    }
    CHECK(i > 5 && has_seccomp);
    memset(&limit.report, '!', sizeof(limit.report)); /* a caller who knows the name only */
    limit.report.size = offsetof(struct hutch_limit_report, value);
    CHECK(hutch_result_get_limit(r, 0, &limit.report) && limit.report.name[0] != '!' &&
          limit.report.enforcers[0] == '!');
    free(json);
}

static void reports(void)
{
    struct hutch_engine *engine = open_default();
    struct outcome o;
    struct hutch_request request = request_for("print(1)", &o);

    request.on_result = on_reported;
    request.wall_ms = 5000;
    request.memory_bytes = 100u << 20;
    submit(engine, &request, &o);
    wait_for(&o);
    hutch_engine_free(engine);
}

/* --- the life of a session --- */

struct session_story {
    struct hutch_engine *engine;
    int ends, results;
    enum hutch_verdict verdict;
    char message[512];
};

static void on_session_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct session_story *story = user;

    CHECK(session != 0 && why[0] && !directory);
    story->ends++;
}

static void on_cell_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    struct session_story *story = user;

    CHECK(session != 0);
    story->results++;
    story->verdict = result->verdict;
    copy(story->message, sizeof(story->message), result->message);
}

static uint64_t open_session(struct session_story *story)
{
    struct hutch_session_options options;
    struct hutch_error err;
    uint64_t session;

    hutch_session_options_init(&options);
    options.on_end = on_session_end;
    options.user = story;
    CHECK(hutch_session_open(story->engine, &options, &session, &err) == 0);
    return session;
}

static void close_session(struct session_story *story, uint64_t session)
{
    CHECK(hutch_session_close(story->engine, session) == 1);
    while (story->ends == 0)
        turn(story->engine);
}

/* What is known of a session, by programs that know fewer fields, too; and its end, which can be moved. */
static void life_of_a_session(void)
{
    struct session_story story = { .engine = open_default() };
    struct {
        char bytes[offsetof(struct hutch_session_info, memory_bytes)];
        char guard[16];
    } older;
    struct hutch_session_info info = { .size = sizeof(info) };
    uint64_t session = open_session(&story);
    size_t size = sizeof(older.bytes);
    struct hutch_error err;
    double end;
    char *json;

    CHECK(hutch_session_get_info(story.engine, session, &info, &json, &err) == 0);
    CHECK(info.size == sizeof(info) && info.state == HUTCH_SESSION_OPENING && info.waiting == 0);
    CHECK(info.memory_bytes == HUTCH_UNKNOWN && info.t_end > info.t_opened && info.idle_ms == 600000);
    CHECK(strstr(json, "\"state\":\"opening\""));
    free(json);
    end = info.t_end;
    CHECK(hutch_session_set_lifetime(story.engine, session, HUTCH_NO_LIMIT, 1000, &err) == 0);
    CHECK(hutch_session_get_info(story.engine, session, &info, NULL, &err) == 0);
    CHECK(info.t_end < end && info.t_idle_end == 0 && info.idle_ms == HUTCH_NO_LIMIT);
    CHECK(hutch_session_pause(story.engine, session, &err) == 0);
    CHECK(hutch_session_pause(story.engine, session, &err) == 0);
    CHECK(hutch_session_get_info(story.engine, session, &info, NULL, &err) == 0 && info.state == HUTCH_SESSION_PAUSED);
    CHECK(hutch_session_resume(story.engine, session, &err) == 0);
    CHECK(hutch_session_resume(story.engine, session, &err) == 0);
    CHECK(hutch_session_get_info(story.engine, session, &info, NULL, &err) == 0 && info.state != HUTCH_SESSION_PAUSED);
    memset(&older, 0x5a, sizeof(older));
    memcpy(older.bytes, &size, sizeof(size));
    CHECK(hutch_session_get_info(story.engine, session, (struct hutch_session_info *)(void *)older.bytes, NULL,
                                 &err) == 0);
    for (size_t i = 0; i < sizeof(older.guard); i++)
        CHECK(older.guard[i] == 0x5a);
    while (story.ends == 0)
        turn(story.engine);
    CHECK(hutch_session_get_info(story.engine, session, &info, NULL, &err) < 0 && err.code == ENOENT);
    CHECK(hutch_session_set_lifetime(story.engine, session, 1, 1, &err) < 0 && err.code == ENOENT);
    CHECK(hutch_session_pause(story.engine, session, &err) < 0 && err.code == ENOENT);
    CHECK(hutch_session_resume(story.engine, session, &err) < 0 && err.code == ENOENT);
    hutch_engine_free(story.engine);
}

static void on_answer(void *user, uint64_t session, const struct hutch_reply *reply)
{
    struct session_story *story = user;

    CHECK(session != 0 && !reply->ok && !reply->json && reply->message[0]);
    story->results++;
}

/* A question in an image whose interpreter cannot be asked: it is answered once all the same. */
static void a_question(void)
{
    struct session_story story = { .engine = open_default() };
    uint64_t session = open_session(&story);
    struct hutch_question question;
    struct hutch_error err;

    hutch_question_init(&question);
    question.code = "so";
    question.cursor = -1;
    CHECK(hutch_session_ask(story.engine, session, &question, on_answer, &story, &err) == 0 && story.results == 0);
    question.kind = (enum hutch_question_kind)77;
    CHECK(hutch_session_ask(story.engine, session, &question, on_answer, &story, &err) < 0 && err.code == EINVAL);
    CHECK(hutch_session_ask(story.engine, session + 1, &question, on_answer, &story, &err) < 0 && err.code == ENOENT);
    while (story.results == 0)
        turn(story.engine);
    CHECK(hutch_session_reset_context(story.engine, session, NULL, on_answer, &story, &err) == 0);
    CHECK(hutch_session_drop_context(story.engine, session, "other", on_answer, &story, &err) == 0);
    CHECK(hutch_session_drop_context(story.engine, session, "main", on_answer, &story, &err) < 0 && err.code == EINVAL);
    CHECK(hutch_session_reset_context(story.engine, session, "no name", on_answer, &story, &err) < 0);
    while (story.results < 3)
        turn(story.engine);
    close_session(&story, session);
    CHECK(story.results == 3);
    hutch_engine_free(story.engine);
}

static void on_cell_start(void *user, uint64_t session, uint64_t cell, int execution_count)
{
    (void)user;
    (void)session;
    (void)cell;
    (void)execution_count;
    CHECK(!"a cell that was taken back begins");
}

/* A cell is taken back while it waits: one result, and no other. */
static void a_cell_that_is_taken_back(void)
{
    struct session_story story = { .engine = open_default() };
    uint64_t session = open_session(&story), number = 0, other = 0;
    struct hutch_cell cell;
    struct hutch_error err;

    hutch_cell_init(&cell);
    cell.code = "print('it runs')";
    cell.ret_id = &number;
    cell.on_start = on_cell_start;
    cell.on_result = on_cell_result;
    cell.user = &story;
    cell.calls = "[\"no name\"]";
    CHECK(hutch_session_execute(story.engine, session, &cell, &err) < 0 && err.code == EINVAL);
    cell.calls = "[\"tool\"]";
    CHECK(hutch_session_execute(story.engine, session, &cell, &err) == 0 && number != 0);
    CHECK(hutch_session_answer(story.engine, session, 1, "1", 0, &err) < 0 && err.code == ENOENT); /* no call waits */
    cell.ret_id = &other;
    CHECK(hutch_session_execute(story.engine, session, &cell, &err) == 0 && other != 0 && other != number);
    CHECK(hutch_session_cancel_cell(story.engine, session, number) == 1);
    CHECK(hutch_session_cancel_cell(story.engine, session, number) == 0);
    CHECK(hutch_session_cancel_cell(story.engine, session, other + 1) == 0);
    CHECK(hutch_session_cancel_cell(story.engine, session + 1, other) == 0);
    CHECK(hutch_session_cancel_cell(story.engine, session, other) == 1 && story.results == 0);
    while (story.results < 2)
        turn(story.engine);
    CHECK(story.verdict == HUTCH_KILLED && strstr(story.message, "cancelled"));
    close_session(&story, session);
    CHECK(story.results == 2 && hutch_session_cancel_cell(story.engine, session, other) == 0);
    hutch_engine_free(story.engine);
}

/* Prepared sandboxes for another policy than the engine's. */
static void pools_of_other_policies(void)
{
    static const char text[] = "{\"schema\": 1, \"extends\": \"default\", \"limits\": {\"pids\": 21}}";
    char dir[] = "/tmp/hutch-library.XXXXXX", path[64];
    struct hutch_pool pool = { .policy = path, .min = 1, .max = 2 };
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct hutch_engine_options options = default_options();
    struct hutch_engine *engine;
    struct hutch_request request;
    struct hutch_error err;
    struct outcome o;
    FILE *file;

    CHECK(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/few.json", dir);
    file = fopen(path, "we");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    options.pools = &pool;
    options.n_pools = 1;
    engine = open_engine(&options);
    do {
        turn(engine);
        hutch_engine_get_stats(engine, &stats);
        CHECK(stats.n_pools == stats.n_zygotes + 1 && !stats.pools[0].policy);
    } while (stats.pools[stats.n_zygotes].prepared == 0);
    CHECK(strcmp(stats.pools[stats.n_zygotes].policy, path) == 0 &&
          strcmp(stats.pools[stats.n_zygotes].zygote, stats.zygotes[0].name) == 0);
    request = request_for("import resource\nprint(resource.getrlimit(resource.RLIMIT_NPROC)[1])", &o);
    request.policy = path;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK && o.was_prepared);
    CHECK(strcmp(o.out, "23\n") == 0); /* with process 1, and another one of hutch's */
    hutch_engine_get_stats(engine, &stats);
    CHECK(stats.pools[stats.n_zygotes].from_pool == 1 && stats.pools[stats.n_zygotes].on_demand == 0);
    hutch_engine_free(engine);
    pool.zygote = "no such zygote";
    CHECK(hutch_engine_open(&options, &engine, &err) < 0 && err.code == EINVAL);
    CHECK(strstr(err.message, "no such zygote"));
    CHECK(unlink(path) == 0 && rmdir(dir) == 0);
}

static char fetched[3][32];

static void on_fetched(void *user, uint64_t id, const struct hutch_result *r)
{
    CHECK(r->n_fetched == 3);
    for (size_t i = 0; i < r->n_fetched; i++) {
        const struct hutch_fetched *file = &r->fetched[i];
        ssize_t n = file->fd < 0 ? snprintf(fetched[i], sizeof(fetched[i]), "%s", strerror(file->code))
                                 : pread(file->fd, fetched[i], sizeof(fetched[i]) - 1, 0);

        CHECK(n > 0 && (file->fd < 0 || (uint64_t)n == file->size));
        fetched[i][n] = '\0';
    }
    on_result(user, id, r);
}

/* Files that go with a request, and those that come back with its result. */
static void files_of_a_run(void)
{
    char text[] = "given";
    const struct hutch_file files[] = { { .path = "in/text", .data = text, .len = 5 },
                                        { .path = "/mnt/data/tool", .data = "#!/bin/sh\n", .len = 10, .mode = 0755 } };
    static const char *const fetch[] = { "out", "/mnt/data/in/text", "missing", NULL };
    struct hutch_engine *engine = open_default();
    struct hutch_request request;
    struct hutch_error err;
    struct outcome o;

    request = request_for("import os\n"
                          "open('out', 'w').write(open('in/text').read() + str(os.access('tool', os.X_OK)))", &o);
    request.files = files;
    request.n_files = 2;
    request.fetch = fetch;
    request.on_result = on_fetched;
    submit(engine, &request, &o);
    text[0] = 'x'; /* it was copied */
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK);
    CHECK(strcmp(fetched[0], "givenTrue") == 0 && strcmp(fetched[1], "given") == 0 &&
          strcmp(fetched[2], strerror(ENOENT)) == 0);
    request.fetch = (const char *const[]){ "/etc/passwd", NULL };
    CHECK(try_submit(engine, &request, &o, &err) < 0 && err.code == EINVAL && strstr(err.message, "/etc/passwd"));
    hutch_engine_free(engine);
}

/* --- directories of the caller's --- */

static int open_at(int dirfd, const char *name, int flags, int code, const char *says)
{
    struct hutch_error err = { .code = -1, .message = "" };
    int fd = hutch_dir_open_file(dirfd, name, flags, &err);

    CHECK(fd < 0 || (code < 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC));
    CHECK(fd >= 0 || (err.code == code && strstr(err.message, says)));
    return fd;
}

static void refuse_at(int dirfd, const char *name, int code, const char *says)
{
    CHECK(open_at(dirfd, name, O_RDONLY, code, says) == -1);
    CHECK(open_at(dirfd, name, O_WRONLY, code, says) == -1);
}

static void refuse_delete(int dirfd, const char *name, int code)
{
    struct hutch_error err;

    CHECK(hutch_dir_delete(dirfd, name, &err) == -1 && err.code == code && err.message[0]);
    CHECK(hutch_dir_delete(dirfd, name, NULL) == -1);
}

static void check_text(int dirfd, const char *name, const char *text)
{
    int fd = open_at(dirfd, name, O_RDONLY, -1, "");
    char found[16] = "";

    CHECK(read(fd, found, sizeof(found) - 1) == (ssize_t)strlen(text) && strcmp(found, text) == 0);
    CHECK(close(fd) == 0);
}

/* What a stranger has left in a data directory, and may still be at: see @code. */
static void a_directory_of_the_caller(void)
{
    static const char code[] =
        "import os, socket\n"
        "open('a.csv', 'w').write('mine')\n"
        "os.mkdir('d'); open('d/b', 'w').write('mine')\n"
        "os.symlink('../secret', 'link'); os.symlink('..', 'up'); os.symlink('/', 'root'); os.symlink('x', 'x')\n"
        "os.symlink('d', 'inner'); os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('socket')\n"
        "open(b'\\xff\\n', 'w').close()\n"
        "os.mkdir('shut'); os.mkdir('shut/in'); os.chmod('shut/in', 0); os.chmod('shut', 0)\n";
    static const char deep[] = "import os\n"
                               "for i in range(100): os.mkdir('n' * 200); os.chdir('n' * 200)\n"
                               "open('bottom', 'w').close()\n";
    static const char *const listed[] = {
        "[{\"path\":\"a.csv\",\"size\":4,\"mime\":\"text/csv\",\"type\":\"file\",\"mtime\":",
        "{\"path\":\"d/b\",\"size\":4,", "{\"path\":\"fifo\",\"size\":0,\"mime\":null,\"type\":\"fifo\"",
        "{\"path\":\"link\",\"size\":9,\"mime\":null,\"type\":\"symlink\"", "\"type\":\"socket\"",
        "\"path_base64\":\"/wo=\""
    };
    struct hutch_engine *engine = open_default();
    char dir[] = "/tmp/hutch-caller.XXXXXX", path[128], name[201], *json, *at;
    struct hutch_request request;
    struct hutch_error err;
    struct outcome o;
    struct stat st;
    int top, data, fd, null;

    CHECK(mkdtemp(dir) && (top = open(dir, O_RDONLY | O_DIRECTORY)) >= 0 && mkdirat(top, "data", 0755) == 0);
    CHECK((fd = openat(top, "secret", O_WRONLY | O_CREAT, 0644)) >= 0 && write(fd, "secret", 6) == 6 && close(fd) == 0);
    snprintf(path, sizeof(path), "%s/data", dir);
    CHECK((data = openat(top, "data", O_PATH | O_DIRECTORY)) >= 0);
    request = request_for(code, &o);
    request.data_dir = path;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK);

    CHECK((json = hutch_dir_list(data, &err)) != NULL && json[0] == '[');
    at = json;
    for (size_t i = 0; i < sizeof(listed) / sizeof(*listed); i++)
        CHECK((at = strstr(i < 4 ? at : json, listed[i])) != NULL); /* the first four in their order */
    CHECK(!strstr(json, "secret") && !strstr(json, "\"d\"") && !strstr(json, "inner/"));
    free(json);

    check_text(data, "a.csv", "mine");
    check_text(data, "d/b", "mine");
    check_text(data, "\xff\n", "");
    refuse_at(data, "link", ELOOP, "symbolic link");
    refuse_at(data, "x", ELOOP, "symbolic link");
    refuse_at(data, "fifo", 0, "not a regular file");
    refuse_at(data, "socket", 0, "not a regular file");
    refuse_at(data, "d", EISDIR, "'d'");
    refuse_at(data, "../secret", EINVAL, "'.' or '..'");
    refuse_at(data, "d/../../secret", EINVAL, "'.' or '..'");
    refuse_at(data, "/etc/passwd", EINVAL, "relative");
    refuse_at(data, "", EINVAL, "empty");
    refuse_at(data, "d/", EINVAL, "ends in '/'");
    CHECK(open_at(data, "up/secret", O_RDONLY, ELOOP, "") == -1);
    CHECK(open_at(data, "root/etc/passwd", O_RDONLY, ELOOP, "") == -1);
    CHECK(open_at(data, "none", O_RDONLY, ENOENT, "'none'") == -1);
    CHECK(open_at(data, "a.csv", O_RDWR, EINVAL, "O_WRONLY") == -1);
    CHECK(open_at(data, "a.csv", O_WRONLY | O_TRUNC, EINVAL, "O_WRONLY") == -1);

    fd = open_at(data, "made/on/the/way", O_WRONLY, -1, "");
    CHECK(write(fd, "new", 3) == 3 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0644 && close(fd) == 0);
    check_text(data, "made/on/the/way", "new");
    CHECK(linkat(top, "data/a.csv", top, "kept", 0) == 0); /* another name of a file that makes room */
    fd = open_at(data, "a.csv", O_WRONLY, -1, "");
    CHECK(close(fd) == 0);
    check_text(data, "a.csv", "");
    check_text(top, "kept", "mine");

    refuse_delete(data, "up/secret", ELOOP);
    refuse_delete(data, "../secret", EINVAL);
    refuse_delete(data, "none", ENOENT);
    CHECK(hutch_dir_delete(data, "link", &err) == 0 && hutch_dir_delete(data, "up", &err) == 0 &&
          hutch_dir_delete(data, "root", &err) == 0 && hutch_dir_delete(data, "inner", &err) == 0);
    CHECK(faccessat(data, "d/b", F_OK, 0) == 0);
    CHECK(hutch_dir_delete(data, "shut", &err) == 0 && hutch_dir_delete(data, "fifo", &err) == 0);

    request.code = deep;
    submit(engine, &request, &o);
    wait_for(&o);
    CHECK(o.verdict == HUTCH_OK);
    CHECK(hutch_dir_list(data, &err) == NULL && err.code == E2BIG);
    memset(name, 'n', 200);
    name[200] = '\0';
    CHECK(hutch_dir_delete(data, name, &err) == 0);
    CHECK((json = hutch_dir_list(data, &err)) != NULL);
    free(json);

    CHECK((null = open("/dev/null", O_RDONLY)) >= 0);
    CHECK(fchdir(top) == 0); /* where AT_FDCWD would find something */
    for (int i = 0; i < 3; i++) {
        const int fds[] = { null, -1, AT_FDCWD }, code_of = i == 0 ? ENOTDIR : EBADF;

        CHECK(hutch_dir_list(fds[i], &err) == NULL && err.code == code_of && hutch_dir_list(fds[i], NULL) == NULL);
        refuse_at(fds[i], "kept", code_of, "descriptor");
        refuse_delete(fds[i], "kept", code_of);
    }
    check_text(top, "secret", "secret");
    CHECK(chdir("/") == 0 && hutch_dir_delete(top, "data", &err) == 0 && unlinkat(top, "secret", 0) == 0 &&
          unlinkat(top, "kept", 0) == 0 && rmdir(dir) == 0);
    hutch_engine_free(engine);
}

/* While a file of its tree is opened, a stranger makes its name, and that of its directory, a link to the outside. */
static void a_directory_that_changes(void)
{
    char dir[] = "/tmp/hutch-changing.XXXXXX";
    int top, data, fd, opened = 0;
    struct hutch_error err;
    pid_t pid;

    CHECK(mkdtemp(dir) && (top = open(dir, O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK(mkdirat(top, "data", 0755) == 0 && mkdirat(top, "data/d", 0755) == 0 && mkdirat(top, "outside", 0755) == 0);
    CHECK((data = openat(top, "data", O_RDONLY | O_DIRECTORY)) >= 0 && symlinkat("../outside", data, "e") == 0);
    CHECK((fd = openat(top, "outside/f", O_WRONLY | O_CREAT, 0644)) >= 0 && write(fd, "secret", 6) == 6 &&
          close(fd) == 0);
    CHECK((fd = openat(data, "d/f", O_WRONLY | O_CREAT, 0644)) >= 0 && close(fd) == 0);
    CHECK(symlinkat("../outside/f", data, "g") == 0);
    CHECK((fd = openat(data, "f", O_WRONLY | O_CREAT, 0644)) >= 0 && close(fd) == 0);
    CHECK((pid = fork()) >= 0);
    if (pid == 0)
        for (alarm(STALL_S);;) {
            (void)!renameat2(data, "d", data, "e", RENAME_EXCHANGE);
            unlinkat(data, "g", 0);
            (void)!symlinkat("../outside/f", data, "g");
            (void)!renameat2(data, "f", data, "g", RENAME_EXCHANGE);
            (void)!renameat2(data, "f", data, "g", RENAME_EXCHANGE);
        }
    for (int i = 0; i < 3000; i++) {
        static const char *const names[] = { "d/f", "f" };
        const char *name = names[i % 2];
        char text[8], *json;

        fd = hutch_dir_open_file(data, name, O_RDONLY, &err);
        CHECK(fd >= 0 || err.code == ELOOP || err.code == ENOENT);
        CHECK(fd < 0 || (read(fd, text, sizeof(text)) == 0 && close(fd) == 0));
        opened += fd >= 0;
        fd = i % 4 < 2 ? hutch_dir_open_file(data, name, O_WRONLY, &err) : -1;
        CHECK(fd < 0 || close(fd) == 0);
        if (i % 100 == 0) {
            CHECK((json = hutch_dir_list(data, &err)) != NULL && !strstr(json, "\"size\":6"));
            free(json);
        }
        if (i % 10 == 0)
            hutch_dir_delete(data, "d/f", &err);
    }
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    check_text(top, "outside/f", "secret");
    CHECK(hutch_dir_delete(top, "data", &err) == 0 && hutch_dir_delete(top, "outside", &err) == 0 && rmdir(dir) == 0);
    CHECK(opened > 0);
}

/* --- processes of a session --- */

struct seen {
    struct hutch_engine *engine;
    uint64_t session, process;
    char out[256];
    size_t len;
    int ends, exit_code, rooms, session_ends;
    char why[256];
};

static void on_process_output(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    struct seen *seen = user;

    CHECK(session == seen->session && process == seen->process && seen->ends == 0);
    CHECK(stream == 1 || stream == 2);
    for (size_t i = 0; i < len && seen->len < sizeof(seen->out) - 1; i++)
        seen->out[seen->len++] = data[i];
}

static void on_process_room(void *user, uint64_t session, uint64_t process)
{
    struct seen *seen = user;

    CHECK(session == seen->session && process == seen->process);
    seen->rooms++;
}

static void on_process_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    struct seen *seen = user;

    CHECK(session == seen->session && process == seen->process && seen->session_ends == 0);
    CHECK(end->size >= sizeof(*end));
    seen->ends++;
    seen->exit_code = end->exit_code;
    copy(seen->why, sizeof(seen->why), end->why);
}

static void on_last_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct seen *seen = user;

    CHECK(session == seen->session && why && !directory);
    seen->session_ends++;
}

static void spawn(struct seen *seen, const struct hutch_process_options *options)
{
    struct hutch_error err;

    seen->len = 0;
    seen->ends = 0;
    memset(seen->out, 0, sizeof(seen->out));
    if (hutch_session_spawn(seen->engine, seen->session, options, &seen->process, &err) < 0) {
        printf("spawn: %s\n", err.message);
        exit(1);
    }
    CHECK(seen->process != 0 && seen->ends == 0);
}

/* Each function, with a session that has nothing else; and what they say of what is not there. */
static void processes_of_a_session(void)
{
    static const char *const args[] = { "/bin/sh", "-c", "read line; echo got $line $MORE; exit 4", NULL };
    static const char *const env[] = { "MORE=more", NULL };
    struct seen seen = { .engine = open_default() };
    struct hutch_session_options session;
    struct hutch_process_options options;
    struct hutch_error err;
    char *list;

    hutch_session_options_init(&session);
    session.no_interpreter = 1;
    session.max_processes = 1;
    session.on_end = on_last_end;
    session.user = &seen;
    CHECK(hutch_session_open(seen.engine, &session, &seen.session, &err) == 0);
    hutch_process_options_init(&options);
    options.args = args;
    options.env = env;
    options.has_input = 1;
    options.on_output = on_process_output;
    options.on_room = on_process_room;
    options.on_end = on_process_end;
    options.user = &seen;
    spawn(&seen, &options); /* before there is a sandbox */
    CHECK(hutch_session_spawn(seen.engine, seen.session, &options, NULL, &err) < 0 && err.code == EAGAIN);
    list = hutch_session_processes(seen.engine, seen.session, &err);
    CHECK(list && strstr(list, "\"state\":\"waiting\""));
    free(list);
    CHECK(hutch_process_write(seen.engine, seen.session, seen.process, "early\n", 6, &err) < 0 && err.code == EAGAIN);
    while (seen.rooms == 0)
        turn(seen.engine);
    CHECK(hutch_process_write(seen.engine, seen.session, seen.process, "word\n", 5, &err) == 5);
    CHECK(hutch_process_resize(seen.engine, seen.session, seen.process, 1, 1, &err) < 0 && err.code == EINVAL);
    CHECK(hutch_process_close_stdin(seen.engine, seen.session, seen.process, &err) == 0);
    while (seen.ends == 0)
        turn(seen.engine);
    CHECK(seen.exit_code == 4 && strcmp(seen.out, "got word more\n") == 0 && !seen.why[0]);
    CHECK(hutch_process_signal(seen.engine, seen.session, seen.process, SIGTERM, &err) < 0 && err.code == ENOENT);

    options.args = NULL;
    options.shell = "echo a; exec sleep 1000";
    options.has_input = 0;
    spawn(&seen, &options);
    CHECK(hutch_process_hold(seen.engine, seen.session, seen.process, 1, &err) == 0);
    CHECK(hutch_process_hold(seen.engine, seen.session, seen.process, 0, &err) == 0);
    while (seen.len == 0)
        turn(seen.engine);
    CHECK(hutch_process_signal(seen.engine, seen.session, seen.process, SIGTERM, &err) == 0);
    while (seen.ends == 0)
        turn(seen.engine);
    CHECK(seen.exit_code == -1);

    spawn(&seen, &options);
    CHECK(hutch_session_close(seen.engine, seen.session) == 1);
    CHECK(hutch_session_spawn(seen.engine, seen.session, &options, NULL, &err) < 0 && err.code == ENOENT);
    while (seen.session_ends == 0)
        turn(seen.engine);
    CHECK(seen.ends == 1 && strcmp(seen.why, "the session was closed") == 0);
    hutch_engine_free(seen.engine);
}

/* --- paths inside a session --- */

struct looked {
    struct hutch_engine *engine;
    unsigned replies, ends;
    int code, fd;
    size_t n;
    char first[64];
};

static void on_path(void *user, uint64_t session, const struct hutch_path_reply *reply)
{
    struct looked *seen = user;
    char *json = hutch_path_reply_to_json(reply);

    CHECK(session != 0 && json && strstr(json, reply->ok ? "\"entries\":[" : "\"errno\":"));
    free(json);
    CHECK(reply->size >= sizeof(*reply) && !reply->ok == (reply->code != 0) && !reply->ok == (reply->message[0] != 0));
    seen->replies++;
    seen->code = reply->code;
    seen->n = reply->n_entries;
    snprintf(seen->first, sizeof(seen->first), "%s", reply->n_entries ? reply->entries[0].path : "");
    seen->fd = reply->fd >= 0 ? dup(reply->fd) : -1;
}

static void on_looked_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct looked *seen = user;

    (void)session;
    (void)why;
    (void)directory;
    seen->ends++;
}

static void await_reply(struct looked *seen, int rc)
{
    const unsigned before = seen->replies;

    CHECK(rc == 0 && seen->replies == before); /* none comes within the call */
    while (seen->replies == before)
        turn(seen->engine);
}

/* Each function, from the moment the session is open. */
static void paths_of_a_session(void)
{
    struct looked seen = { .engine = open_default() };
    struct hutch_session_options session;
    struct hutch_path_options options;
    struct hutch_error err;
    char text[8];
    uint64_t id;

    hutch_path_options_init(&options);
    options.on_reply = on_path;
    options.user = &seen;
    CHECK(hutch_session_stat(seen.engine, 77, "/", &options, &err) < 0 && err.code == ENOENT);
    hutch_session_options_init(&session);
    session.no_interpreter = 1;
    session.on_end = on_looked_end;
    session.user = &seen;
    CHECK(hutch_session_open(seen.engine, &session, &id, &err) == 0);
    options.parents = 1;
    await_reply(&seen, hutch_session_make_directory(seen.engine, id, "/tmp/a/b", &options, &err));
    CHECK(seen.code == 0 && strcmp(seen.first, "/tmp/a/b") == 0);
    await_reply(&seen, hutch_session_open_path(seen.engine, id, "/tmp/a/b/c", O_WRONLY | O_CREAT, &options, &err));
    CHECK(seen.code == 0 && seen.fd >= 0 && write(seen.fd, "text", 4) == 4 && close(seen.fd) == 0);
    options.depth = 3;
    await_reply(&seen, hutch_session_list(seen.engine, id, "/tmp/a", &options, &err));
    CHECK(seen.code == 0 && seen.n == 2 && strcmp(seen.first, "b") == 0);
    await_reply(&seen, hutch_session_rename(seen.engine, id, "/tmp/a/b/c", "/tmp/d", &options, &err));
    CHECK(seen.code == 0);
    await_reply(&seen, hutch_session_open_path(seen.engine, id, "/tmp/d", O_RDONLY, &options, &err));
    CHECK(seen.fd >= 0 && read(seen.fd, text, sizeof(text)) == 4 && close(seen.fd) == 0);
    await_reply(&seen, hutch_session_remove(seen.engine, id, "/tmp/a", &options, &err));
    CHECK(seen.code == ENOTEMPTY);
    options.tree = 1;
    await_reply(&seen, hutch_session_remove(seen.engine, id, "/tmp/a", &options, &err));
    CHECK(seen.code == 0);
    await_reply(&seen, hutch_session_stat(seen.engine, id, "/tmp/a", &options, &err));
    CHECK(seen.code == ENOENT && seen.n == 0);
    CHECK(hutch_session_stat(seen.engine, id, "", &options, &err) < 0 && err.code == EINVAL);
    CHECK(hutch_session_stat(seen.engine, id, "/", &options, &err) == 0);
    CHECK(hutch_session_close(seen.engine, id) == 1);
    while (seen.ends == 0)
        turn(seen.engine);
    CHECK(seen.replies == 9); /* also the last one's, before the end */
    hutch_engine_free(seen.engine);
}

struct watched {
    struct looked looked;
    unsigned begun, ended, created;
    int code;
    uint64_t id;
};

static void on_watch_begin(void *user, uint64_t session, uint64_t watch)
{
    struct watched *seen = user;

    CHECK(session != 0 && watch == seen->id && seen->ended == 0 && seen->created == 0);
    seen->begun++;
}

static void on_change(void *user, uint64_t session, uint64_t watch, const struct hutch_change *change)
{
    struct watched *seen = user;

    CHECK(session != 0 && watch == seen->id && seen->begun == 1 && seen->ended == 0 && change->size >= sizeof(*change));
    seen->created += change->kind == HUTCH_CREATED && strcmp(change->name, "made") == 0 && change->is_directory;
}

static void on_watch_end(void *user, uint64_t session, uint64_t watch, int code, const char *message)
{
    struct watched *seen = user;

    CHECK(session != 0 && watch == seen->id && message[0] && seen->looked.ends == 0);
    seen->ended++;
    seen->code = code;
}

/* It is told, until nobody wants it any more, the directory is gone, or the session ends. */
static void changes_of_a_directory(void)
{
    struct watched seen = { .looked.engine = open_default() };
    struct hutch_engine *engine = seen.looked.engine;
    struct hutch_session_options session;
    struct hutch_watch_options watch;
    struct hutch_path_options path;
    struct hutch_error err;
    uint64_t id, more[16];

    hutch_watch_options_init(&watch);
    watch.on_begin = on_watch_begin;
    watch.on_change = on_change;
    watch.on_end = on_watch_end;
    watch.user = &seen;
    hutch_path_options_init(&path);
    path.on_reply = on_path;
    path.user = &seen.looked;
    CHECK(hutch_session_watch(engine, 77, "/", &watch, &seen.id, &err) < 0 && err.code == ENOENT);
    hutch_session_options_init(&session);
    session.no_interpreter = 1;
    session.on_end = on_looked_end;
    session.user = &seen.looked;
    CHECK(hutch_session_open(engine, &session, &id, &err) == 0);
    CHECK(hutch_session_watch(engine, id, "", &watch, &seen.id, &err) < 0 && err.code == EINVAL);
    CHECK(hutch_session_watch(engine, id, "/tmp", &watch, &seen.id, &err) == 0 && seen.id != 0);
    while (seen.begun == 0)
        turn(engine);
    await_reply(&seen.looked, hutch_session_make_directory(engine, id, "/tmp/made", &path, &err));
    while (seen.created == 0)
        turn(engine);
    CHECK(hutch_session_unwatch(engine, id, seen.id) == 1 && seen.ended == 0);
    CHECK(hutch_session_unwatch(engine, id, seen.id) == 0);
    while (seen.ended == 0)
        turn(engine);
    CHECK(seen.code == ECANCELED && seen.ended == 1);
    seen.begun = seen.created = seen.ended = 0;
    CHECK(hutch_session_watch(engine, id, "/tmp/made", &watch, &seen.id, &err) == 0);
    while (seen.begun == 0)
        turn(engine);
    await_reply(&seen.looked, hutch_session_remove(engine, id, "/tmp/made", &path, &err));
    while (seen.ended == 0)
        turn(engine);
    CHECK(seen.code == ENOENT);
    watch.on_begin = NULL; /* each may be */
    watch.on_change = NULL;
    watch.on_end = NULL;
    for (int i = 0; i < 16; i++)
        CHECK(hutch_session_watch(engine, id, "/tmp", &watch, &more[i], &err) == 0);
    CHECK(hutch_session_watch(engine, id, "/tmp", &watch, NULL, &err) < 0 && err.code == EAGAIN);
    CHECK(hutch_session_unwatch(engine, id, more[3]) == 1); /* before it has begun */
    turn(engine);
    CHECK(hutch_session_close(engine, id) == 1);
    while (seen.looked.ends == 0)
        turn(engine);
    CHECK(hutch_session_open(engine, &session, &id, &err) == 0);
    CHECK(hutch_session_watch(engine, id, "/tmp", &watch, &more[0], &err) == 0);
    hutch_engine_free(engine); /* with one that is watched, or about to be */
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    { "files_of_a_run", files_of_a_run },
    { "pools_of_other_policies", pools_of_other_policies },
    { "leaves_the_process_alone", leaves_the_process_alone },
    { "descriptors_close_on_exec", descriptors_close_on_exec },
    { "two_engines", two_engines },
    { "a_data_directory_that_is_replaced", a_data_directory_that_is_replaced },
    { "an_engine_for_each_thread", an_engine_for_each_thread },
    { "a_full_queue", a_full_queue },
    { "cancel", cancel },
    { "the_queue_counts_against_no_limit", the_queue_counts_against_no_limit },
    { "output_as_it_comes", output_as_it_comes },
    { "back_pressure", back_pressure },
    { "calls_from_callbacks", calls_from_callbacks },
    { "what_is_passed_in_is_copied", what_is_passed_in_is_copied },
    { "errors_of_open", errors_of_open },
    { "errors_of_submit", errors_of_submit },
    { "sizes_of_structs", sizes_of_structs },
    { "structs_of_the_first_version", structs_of_the_first_version },
    { "hosts_that_reap", hosts_that_reap },
    { "a_host_with_a_reaper", a_host_with_a_reaper },
    { "no_standard_descriptors", no_standard_descriptors },
    { "few_descriptors", few_descriptors },
    { "epoll_and_idle_calls", epoll_and_idle_calls },
    { "limits_and_languages", limits_and_languages },
    { "free_at_any_time", free_at_any_time },
    { "host_that_forks", host_that_forks },
    { "options_for_all_runs", options_for_all_runs },
    { "errors_of_options", errors_of_options },
    { "input_from_a_descriptor", input_from_a_descriptor },
    { "signals", signals },
    { "reports", reports },
    { "a_directory_of_the_caller", a_directory_of_the_caller },
    { "a_directory_that_changes", a_directory_that_changes },
    { "life_of_a_session", life_of_a_session },
    { "a_cell_that_is_taken_back", a_cell_that_is_taken_back },
    { "a_question", a_question },
    { "processes_of_a_session", processes_of_a_session },
    { "paths_of_a_session", paths_of_a_session },
    { "changes_of_a_directory", changes_of_a_directory },
};

int main(int argc, char **argv)
{
    image = getenv("HUTCH_TEST_IMAGE") ? getenv("HUTCH_TEST_IMAGE") : "minimal";
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
        if (argc == 1)
            puts(scenarios[i].name);
        else if (strcmp(argv[1], scenarios[i].name) == 0) {
            alarm(STALL_S + 30);
            close_range(3, ~0u, 0); /* the caller's */
            scenarios[i].run();
            return 0;
        }
    }
    return argc == 1 ? 0 : 2;
}
