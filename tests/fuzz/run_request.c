/* The JSON of requests. The first byte chooses which, or what is done with a path and with headers. */
#include "runtime/gateway/run_request.h"

#include "runtime/gateway/access.h"
#include "runtime/gateway/function_request.h"
#include "runtime/gateway/range.h"
#include "runtime/gateway/route.h"
#include "runtime/gateway/session_request.h"
#include "runtime/gateway/uri.h"

#include "tests/fuzz/fuzz.h"

static void parse_run(const char *text, size_t size)
{
    struct run_request r;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_run_request_parse(text, size, &r, &err);
    fuzz_check_err(rc, &err);
    if (rc == 0) {
        fuzz_check(r.request.code && strlen(r.request.code) == r.request.code_len);
        fuzz_check(!r.request.name || strcmp(r.request.name, "-c") == 0 ||
                   (r.request.name[0] != '-' && !strchr(r.request.name, '/')));
        fuzz_check(!r.request.policy && !r.request.data_dir && !r.request.has_input_fd && !r.request.keep_data);
        for (const char *const *variable = r.request.env; variable && *variable; variable++)
            fuzz_check(strchr(*variable, '=') > *variable);
        for (const char *const *arg = r.request.args; arg && *arg; arg++)
            fuzz_check(strlen(*arg) <= size);
    }
    hutch_run_request_done(&r);
    rc = hutch_run_request_parse_line(text, size, &r, &err);
    fuzz_check_err(rc, &err);
    fuzz_check(!r.id || r.id[0] == '"' || strspn(r.id, "0123456789") == strlen(r.id));
    hutch_run_request_done(&r);
}

static void parse_call(const char *text, size_t size)
{
    struct function_request r;
    struct hutch_err err = { .msg = "" };

    for (int is_call = 0; is_call < 2; is_call++) {
        int rc = hutch_function_request_parse(text, size, is_call, &r, &err);

        fuzz_check_err(rc, &err);
        fuzz_check(rc < 0 || (r.event.len > 0 && r.event.len <= (size > 4 ? size : 4)));
        for (char **variable = r.env; rc == 0 && variable && *variable; variable++)
            fuzz_check(strchr(*variable, '=') > *variable);
        hutch_function_request_done(&r);
    }
}

static void parse_session(const char *text, size_t size)
{
    struct session_request r;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_session_request_parse(text, size, &r, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || (!r.options.policy && !r.options.data_dir && !r.options.keep_data));
    hutch_session_request_done(&r);
}

static void parse_cell(const char *text, size_t size)
{
    struct cell_request r;
    struct hutch_err err = { .msg = "" };
    uint64_t number;
    int rc = hutch_cell_request_parse(text, size, &r, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || (r.cell.code && !r.cell.allow_input));
    hutch_cell_request_done(&r);
    fuzz_check_err(hutch_number_request_parse(text, size, "branch", &number, &err), &err);
}

static void find_path(const uint8_t *data, size_t size)
{
    static const struct route routes[] = {
        { "GET", "/v1/a", ROUTE_NO_BODY, false, NULL, NULL, NULL },
        { "PUT", "/v1/{id}/files/{path*}", ROUTE_NO_BODY, false, NULL, NULL, NULL },
        { "DELETE", "/v1/{id}/b/{other}", ROUTE_NO_BODY, false, NULL, NULL, NULL },
    };
    static const char *const hosts[] = { "box.example", NULL };
    auto_free char *path = fuzz_string(data, size);
    char *params[ROUTE_MAX_PARAMS] = { NULL }, methods[64];
    const struct route *route;
    struct range range;
    struct hutch_err err = { .msg = "" };
    bool has_other;

    fuzz_check_err(hutch_route_find(routes, ARRAY_SIZE(routes), "PUT", path, &route, &has_other, params, &err), &err);
    fuzz_check(!route || (params[0] && params[1] && params[0][0]));
    for (size_t i = 0; i < ROUTE_MAX_PARAMS; i++)
        free(params[i]);
    hutch_route_methods(routes, ARRAY_SIZE(routes), path, methods, sizeof(methods));
    hutch_access_is_host(path, hosts);
    range = hutch_range_parse(path, 1000);
    fuzz_check(range.kind == RANGE_UNSATISFIABLE || (range.first + range.len <= 1000 && range.len > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned which = fuzz_byte(&data, &size) % 8;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */

    fuzz_check(text);
    memcpy(text, data, size);
    if (which < 3)
        parse_run(text, size);
    else if (which == 3)
        parse_call(text, size);
    else if (which == 4)
        parse_session(text, size);
    else if (which == 5)
        parse_cell(text, size);
    else
        find_path(data, size);
    return 0;
}
