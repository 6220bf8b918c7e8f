/* What E2B's clients send: messages of streams, JSON, names, hosts and paths. The first byte chooses which. */
#include "runtime/e2b/connect.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/names.h"
#include "runtime/e2b/paths.h"

#include "tests/fuzz/fuzz.h"

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
    in_data = path ? hutch_e2b_path_in_data(path) : NULL;
    if (in_data)
        fuzz_check(in_data[0] && in_data[0] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned which = fuzz_byte(&data, &size) % 2;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */

    fuzz_check(text);
    memcpy(text, data, size);
    if (which == 0)
        parse_message(text, size);
    else
        parse_names(data, size);
    return 0;
}
