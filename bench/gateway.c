/* gateway.c - asks `hutch serve`, and the library beside it, in turns: the ratio of the two is what counts.
 *
 *     gateway --image NAME
 *
 * Each line of stdin is an order as JSON, and is answered by a line of JSON. "address": unix:PATH or ADDRESS:PORT;
 * "request": the request as it is sent; "want": what each answer has to have in it, else the program ends.
 *
 *   library      "n" runs of "code", one after the other, each when the pool is full again: {"ms": […]}
 *   cell         the same with cells of one session
 *   http         the same by HTTP on one connection; "pools": the address whose pool has to be full before each
 *   closed       "connections" that always have a request under way, for "seconds"; "pid": of the server, whose CPU
 *                time is told: {"done", "seconds", "cpu_ms", "times"}
 *   closed_library  the same with runs of the library, and the CPU time of this process
 *   stream       "n" times a run whose output comes as server-sent events and tells the clock of each line: how long
 *                after it the line was here: {"ms": […]}
 *   upload       "request" are its headers, "n" the bytes of the body: {"ms"}
 *   download     the other way
 *   hold         opens "n" connections, each with a request of "requests" and its answer, and keeps them
 *   drop         closes them
 *
 * The engine here is made by the first order that needs one, as `hutch serve` makes its own. */
#include "common.h"
#include "http.h"
#include "runtime/hutch.h"

#include <cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STALL_MAX_MS 60000
#define HELD_MAX 4096
#define TIMES_MAX 2000000
#define PIECE (1u << 20)
#define POLL_US 300

struct bench {
    const char *image;
    struct hutch_engine *engine;
    uint64_t session;         /* 0: none is open */
    struct http held[HELD_MAX];
    unsigned n_held;
    struct http usual, pools; /* connections that are kept from order to order */
    char *usual_address, *pools_address;

    /* of the order at work */
    const char *want;
    unsigned under_way, done;
    double *ms;
    unsigned n_ms;
};

struct order {
    const cJSON *json;
    const char *address, *request, *want, *code, *pools;
    unsigned n, connections, pid;
    double seconds;
};

static const char *text_of(const cJSON *json, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
}

static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(json, key);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* ---- what is told ---- */

static void note_time(struct bench *b, double ms)
{
    if (b->n_ms < TIMES_MAX)
        b->ms[b->n_ms++] = ms;
}

static void print_all_times(const struct bench *b)
{
    printf("{\"ms\": [");
    for (unsigned i = 0; i < b->n_ms; i++)
        printf("%s%.4f", i ? "," : "", b->ms[i]);
    printf("]}\n");
}

static void print_closed(struct bench *b, double seconds, double cpu_ms)
{
    printf("{\"done\": %u, \"seconds\": %.4f, \"cpu_ms\": %.3f, ", b->n_ms, seconds, cpu_ms);
    bench_print_times("times", b->ms, b->n_ms);
    printf("}\n");
}

/* ---- the library ---- */

static void open_engine(struct bench *b)
{
    struct hutch_engine_options options;
    struct hutch_error err;

    if (b->engine)
        return;
    hutch_engine_options_init(&options);
    options.image = b->image;
    options.max_queued = 4096;
    if (hutch_engine_open(&options, &b->engine, &err) < 0)
        bench_die("%s", err.message);
    bench_wait_for_pool(b->engine);
}

struct flight {
    struct bench *bench;
    double start;
    bool is_used;
};

static void check_result(const struct bench *b, enum hutch_verdict verdict, const char *out, const char *why)
{
    if (verdict != HUTCH_OK || (b->want && !strstr(out, b->want)))
        bench_die("not '%s' but '%s' (%s): %.500s", b->want ? b->want : "ok", hutch_verdict_text(verdict), why, out);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct flight *flight = user;
    struct bench *b = flight->bench;

    (void)id;
    check_result(b, result->verdict, result->out, result->message);
    note_time(b, bench_now_ms() - flight->start);
    flight->is_used = false;
    b->under_way--;
    b->done++;
}

static void submit(struct bench *b, struct flight *flight, const char *code)
{
    struct hutch_request request;
    struct hutch_error err;
    uint64_t id;

    *flight = (struct flight){ .bench = b, .start = bench_now_ms(), .is_used = true };
    hutch_request_init(&request);
    request.code = code;
    request.on_result = on_result;
    request.user = flight;
    if (hutch_engine_submit(b->engine, &request, &id, &err) < 0)
        bench_die("%s", err.message);
    b->under_way++;
}

static void on_cell(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    struct flight *flight = user;
    struct bench *b = flight->bench;

    (void)session;
    check_result(b, result->verdict, result->outputs, result->message);
    note_time(b, bench_now_ms() - flight->start);
    b->under_way--;
}

static void wait_for_result(struct bench *b, unsigned until)
{
    for (double limit = bench_now_ms() + STALL_MAX_MS; b->under_way > until;) {
        if (bench_now_ms() > limit)
            bench_die("no result for a minute, with %u under way", b->under_way);
        bench_turn(b->engine, limit);
    }
}

static void do_library(struct bench *b, const struct order *o)
{
    struct flight flight;

    open_engine(b);
    for (unsigned i = 0; i < o->n; i++) {
        bench_wait_for_pool(b->engine);
        submit(b, &flight, o->code);
        wait_for_result(b, 0);
    }
    print_all_times(b);
}

static void do_cell(struct bench *b, const struct order *o)
{
    struct hutch_session_options options;
    struct hutch_error err;

    open_engine(b);
    hutch_session_options_init(&options);
    if (!b->session && hutch_session_open(b->engine, &options, &b->session, &err) < 0)
        bench_die("%s", err.message);
    for (unsigned i = 0; i < o->n; i++) {
        struct flight flight = { .bench = b, .start = bench_now_ms() };
        struct hutch_cell cell;

        hutch_cell_init(&cell);
        cell.code = o->code;
        cell.on_result = on_cell;
        cell.user = &flight;
        if (hutch_session_execute(b->engine, b->session, &cell, &err) < 0)
            bench_die("%s", err.message);
        b->under_way++;
        wait_for_result(b, 0);
    }
    print_all_times(b);
}

static double own_cpu_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* The first results do not count: their runs found a full pool. */
static void do_closed_library(struct bench *b, const struct order *o)
{
    struct flight *flights = calloc(o->connections, sizeof(*flights));
    double start = 0, end = 0, cpu = 0;

    if (!flights)
        bench_die("no memory");
    open_engine(b);
    bench_wait_for_pool(b->engine);
    for (b->done = 0; start == 0 || bench_now_ms() < end;) {
        for (unsigned i = 0; i < o->connections; i++)
            if (!flights[i].is_used)
                submit(b, &flights[i], o->code);
        wait_for_result(b, o->connections - 1);
        if (start == 0 && b->done >= o->connections) {
            start = bench_now_ms();
            end = start + o->seconds * 1e3;
            cpu = own_cpu_ms();
            b->n_ms = 0;
        }
    }
    end = bench_now_ms();
    cpu = own_cpu_ms() - cpu;
    print_closed(b, (end - start) / 1e3, cpu);
    wait_for_result(b, 0);
    free(flights);
}

/* ---- HTTP ---- */

/* The server closes a connection that was idle for too long. */
static bool is_closed(const struct http *h)
{
    char byte;

    return recv(h->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static struct http *keep(struct http *h, char **at, const char *address)
{
    if (*at && strcmp(*at, address) == 0 && !is_closed(h))
        return h;
    bench_http_close(h);
    free(*at);
    *at = strdup(address);
    bench_http_connect(h, address);
    return h;
}

/* Whether nothing is being prepared that @path tells of. @token: NULL: the server asks for none. */
static bool is_quiet(struct http *h, const char *path, const char *token)
{
    char request[256];
    int len = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s\r\n", path,
                       token ? "Authorization: Bearer " : "", token ? token : "", token ? "\r\n" : "");
    size_t whole, head;
    bool is_quiet;

    bench_http_send(h, request, (size_t)len);
    while ((whole = bench_http_whole(h, &head)) == 0)
        if (!bench_http_read(h))
            bench_die("the server has closed the connection");
    is_quiet = !strstr(h->data, "\"ready\":false") && !strstr(h->data, "\"calls\":1");
    if (strstr(h->data, "\"queued\":"))
        is_quiet = is_quiet && strstr(h->data, "\"running\":0,\"queued\":0");
    for (const char *p = h->data; is_quiet && (p = strstr(p, "\"building\":")); p++)
        is_quiet = p[11] == '0';
    bench_http_drop(h, whole);
    return is_quiet;
}

/* As bench_wait_for_pool(), by asking: the pools of zygotes, and those of functions. */
static void wait_for_pools(struct bench *b, const char *address, const char *token)
{
    struct http *h = keep(&b->pools, &b->pools_address, address);
    struct timespec a_while = { .tv_nsec = POLL_US * 1000 };

    for (double limit = bench_now_ms() + STALL_MAX_MS;;) {
        if (is_quiet(h, "/v1/pools", token) && is_quiet(h, "/v1/functions", token))
            return;
        if (bench_now_ms() > limit)
            bench_die("the server's pools are not full after a minute");
        nanosleep(&a_while, NULL);
    }
}

static void do_http(struct bench *b, const struct order *o)
{
    struct http *h = keep(&b->usual, &b->usual_address, o->address);
    size_t len = strlen(o->request);

    for (unsigned i = 0; i < o->n; i++) {
        double start;

        if (o->pools)
            wait_for_pools(b, o->pools, text_of(o->json, "pools_token"));
        start = bench_now_ms();
        bench_http_ask(h, o->request, len, o->want);
        note_time(b, bench_now_ms() - start);
    }
    print_all_times(b);
}

/* CPU time of a process of one thread, in milliseconds: /proc/PID/schedstat counts nanoseconds, stat hundredths. */
static double cpu_of(unsigned pid)
{
    char path[64];
    unsigned long long ns = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%u/schedstat", pid);
    file = pid ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    if (file)
        fclose(file);
    return (double)ns / 1e6;
}

struct caller {
    struct http http;
    double start;
};

static void begin_request(struct caller *c, const char *request, size_t len)
{
    c->start = bench_now_ms();
    bench_http_send(&c->http, request, len);
}

/* Whether its answer has come. */
static bool hear_caller(struct bench *b, struct caller *c)
{
    size_t whole, head;

    if (!bench_http_read(&c->http))
        bench_die("the server has closed a connection with a request under way");
    whole = bench_http_whole(&c->http, &head);
    if (whole == 0)
        return false;
    if (bench_http_status(&c->http) != 200 || !strstr(c->http.data, b->want))
        bench_die("not '%s', but: %.1500s", b->want, c->http.data);
    bench_http_drop(&c->http, whole);
    if (c->http.len)
        bench_die("more has come than was asked for: %.300s", c->http.data);
    note_time(b, bench_now_ms() - c->start);
    return true;
}

/* Requests that are under way at the end have their answers, too, before it is told: none is lost. */
static void do_closed(struct bench *b, const struct order *o)
{
    struct caller *callers = calloc(o->connections, sizeof(*callers));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    unsigned under_way = 0, done = 0, counted = 0;
    double start = 0, end = 0, cpu = 0;
    size_t len = strlen(o->request);
    bool is_ending = false;

    if (!callers || epoll < 0)
        bench_die("no memory");
    for (unsigned i = 0; i < o->connections; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = &callers[i] };

        bench_http_connect(&callers[i].http, o->address);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, callers[i].http.fd, &event) < 0)
            bench_die("watch a connection: %s", strerror(errno));
        begin_request(&callers[i], o->request, len);
        under_way++;
    }
    while (under_way > 0) {
        struct epoll_event ready[256];
        int n = epoll_wait(epoll, ready, 256, STALL_MAX_MS);

        if (n == 0)
            bench_die("%u requests have no answer after a minute", under_way);
        for (int i = 0; i < n; i++) {
            struct caller *c = ready[i].data.ptr;

            if (!hear_caller(b, c))
                continue;
            done++;
            if (is_ending)
                under_way--;
            else
                begin_request(c, o->request, len);
        }
        if (start == 0 && done >= o->connections) {
            start = bench_now_ms();
            end = start + o->seconds * 1e3;
            cpu = cpu_of(o->pid);
            b->n_ms = 0;
        } else if (start != 0 && !is_ending && bench_now_ms() >= end) {
            is_ending = true;
            end = bench_now_ms();
            cpu = cpu_of(o->pid) - cpu;
            counted = b->n_ms;
        }
    }
    b->n_ms = counted;
    print_closed(b, (end - start) / 1e3, cpu);
    for (unsigned i = 0; i < o->connections; i++)
        bench_http_close(&callers[i].http);
    close(epoll);
    free(callers);
}

/* ---- streams and files ---- */

/* Each line of output is the program's CLOCK_MONOTONIC in nanoseconds, which a sandbox shares with its host. */
static void hear_stream(struct bench *b, struct http *h)
{
    static const char key[] = "{\"stream\":\"stdout\",\"text\":\"";
    size_t seen = 0;

    while (!h->len || !strstr(h->data, "\r\n0\r\n\r\n")) {
        double now;
        char *p;

        if (!bench_http_read(h))
            bench_die("a stream was broken off: %.500s", h->len ? h->data : "");
        now = bench_now_ms();
        for (p = h->data + seen; (p = strstr(p, key)); seen = (size_t)(p - h->data)) {
            char *end;

            p += sizeof(key) - 1;
            if (!strchr(p, '\n'))
                break; /* the rest of it comes */
            for (; *p >= '0' && *p <= '9'; p = strncmp(end, "\\n", 2) == 0 ? end + 2 : end) {
                double at = strtod(p, &end) / 1e6;

                note_time(b, now - at);
            }
        }
    }
    if (!strstr(h->data, "\"verdict\":\"ok\""))
        bench_die("a stream has no good end: %.1500s", h->data);
    bench_http_drop(h, h->len);
}

static void do_stream(struct bench *b, const struct order *o)
{
    struct http *h = keep(&b->usual, &b->usual_address, o->address);

    for (unsigned i = 0; i < o->n; i++) {
        bench_http_send(h, o->request, strlen(o->request));
        hear_stream(b, h);
    }
    print_all_times(b);
}

static void do_upload(struct bench *b, const struct order *o)
{
    struct http *h = keep(&b->usual, &b->usual_address, o->address);
    char *piece = calloc(1, PIECE);
    double start;

    if (!piece)
        bench_die("no memory");
    memset(piece, 'x', PIECE);
    start = bench_now_ms();
    bench_http_send(h, o->request, strlen(o->request));
    for (size_t left = o->n; left > 0; left -= left < PIECE ? left : PIECE)
        bench_http_send(h, piece, left < PIECE ? left : PIECE);
    bench_http_ask(h, "", 0, o->want);
    printf("{\"ms\": %.3f}\n", bench_now_ms() - start);
    free(piece);
}

static void do_download(struct bench *b, const struct order *o)
{
    struct http *h = keep(&b->usual, &b->usual_address, o->address);
    char *piece = malloc(PIECE), *end = NULL;
    double start = bench_now_ms();
    size_t left, had;

    if (!piece)
        bench_die("no memory");
    bench_http_send(h, o->request, strlen(o->request));
    while (!h->len || !(end = strstr(h->data, "\r\n\r\n")))
        if (!bench_http_read(h))
            bench_die("the server has closed the connection");
    if (bench_http_status(h) != 200)
        bench_die("a download: %.500s", h->data);
    had = h->len - (size_t)(end + 4 - h->data);
    if (had > o->n)
        bench_die("a download has more than %u bytes", o->n);
    h->len = 0;
    for (left = o->n - had; left > 0;) {
        ssize_t n = read(h->fd, piece, left < PIECE ? left : PIECE);

        if (n <= 0)
            bench_die("a download lacks %zu bytes", left);
        left -= (size_t)n;
    }
    printf("{\"ms\": %.3f}\n", bench_now_ms() - start);
    free(piece);
}

/* ---- idle connections ---- */

static void do_hold(struct bench *b, const struct order *o)
{
    const cJSON *requests = cJSON_GetObjectItem(o->json, "requests");

    for (unsigned i = 0; i < o->n && b->n_held < HELD_MAX; i++) {
        const char *request = cJSON_GetStringValue(cJSON_GetArrayItem(requests, (int)i % cJSON_GetArraySize(requests)));
        struct http *h = &b->held[b->n_held++];

        bench_http_connect(h, o->address);
        bench_http_ask(h, request, strlen(request), o->want);
    }
    printf("{\"held\": %u}\n", b->n_held);
}

static void do_drop(struct bench *b, const struct order *o)
{
    (void)o;
    while (b->n_held > 0)
        bench_http_close(&b->held[--b->n_held]);
    printf("{\"held\": 0}\n");
}

/* ---- orders ---- */

static const struct {
    const char *name;
    void (*act)(struct bench *, const struct order *);
} orders[] = {
    { "library", do_library }, { "cell", do_cell },     { "http", do_http },         { "closed", do_closed },
    { "stream", do_stream },   { "upload", do_upload }, { "download", do_download }, { "hold", do_hold },
    { "drop", do_drop },       { "closed_library", do_closed_library },
};

static void obey(struct bench *b, const char *line)
{
    cJSON *json = cJSON_Parse(line);
    const char *name = json ? text_of(json, "do") : NULL;
    struct order o = {
        .json = json, .address = text_of(json, "address"), .request = text_of(json, "request"),
        .want = text_of(json, "want"), .code = text_of(json, "code"), .pools = text_of(json, "pools"),
        .n = (unsigned)number_of(json, "n"), .connections = (unsigned)number_of(json, "connections"),
        .pid = (unsigned)number_of(json, "pid"), .seconds = number_of(json, "seconds"),
    };

    b->want = o.want;
    b->n_ms = 0;
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (name && strcmp(orders[i].name, name) == 0) {
            orders[i].act(b, &o);
            fflush(stdout);
            cJSON_Delete(json);
            return;
        }
    bench_die("no order: %.100s", line);
}

int main(int argc, char **argv)
{
    static struct bench b = { .usual = HTTP_INIT, .pools = HTTP_INIT };
    char *line = NULL;
    size_t room = 0;

    if (argc != 3 || strcmp(argv[1], "--image") != 0) {
        fprintf(stderr, "usage: gateway --image NAME\n");
        return 2;
    }
    b.image = argv[2];
    b.ms = calloc(TIMES_MAX, sizeof(*b.ms));
    if (!b.ms)
        bench_die("no memory");
    while (getline(&line, &room, stdin) > 0)
        obey(&b, line);
    free(line);
    do_drop(&b, NULL);
    bench_http_close(&b.usual);
    bench_http_close(&b.pools);
    free(b.usual_address);
    free(b.pools_address);
    hutch_engine_free(b.engine);
    free(b.ms);
    return 0;
}
