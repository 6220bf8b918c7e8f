#include "runtime/gateway/run_request.h"

#include "runtime/gateway/body.h"
#include "runtime/gateway/request_parts.h"
#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define MAX_DEPTH 4         /* the object, its lists, and a margin for clearer words about what is in them */
#define MAX_CODE (64u << 20)
#define MAX_STDIN (256u << 20)
#define MAX_LANGUAGE 32
#define MAX_ID 256
#define MAX_FETCH 64 /* hutch.h */

static int read_args(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    int rc = hutch_request_read_words(node, &r->args, err);

    r->request.args = r->args;
    return rc;
}

static int read_fetch(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    int rc = hutch_request_read_words(node, &r->fetch, err);

    r->request.fetch = r->fetch;
    if (rc == 0 && cJSON_GetArraySize(node->value) > MAX_FETCH)
        return hutch_json_refuse(node, err, "it has more than 64 paths");
    return rc;
}

static int read_data_targets(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    int rc = hutch_request_read_words(node, &r->data_targets, err);

    r->request.data_targets = r->data_targets;
    return rc;
}

static int read_env(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    int rc = hutch_request_read_env(node, &r->env, err);

    r->request.env = (const char *const *)r->env;
    return rc;
}

static int read_limits(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct hutch_request *q = &((struct run_request *)context)->request;
    struct hutch_limits limits;

    if (hutch_request_read_limits(node, &limits, err) < 0)
        return -1;
    q->wall_ms = limits.wall_ms;
    q->cpu_ms = limits.cpu_ms;
    q->memory_bytes = limits.memory_bytes;
    q->pids = limits.pids;
    q->cpus = limits.cpus;
    q->output_bytes = limits.output_bytes;
    q->data_bytes = limits.data_bytes;
    q->data_files = limits.data_files;
    q->file_bytes = limits.file_bytes;
    return 0;
}

static int read_code(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;

    if (hutch_json_string(node, MAX_CODE, &r->request.code, err) < 0)
        return -1;
    r->request.code_len = strlen(r->request.code);
    return 0;
}

static int read_language(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;

    return hutch_json_string(node, MAX_LANGUAGE, &r->request.language, err);
}

/* "-c" is no file, as python3 -c has it; "-" means something else than a name to the library, too. */
static int read_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;

    if (hutch_json_string(node, NAME_MAX, &r->request.name, err) < 0)
        return -1;
    if (strcmp(r->request.name, "-c") == 0)
        return 0;
    if (r->request.name[0] == '\0' || r->request.name[0] == '-' || strchr(r->request.name, '/'))
        return hutch_json_refuse(node, err, "a name is not empty, has no '/' and does not begin with '-'");
    return 0;
}

static int refuse_second_input(const struct json_node *node, const struct run_request *r, struct hutch_err *err)
{
    return r->request.input ? hutch_json_refuse(node, err, "there is either stdin or stdin_base64") : 0;
}

static int read_stdin(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;

    if (hutch_json_string(node, MAX_STDIN, &r->request.input, err) < 0)
        return -1;
    r->request.input_len = strlen(r->request.input);
    return 0;
}

static int read_stdin_base64(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    const char *text;

    if (refuse_second_input(node, r, err) < 0 || hutch_json_string(node, MAX_STDIN, &text, err) < 0)
        return -1;
    r->input = hutch_base64_decode(text, strlen(text), &r->request.input_len);
    if (!r->input)
        return errno == ENOMEM ? hutch_err_set(err, ENOMEM, "read stdin_base64")
                               : hutch_json_refuse(node, err, "this is not base64");
    r->request.input = (const char *)r->input;
    return 0;
}

static int read_rich(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    bool is_rich;

    if (hutch_json_bool(node, &is_rich, err) < 0)
        return -1;
    r->request.rich = is_rich;
    return 0;
}

static int read_id(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct run_request *r = context;
    struct text_buffer t = TEXT_BUFFER_INIT;
    const char *text;
    uint64_t number;

    if (hutch_json_is_string(node)) {
        if (hutch_json_string(node, MAX_ID, &text, err) < 0)
            return -1;
        hutch_json_quote(&t, text, strlen(text));
    } else {
        if (hutch_json_u64(node, 0, JSON_U64_MAX, &number, err) < 0)
            return -1;
        hutch_text_addf(&t, "%" PRIu64, number);
    }
    r->id = hutch_text_take(&t, NULL);
    return r->id ? 0 : hutch_err_set(err, ENOMEM, "read the id");
}

/* The first is that of a batch only. */
static const struct json_field fields[] = {
    { "id", read_id, false },
    { "code", read_code, true },     { "language", read_language, false }, { "name", read_name, false },
    { "args", read_args, false },    { "env", read_env, false },           { "stdin", read_stdin, false },
    { "stdin_base64", read_stdin_base64, false },                          { "limits", read_limits, false },
    { "rich", read_rich, false },    { "fetch", read_fetch, false },       { "data_targets", read_data_targets, false },
};

static int parse(const char *text, size_t len, size_t n_passed, struct run_request *ret, struct hutch_err *err)
{
    struct json_node root;

    *ret = (struct run_request){ .doc = JSON_DOC_INIT };
    hutch_request_init(&ret->request);
    if (hutch_body_parse(text, len, MAX_DEPTH, &ret->doc, err) < 0)
        return -1;
    root = hutch_json_root(&ret->doc);
    return hutch_json_object(&root, fields + n_passed, ARRAY_SIZE(fields) - n_passed, ret, err);
}

int hutch_run_request_parse(const char *text, size_t len, struct run_request *ret, struct hutch_err *err)
{
    return parse(text, len, 1, ret, err);
}

int hutch_run_request_parse_line(const char *text, size_t len, struct run_request *ret, struct hutch_err *err)
{
    return parse(text, len, 0, ret, err);
}

void hutch_run_request_done(struct run_request *r)
{
    hutch_request_env_free(r->env);
    free(r->args);
    free(r->fetch);
    free(r->data_targets);
    free(r->input);
    free(r->id);
    hutch_json_done(&r->doc);
    *r = (struct run_request){ .doc = JSON_DOC_INIT };
}
