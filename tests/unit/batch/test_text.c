/* What a batch reads and compares: files of records, outputs; and what it says: pass@k, the progress line. */
#include "runtime/batch/compare.h"
#include "runtime/batch/load.h"
#include "runtime/batch/progress.h"
#include "runtime/batch/score.h"
#include "runtime/batch/source.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- files ---- */

static void assert_spelled(struct json_view value, const char *text)
{
    if (value.len != strlen(text) || memcmp(value.text, text, value.len) != 0)
        fail_msg("got '%.*s', wanted '%s'", (int)value.len, value.text, text);
}

static char directory[] = "/tmp/hutch-test-batch.XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static const char *write_file(const char *name, const char *data, size_t len)
{
    static char path[200];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, data, len), 0);
    close(fd);
    return path;
}

/* Reads all records; their values of "n" as text "1 2 3", or the message. */
static void read_all(const char *path, char *got, size_t size)
{
    struct batch_source source;
    struct batch_place place;
    struct json_view record;
    struct hutch_err err;
    int rc;

    got[0] = '\0';
    if (hutch_batch_source_open(path, &source, &err) < 0) {
        snprintf(got, size, "%s", err.msg);
        return;
    }
    while ((rc = hutch_batch_source_next(&source, &record, &place, &err)) > 0) {
        struct json_view n = hutch_json_view_get(record, "n"), again;
        auto_free char *text = NULL;

        snprintf(got + strlen(got), size - strlen(got), "%s%.*s@%" PRIu32, got[0] ? " " : "", (int)n.len, n.text,
                 place.line);
        assert_int_equal(hutch_batch_source_load(&source, &place, &text, &again, &err), 0);
        assert_int_equal(again.len, record.len);
        assert_memory_equal(again.text, record.text, record.len);
    }
    if (rc < 0)
        snprintf(got, size, "%s", err.msg);
    hutch_batch_source_done(&source);
}

static void test_source_forms(void **state)
{
    static const struct {
        const char *text, *want; /* %s in @want: the path */
    } cases[] = {
        { "{\"n\":1}\n{\"n\":2}\n", "1@1 2@2" },
        { "{\"n\":1}\r\n\n  \n{\"n\":2}", "1@1 2@4" }, /* blank lines, none at the end */
        { "\xef\xbb\xbf{\"n\":1}\n", "1@1" },
        { "[{\"n\":1},{\"n\":2}]", "1@1 2@1" },
        { " [\n {\"n\": 1,\n \"x\": \"]}\\\"\"},\n\n {\"n\":2}\n]\n", "1@2 2@5" },
        { "[]", "" },
        { "", "" },
        { "{\"n\":1}\n{\"n\":\n", "'%s': line 2, column 6: the text ends where a value should stand" },
        { "{\"n\":1} {\"n\":2}\n", "'%s': line 1, column 9: something follows the end of the value" },
        { "7\n", "'%s': line 1, column 1: expected an object: a record of the form {\xe2\x80\xa6}" },
        { "[{\"n\":1}", "'%s': line 1, column 9: the file ends within the array" },
        { "[{\"n\":1} {\"n\":2}]", "'%s': line 1, column 10: expected ',' or ']' between records" },
        { "[{\"n\":1}] x", "'%s': line 1, column 11: something follows after the end of the array" },
        { "[{\"n\":1},\n[2]]", "'%s': line 2, column 1: expected an object: a record of the form {\xe2\x80\xa6}" },
        { "[{\"n\":}]", "'%s': line 1, column 7: expected a value" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *path = write_file("forms", cases[i].text, strlen(cases[i].text));
        char want[400], got[600];

        if (strstr(cases[i].want, "%s"))
            snprintf(want, sizeof(want), "'%s%s", path, strstr(cases[i].want, "%s") + 2);
        else
            snprintf(want, sizeof(want), "%s", cases[i].want);
        read_all(path, got, sizeof(got));
        assert_string_equal(got, want);
    }
}

/* Records that are larger than what is read at a time, and many of them. */
static void test_source_streams(void **state)
{
    enum { RECORDS = 40, BYTES = 50000 };
    struct batch_source source;
    struct batch_place place, fifth = { .len = 0 };
    struct json_view record;
    struct hutch_err err;
    auto_free char *text = NULL;

    (void)state;
    for (int array = 0; array < 2; array++) {
        struct text_buffer t = TEXT_BUFFER_INIT;
        auto_free char *data = NULL;
        char padding[BYTES + 1];
        size_t len, n = 0;

        memset(padding, 'x', BYTES);
        padding[BYTES] = '\0';
        for (int i = 0; i < RECORDS; i++) {
            hutch_text_addf(&t, "%s{\"n\": %d, \"x\": \"", array ? (i ? ",\n" : "[") : "", i);
            hutch_text_add(&t, padding, BYTES);
            hutch_text_addf(&t, "\"}%s", array ? "" : "\n");
        }
        hutch_text_addf(&t, "%s", array ? "]" : "");
        data = hutch_text_take(&t, &len);
        assert_int_equal(hutch_batch_source_open(write_file("large", data, len), &source, &err), 0);
        while (hutch_batch_source_next(&source, &record, &place, &err) > 0) {
            int64_t number;

            assert_true(hutch_json_view_integer(hutch_json_view_get(record, "n"), &number));
            assert_int_equal(number, n);
            if (n++ == 5)
                fifth = place;
        }
        assert_int_equal(n, RECORDS);
        free(text);
        assert_int_equal(hutch_batch_source_load(&source, &fifth, &text, &record, &err), 0);
        assert_spelled(hutch_json_view_get(record, "n"), "5");
        hutch_batch_source_done(&source);
    }
}

static void test_source_gzip(void **state)
{
    static const char records[] = "{\"n\":1}\n{\"n\":2}\n";
    char command[400], got[400];
    const char *path = write_file("packed", records, strlen(records));

    (void)state;
    snprintf(command, sizeof(command), "gzip -c %s >%s.gz && head -c 20 %s.gz >%s.cut", path, path, path, path);
    if (system("command -v gzip >/dev/null") != 0) {
        print_message("no gzip on this machine\n");
        skip();
    }
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof(command), "%s.gz", path);
    read_all(command, got, sizeof(got));
    assert_string_equal(got, "1@1 2@2");
    snprintf(command, sizeof(command), "%s.cut", path);
    read_all(command, got, sizeof(got));
    assert_non_null(strstr(got, "gzip could not read all of it"));
}

static void test_source_pipe(void **state)
{
    static const char records[] = "{\"n\":1}\n{\"n\":2}\n";
    int fds[2], saved = dup(STDIN_FILENO);
    char got[400];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(hutch_fd_write_all(fds[1], records, strlen(records)), 0);
    close(fds[1]);
    dup2(fds[0], STDIN_FILENO);
    close(fds[0]);
    read_all("-", got, sizeof(got));
    dup2(saved, STDIN_FILENO);
    close(saved);
    assert_string_equal(got, "1@1 2@2");
}

static void test_source_errors(void **state)
{
    char got[400];

    (void)state;
    read_all("/nonexistent/tasks", got, sizeof(got));
    assert_string_equal(got, "open '/nonexistent/tasks': No such file or directory");
    read_all("/tmp", got, sizeof(got));
    assert_string_equal(got, "read '/tmp': Is a directory");
}

static void test_source_that_shrinks(void **state)
{
    struct batch_source source;
    struct batch_place place;
    struct json_view record;
    struct hutch_err err;
    char *text;
    const char *path = write_file("shrinks", "{\"n\":1}\n", 8);

    (void)state;
    assert_int_equal(hutch_batch_source_open(path, &source, &err), 0);
    assert_int_equal(hutch_batch_source_next(&source, &record, &place, &err), 1);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(hutch_batch_source_load(&source, &place, &text, &record, &err), -1);
    assert_non_null(strstr(err.msg, "became shorter"));
    hutch_batch_source_done(&source);
}

/* ---- comparing ---- */

static void test_compare(void **state)
{
    static const struct {
        enum batch_compare mode;
        const char *got, *want;
        bool is_same;
    } cases[] = {
        { COMPARE_EXACT, "a\n", "a\n", true },
        { COMPARE_EXACT, "a\n", "a", false },
        { COMPARE_RSTRIP_NEWLINES, "a\n\n", "a", true },
        { COMPARE_RSTRIP_NEWLINES, "a \n", "a", false },
        { COMPARE_RSTRIP_NEWLINES, "\na", "a", false },
        { COMPARE_LINES, " a \r\n b\n\n", "a\nb", true },
        { COMPARE_LINES, "a\n\nb", "a\nb", false },
        { COMPARE_LINES, "a", "a\nb", false },
        { COMPARE_LINES, "a\nb", "a", false },
        { COMPARE_LINES, "", "", true },
        { COMPARE_LINES, "1.0", "1", false },
        { COMPARE_WORDS, "a  b\nc", "a b c", true },
        { COMPARE_WORDS, "a b", "a b c", false },
        { COMPARE_WORDS, "ab c", "a bc", false },
        { COMPARE_WORDS, " \n", "", true },
        { COMPARE_DECIMAL, "1.0", "1", true },
        { COMPARE_DECIMAL, "1e2 0.50", "100 .5", true },
        { COMPARE_DECIMAL, "-0.0", "0", true },
        { COMPARE_DECIMAL, "-1", "1", false },
        { COMPARE_DECIMAL, "100000000000000000000000000000.1", "100000000000000000000000000000.10", true },
        { COMPARE_DECIMAL, "100000000000000000000000000000.1", "100000000000000000000000000000.2",
          false }, /* no rounding */
        { COMPARE_DECIMAL, "0.1", "0.10000000000000001", false },
        { COMPARE_DECIMAL, "1 2", "1\n2", false },
        { COMPARE_DECIMAL, "1 2", "1 2 3", false },
        { COMPARE_DECIMAL, "1 a", "1.0 a", false }, /* a line is numbers or text */
        { COMPARE_DECIMAL, "1 a", "1 a", true },
        { COMPARE_DECIMAL, "nan", "nan", true }, /* as text */
        { COMPARE_DECIMAL, "nan", "NaN", false },
        { COMPARE_DECIMAL, "inf", "Infinity", true },
        { COMPARE_DECIMAL, "inf", "-inf", false },
        { COMPARE_DECIMAL, "1e", "1", false },
        { COMPARE_DECIMAL, ".", "0", false },
        { COMPARE_DECIMAL, "1e999999999999999999999", "1e999999999999999999998", true }, /* beyond any exponent */
        { COMPARE_DECIMAL, "0x10", "16", false },
        { COMPARE_DECIMAL, "1_000", "1000", true },
        { COMPARE_EXIT0, "a", "b", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (hutch_batch_compare(cases[i].mode, cases[i].got, strlen(cases[i].got), cases[i].want,
                                strlen(cases[i].want)) != cases[i].is_same)
            fail_msg("%s: '%s' and '%s'", hutch_batch_compare_name(cases[i].mode), cases[i].got, cases[i].want);
}

static void test_compare_names(void **state)
{
    enum batch_compare mode;
    struct hutch_err err;

    (void)state;
    for (int i = 0; i < COMPARE_COUNT; i++) {
        assert_int_equal(hutch_batch_compare_parse(hutch_batch_compare_name((enum batch_compare)i), &mode, &err), 0);
        assert_int_equal(mode, i);
    }
    assert_int_equal(hutch_batch_compare_parse("fuzzy", &mode, &err), -1);
}

/* ---- numbers for people ---- */

static double choose(unsigned n, unsigned k)
{
    double c = 1;

    for (unsigned i = 1; i <= k; i++)
        c = c * (n - k + i) / i;
    return c;
}

static void test_pass_at_k(void **state)
{
    (void)state;
    assert_true(hutch_batch_pass_at_k(1, 0, 1) == 0);
    assert_true(hutch_batch_pass_at_k(1, 1, 1) == 1);
    assert_true(hutch_batch_pass_at_k(10, 8, 3) == 1); /* fewer wrong ones than k */
    assert_true(fabs(hutch_batch_pass_at_k(6, 3, 1) - 0.5) < 1e-12);
    assert_true(fabs(hutch_batch_pass_at_k(5, 2, 2) - 0.7) < 1e-12);
    for (unsigned n = 1; n <= 20; n++)
        for (unsigned c = 0; c <= n; c++)
            for (unsigned k = 1; k <= n - c; k++)
                assert_true(fabs(hutch_batch_pass_at_k(n, c, k) - (1 - choose(n - c, k) / choose(n, k))) < 1e-9);
    assert_true(fabs(hutch_batch_pass_at_k(100000, 1, 100) - 0.001) < 1e-9); /* where factorials overflow */
}

static void test_progress_line(void **state)
{
    struct batch_progress_state half = { .done = 50, .total = 100, .failed = 3, .runs = 80 };
    char line[200];

    (void)state;
    hutch_batch_progress_format(&half, 10000, 80, line, sizeof(line));
    assert_string_equal(line, "[####################                    ] 50/100  8.0/s  3 failed  ETA 00:10");
    assert_in_range(strlen(line), 1, 79);
    for (int columns = 1; columns < 200; columns++) {
        hutch_batch_progress_format(&half, 10000, columns, line, sizeof(line));
        assert_in_range(strlen(line), 1, columns > 1 ? columns - 1 : 1);
    }
    half.done = 0;
    hutch_batch_progress_format(&half, 0, 80, line, sizeof(line));
    assert_non_null(strstr(line, "ETA --:--"));
    half.done = 1;
    half.total = 10001;
    hutch_batch_progress_format(&half, 1000, 80, line, sizeof(line));
    assert_non_null(strstr(line, "ETA 2:46:40"));
}

static void test_load(void **state)
{
    char path[100];

    (void)state;
    write_file("loadavg", "0.10 0.10 0.10 1/100 1000\n", 26);
    assert_false(hutch_batch_load_is_high(directory));
    write_file("loadavg", "9999.0 1.0 1.0 1/100 1000\n", 26);
    assert_true(hutch_batch_load_is_high(directory));
    write_file("loadavg", "0.10 0.10 0.10 1/100 1000\n", 26);
    snprintf(path, sizeof(path), "%s/pressure", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file("pressure/cpu", "some avg10=0.00 avg60=75.50 avg300=1.00 total=1\n", 48);
    assert_true(hutch_batch_load_is_high(directory));
    write_file("pressure/cpu", "some avg10=99.00 avg60=5.50 avg300=1.00 total=1\n", 48);
    assert_false(hutch_batch_load_is_high(directory));
    assert_false(hutch_batch_load_is_high("/nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source_forms),
        cmocka_unit_test(test_source_streams),
        cmocka_unit_test(test_source_gzip),
        cmocka_unit_test(test_source_pipe),
        cmocka_unit_test(test_source_errors),
        cmocka_unit_test(test_source_that_shrinks),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_names),
        cmocka_unit_test(test_pass_at_k),
        cmocka_unit_test(test_progress_line),
        cmocka_unit_test(test_load),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
