#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OTHER_MODULE "decimal" /* what zygote "more" has, and RUN_OTHER imports */

static void write_program(const struct run *run, char *code, size_t size)
{
    static const char *const between[RUN_KINDS] = {
        [RUN_SHORT] = "",
        [RUN_SLEEP] = "import time; time.sleep(0.01)\n",
        [RUN_OTHER] = "import " OTHER_MODULE "\n",
        [RUN_DATA] = "",
        [RUN_ERROR] = "",
    };
    char data[80] = "";

    if (run->kind == RUN_DATA)
        snprintf(data, sizeof(data), "open('/mnt/data/%u', 'a').write('x')\n", run->number);
    snprintf(code, size, "%sprint('started %u', flush=True)\n%sprint('done %u')\n%s", data, run->number,
             between[run->kind], run->number, run->kind == RUN_ERROR ? "raise SystemExit(3)\n" : "");
}

/* How often its program began, as the file says that it left; the file goes. */
static long take_data_file(const struct run *run)
{
    char path[4096];
    int fd;
    off_t size;

    snprintf(path, sizeof(path), "%s/data/%u", run->load->settings->dir, run->number);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    size = lseek(fd, 0, SEEK_END);
    close(fd);
    unlink(path);
    return (long)size;
}

static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct run *run = user;

    (void)id;
    if (stream == 2)
        complain("run %u says: %.*s", run->number, (int)len, data);
    if (len > sizeof(run->out) - run->out_len)
        len = sizeof(run->out) - run->out_len;
    memcpy(run->out + run->out_len, data, len);
    run->out_len = (uint16_t)(run->out_len + len);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct run *run = user;
    struct load *load = run->load;
    bool is_fine;
    char want[sizeof(run->out)];
    int want_len = snprintf(want, sizeof(want), "started %u\ndone %u\n", run->number, run->number);
    long begun = run->kind == RUN_DATA ? take_data_file(run) : 0;

    if (run->id != id || run->results++ > 0)
        complain("run %u, whose id is %llu, got a result for %llu, its %u.", run->number, (unsigned long long)run->id,
                 (unsigned long long)id, run->results);
    load->in_flight--;
    load->restarted += (unsigned)result->restarts;
    is_fine = run->kind == RUN_ERROR ? result->verdict == HUTCH_ERROR && result->exit_code == 3
                                     : result->verdict == HUTCH_OK;
    if (begun > 1 || (is_fine && run->kind == RUN_DATA && begun != 1))
        complain("run %u began %ld times; %s, begun again %d times", run->number, begun,
                 hutch_verdict_text(result->verdict), result->restarts);
    /* With one that was killed, what it said before. */
    if (run->out_len > want_len || (is_fine && run->out_len != want_len) || memcmp(run->out, want, run->out_len) != 0)
        complain("run %u said '%.*s', not '%s'; %s, begun again %d times", run->number, (int)run->out_len, run->out,
                 want, hutch_verdict_text(result->verdict), result->restarts);
    if (is_fine)
        load->ok++;
    else if (load->may_kill && result->verdict == HUTCH_KILLED)
        load->killed++;
    else
        complain("run %u ended as %s, exit code %d, signal %d: %s", run->number, hutch_verdict_text(result->verdict),
                 result->exit_code, result->signal, result->message);
}

static bool submit(struct load *load)
{
    struct run *run = &load->runs[load->n];
    struct hutch_request request;
    struct hutch_error err;
    char code[256], data[4096];

    *run = (struct run){ .load = load, .number = load->n, .kind = (uint8_t)random_below(RUN_KINDS) };
    write_program(run, code, sizeof(code));
    hutch_request_init(&request);
    request.code = code;
    if (run->kind == RUN_DATA) {
        snprintf(data, sizeof(data), "%s/data", load->settings->dir);
        request.data_dir = data;
    }
    request.on_output = on_output;
    request.on_result = on_result;
    request.user = run;
    if (hutch_engine_submit(load->engine, &request, &run->id, &err) < 0) {
        if (err.code != EAGAIN)
            die("submit: %s", err.message);
        return false;
    }
    load->n++;
    load->in_flight++;
    return true;
}

void load_open(struct load *load, const struct settings *settings, unsigned room)
{
    static const char *const none[] = { NULL }, *const more[] = { OTHER_MODULE, NULL };
    struct hutch_zygote zygotes[] = {
        { .name = "bare", .modules = none, .min = settings->pool, .max = settings->pool },
        { .name = "more", .parent = "bare", .modules = more, .min = settings->pool, .max = settings->pool },
    };
    struct hutch_engine_options options;
    struct hutch_error err;

    *load = (struct load){ .settings = settings, .room = room, .at_once = settings->jobs };
    load->runs = calloc(room, sizeof(*load->runs));
    if (!load->runs)
        die("out of memory");
    memset(load->runs, 0xff, room * sizeof(*load->runs)); /* not to be taken for a growing engine */
    hutch_engine_options_init(&options);
    options.image = settings->image;
    options.zygotes = zygotes;
    options.n_zygotes = 2;
    options.max_running = settings->jobs;
    options.layouts = 1; /* further ones are made in pauses: what is counted would grow by them, whenever that is */
    if (hutch_engine_open(&options, &load->engine, &err) < 0)
        die("%s", err.message);
}

void load_turn(struct load *load, double until)
{
    struct pollfd pfd = { .fd = hutch_engine_fd(load->engine), .events = POLLIN };
    struct hutch_error err;
    double left;

    while (!load->is_paused && load->n < load->room && load->in_flight < load->at_once && submit(load))
        ;
    left = until - now_ms();
    if (poll(&pfd, 1, left > 0 ? (int)left + 1 : 0) < 0 && errno != EINTR)
        die("poll: %s", strerror(errno));
    if (hutch_engine_dispatch(load->engine, &err) < 0)
        die("%s", err.message);
}

bool load_is_quiet(struct load *load)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(load->engine, &stats);
    if (load->in_flight > 0 || stats.running > 0 || stats.queued > 0 || stats.building > 0 || stats.n_zygotes == 0)
        return false;
    for (size_t i = 0; i < stats.n_zygotes; i++)
        if (!stats.zygotes[i].is_ready || stats.zygotes[i].prepared < load->settings->pool)
            return false;
    return true;
}

bool load_settle(struct load *load, double seconds)
{
    double end = now_ms() + seconds * 1e3;
    bool was_paused = load->is_paused, is_quiet;

    load->is_paused = true;
    while (!(is_quiet = load_is_quiet(load)) && now_ms() < end)
        load_turn(load, now_ms() + 50);
    load->is_paused = was_paused;
    if (!is_quiet) {
        struct hutch_engine_stats stats = { .size = sizeof(stats) };

        hutch_engine_get_stats(load->engine, &stats);
        complain("after %.0f s there are %u runs without a result, %u sandboxes prepared and %u being built", seconds,
                 load->in_flight, stats.prepared, stats.building);
        for (size_t i = 0; i < stats.n_zygotes; i++)
            printf("  zygote %s: ready %d, pid %d, prepared %u, building %u\n", stats.zygotes[i].name,
                   stats.zygotes[i].is_ready, stats.zygotes[i].pid, stats.zygotes[i].prepared,
                   stats.zygotes[i].building);
        for (unsigned i = 0; i < load->n; i++)
            if (load->runs[i].results == 0)
                printf("  run %u (id %llu, kind %u) said '%.*s'\n", i, (unsigned long long)load->runs[i].id,
                       load->runs[i].kind, (int)load->runs[i].out_len, load->runs[i].out);
    }
    return is_quiet;
}

void load_close(struct load *load)
{
    hutch_engine_free(load->engine);
    for (unsigned i = 0; i < load->n; i++)
        if (load->runs[i].results != 1)
            complain("run %u got %u results", i, load->runs[i].results);
    free(load->runs);
}
