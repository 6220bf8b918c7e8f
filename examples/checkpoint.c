/* checkpoint.c - a session with a large DataFrame is kept as it is, spoilt, and brought back: libhutch and poll(2),
 * nothing else.
 *
 *     cc -std=c11 -O2 checkpoint.c $(pkg-config --cflags --libs libhutch) -o checkpoint
 *     ./checkpoint */
#define _POSIX_C_SOURCE 200809L
#include <hutch.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct hutch_engine *engine;
static uint64_t session, checkpoint;
static int is_answered;
static char said[200];

static const char load[] =
    "import numpy as np\n"
    "import pandas as pd\n"
    "frame = pd.DataFrame(np.random.default_rng(1).random((1_000_000, 4)), columns=list('abcd'))\n"
    "frame.head(1000).to_csv('head.csv')\n"
    "print('%d rows, mean of a %.6f' % (len(frame), frame.a.mean()))";
static const char spoil[] = "import os\n"
                            "frame.drop(frame.index, inplace=True)\n"
                            "os.unlink('head.csv')\n"
                            "print('%d rows, files: %s' % (len(frame), os.listdir()))";
static const char look[] = "import os\n"
                           "print('%d rows, mean of a %.6f, files: %s' % (len(frame), frame.a.mean(), os.listdir()))";

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void give_up(const char *why)
{
    fprintf(stderr, "checkpoint: %s\n", why);
    exit(1);
}

static void on_output(void *user, uint64_t id, const struct hutch_output *output)
{
    size_t len = strlen(said);

    (void)user;
    (void)id;
    if (output->kind == HUTCH_STREAM && output->text_len < sizeof(said) - len)
        memcpy(said + len, output->text, output->text_len);
}

static void on_result(void *user, uint64_t id, const struct hutch_cell_result *result)
{
    (void)user;
    (void)id;
    if (result->verdict != HUTCH_OK)
        give_up(result->error_traceback ? result->error_traceback : result->message);
    is_answered = 1;
}

static void on_reply(void *user, uint64_t id, const struct hutch_reply *reply)
{
    (void)user;
    (void)id;
    if (!reply->ok)
        give_up(reply->message);
    checkpoint = reply->id ? reply->id : checkpoint;
    is_answered = 1;
}

/* Waits until what was handed in @since is answered, and says how long that took. */
static void wait_for_it(const char *what, double since)
{
    struct pollfd pfd = { .fd = hutch_engine_fd(engine), .events = POLLIN };
    struct hutch_error err;

    while (!is_answered) {
        poll(&pfd, 1, -1);
        if (hutch_engine_dispatch(engine, &err) < 0)
            give_up(err.message);
    }
    printf("%-10s %7.1f ms%s%s", what, now_ms() - since, said[0] ? "   " : "\n", said);
    memset(said, 0, sizeof(said));
    is_answered = 0;
}

static void execute(const char *what, const char *code)
{
    double since = now_ms();
    struct hutch_error err;
    struct hutch_cell cell;

    hutch_cell_init(&cell);
    cell.code = code;
    cell.on_output = on_output;
    cell.on_result = on_result;
    if (hutch_session_execute(engine, session, &cell, &err) < 0)
        give_up(err.message);
    wait_for_it(what, since);
}

int main(void)
{
    struct hutch_engine_options options;
    struct hutch_session_options session_options;
    struct hutch_error err;
    double since;

    hutch_engine_options_init(&options);
    hutch_session_options_init(&session_options);
    if (hutch_engine_open(&options, &engine, &err) < 0 ||
        hutch_session_open(engine, &session_options, &session, &err) < 0)
        give_up(err.message);
    execute("start", "pass"); /* the first cell waits for the libraries to be imported */
    execute("load", load);
    since = now_ms();
    if (hutch_session_checkpoint(engine, session, on_reply, NULL, &err) < 0)
        give_up(err.message);
    wait_for_it("checkpoint", since);
    for (int i = 0; i < 2; i++) { /* as often as wanted */
        execute("spoil", spoil);
        since = now_ms();
        if (hutch_session_rollback(engine, session, checkpoint, on_reply, NULL, &err) < 0)
            give_up(err.message);
        wait_for_it("roll back", since);
        execute("look", look);
    }
    hutch_engine_free(engine);
    return 0;
}
