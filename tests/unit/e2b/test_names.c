/* test_names.c - ids of sandboxes, paths, signatures, events. */
#include "runtime/e2b/names.h"

#include "runtime/e2b/event.h"
#include "runtime/e2b/paths.h"
#include "runtime/e2b/signature.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_every_id_has_one_name(void **state)
{
    static const char *const ids[] = { "AAAAAAAAAAAAAAAAAAAAA", "_____________________", "d3XS5Vh2vPJm_YqkW0-Ze" };
    char name[E2B_ID_LEN + 1], id[ID_LEN + 1];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        hutch_e2b_name_write(ids[i], name);
        assert_int_equal(strlen(name), E2B_ID_LEN);
        assert_true(hutch_e2b_name_read(name, id));
        assert_string_equal(id, ids[i]);
        for (char *c = name; *c; c++)
            if (*c >= 'a' && *c <= 'z')
                *c = (char)(*c - 'a' + 'A');
        assert_true(hutch_e2b_name_read(name, id)); /* hosts have no case */
        assert_string_equal(id, ids[i]);
        name[E2B_ID_LEN - 1] = '7'; /* bits that no id has */
        assert_false(hutch_e2b_name_read(name, id));
        assert_int_equal(id[0], '\0');
    }
    assert_false(hutch_e2b_name_read("", id));
    assert_false(hutch_e2b_name_read("aaaaaaaaaaaaaaaaaaaaaaaaa!", id));
}

static void test_hosts(void **state)
{
    static const struct { const char *host; unsigned port; } rows[] = {
        { "49999-aaaaaaaaaaaaaaaaaaaaaaaaaa.box.example", 49999 },
        { "49983-aaaaaaaaaaaaaaaaaaaaaaaaaa.x:443", 49983 },
        { "49999-aaaaaaaaaaaaaaaaaaaaaaaaaa", 0 },
        { "49999-aaaaaaaaaaaaaaaaaaaaaaaaa.box.example", 0 },
        { "-aaaaaaaaaaaaaaaaaaaaaaaaaa.box.example", 0 },
        { "123456-aaaaaaaaaaaaaaaaaaaaaaaaaa.box.example", 0 },
        { "", 0 }, { "localhost", 0 }, { "49999-", 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char name[E2B_ID_LEN + 1];
        unsigned port = 0;

        assert_int_equal(hutch_e2b_name_of_host(rows[i].host, name, &port), rows[i].port != 0);
        assert_int_equal(port, rows[i].port);
    }
}

static void test_paths(void **state)
{
    static const struct { const char *path, *absolute, *name; } rows[] = {
        { "a.txt", "/home/user/a.txt", "a.txt" },
        { "./d//x/", "/home/user/d/x", "d/x" },
        { "/home/user/a", "/home/user/a", "a" },
        { "/mnt/data/a", "/mnt/data/a", "a" },
        { "/tmp/x", "/tmp/x", NULL },
        { "/", "/", NULL },
        { ".", "/home/user", NULL },
        { "/home/users/x", "/home/users/x", NULL },
        { "..", NULL, NULL },
        { "a/../b", NULL, NULL },
        { "/home/user/../../etc", NULL, NULL },
        { "", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err;
        auto_free char *absolute = hutch_e2b_path_absolute(rows[i].path, &err);
        const char *name = NULL;

        print_message("  %s\n", rows[i].path);
        assert_int_equal(absolute != NULL, rows[i].absolute != NULL);
        if (!absolute)
            continue;
        assert_string_equal(absolute, rows[i].absolute);
        name = hutch_e2b_path_in_data(absolute);
        assert_int_equal(name != NULL, rows[i].name != NULL);
        if (rows[i].name)
            assert_string_equal(name, rows[i].name);
    }
}

static void test_signatures(void **state)
{
    auto_free char *one = hutch_e2b_signature_make("a", "read", "", "t", NULL);
    auto_free char *other = hutch_e2b_signature_make("a", "read", "", "t", "1");

    (void)state;
    assert_non_null(one);
    assert_string_equal(one, "v1_C3AxUbkzdunemrWPAn+qq5/s995hYeAbqKWUA3T4LFU");
    assert_string_not_equal(one, other);
}

static void test_events(void **state)
{
    static const struct { enum hutch_output_kind kind; const char *json, *line; } rows[] = {
        { HUTCH_VALUE, "{\"output_type\":\"execute_result\",\"data\":{\"text/plain\":\"'a\\u00e9'\"}}",
          "{\"type\":\"result\",\"is_main_result\":true,\"text\":\"a\\u00e9\",\"extra\":{}}\n" },
        { HUTCH_DISPLAY, "{\"data\":{\"image/png\":\"AA==\",\"x/y\":{\"a\":[1]},\"application/json\":{\"b\":null}}}",
          "{\"type\":\"result\",\"is_main_result\":false,\"png\":\"AA==\",\"json\":{\"b\":null},"
          "\"extra\":{\"x/y\":{\"a\":[1]}}}\n" },
        { HUTCH_ERROR_OUTPUT, "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"a\",\"b\"]}",
          "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"ab\"}\n" },
        { HUTCH_UPDATE, "{}", "" },
        { HUTCH_DISPLAY, "{\"data\":1}", NULL },
        { HUTCH_ERROR_OUTPUT, "{}", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_output output = { .size = sizeof(output), .kind = rows[i].kind, .json = rows[i].json };
        struct text_buffer t = TEXT_BUFFER_INIT;

        assert_int_equal(hutch_e2b_event_add(&t, &output), rows[i].line != NULL);
        if (rows[i].line)
            assert_string_equal(t.data ? t.data : "", rows[i].line);
        hutch_text_done(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_id_has_one_name), cmocka_unit_test(test_hosts), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_signatures), cmocka_unit_test(test_events),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
