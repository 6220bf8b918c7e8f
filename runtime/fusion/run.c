#include "runtime/fusion/run.h"

#include "runtime/fusion/answer.h"
#include "runtime/fusion/request.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/submit.h"
#include "runtime/hutch.h"
#include "sandbox/fd.h"

#include <string.h>

#define USUAL_RUN_MS 10000
#define NUL_FILE "code_with_nul.py"

/* What hutch has of the format's languages. The rest has no interpreter, or is to be compiled. */
static const struct { const char *name, *language; } languages[] = {
    { "python", "python" }, { "bash", "bash" }, { "nodejs", "js" }, { "perl", "perl" },
    { "ruby", "ruby" },     { "lua", "lua" },   { "R", "r" },
};

struct fusion_run {
    struct submitted submitted;   /* first */
    struct fusion_request request; /* what the answer needs: the paths */
};

static void on_free(struct exchange *x)
{
    struct fusion_run *run = x->work;

    hutch_fusion_request_done(&run->request);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct exchange *x = user;
    struct server *server = x->server;
    struct fusion_run *run = x->work;
    size_t len;
    char *json = hutch_fusion_answer_run(result, run->request.fetch, &len);

    (void)id;
    hutch_submit_conclude(x, result);
    hutch_exchange_answer(x, 200, "application/json", json, len);
    hutch_server_send(server);
}

static void answer_trouble(struct exchange *x, const char *message)
{
    size_t len;
    char *json = hutch_fusion_answer_trouble(message, &len);

    hutch_exchange_answer(x, 200, "application/json", json, len);
}

/* NULL: hutch has none of this name. */
static const char *find_language(const struct fusion_text *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
        if (strlen(languages[i].name) == name->len && memcmp(languages[i].name, name->data, name->len) == 0)
            return languages[i].language;
    return name->data ? NULL : "python";
}

static void answer_language(struct exchange *x, const char *name)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "there is no language '%.40s' here; as far as the image has their interpreters, there are",
                    name);
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
        hutch_text_addf(&t, "%s %s", i ? "," : "", languages[i].name);
    answer_trouble(x, t.data ? t.data : "there is no such language here");
    hutch_text_done(&t);
}

/* Python says itself what it thinks of a program with NUL. A request of the engine's cannot hold one: a file has it. */
static bool move_code(struct fusion_request *r, struct hutch_request *q)
{
    static const char code[] = "exec(compile(open('" NUL_FILE "', 'rb').read(), '" NUL_FILE "', 'exec'))\n";
    struct hutch_file *files = realloc(r->files, (r->n_files + 1) * sizeof(*files));
    char *path = files ? strdup(NUL_FILE) : NULL;

    r->files = files ? files : r->files;
    if (!path)
        return false;
    files[r->n_files++] = (struct hutch_file){ .path = path, .data = r->code.data, .len = r->code.len };
    r->code.data = NULL;
    q->code = code;
    q->code_len = sizeof(code) - 1;
    return true;
}

/* A memory limit above the policy's is the policy's: clients send one with every request, and what it is for, that a
 * program has no more than that, holds. A time above it is refused, as a program would seem to be too slow. */
static bool set_limits(struct exchange *x, const struct fusion_request *r, struct hutch_request *q)
{
    struct hutch_limits limits = { .size = sizeof(limits) };

    hutch_exchange_policy(x, &limits);
    if (limits.wall_ms && r->run_ms > limits.wall_ms) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST,
                              "request: run_timeout: Input should be less than or equal to %g, the policy's limit",
                              (double)limits.wall_ms / 1000);
        return false;
    }
    if (r->run_ms || !limits.wall_ms || limits.wall_ms > USUAL_RUN_MS)
        q->wall_ms = r->run_ms ? r->run_ms : USUAL_RUN_MS;
    if (!limits.memory_bytes || r->memory_bytes < limits.memory_bytes)
        q->memory_bytes = r->memory_bytes;
    return true;
}

static void submit(struct exchange *x, struct fusion_run *run, struct hutch_request *q)
{
    static const char *const env[] = { "PYTHONPATH=/mnt/data", NULL }; /* as if the program lay beside its files */
    struct fusion_request *r = &run->request;
    auto_free const char **names = calloc(r->n_fetch + 1, sizeof(*names));

    if (!names || (strlen(q->code) != q->code_len && !move_code(r, q))) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the run");
        return;
    }
    for (size_t i = 0; i < r->n_fetch; i++)
        names[i] = hutch_fusion_request_name(r->fetch[i]);
    q->env = strcmp(q->language, "python") == 0 ? env : NULL;
    q->input = r->input.data;
    q->input_len = r->input.len;
    q->files = r->files;
    q->n_files = r->n_files;
    q->fetch = names;
    q->on_result = on_result;
    hutch_submit_run(x, q);
}

void hutch_fusion_run(struct exchange *x)
{
    struct fusion_run *run = calloc(1, sizeof(*run));
    struct hutch_request q;
    struct hutch_err err;

    x->work = run;
    if (!run) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the run");
        return;
    }
    x->on_free = on_free;
    hutch_request_init(&q);
    if (hutch_fusion_request_parse_run(x->body.data, x->body.len, &run->request, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    q.language = find_language(&run->request.language);
    q.code = run->request.code.data;
    q.code_len = run->request.code.len;
    hutch_exchange_note_program(x, q.code, q.code_len);
    if (!q.language)
        answer_language(x, run->request.language.data);
    else if (run->request.trouble.msg[0])
        answer_trouble(x, run->request.trouble.msg);
    else if (strlen(q.code) != q.code_len && strcmp(q.language, "python") != 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: code: a program has no NUL");
    else if (set_limits(x, &run->request, &q) && hutch_submit_is_allowed(x))
        submit(x, run, &q);
}
