/* test_python_error.c - a record is read exactly, and anything else is no report. */
#include "sandbox/fd.h"
#include "rootfs/guest.h"
#include "runtime/lang/python_error.h"
#include "sandbox/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NUM(n) (char)((n) & 255), (char)((n) >> 8 & 255), (char)((n) >> 16 & 255), (char)((unsigned)(n) >> 24)

static void test_a_good_record(void **state)
{
    static const char record[] = "HUTCHPY1\x0a\0\0\0\x03\0\0\0\x05\0\0\0ValueErrorx\0yabcde";
    struct error_report report = ERROR_REPORT_INIT;

    (void)state;
    assert_int_equal(hutch_pyreport_parse(record, sizeof(record) - 1, &report), 1);
    assert_string_equal(report.name, "ValueError");
    assert_string_equal(report.value, "x\xef\xbf\xbdy"); /* C strings hold no NUL */
    assert_string_equal(report.traceback, "abcde");
    hutch_error_report_done(&report);
    assert_null(report.name);
    hutch_error_report_done(&report);
}

static void test_empty_value_and_traceback(void **state)
{
    static const char record[] = "HUTCHPY1\x01\0\0\0\0\0\0\0\0\0\0\0E";
    struct error_report report = ERROR_REPORT_INIT;

    (void)state;
    assert_int_equal(hutch_pyreport_parse(record, sizeof(record) - 1, &report), 1);
    assert_string_equal(report.name, "E");
    assert_string_equal(report.value, "");
    assert_string_equal(report.traceback, "");
    hutch_error_report_done(&report);
}

static void test_what_is_no_report(void **state)
{
    static const struct { const char *label, *bytes; size_t len; } cases[] = {
#define CASE(label, bytes) { label, bytes, sizeof(bytes) - 1 }
        CASE("nothing", ""),
        CASE("magic only", "HUTCHPY1"),
        CASE("header cut", "HUTCHPY1\x01\0\0\0\0\0\0\0\0\0\0"),
        CASE("other magic", "HUTCHPY2\x01\0\0\0\0\0\0\0\0\0\0\0E"),
        CASE("no name", "HUTCHPY1\0\0\0\0\x01\0\0\0\0\0\0\0v"),
        CASE("body cut", "HUTCHPY1\x02\0\0\0\0\0\0\0\0\0\0\0E"),
        CASE("more than a record", "HUTCHPY1\x01\0\0\0\0\0\0\0\0\0\0\0EE"),
        CASE("two records", "HUTCHPY1\x01\0\0\0\0\0\0\0\0\0\0\0EHUTCHPY1\x01\0\0\0\0\0\0\0\0\0\0\0E"),
        CASE("name too long", "HUTCHPY1\x01\x10\0\0\0\0\0\0\0\0\0\0E"),
        CASE("all lengths at their highest", "HUTCHPY1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        CASE("lengths that wrap around to 1", "HUTCHPY1\x01\0\0\0\x02\0\0\0\xfe\xff\xff\xff" "E"),
        CASE("big endian", "HUTCHPY1\0\0\0\x01\0\0\0\0\0\0\0\0E"),
        CASE("leading newline", "\nHUTCHPY1\x01\0\0\0\0\0\0\0\0\0\0\0E"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error_report report = ERROR_REPORT_INIT;

        if (hutch_pyreport_parse(cases[i].bytes, cases[i].len, &report) != 0 || report.name != NULL)
            fail_msg("%s was taken for a report", cases[i].label);
    }
}

static void test_longest_texts(void **state)
{
    const char header[] = { 'H', 'U', 'T', 'C', 'H', 'P', 'Y', '1', NUM(PYREPORT_MAX_NAME),
                            NUM(PYREPORT_MAX_VALUE), NUM(PYREPORT_MAX_TRACEBACK) };
    struct error_report report = ERROR_REPORT_INIT;
    auto_free char *record = calloc(PYREPORT_MAX + 1, 1);

    (void)state;
    memcpy(record, header, sizeof(header));
    assert_int_equal(hutch_pyreport_parse(record, PYREPORT_MAX, &report), 1); /* all NUL: three bytes for each */
    assert_int_equal(strlen(report.traceback), 3 * PYREPORT_MAX_TRACEBACK);
    hutch_error_report_done(&report);
    assert_int_equal(hutch_pyreport_parse(record, PYREPORT_MAX + 1, &report), 0);
    for (int field = 0; field < 3; field++) { /* each length one too many */
        memcpy(record, header, sizeof(header));
        record[8 + 4 * field] = 1;
        assert_int_equal(hutch_pyreport_parse(record, PYREPORT_MAX + 1, &report), 0);
        assert_int_equal(hutch_pyreport_parse(record, PYREPORT_MAX, &report), 0);
    }
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Good records with a few bytes changed, and cut or grown; each in a block of its exact size. */
static void test_deterministic_noise(void **state)
{
    uint32_t seed = 20261;
    unsigned n_reports = 0;

    (void)state;
    for (int round = 0; round < 100000; round++) {
        uint32_t n[3] = { next(&seed) % 20, next(&seed) % 40, next(&seed) % 80 };
        size_t len = PYREPORT_HEADER_LEN + n[0] + n[1] + n[2], cut = next(&seed) % 8;
        uint8_t *block;
        int rc;

        if (cut == 0)
            len = next(&seed) % (len + 1);
        else if (cut == 1)
            len += next(&seed) % 30;
        block = calloc(len + (len == 0), 1);
        assert_non_null(block);
        for (size_t i = 0; i < len; i++)
            block[i] = (uint8_t)next(&seed);
        if (len >= PYREPORT_HEADER_LEN) {
            memcpy(block, PYREPORT_MAGIC, 8);
            for (int i = 0; i < 3; i++) {
                const uint8_t little[4] = { (uint8_t)n[i] };

                memcpy(block + 8 + 4 * i, little, 4);
            }
        }
        for (unsigned flips = next(&seed) % 3; flips > 0 && len > 0; flips--)
            block[next(&seed) % (len < 24 ? len : 24)] ^= (uint8_t)(1u << next(&seed) % 8);
        {
            struct error_report report = ERROR_REPORT_INIT;

            rc = hutch_pyreport_parse((const char *)block, len, &report);
            assert_true(rc == 0 || rc == 1);
            if (rc == 1) {
                n_reports++;
                assert_true(strlen(report.name) >= 1);
                assert_true(strlen(report.name) + strlen(report.value) + strlen(report.traceback) <= 3 * len);
            }
            hutch_error_report_done(&report);
        }
        free(block);
    }
    assert_in_range(n_reports, 10000, 90000); /* both ways were walked */
}

static const struct sandbox_file *find_file(const struct sandbox_spec *spec, const char *target)
{
    for (size_t i = 0; i < spec->n_files; i++)
        if (strcmp(spec->files[i].target, target) == 0)
            return &spec->files[i];
    return NULL;
}

static void test_attach(void **state)
{
    static const struct { const char *users, *want, *want_saved; } cases[] = {
        { NULL, "/run/hutch/site", NULL },
        { "", "/run/hutch/site", "" }, /* "dir:" would put the current directory on the path */
        { "/mnt/data/lib:/opt", "/run/hutch/site:/mnt/data/lib:/opt", "/mnt/data/lib:/opt" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct sandbox_file *file;
        struct sandbox_spec spec;
        struct hutch_err err = { 0 };
        const char *saved;

        assert_int_equal(hutch_spec_init(&spec, &err), 0);
        if (cases[i].users != NULL)
            assert_int_equal(hutch_spec_set_env(&spec, "PYTHONPATH", cases[i].users, &err), 0);
        if (hutch_pyreport_attach(&spec, 9, &err) < 0)
            fail_msg("%s", err.msg);
        assert_string_equal(hutch_spec_get_env(&spec, "PYTHONPATH"), cases[i].want);
        assert_string_equal(hutch_spec_get_env(&spec, "HUTCH_REPORT_FD"), "9");
        saved = hutch_spec_get_env(&spec, "HUTCH_PYTHONPATH");
        if (cases[i].want_saved == NULL)
            assert_null(saved);
        else
            assert_string_equal(saved, cases[i].want_saved);
        file = find_file(&spec, "/run/hutch/site/sitecustomize.py");
        assert_non_null(file);
        assert_int_equal(file->mode, 0444);
        assert_memory_equal(file->data, "# Python imports this", 21);
        assert_int_equal(file->data[file->len - 1], '\n'); /* whole */
        file = find_file(&spec, "/run/hutch/site/hutch_report.py");
        assert_non_null(file);
        assert_non_null(memmem(file->data, file->len, PYREPORT_MAGIC, 8));
        hutch_spec_done(&spec);
    }
}

/* The byte code is there when the build found a Python, and then under the name where that Python looks for it. */
static void test_byte_code(void **state)
{
    static const char prefix[] = "/run/hutch/site/__pycache__/sitecustomize.";
    const struct guest_file *files = hutch_guest_python();

    (void)state;
    if (files[2].target == NULL) {
        print_message("skip: built without Python\n");
        skip();
    }
    assert_memory_equal(files[2].target, prefix, sizeof(prefix) - 1);
    assert_string_equal(files[2].target + strlen(files[2].target) - 4, ".pyc");
    assert_true(files[2].len > 16);
    assert_memory_equal(files[2].data + 2, "\r\n\1\0\0\0", 6); /* end of the magic number; flags: hash, not checked */
    assert_null(files[3].target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_record),
        cmocka_unit_test(test_empty_value_and_traceback),
        cmocka_unit_test(test_what_is_no_report),
        cmocka_unit_test(test_longest_texts),
        cmocka_unit_test(test_deterministic_noise),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_byte_code),
    };

    return cmocka_run_group_tests_name("pyreport", tests, NULL, NULL);
}
