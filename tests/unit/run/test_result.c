/* test_result.c - the result is one line of valid JSON with every key, whatever bytes a run produced. */
#include "sandbox/fd.h"
#include "runtime/run/result.h"

#include <cjson/cJSON.h>
#include <locale.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char *print(const struct run_result *r)
{
    struct hutch_err err = { 0 };
    char *json = NULL;
    size_t len = 0;

    if (hutch_result_json(r, &json, &len, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(strlen(json), len);
    assert_null(strchr(json, '\n'));
    return json;
}

/* The text of a member as it stands in the JSON. */
static void assert_has(const struct run_result *r, const char *text)
{
    auto_free char *json = print(r);

    if (strstr(json, text) == NULL)
        fail_msg("%s\nis not in\n%s", text, json);
}

static void test_an_empty_result_whole(void **state)
{
    static const char want[] =
        "{\"version\":1,\"verdict\":\"ok\",\"exit_code\":null,\"signal\":null,\"message\":null,"
        "\"stdout\":\"\",\"stdout_truncated\":false,\"stderr\":\"\",\"stderr_truncated\":false,\"error\":null,"
        "\"files\":{\"directory\":null,\"added\":[],\"modified\":[],\"deleted\":[],\"truncated\":false},"
        "\"timings_ms\":{\"queued\":0.000,\"prepared\":0.000,\"run\":0.000,\"total\":0.000},"
        "\"usage\":{\"cpu_user_ms\":null,\"cpu_system_ms\":null,\"cpu_at_least\":false,"
        "\"memory_peak_bytes\":null,\"pids_peak\":null},"
        "\"limits\":{\"memory\":{\"asked\":null,\"enforced_by\":[]},\"pids\":{";
    struct run_result r;
    auto_free char *json = NULL;
    cJSON *root, *layers, *limits;

    (void)state;
    hutch_result_init(&r);
    json = print(&r);
    assert_memory_equal(json, want, sizeof(want) - 1);
    root = cJSON_Parse(json);
    assert_non_null(root);
    limits = cJSON_GetObjectItemCaseSensitive(root, "limits");
    assert_int_equal(cJSON_GetArraySize(limits), LIMIT_COUNT);
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        assert_non_null(cJSON_GetObjectItemCaseSensitive(limits, hutch_limit_name((enum sandbox_limit)i)));
    layers = cJSON_GetObjectItemCaseSensitive(root, "layers");
    assert_int_equal(cJSON_GetArraySize(layers), LAYER_COUNT);
    for (unsigned i = 0; i < LAYER_COUNT; i++) {
        cJSON *layer = cJSON_GetObjectItemCaseSensitive(layers, hutch_layer_name((enum sandbox_layer)i));
        auto_free char *text = cJSON_PrintUnformatted(layer);

        assert_string_equal(text, "{\"asked\":\"off\",\"active\":false,\"detail\":\"\"}");
    }
    cJSON_Delete(root);
    hutch_result_done(&r);
}

static void test_each_verdict_has_a_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i <= HUTCH_SETUP_FAILED; i++) {
        assert_string_not_equal(hutch_verdict_text(i), "unknown");
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(hutch_verdict_text(i), hutch_verdict_text(j));
    }
    assert_string_equal(hutch_verdict_text(HUTCH_OUT_OF_MEMORY), "out_of_memory");
    assert_string_equal(hutch_verdict_text(HUTCH_SETUP_FAILED + 1), "unknown");
}

#define FFFD "\xef\xbf\xbd"
static void test_bytes_of_output(void **state)
{
    static const struct { const char *label, *bytes; size_t len; const char *want; } cases[] = {
#define CASE(label, bytes, want) { label, bytes, sizeof(bytes) - 1, "\"stdout\":\"" want "\",\"stdout_truncated\"" }
        CASE("plain", "hello", "hello"),
        CASE("nul", "a\0b\0", "a\\u0000b\\u0000"),
        CASE("controls", "\x01\x1f\x7f\n\t\r", "\\u0001\\u001f\\u007f\\n\\t\\r"),
        CASE("quotes", "\"\\/", "\\\"\\\\/"),
        CASE("utf-8", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80"),
        CASE("lowest and highest of each length",
             "\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
             "\\u0080\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"),
        CASE("around the surrogates", "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80"),
        CASE("surrogate", "\xed\xa0\x80", FFFD FFFD FFFD),
        CASE("surrogate pair (CESU-8)", "\xed\xa0\xbd\xed\xb8\x80", FFFD FFFD FFFD FFFD FFFD FFFD),
        CASE("overlong nul", "\xc0\x80", FFFD FFFD),
        CASE("overlong slash in three", "\xe0\x80\xaf", FFFD FFFD FFFD),
        CASE("overlong in four", "\xf0\x80\x80\xaf", FFFD FFFD FFFD FFFD),
        CASE("above U+10FFFF", "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD),
        CASE("five-byte form", "\xf8\x88\x80\x80\x80", FFFD FFFD FFFD FFFD FFFD),
        CASE("continuation alone", "a\x80z", "a" FFFD "z"),
        CASE("cut at the end", "a\xf0\x9f\x98", "a" FFFD),
        CASE("cut by another", "\xe4\xb8" "A", FFFD "A"),
        CASE("cut by a quote", "\xe4\"", FFFD "\\\""),
        CASE("cut by a lead byte", "\xe4\xb8\xe4\xb8\xad", FFFD "\xe4\xb8\xad"),
        CASE("latin-1", "caf\xe9", "caf" FFFD),
        CASE("fe ff", "\xfe\xff", FFFD FFFD),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *json = NULL;
        struct run_result r;
        cJSON *root;

        hutch_result_init(&r);
        r.out.len = cases[i].len;
        r.out.data = malloc(cases[i].len); /* without a NUL, for the sanitizers */
        memcpy(r.out.data, cases[i].bytes, cases[i].len);
        json = print(&r);
        if (strstr(json, cases[i].want) == NULL)
            fail_msg("%s: %s\nis not in\n%s", cases[i].label, cases[i].want, json);
        root = cJSON_Parse(json);
        assert_non_null(root);
        cJSON_Delete(root);
        hutch_result_done(&r);
    }
}

/* All bytes in both streams at once: what comes out is UTF-8 and parses. */
static void test_all_pairs_of_bytes(void **state)
{
    struct run_result r;
    cJSON *root;
    auto_free char *json = NULL;

    (void)state;
    hutch_result_init(&r);
    r.out.len = r.err_out.len = 2 << 16;
    r.out.data = malloc(r.out.len);
    r.err_out.data = malloc(r.err_out.len);
    for (size_t i = 0; i < 1 << 16; i++) {
        r.out.data[2 * i] = r.err_out.data[2 * i + 1] = (char)(i >> 8);
        r.out.data[2 * i + 1] = r.err_out.data[2 * i] = (char)i;
    }
    json = print(&r);
    assert_int_equal(mbstowcs(NULL, json, 0) == (size_t)-1, 0);
    root = cJSON_Parse(json);
    assert_non_null(root);
    cJSON_Delete(root);
    hutch_result_done(&r);
}

static void test_numbers(void **state)
{
    struct run_result r;

    (void)state;
    hutch_result_init(&r);
    r.exit_code = 0;
    assert_has(&r, "\"exit_code\":0,");
    r.exit_code = 255;
    assert_has(&r, "\"exit_code\":255,");
    r.queued_ms = 0.0004;
    r.prepared_ms = 1.2345;
    r.run_ms = 123456789.001;
    r.total_ms = -3;
    assert_has(&r, "{\"queued\":0.000,\"prepared\":1.235,\"run\":123456789.001,\"total\":0.000}");
    r.total_ms = 0.0 / 0.0;
    r.run_ms = 1.0 / 0.0;
    assert_has(&r, "\"run\":0.000,\"total\":0.000}");
    r.cpu_user_ms = 0;
    r.cpu_system_ms = 9007199254740993u; /* 2^53 + 1: no double holds it */
    r.memory_peak_bytes = UINT64_MAX - 1;
    assert_has(&r, "{\"cpu_user_ms\":0,\"cpu_system_ms\":9007199254740993,\"cpu_at_least\":false,"
                   "\"memory_peak_bytes\":18446744073709551614,\"pids_peak\":null}");
    hutch_result_done(&r);
}

static void test_signals(void **state)
{
    static const struct { int number; const char *want; } cases[] = {
        { SIGKILL, "\"SIGKILL\"" }, { SIGSEGV, "\"SIGSEGV\"" }, { SIGSYS, "\"SIGSYS\"" }, { SIGTERM, "\"SIGTERM\"" },
        { 0, "null" },              { 1000, "\"SIG1000\"" },
    };
    struct run_result r;
    char text[64];

    (void)state;
    hutch_result_init(&r);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text), "\"signal\":%s,", cases[i].want);
        r.signal = cases[i].number;
        assert_has(&r, text);
    }
    r.signal = SIGRTMIN + 2;
    assert_has(&r, "\"signal\":\"SIGRTMIN+2\",");
    hutch_result_done(&r);
}

static void test_message_with_every_verdict(void **state)
{
    struct run_result r;

    (void)state;
    hutch_result_init(&r);
    snprintf(r.message, sizeof(r.message), "stopped after 30 s");
    for (unsigned i = 0; i <= HUTCH_SETUP_FAILED; i++) {
        r.verdict = (enum hutch_verdict)i;
        assert_has(&r, "\"message\":\"stopped after 30 s\",");
    }
    hutch_result_done(&r);
}

static void test_limits_and_layers(void **state)
{
    static const struct { uint64_t asked; unsigned enforcers; const char *want; } cases[] = {
        { 0, 0, "\"memory\":{\"asked\":null,\"enforced_by\":[]}" },
        { 0, 1u << ENFORCER_CGROUP, "\"memory\":{\"asked\":null,\"enforced_by\":[]}" },
        { 5, 0, "\"memory\":{\"asked\":5,\"enforced_by\":[\"none\"]}" }, /* never silently weaker */
        { 5, 1u << ENFORCER_NONE, "\"memory\":{\"asked\":5,\"enforced_by\":[\"none\"]}" },
        { 5, 1u << ENFORCER_CGROUP, "\"memory\":{\"asked\":5,\"enforced_by\":[\"cgroup\"]}" },
        { 5, 1u << ENFORCER_RLIMIT | 1u << ENFORCER_SUPERVISOR | 1u << ENFORCER_NONE,
          "\"memory\":{\"asked\":5,\"enforced_by\":[\"rlimit\",\"supervisor\"]}" },
    };
    struct run_result r;

    (void)state;
    hutch_result_init(&r);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        r.limits[LIMIT_MEMORY].asked = cases[i].asked;
        r.limits[LIMIT_MEMORY].enforcers = cases[i].enforcers;
        assert_has(&r, cases[i].want);
    }
    r.layers[LAYER_LANDLOCK].asked = NEED_TRY;
    r.layers[LAYER_LANDLOCK].is_active = true;
    strcpy(r.layers[LAYER_LANDLOCK].detail, "ABI 6");
    assert_has(&r, "\"landlock\":{\"asked\":\"try\",\"active\":true,\"detail\":\"ABI 6\"}");
    r.layers[LAYER_SECCOMP].asked = NEED_REQUIRE;
    memset(r.layers[LAYER_SECCOMP].detail, 'x', sizeof(r.layers[LAYER_SECCOMP].detail)); /* no terminator */
    assert_has(&r, "\"seccomp\":{\"asked\":\"require\",\"active\":false,\"detail\":\"xxxx");
    hutch_result_done(&r);
}

static void test_files(void **state)
{
    struct file_change added[] = {
        { .path = "chart.png", .size = 5000000000, .mime = "image/png" },
        { .path = "b\xff\"\n", .size = 1, .mime = "text/plain" },
        { .path = "\xff", .size = 0, .mime = "application/x-empty" },
        { .path = "link", .size = 11, .type = FILE_SYMLINK },
        { .path = FFFD, .size = 0, .mime = "application/x-empty" }, /* a name that really has this character */
    };
    struct file_change deleted[] = { { .path = "old", .size = 7 } };
    struct run_result r;

    (void)state;
    hutch_result_init(&r);
    r.directory = strdup("/home/u/out");
    r.files.added.items = added;
    r.files.added.n = ARRAY_SIZE(added);
    r.files.deleted.items = deleted;
    r.files.deleted.n = 1;
    r.files.truncated = true;
    assert_has(&r,
               "\"files\":{\"directory\":\"/home/u/out\",\"added\":["
               "{\"path\":\"chart.png\",\"size\":5000000000,\"mime\":\"image/png\"},"
               "{\"path\":\"b" FFFD "\\\"\\n\",\"path_base64\":\"Yv8iCg==\",\"size\":1,\"mime\":\"text/plain\"},"
               "{\"path\":\"" FFFD "\",\"path_base64\":\"/w==\",\"size\":0,\"mime\":\"application/x-empty\"},"
               "{\"path\":\"link\",\"size\":11,\"mime\":null,\"type\":\"symlink\"},"
               "{\"path\":\"" FFFD "\",\"size\":0,\"mime\":\"application/x-empty\"}"
               "],\"modified\":[],\"deleted\":[{\"path\":\"old\"}],\"truncated\":true}");
    memset(&r.files, 0, sizeof(r.files)); /* not from the heap */
    hutch_result_done(&r);
}

static void test_error(void **state)
{
    struct run_result r;

    (void)state;
    hutch_result_init(&r);
    r.verdict = HUTCH_ERROR;
    r.error.name = strdup("ValueError");
    r.error.value = strdup("");
    r.error.traceback = strdup("Trace\xff\n");
    assert_has(&r, "\"error\":{\"name\":\"ValueError\",\"value\":\"\",\"traceback\":\"Trace" FFFD "\\n\"},");
    hutch_result_done(&r);
    assert_null(r.error.name);
    hutch_result_done(&r);
}

static void test_a_hundred_thousand_files(void **state)
{
    enum { COUNT = 100000 };
    struct file_change *added = calloc(COUNT, sizeof(*added));
    auto_free char *json = NULL;
    struct run_result r;
    cJSON *root;

    (void)state;
    hutch_result_init(&r);
    for (int i = 0; i < COUNT; i++) {
        added[i].path = "some/where/file.txt";
        added[i].mime = "text/plain";
    }
    r.files.added.items = added;
    r.files.added.n = COUNT;
    json = print(&r);
    root = cJSON_Parse(json);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "files"), "added")), COUNT);
    cJSON_Delete(root);
    hutch_result_done(&r); /* frees added too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_result_whole),
        cmocka_unit_test(test_each_verdict_has_a_name),
        cmocka_unit_test(test_bytes_of_output),
        cmocka_unit_test(test_all_pairs_of_bytes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_message_with_every_verdict),
        cmocka_unit_test(test_limits_and_layers),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_a_hundred_thousand_files),
    };

    setlocale(LC_CTYPE, "C.UTF-8"); /* mbstowcs(3) checks UTF-8 for us */
    return cmocka_run_group_tests_name("result", tests, NULL, NULL);
}
