/* What E2B's clients send: messages of streams, JSON, names, hosts, paths; and forms. The first byte chooses which. */
#include "runtime/e2b/connect.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/names.h"
#include "runtime/e2b/paths.h"
#include "runtime/gateway/multipart.h"

#include "tests/fuzz/fuzz.h"

struct form {
    bool is_open;
};

static int on_begin(void *owner, const char *name, const char *filename)
{
    struct form *form = owner;

    fuzz_check(!form->is_open && (!name || strlen(name) < MULTIPART_MAX_HEAD));
    fuzz_check(!filename || strlen(filename) < MULTIPART_MAX_HEAD);
    form->is_open = true;
    return 0;
}

static int on_data(void *owner, const char *data, size_t len)
{
    fuzz_check(((struct form *)owner)->is_open && data && len > 0);
    return 0;
}

static int on_end(void *owner)
{
    struct form *form = owner;

    fuzz_check(form->is_open);
    form->is_open = false;
    return 0;
}

static void parse_form(const char *text, size_t size)
{
    static const struct multipart_events events = { on_begin, on_data, on_end };
    struct form form = { .is_open = false };
    struct hutch_err err = { .msg = "" };
    struct multipart m;
    int rc = hutch_multipart_begin(&m, "multipart/form-data; boundary=b", &events, &form, &err);

    for (size_t at = 0; rc == 0 && at < size; at += 7)
        rc = hutch_multipart_take(&m, text + at, size - at < 7 ? size - at : 7, &err);
    if (rc == 0)
        rc = hutch_multipart_finish(&m, &err);
    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || !form.is_open);
}

static void parse_message(const char *body, size_t size)
{
    struct hutch_err err = { .msg = "" };
    struct json_view json = { body, size }, object = JSON_VIEW_NONE;
    char *text = NULL, **env = NULL;
    uint64_t number = 0;
    bool flag;

    if (hutch_connect_read(body, size, &json, &err) == 0)
        fuzz_check(json.len == size - CONNECT_HEAD);
    if (hutch_e2b_fields_parse(json.text, json.len, &json, &err) < 0)
        return;
    if (hutch_e2b_fields_text(json, "code", 1000, &text, &err) == 0 && text)
        fuzz_check(strlen(text) <= 1000);
    if (hutch_e2b_fields_number(json, "timeout", 1, 100, &number, &err) == 0)
        fuzz_check(number <= 100);
    hutch_e2b_fields_bool(json, "stdin", &flag, &err);
    hutch_e2b_fields_object(json, "process", &object, &err);
    if (hutch_e2b_fields_env(json, "envs", &env, &err) == 0)
        for (char **variable = env; variable && *variable; variable++)
            fuzz_check(strchr(*variable, '=') > *variable);
    hutch_e2b_fields_env_free(env);
    free(text);
}

static void parse_names(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_string(data, size);
    char id[ID_LEN + 1], name[E2B_ID_LEN + 1];
    struct hutch_err err = { .msg = "" };
    auto_free char *path = hutch_e2b_path_absolute(text, &err);
    const char *in_data;
    unsigned port;

    fuzz_check(hutch_e2b_name_read(text, id) == (id[0] != '\0'));
    if (hutch_e2b_name_of_host(text, name, &port))
        fuzz_check(strlen(name) == E2B_ID_LEN && port < 100000);
    fuzz_check(!path || (path[0] == '/' && !strstr(path, "//") && !strstr(path, "/../")));
    if (path && hutch_e2b_path_in_data(path, &in_data, &err) == 0)
        fuzz_check(in_data[0] && in_data[0] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned which = fuzz_byte(&data, &size) % 3;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */

    fuzz_check(text);
    memcpy(text, data, size);
    if (which == 0)
        parse_message(text, size);
    else if (which == 1)
        parse_form(text, size);
    else
        parse_names(data, size);
    return 0;
}
