/* What hostile input costs: for each parser of foreign bytes, four times the input takes about four times the time. */
#include "runtime/batch/compare.h"
#include "runtime/cell/feed.h"
#include "runtime/cell/outputs.h"
#include "runtime/lang/python_complete.h"
#include "runtime/lang/python_imports.h"
#include "runtime/notebook/notebook.h"
#include "runtime/term/filter.h"
#include "runtime/text/json.h"
#include "runtime/text/json_view.h"
#include "runtime/text/nbjson.h"
#include "rootfs/targuard.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/growth.h"

/* Text of a beginning, @n times a middle, and an end; "%zu" in the middle is a number, from 2 on. */
struct family {
    const char *label, *begin, *middle, *end;
    size_t n;
    void (*read)(const char *text, size_t len);
};

static char *make_text(const struct family *f, size_t n, size_t *ret_len)
{
    char *text;
    FILE *out = open_memstream(&text, ret_len);

    fputs(f->begin, out);
    for (size_t i = 0; i < n; i++)
        for (const char *p = f->middle; *p; p++)
            if (strncmp(p, "%zu", 3) == 0) {
                fprintf(out, "%zu", i + 2);
                p += 2;
            } else {
                fputc(*p, out);
            }
    fputs(f->end, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void work(const void *context, size_t n)
{
    const struct family *f = context;
    size_t len;
    auto_free char *text = make_text(f, n, &len);

    f->read(text, len);
}

/* ---- readers: whether they take it or refuse it does not matter ---- */

static int take_any(const struct json_node *node, void *context, struct hutch_err *err)
{
    (void)node, (void)context, (void)err;
    return 0;
}

static void read_json(const char *text, size_t len)
{
    struct json_doc doc = JSON_DOC_INIT;
    struct hutch_err err;

    if (hutch_json_parse("it", text, len, 64, &doc, &err) == 0) {
        struct json_node root = hutch_json_root(&doc);

        if (hutch_json_map(&root, 1 << 20, take_any, NULL, &err) < 0)
            hutch_json_array(&root, 1 << 20, take_any, NULL, &err);
    }
    hutch_json_done(&doc);
}

static void read_view(const char *text, size_t len)
{
    struct json_view value, inner;
    struct hutch_err err;
    char *copy;

    if (hutch_json_view_check("it", 1, 1, text, len, &value, &err) < 0)
        return;
    if (hutch_json_view_is_string(value) && hutch_json_view_text(value, &copy, &len, &err) == 0)
        free(copy);
    if (hutch_json_view_is_object(value) || hutch_json_view_is_array(value))
        hutch_json_view_count(value);
    if (hutch_json_view_is_object(value)) {
        inner = hutch_json_view_get(value, "k0");
        hutch_json_view_is_null(inner);
    }
}

static void read_nbjson(const char *text, size_t len)
{
    const struct nbjson_bounds bounds = NBJSON_NOTEBOOK;
    struct cJSON *value;
    struct hutch_err err;

    if (hutch_nbjson_parse("it", text, len, &bounds, &value, &err) < 0)
        return;
    free(hutch_nbjson_print(value, NBJSON_FILE, NULL));
    cJSON_Delete(value);
}

static void read_notebook(const char *text, size_t len)
{
    struct notebook nb = NOTEBOOK_INIT;
    struct hutch_err err;
    char *printed;

    if (hutch_notebook_parse("it", text, len, &nb, &err) < 0)
        return;
    if (hutch_notebook_print(&nb, &printed, &len, &err) == 0)
        free(printed);
    hutch_notebook_done(&nb);
}

static void drop_text(void *user, const char *text, size_t len)
{
    (void)user, (void)text, (void)len;
}

static void show(const char *text, size_t len)
{
    struct term_filter filter = { .has_colours = true, .has_utf8 = true };

    hutch_term_filter(&filter, text, len, drop_text, NULL);
    hutch_term_filter_end(&filter, drop_text, NULL);
}

static void found(void *context, const char *name, size_t len)
{
    (void)context, (void)name, (void)len;
}

static void look_at_python(const char *text, size_t len)
{
    hutch_py_is_complete(text, len);
    hutch_imports_scan(text, len, found, NULL);
}

static void compare(const char *text, size_t len)
{
    for (int mode = 0; mode < COMPARE_COUNT; mode++)
        assert_true(hutch_batch_compare((enum batch_compare)mode, text, len, text, len));
}

static void drop_event(void *user, const struct cell_event *event)
{
    struct cell_feed **feed = user;

    if (event->kind == CELL_DONE)
        hutch_cell_feed_begin(*feed, 0);
}

/* Each line is a frame. */
static void hear_frames(const char *text, size_t len)
{
    struct cell_feed *feed;
    struct hutch_err err;
    size_t json_len;

    feed = hutch_cell_feed_new("0123456789abcdef0123456789abcdef", drop_event, &feed);
    assert_non_null(feed);
    hutch_cell_feed_begin(feed, 0);
    for (const char *end; len > 0; len -= (size_t)(end + 1 - text), text = end + 1) {
        end = memchr(text, '\n', len);
        if (!end)
            break;
        if (hutch_cell_feed_frame(feed, text, (size_t)(end - text), 1, &err) < 0)
            fail_msg("%s", err.msg);
        for (int stream = 1; stream <= 2; stream++)
            if (hutch_cell_feed_wants(feed, stream))
                hutch_cell_feed_is_empty(feed, stream, 1);
    }
    hutch_cell_feed_finish(feed);
    free(hutch_cell_outputs_json(hutch_cell_feed_outputs(feed), &json_len));
    hutch_cell_feed_free(feed);
}

/* What a program prints, in small pieces. */
static void hear_text(const char *text, size_t len)
{
    struct cell_feed *feed;
    size_t json_len;

    feed = hutch_cell_feed_new("0123456789abcdef0123456789abcdef", drop_event, &feed);
    assert_non_null(feed);
    hutch_cell_feed_begin(feed, 0);
    for (size_t at = 0, piece; at < len; at += piece) {
        piece = len - at < 64 ? len - at : 64;
        hutch_cell_feed_bytes(feed, at / 64 % 2 ? 1 : 2, text + at, piece, 1 + at);
        hutch_cell_feed_tick(feed, 1 + at + CELL_FLUSH_MS);
    }
    hutch_cell_feed_finish(feed);
    free(hutch_cell_outputs_json(hutch_cell_feed_outputs(feed), &json_len));
    hutch_cell_feed_free(feed);
}

static void guard(const char *text, size_t len)
{
    struct targuard targuard;
    struct hutch_err err;
    int rc = 0;

    assert_int_equal(hutch_targuard_open(&targuard, &err), 0);
    for (size_t at = 0; rc == 0 && at < len; at += 100)
        rc = hutch_targuard_feed(&targuard, text + at, len - at < 100 ? len - at : 100, &err);
    hutch_targuard_done(&targuard);
}

#define CELL                                                                                                 \
    "{\"cell_type\": \"code\", \"execution_count\": null, \"metadata\": {}, \"outputs\": [], \"source\": [\"1\"]"
#define OLD_DISPLAY                                                                                           \
    "{\"metadata\": {}, \"nbformat\": 3, \"nbformat_minor\": 0, \"worksheets\": [{\"cells\": [{\"cell_type\": " \
    "\"code\", \"language\": \"python\", \"input\": \"\", \"outputs\": [{\"output_type\": \"display_data\", "
#define DISPLAY_N(is, n, id) \
    "{\"is\":\"" is "\",\"n\":" n ",\"data\":{\"text/plain\":\"x\"},\"metadata\":{},\"id\":\"" id "\"}\n"
#define DISPLAY(is, id) DISPLAY_N(is, "%zu", id)

static const struct family families[] = {
    { "members of a map", "{\"a\": 1", ", \"k%zu\": 1", "}", 4000, read_json },
    { "equal members of a map", "{\"a\": 1", ", \"k\": 1", "}", 4000, read_json },
    { "elements", "[0", ", [[]]", "]", 10000, read_json },
    { "escapes", "\"", "\\u00e9\\n", "\"", 50000, read_json },
    { "members, in place", "{\"a\": 1", ", \"k%zu\": {}", "}", 20000, read_view },
    { "a string, in place", "\"", "\\ud83d\\ude00", "\"", 50000, read_view },
    { "members of a notebook", "{\"a\": 1", ", \"k%zu\": 1.5", "}", 10000, read_nbjson },
    { "equal members of a notebook", "{\"a\": 1", ", \"k\": 1", "}", 10000, read_nbjson },
    { "digits of a number", "[1", "0", "]", 20000, read_nbjson },
    { "cells with equal ids", "{\"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 5, \"cells\": [" CELL "}",
      "," CELL ", \"id\": \"a\"}", "]}", 2000, read_notebook },
    { "lines of a cell", "{\"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 4, \"cells\": [{\"cell_type\": "
      "\"raw\", \"metadata\": {}, \"source\": [\"\"", ", \"x\\n\"", "]}]}", 20000, read_notebook },
    { "streams of a cell", "{\"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 4, \"cells\": [{\"cell_type\": "
      "\"code\", \"execution_count\": null, \"metadata\": {}, \"source\": \"\", \"outputs\": [{\"output_type\": "
      "\"stream\", \"name\": \"stdout\", \"text\": \"\"}",
      ", {\"output_type\": \"stream\", \"name\": \"stdout\", \"text\": \"xxxxxxxxxxxxxxxx\\n\"}", "]}]}", 4000,
      read_notebook },
    { "members of an old output", OLD_DISPLAY "\"metadata\": {}", ", \"k%zu\": 1", "}]}]}]}", 10000, read_notebook },
    { "members of an old output's metadata", OLD_DISPLAY "\"metadata\": {\"a\": 1", ", \"k%zu\": 1", "}}]}]}]}", 10000,
      read_notebook },
    { "beginnings of escape sequences", "", "\033[1;", "", 50000, show },
    { "letters that are cut", "", "\xe2\x80\033[31m", "", 50000, show },
    { "open brackets", "", "x = [(\n", "", 20000, look_at_python },
    { "quotes", "", "'''\"\"\"\\\n", "", 20000, look_at_python },
    { "numbers", "", "1.0 1e3 x\n", "", 5000, compare },
    { "blanks", "1", " ", "\n", 50000, compare },
    { "displays with one id", "", DISPLAY("display", "a"), "", 2000, hear_frames },
    { "displays with many ids", "", DISPLAY("display", "%zu"), "", 2000, hear_frames },
    { "updates of one display", DISPLAY_N("display", "1", "a"), DISPLAY("update", "a"), "", 2000, hear_frames },
    { "displays that are cleared", "", "{\"is\":\"clear\",\"n\":%zu,\"wait\":false}\n", "", 4000, hear_frames },
    { "carriage returns", "", "x\r", "", 50000, hear_text },
    { "lines", "", "a\n", "", 50000, hear_text },
    { "broken characters", "", "\xf0\x9f\x98", "", 50000, hear_text },
    { "blocks of a tar file", "", "0123456789012345678901234567890\n", "", 20000, guard },
};

static void test_growth(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        assert_grows_evenly(families[i].label, work, &families[i], families[i].n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
