/* warm_many.c - a driver for tests: runs many programs through one engine, by hutch.h alone.
 *
 *     warm_many [-j N] [--image I | --rootfs R] [--policy P] [--zygote NAME:MODULE,… [--parent NAME]]… [--min N]
 *     [--max N] [--recycle N] [--stats]
 *
 * One JSON object a line on standard input, read as it comes: "code", and whatever else struct hutch_request has, by
 * its name there; "id" comes back as it is. One line on standard output for each, as they finish:
 *
 *     {"id": …, "prepared": true, "restarts": 0, "zygote": "bare", "result": {…}}      result: docs/results.md
 *     {"id": …, "refused": "why", "errno": 22}                                         the engine did not take it
 *
 * With --stats, {"stats": {…}} at the end. Without --zygote the engine's own zygotes; else these, each below the one
 * before or below --parent, with --min and --max for each. */
#include "runtime/hutch.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ZYGOTES 16
#define MAX_MODULES 64
#define MAX_STRINGS 256 /* of "args" and "env" */


static unsigned in_flight;

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void die(const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "warm_many: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(2);
}

/* --- one run --- */

static void print_and_free(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);

    if (!text)
        die("out of memory");
    puts(text);
    fflush(stdout);
    free(text);
    cJSON_Delete(object);
}

static cJSON *answer_to(const cJSON *line)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(line, "id");
    cJSON *answer = cJSON_CreateObject();

    cJSON_AddItemToObject(answer, "id", id ? cJSON_Duplicate(id, true) : cJSON_CreateNull());
    return answer;
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    cJSON *line = user, *answer = answer_to(line);
    char *text = hutch_result_to_json(result);

    (void)id;
    if (!text)
        die("out of memory");
    cJSON_AddBoolToObject(answer, "prepared", result->was_prepared);
    cJSON_AddNumberToObject(answer, "restarts", result->restarts);
    cJSON_AddItemToObject(answer, "zygote", result->zygote ? cJSON_CreateString(result->zygote) : cJSON_CreateNull());
    cJSON_AddRawToObject(answer, "result", text);
    free(text);
    print_and_free(answer);
    cJSON_Delete(line);
    in_flight--;
}

static void refuse(cJSON *line, const struct hutch_error *err)
{
    cJSON *answer = answer_to(line);

    cJSON_AddStringToObject(answer, "refused", err->message);
    cJSON_AddNumberToObject(answer, "errno", err->code);
    print_and_free(answer);
    cJSON_Delete(line);
}

static const char *const *strings_of(const cJSON *array, const char **room)
{
    const cJSON *item;
    size_t n = 0;

    cJSON_ArrayForEach(item, array) {
        if (!cJSON_IsString(item) || n + 1 >= MAX_STRINGS)
            die("'%s' is no list of at most %d texts", array->string, MAX_STRINGS - 1);
        room[n++] = item->valuestring;
    }
    room[n] = NULL;
    return room;
}

static void submit(struct hutch_engine *engine, cJSON *line)
{
    static const struct {
        const char *name;
        size_t at;
    } texts[] = {
        { "language", offsetof(struct hutch_request, language) },
        { "code", offsetof(struct hutch_request, code) },
        { "name", offsetof(struct hutch_request, name) },
        { "input", offsetof(struct hutch_request, input) },
        { "data_dir", offsetof(struct hutch_request, data_dir) },
        { "policy", offsetof(struct hutch_request, policy) },
    }, numbers[] = {
        { "wall_ms", offsetof(struct hutch_request, wall_ms) },
        { "cpu_ms", offsetof(struct hutch_request, cpu_ms) },
        { "memory_bytes", offsetof(struct hutch_request, memory_bytes) },
        { "pids", offsetof(struct hutch_request, pids) },
        { "cpus", offsetof(struct hutch_request, cpus) },
        { "output_bytes", offsetof(struct hutch_request, output_bytes) },
        { "data_bytes", offsetof(struct hutch_request, data_bytes) },
        { "data_files", offsetof(struct hutch_request, data_files) },
        { "file_bytes", offsetof(struct hutch_request, file_bytes) },
    };
    const char *args[MAX_STRINGS], *env[MAX_STRINGS];
    struct hutch_request request;
    struct hutch_error err;
    const cJSON *item;
    uint64_t id;

    hutch_request_init(&request);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (cJSON_IsString(item = cJSON_GetObjectItemCaseSensitive(line, texts[i].name)))
            *(const char **)((char *)&request + texts[i].at) = item->valuestring;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (cJSON_IsNumber(item = cJSON_GetObjectItemCaseSensitive(line, numbers[i].name)))
            *(uint64_t *)((char *)&request + numbers[i].at) = (uint64_t)item->valuedouble;
    if ((item = cJSON_GetObjectItemCaseSensitive(line, "args")))
        request.args = strings_of(item, args);
    if ((item = cJSON_GetObjectItemCaseSensitive(line, "env")))
        request.env = strings_of(item, env);
    request.keep_data = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(line, "keep_data"));
    request.input_len = request.input ? strlen(request.input) : 0;
    request.on_result = on_result;
    request.user = line;
    if (hutch_engine_submit(engine, &request, &id, &err) < 0)
        refuse(line, &err);
    else
        in_flight++;
}

/* --- standard input --- */

struct input {
    char *data;
    size_t len, room, pos;
    bool is_over;
};

/* The next whole line, NULL when there is none yet. Valid until more is read. */
static char *next_line(struct input *in)
{
    char *line = in->data + in->pos, *end = in->len > in->pos ? memchr(line, '\n', in->len - in->pos) : NULL;

    if (!end)
        return NULL;
    *end = '\0';
    in->pos = (size_t)(end + 1 - in->data);
    return line;
}

static void read_more(struct input *in)
{
    ssize_t n;

    if (in->pos > 0) {
        memmove(in->data, in->data + in->pos, in->len - in->pos);
        in->len -= in->pos;
        in->pos = 0;
    }
    if (in->room - in->len < 65536) {
        in->room = in->room * 2 + 65536;
        in->data = realloc(in->data, in->room);
        if (!in->data)
            die("out of memory");
    }
    n = read(STDIN_FILENO, in->data + in->len, in->room - in->len);
    if (n < 0 && errno != EINTR)
        die("read standard input: %s", strerror(errno));
    if (n > 0)
        in->len += (size_t)n;
    in->is_over = n == 0;
}

/* --- options --- */

struct zygotes {
    struct hutch_zygote all[MAX_ZYGOTES];
    const char *modules[MAX_ZYGOTES][MAX_MODULES];
    size_t n;
};

static void add_zygote(struct zygotes *z, char *text)
{
    char *colon = strchr(text, ':'), *rest = colon ? colon + 1 : NULL, *module;
    size_t n = 0;

    if (z->n == MAX_ZYGOTES)
        die("more than %d zygotes", MAX_ZYGOTES);
    if (colon)
        *colon = '\0';
    while ((module = strsep(&rest, ",")))
        if (*module && n + 1 < MAX_MODULES)
            z->modules[z->n][n++] = module;
    z->all[z->n] = (struct hutch_zygote){ .name = text,
                                          .modules = z->modules[z->n],
                                          .parent = z->n ? z->all[z->n - 1].name : NULL };
    z->n++;
}

static unsigned number(const char *option, const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (end == text || *end || value > 1000000)
        die("--%s: '%s' is no number", option, text);
    return (unsigned)value;
}

static void print_stats(struct hutch_engine *engine)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    cJSON *line = cJSON_CreateObject(), *all = cJSON_AddObjectToObject(line, "stats"), *zygotes, *one;

    hutch_engine_get_stats(engine, &stats);
    cJSON_AddNumberToObject(all, "submitted", (double)stats.submitted);
    cJSON_AddNumberToObject(all, "finished", (double)stats.finished);
    cJSON_AddNumberToObject(all, "from_pool", (double)stats.from_pool);
    cJSON_AddNumberToObject(all, "on_demand", (double)stats.on_demand);
    cJSON_AddNumberToObject(all, "restarted", (double)stats.restarted);
    cJSON_AddNumberToObject(all, "lost_zygotes", (double)stats.lost_zygotes);
    cJSON_AddNumberToObject(all, "lost_launchers", (double)stats.lost_launchers);
    cJSON_AddNumberToObject(all, "lost_sandboxes", (double)stats.lost_sandboxes);
    zygotes = cJSON_AddArrayToObject(all, "zygotes");
    for (size_t i = 0; i < stats.n_zygotes; i++) {
        cJSON_AddItemToArray(zygotes, one = cJSON_CreateObject());
        cJSON_AddStringToObject(one, "name", stats.zygotes[i].name);
        cJSON_AddBoolToObject(one, "is_ready", stats.zygotes[i].is_ready);
        cJSON_AddNumberToObject(one, "prepared", stats.zygotes[i].prepared);
        cJSON_AddNumberToObject(one, "forks", (double)stats.zygotes[i].forks);
        cJSON_AddNumberToObject(one, "recycled", (double)stats.zygotes[i].recycled);
    }
    print_and_free(line);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "image", required_argument, NULL, 'i' },  { "policy", required_argument, NULL, 'p' },
        { "zygote", required_argument, NULL, 'z' }, { "parent", required_argument, NULL, 'P' },
        { "min", required_argument, NULL, 'm' },    { "max", required_argument, NULL, 'M' },
        { "recycle", required_argument, NULL, 'r' }, { "stats", no_argument, NULL, 's' },
        { "rootfs", required_argument, NULL, 'R' },
        { 0 },
    };
    unsigned jobs = 2, min = 2, max = 4;
    struct hutch_engine_options engine_options;
    struct zygotes zygotes = { .n = 0 };
    struct input in = { .len = 0 };
    bool wants_stats = false;
    struct hutch_engine *engine;
    struct hutch_error err;
    int c;

    hutch_engine_options_init(&engine_options);
    engine_options.layouts = 1; /* no further ones in the middle of counting */
    while ((c = getopt_long(argc, argv, "j:", options, NULL)) != -1)
        switch (c) {
        case 'j': jobs = number("j", optarg); break;
        case 'i': engine_options.image = optarg; break;
        case 'R': engine_options.rootfs = optarg; break;
        case 'p': engine_options.policy = optarg; break;
        case 'z': add_zygote(&zygotes, optarg); break;
        case 'P':
            if (zygotes.n == 0)
                die("--parent comes after a --zygote");
            zygotes.all[zygotes.n - 1].parent = optarg;
            break;
        case 'm': min = number("min", optarg); break;
        case 'M': max = number("max", optarg); break;
        case 'r': engine_options.recycle_forks = number("recycle", optarg); break;
        case 's': wants_stats = true; break;
        default: return 2;
        }
    if (optind < argc || jobs == 0)
        die("unexpected '%s'", optind < argc ? argv[optind] : "-j 0");
    for (size_t i = 0; i < zygotes.n; i++) {
        zygotes.all[i].min = min;
        zygotes.all[i].max = max < min ? min : max;
    }
    engine_options.max_running = jobs;
    engine_options.zygotes = zygotes.n ? zygotes.all : NULL;
    engine_options.n_zygotes = zygotes.n;
    if (hutch_engine_open(&engine_options, &engine, &err) < 0)
        die("%s", err.message);

    while (in_flight > 0 || !in.is_over) {
        struct pollfd fds[2] = { { .fd = hutch_engine_fd(engine), .events = POLLIN }, { .fd = -1, .events = POLLIN } };
        char *text = in_flight < jobs ? next_line(&in) : NULL;

        if (text) {
            cJSON *line = cJSON_Parse(text);

            if (!cJSON_IsObject(line))
                die("no JSON object: %.200s", text);
            submit(engine, line);
            continue;
        }
        if (in_flight < jobs && !in.is_over)
            fds[1].fd = STDIN_FILENO;
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            die("poll: %s", strerror(errno));
        if (fds[1].revents)
            read_more(&in);
        if (hutch_engine_dispatch(engine, &err) < 0)
            die("%s", err.message);
    }
    if (wants_stats)
        print_stats(engine);
    hutch_engine_free(engine);
    free(in.data);
    return 0;
}
