#include "runtime/gateway/process_request.h"

#include "runtime/gateway/body.h"
#include "runtime/gateway/request_parts.h"
#include "runtime/text/base64.h"
#include "sandbox/fd.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>

#define MAX_DEPTH 4
#define MAX_CWD 4096
#define MAX_DATA (1u << 20)
#define MAX_BASE64 (MAX_DATA / 3 * 4 + 4)
#define MAX_MS (366ull * 24 * 3600 * 1000)
#define MAX_TYPE 32
#define MAX_SIGNAL_NAME 16
#define LAST_SIGNAL 64

/* ---- a process ---- */

static int read_args(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct process_request *r = context;
    int rc = hutch_request_read_words(node, &r->args, err);

    r->options.args = r->args;
    return rc;
}

static int read_shell(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, REQUEST_MAX_WORD, &((struct process_request *)context)->options.shell, err);
}

static int read_env(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct process_request *r = context;
    int rc = hutch_request_read_env(node, &r->env, err);

    r->options.env = (const char *const *)r->env;
    return rc;
}

static int read_cwd(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_CWD, &((struct process_request *)context)->options.cwd, err);
}

static int read_stdin(const struct json_node *node, void *context, struct hutch_err *err)
{
    bool value = false;
    int rc = hutch_json_bool(node, &value, err);

    ((struct process_request *)context)->options.has_input = value;
    return rc;
}

static int read_count(const struct json_node *node, unsigned *ret, struct hutch_err *err)
{
    uint64_t n = 0;
    int rc = hutch_json_u64(node, 1, UINT16_MAX, &n, err);

    *ret = (unsigned)n;
    return rc;
}

static int read_rows(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_count(node, &((struct process_request *)context)->options.rows, err);
}

static int read_cols(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_count(node, &((struct process_request *)context)->options.cols, err);
}

static int read_terminal(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = { { "rows", read_rows, false }, { "cols", read_cols, false } };
    struct process_request *r = context;

    r->options.terminal = 1;
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), r, err);
}

static int read_wall(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, MAX_MS, &((struct process_request *)context)->options.wall_ms, err);
}

static int read_output_bytes(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, JSON_U64_MAX, &((struct process_request *)context)->options.output_bytes, err);
}

static int read_ends_with_client(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_bool(node, &((struct process_request *)context)->ends_with_client, err);
}

static int check_process(const struct json_node *root, struct process_request *r, struct hutch_err *err)
{
    struct hutch_process_options *o = &r->options;

    if (!o->args == !o->shell)
        return hutch_json_refuse(root, err, "a process has either args or shell");
    if (o->args && (!o->args[0] || !o->args[0][0]))
        return hutch_json_refuse(root, err, "args begin with the name of a program");
    if (o->terminal && o->has_input)
        return hutch_json_refuse(root, err, "a terminal is the process's stdin, too");
    if (o->terminal && !o->output_bytes)
        o->output_bytes = HUTCH_NO_LIMIT; /* somebody sits at it */
    return 0;
}

int hutch_process_request_parse(const char *text, size_t len, struct process_request *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "args", read_args, false },         { "shell", read_shell, false },
        { "env", read_env, false },           { "cwd", read_cwd, false },
        { "stdin", read_stdin, false },       { "terminal", read_terminal, false },
        { "wall_ms", read_wall, false },      { "output_bytes", read_output_bytes, false },
        { "end_with_client", read_ends_with_client, false },
    };
    struct json_node root;

    *ret = (struct process_request){ .doc = JSON_DOC_INIT };
    hutch_process_options_init(&ret->options);
    if (hutch_body_parse(text, len, MAX_DEPTH, &ret->doc, err) < 0)
        return -1;
    root = hutch_json_root(&ret->doc);
    if (hutch_json_object(&root, fields, ARRAY_SIZE(fields), ret, err) < 0)
        return -1;
    return check_process(&root, ret, err);
}

void hutch_process_request_done(struct process_request *r)
{
    free(r->args);
    hutch_request_env_free(r->env);
    hutch_json_done(&r->doc);
    *r = (struct process_request){ .doc = JSON_DOC_INIT };
}

/* ---- its input ---- */

struct input {
    const char *text, *base64;
};

static int read_data(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_DATA, &((struct input *)context)->text, err);
}

static int read_base64(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_BASE64, &((struct input *)context)->base64, err);
}

static int take_input(const struct json_node *root, const struct input *input, char **ret, size_t *ret_len,
                      struct hutch_err *err)
{
    if (!input->text == !input->base64)
        return hutch_json_refuse(root, err, "input is either data or data_base64");
    if (input->text) {
        *ret = strdup(input->text);
        *ret_len = strlen(input->text);
    } else {
        *ret = (char *)hutch_base64_decode(input->base64, strlen(input->base64), ret_len);
        if (!*ret && errno == EINVAL)
            return hutch_json_refuse(root, err, "data_base64 is not base64");
    }
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "read the input");
}

int hutch_input_request_parse(const char *text, size_t len, char **ret, size_t *ret_len, struct hutch_err *err)
{
    static const struct json_field fields[] = { { "data", read_data, false }, { "data_base64", read_base64, false } };
    __attribute__((cleanup(hutch_json_done))) struct json_doc doc = JSON_DOC_INIT;
    struct input input = { NULL, NULL };
    struct json_node root;

    if (hutch_body_parse(text, len, MAX_DEPTH, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    if (hutch_json_object(&root, fields, ARRAY_SIZE(fields), &input, err) < 0)
        return -1;
    return take_input(&root, &input, ret, ret_len, err);
}

/* ---- signals, sizes ---- */

struct control {
    struct control_message message;
    const char *type;
    bool has_size, has_signal;
};

static int find_signal(const char *name)
{
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; i <= LAST_SIGNAL; i++) {
        const char *abbreviation = sigabbrev_np(i);

        if (abbreviation && strcmp(abbreviation, name) == 0)
            return i;
    }
    return 0;
}

static int read_signal(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct control *c = context;
    const char *name;
    uint64_t number;

    c->has_signal = true;
    if (hutch_json_is_number(node)) {
        if (hutch_json_u64(node, 1, LAST_SIGNAL, &number, err) < 0)
            return -1;
        c->message.signal = (int)number;
        return 0;
    }
    if (hutch_json_string(node, MAX_SIGNAL_NAME, &name, err) < 0)
        return -1;
    c->message.signal = find_signal(name);
    return c->message.signal ? 0 : hutch_json_expected(node, err, "the name or number of a signal");
}

static int read_control_rows(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct control *c = context;

    c->has_size = true;
    return read_count(node, &c->message.rows, err);
}

static int read_control_cols(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct control *c = context;

    c->has_size = true;
    return read_count(node, &c->message.cols, err);
}

static int read_type(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_TYPE, &((struct control *)context)->type, err);
}

static int parse_control(const char *text, size_t len, const struct json_field *fields, size_t n_fields,
                         struct control *ret, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_json_done))) struct json_doc doc = JSON_DOC_INIT;
    static const char *const types[] = { [CONTROL_RESIZE] = "resize", [CONTROL_SIGNAL] = "signal",
                                         [CONTROL_CLOSE_STDIN] = "close_stdin" };
    struct json_node root;

    *ret = (struct control){ .type = NULL };
    if (hutch_body_parse(text, len, MAX_DEPTH, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    if (hutch_json_object(&root, fields, n_fields, ret, err) < 0)
        return -1;
    for (size_t i = 0; ret->type && i < ARRAY_SIZE(types); i++)
        if (strcmp(types[i], ret->type) == 0) {
            ret->message.type = (enum control_type)i;
            ret->type = NULL; /* the document's */
        }
    if (ret->type)
        return hutch_json_refuse(&root, err, "type is one of resize, signal, close_stdin");
    return 0;
}

int hutch_signal_request_parse(const char *text, size_t len, int *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = { { "signal", read_signal, true } };
    struct control control;

    if (parse_control(text, len, fields, ARRAY_SIZE(fields), &control, err) < 0)
        return -1;
    *ret = control.message.signal;
    return 0;
}

int hutch_size_request_parse(const char *text, size_t len, unsigned *ret_rows, unsigned *ret_cols,
                             struct hutch_err *err)
{
    static const struct json_field fields[] = { { "rows", read_control_rows, true },
                                                { "cols", read_control_cols, true } };
    struct control control;

    if (parse_control(text, len, fields, ARRAY_SIZE(fields), &control, err) < 0)
        return -1;
    *ret_rows = control.message.rows;
    *ret_cols = control.message.cols;
    return 0;
}

int hutch_control_message_parse(const char *text, size_t len, struct control_message *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "type", read_type, true },          { "signal", read_signal, false },
        { "rows", read_control_rows, false }, { "cols", read_control_cols, false },
    };
    struct control control;
    const struct control_message *m = &control.message;

    if (parse_control(text, len, fields, ARRAY_SIZE(fields), &control, err) < 0)
        return -1;
    if (m->type == CONTROL_RESIZE ? !m->rows || !m->cols : control.has_size)
        return hutch_err_set(err, 0, "a resize has rows and cols, and nothing else has them");
    if ((m->type == CONTROL_SIGNAL) != control.has_signal)
        return hutch_err_set(err, 0, "a signal has its name or number, and nothing else has one");
    *ret = *m;
    return 0;
}
