/* Paths, hosts and tokens: what is let through before anything else of a request is looked at. */
#include "runtime/gateway/access.h"

#include "runtime/gateway/format.h"
#include "runtime/gateway/route.h"
#include "runtime/gateway/token.h"
#include "runtime/gateway/uri.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct route routes[] = {
    { "GET", "/v1/things", ROUTE_NO_BODY, false, NULL, NULL, NULL },
    { "POST", "/v1/things", ROUTE_JSON, false, NULL, NULL, NULL },
    { "GET", "/v1/things/{id}", ROUTE_NO_BODY, false, NULL, NULL, NULL },
    { "PUT", "/v1/things/{id}/files/{path*}", ROUTE_NO_BODY, false, NULL, NULL, NULL },
};

static const struct {
    const char *method, *path;
    int want; /* its number; -1: none, -2: another method, -3: refused */
    const char *params[2];
} paths[] = {
    { "GET", "/v1/things", 0, { NULL } },
    { "HEAD", "/v1/things", 0, { NULL } },
    { "POST", "/v1/things", 1, { NULL } },
    { "DELETE", "/v1/things", -2, { NULL } },
    { "GET", "/v1/things/", -1, { NULL } },
    { "GET", "/v1/things/a", 2, { "a" } },
    { "GET", "/v1/things/%61%2Fb", 2, { "a/b" } },
    { "GET", "/v1/things/a/b", -1, { NULL } },
    { "PUT", "/v1/things/a/files/b", 3, { "a", "b" } },
    { "PUT", "/v1/things/a/files/../c/%2e%2e", 3, { "a", "../c/.." } }, /* the library refuses it, and only that can */
    { "PUT", "/v1/things/a/files/", -1, { NULL } },
    { "PUT", "/v1/things//files/b", -1, { NULL } },
    { "PUT", "/v1/things/a/files/%00", -3, { NULL } },
    { "PUT", "/v1/things/a/files/%", -3, { NULL } },
    { "PUT", "/v1/things/a/files/%4", -3, { NULL } },
    { "PUT", "/v1/things/a/files/%zz", -3, { NULL } },
    { "GET", "/v1/%74hings", -1, { NULL } },
    { "GET", "", -1, { NULL } },
};

static void test_paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        char *params[ROUTE_MAX_PARAMS] = { NULL };
        const struct route *route;
        struct hutch_err err = { .msg = "" };
        bool has_other;
        int rc = hutch_route_find(routes, ARRAY_SIZE(routes), paths[i].method, paths[i].path, &route, &has_other,
                                  params, &err);
        int found = rc < 0 ? -3 : route ? (int)(route - routes) : has_other ? -2 : -1;

        print_message("  %s %s\n", paths[i].method, paths[i].path);
        assert_int_equal(found, paths[i].want);
        for (int k = 0; k < 2 && paths[i].params[k]; k++)
            assert_string_equal(params[k], paths[i].params[k]);
        for (int k = 0; k < ROUTE_MAX_PARAMS; k++)
            free(params[k]);
    }
}

static void test_methods(void **state)
{
    char text[64];

    (void)state;
    hutch_route_methods(routes, ARRAY_SIZE(routes), "/v1/things", text, sizeof(text));
    assert_string_equal(text, "GET, HEAD, POST");
    hutch_route_methods(routes, ARRAY_SIZE(routes), "/v1/nothing", text, sizeof(text));
    assert_string_equal(text, "");
}

/* The whole table of the server: no two rows answer the same, and each pattern is one that can be matched. */
static void test_table(void **state)
{
    (void)state;
    const struct route *table = hutch_native_format.routes;

    for (size_t i = 0; i < hutch_native_format.n_routes; i++) {
        unsigned n = 0;

        for (const char *p = table[i].path; (p = strchr(p, '{')); p++, n++)
            assert_true(p[-1] == '/' && strchr(p, '}') && strchr("/", strchr(p, '}')[1]));
        assert_in_range(n, 0, ROUTE_MAX_PARAMS);
        assert_int_equal(table[i].path[0], '/');
        assert_non_null(table[i].handle);
        for (size_t k = 0; k < i; k++)
            assert_false(strcmp(table[k].path, table[i].path) == 0 &&
                         strcmp(table[k].method, table[i].method) == 0);
    }
}

static const struct format other = { .name = "other", .routes = routes, .n_routes = ARRAY_SIZE(routes) };
static const struct format *const known[] = { &other, NULL };

static void test_formats(void **state)
{
    static const char *const moved[] = { "other=/there", NULL };
    static const char *const bad[] = { "none", "other=there", "other=/", "other=/a/", "other=/a//b", "other=/a b",
                                       "other=/{id}", "=/a", "" };
    struct formats f;
    struct hutch_err err;
    const struct format *format;
    const struct route *route;
    char *params[ROUTE_MAX_PARAMS] = { NULL }, text[64];
    const char *prefix;
    bool has_other;

    (void)state;
    assert_return_code(hutch_formats_choose(known, NULL, &f, &err), 0);
    assert_int_equal(f.n, 2);
    assert_return_code(hutch_formats_choose(known, moved, &f, &err), 0);
    hutch_formats_find(&f, "GET", "/v1/things", &format, &route, &has_other, params, &err);
    assert_true(format == &hutch_native_format && !route && !has_other);
    hutch_formats_find(&f, "GET", "/there/v1/things", &format, &route, &has_other, params, &err);
    assert_true(format == &other && route == &routes[0]);
    assert_true(hutch_formats_route(&f, hutch_formats_number(&f, route), &prefix) == route);
    assert_string_equal(prefix, "/there");
    hutch_formats_find(&f, "GET", "/there/nothing", &format, &route, &has_other, params, &err);
    assert_true(format == &other && !route && !has_other);
    hutch_formats_find(&f, "GET", "/therefore/v1/things", &format, &route, &has_other, params, &err);
    assert_true(format == &hutch_native_format && !route);
    hutch_formats_methods(&f, "/there/v1/things", text, sizeof(text));
    assert_string_equal(text, "GET, HEAD, POST");
    assert_int_equal(hutch_formats_number(&f, NULL), ROUTE_MAX);
    assert_null(hutch_formats_route(&f, ROUTE_MAX, &prefix));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *wanted[] = { bad[i], NULL };

        assert_int_equal(hutch_formats_choose(known, wanted, &f, &err), -1);
    }
    {
        static const char *const twice[] = { "other", "other=/a", NULL };

        assert_int_equal(hutch_formats_choose(known, twice, &f, &err), -1);
    }
    assert_return_code(hutch_formats_choose(known, (const char *const[]){ "other", NULL }, &f, &err), 0);
    assert_int_equal(hutch_formats_add(&f, &other, "", &err), -1); /* it is there */
    assert_return_code(hutch_formats_choose(NULL, NULL, &f, &err), 0);
    assert_return_code(hutch_formats_add(&f, &other, "", &err), 0);
    hutch_formats_find(&f, "GET", "/v1/things", &format, &route, &has_other, params, &err);
    assert_true(format == &other && route == &routes[0]);
}

static char *write_nothing(enum gateway_error error, const char *message, unsigned *status, size_t *ret_len)
{
    (void)error;
    (void)message;
    (void)status;
    (void)ret_len;
    return NULL;
}

/* Whose words are used where nobody has the path. */
static void test_nearest_format(void **state)
{
    static const struct route first_routes[] = { { .method = "GET", .path = "/boxes/{id}/files/{path*}" },
                                                 { .method = "GET", .path = "/" } };
    static const struct route second_routes[] = { { .method = "GET", .path = "/boxes/{id}" },
                                                  { .method = "POST", .path = "/box.Files/List" } };
    static const struct format first = { .name = "first", .routes = first_routes, .n_routes = 2,
                                         .error_body = write_nothing };
    static const struct format second = { .name = "second", .routes = second_routes, .n_routes = 2,
                                          .error_body = write_nothing };
    static const struct format plain = { .name = "plain", .routes = second_routes, .n_routes = 2 };
    static const struct format *const all[] = { &first, &second, &plain, NULL };
    static const struct { const char *formats[3], *path; const struct format *want; } rows[] = {
        { { "first", "second" }, "/boxes/x/nothing", &first },    /* both begin so: the first of them */
        { { "first", "second" }, "/boxes/x/files", &first },
        { { "second", "first" }, "/boxes/x/files", &first },      /* more of its parts are the same */
        { { "first", "second" }, "/box.Files/Drop", &second },
        { { "first", "second" }, "/box.Filesystem/List", &hutch_native_format },
        { { "first", "second" }, "/nothing", &hutch_native_format },
        { { "first" }, "/nothing", &first },                      /* the only one beside the native one */
        { { "first" }, "/v1/nothing", &hutch_native_format },
        { { "first" }, "", &first },
        { { "first=/there", "second" }, "/nothing", &second },
        { { "first=/there", "second" }, "/there/nothing", &first },
        { { "first=/there" }, "/boxes/x/nothing", &hutch_native_format },
        { { "plain" }, "/nothing", &hutch_native_format },        /* it has no words of its own */
        { { "first", "plain" }, "/nothing", &first },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct formats f;
        struct hutch_err err;
        const struct format *format;
        const struct route *route;
        char *params[ROUTE_MAX_PARAMS] = { NULL };
        bool has_other;

        assert_return_code(hutch_formats_choose(all, rows[i].formats, &f, &err), 0);
        assert_return_code(hutch_formats_find(&f, "GET", rows[i].path, &format, &route, &has_other, params, &err), 0);
        assert_true(!route && !has_other);
        if (format != rows[i].want)
            fail_msg("'%s' is told in the words of '%s'", rows[i].path, format->name);
    }
}

static void test_hosts(void **state)
{
    static const char *const allowed[] = { "box.example", "*.many.example", NULL };
    static const char *const good[] = { "localhost", "LocalHost:1", "127.0.0.1", "10.0.0.1:80", "[::1]",
                                        "[fe80::1]:8080", "box.example", "BOX.example:443",
                                        "a.many.example", "49999-x.MANY.example:1" };
    static const char *const bad[] = { "", ":80", "evil", "localhost.evil", "evil:80", "127.0.0.1.evil", "127.1",
                                       "[::1", "[]", "[evil]:80", "[::1]evil", "localhost:80:90", "box.example.",
                                       "@localhost", "localhost@evil", "a.box.example", "many.example", ".many.example",
                                       "a.b.many.example", "a.many.example.evil" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (!hutch_access_is_host(good[i], allowed))
            fail_msg("'%s' is refused", good[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (hutch_access_is_host(bad[i], allowed))
            fail_msg("'%s' is let through", bad[i]);
    assert_false(hutch_access_is_host("box.example", NULL));
}

static void test_tokens(void **state)
{
    /* SHA-256 of "abc" and of "". */
    static const char text[] =
        "# a comment\n\nada ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\r\n"
        "bob\te3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852B855";
    struct tokens tokens = TOKENS_INIT;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_tokens_parse("tokens", text, strlen(text), &tokens, &err), 0);
    assert_int_equal(tokens.n, 2);
    assert_string_equal(hutch_tokens_find(&tokens, "Bearer abc")->name, "ada");
    assert_string_equal(hutch_tokens_find(&tokens, "bearer   abc")->name, "ada");
    assert_null(hutch_tokens_find(&tokens, NULL));
    assert_null(hutch_tokens_find(&tokens, "abc"));
    assert_null(hutch_tokens_find(&tokens, "Bearer abcd"));
    assert_null(hutch_tokens_find(&tokens, "Bearer "));
    assert_null(hutch_tokens_find(&tokens, "Basic abc"));
    hutch_tokens_done(&tokens);
}

/* A file of the most tokens that may be, whose order is not that of names nor of hashes: each line is found, and what
 * is there twice is told with its line. */
static void test_many_tokens(void **state)
{
    enum { N = 4096, LINE = 80 };
    auto_free char *text = malloc((N + 1) * LINE + 1);
    struct tokens tokens = TOKENS_INIT;
    struct hutch_err err;
    size_t len = 0;

    (void)state;
    assert_non_null(text);
    for (unsigned i = 0; i < N; i++)
        len += (size_t)sprintf(text + len, "t%u %064x\n", i * 2741 % N, i * 1637 % N);
    assert_int_equal(hutch_tokens_parse("tokens", text, len, &tokens, &err), 0);
    assert_int_equal(tokens.n, N);
    assert_string_equal(tokens.rows[1]->name, "t2741");
    hutch_tokens_done(&tokens);
    sprintf(text + len, "t9999 %064x\n", 1637);
    assert_int_equal(hutch_tokens_parse("tokens", text, strlen(text), &tokens, &err), -1);
    assert_string_equal(err.msg, "tokens: line 4097: 't9999' has the name or the hash of an earlier line");
    sprintf(text + len, "t2741 %064x\n", 9999);
    assert_int_equal(hutch_tokens_parse("tokens", text, strlen(text), &tokens, &err), -1);
    assert_string_equal(err.msg, "tokens: line 4097: 't2741' has the name or the hash of an earlier line");
    sprintf(text + len, "t9999 %064x\n", 9999);
    assert_int_equal(hutch_tokens_parse("tokens", text, strlen(text), &tokens, &err), -1);
    assert_string_equal(err.msg, "tokens: more than 4096 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths), cmocka_unit_test(test_methods), cmocka_unit_test(test_table),
        cmocka_unit_test(test_formats), cmocka_unit_test(test_nearest_format),
        cmocka_unit_test(test_hosts), cmocka_unit_test(test_tokens), cmocka_unit_test(test_many_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
