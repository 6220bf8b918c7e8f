/* Notebooks: what is refused and how, what is kept, and what is written, byte for byte as nbformat 5.5 writes it. */
#include "runtime/notebook/notebook.h"
#include "runtime/notebook/params.h"

#include "sandbox/fd.h"
#include "runtime/text/nbjson.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs the four above */
#include <cmocka.h>
#include <cjson/cJSON.h>

#include "tests/unit/growth.h"

#define CELL(more)                                                                        \
    "{\"cell_type\": \"code\", \"execution_count\": null, \"metadata\": {}, \"outputs\": [], " \
    "\"source\": [\"1\"]" more "}"
#define OLD(cells) \
    "{\"metadata\": {}, \"nbformat\": 3, \"nbformat_minor\": 0, \"worksheets\": [{\"cells\": [" cells "]}]}"
#define BOOK(minor, cells) "{\"cells\": [" cells "], \"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": " minor "}"

static const struct {
    const char *label, *text, *says;
} refused[] = {
    { "empty", "", "line 1" },
    { "no JSON", "{\n  \"cells\": [,\n", "line 2" },
    { "cut", "{\"cells\": [", "line 1" },
    { "array", "[]", "is no notebook" },
    { "no version", "{}", "is no notebook" },
    { "version is a text", "{\"nbformat\": \"4\", \"nbformat_minor\": 5}", "is no notebook" },
    { "version 2",
      "{\"nbformat\": 2, \"nbformat_minor\": 0, \"worksheets\": []}", "nbformat 2, which is older than 3" },
    { "version 3 without metadata", "{\"nbformat\": 3, \"nbformat_minor\": 0, \"worksheets\": []}", "'metadata'" },
    { "no worksheets", "{\"nbformat\": 3, \"nbformat_minor\": 0, \"metadata\": {}}", "'worksheets'" },
    { "worksheets of numbers", "{\"nbformat\": 3, \"nbformat_minor\": 0, \"metadata\": {}, \"worksheets\": [1]}",
      "a worksheet without 'cells'" },
    { "an old cell that is none", OLD("1"), "cell 1 is no object" },
    { "an old cell without source", OLD("{\"cell_type\": \"heading\"}"), "cell 1 has no 'source'" },
    { "an old cell without outputs", OLD("{\"cell_type\": \"code\", \"input\": \"\"}"), "cell 1 has no 'outputs'" },
    { "an old cell in Julia",
      OLD("{\"cell_type\": \"code\", \"input\": \"\", \"outputs\": [], \"language\": \"julia\"}"),
      "written in 'julia'" },
    { "an old cell with odd outputs",
      OLD("{\"cell_type\": \"code\", \"input\": [1], \"outputs\": [2], \"metadata\": 3}"),
      "cell 1 has no 'metadata'" },
    { "version 4.6", "{\"nbformat\": 4, \"nbformat_minor\": 6}", "nbformat 4.6: only 4.0 to 4.5" },
    { "version 5", "{\"nbformat\": 5, \"nbformat_minor\": 0}", "nbformat 5.0" },
    { "negative", "{\"nbformat\": 4, \"nbformat_minor\": -1}", "4.-1" },
    { "no metadata", "{\"nbformat\": 4, \"nbformat_minor\": 5, \"cells\": []}", "'metadata'" },
    { "no cells", "{\"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {}}", "'cells'" },
    { "cells is an object", "{\"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {}, \"cells\": {}}", "'cells'" },
    { "cell is a number", BOOK("5", "1"), "cell 1 is no object" },
    { "no cell_type", BOOK("5", CELL("") ", {\"metadata\": {}, \"source\": \"\"}"), "cell 2 has no 'cell_type'" },
    { "source is a number", BOOK("5", "{\"cell_type\": \"raw\", \"metadata\": {}, \"source\": 1}"),
      "cell 1 has no 'source'" },
    { "source has a number", BOOK("5", "{\"cell_type\": \"raw\", \"metadata\": {}, \"source\": [\"a\", 1]}"),
      "cell 1 has no 'source'" },
    { "cell without metadata", BOOK("5", "{\"cell_type\": \"raw\", \"source\": \"\"}"), "cell 1 has no 'metadata'" },
    { "no outputs", BOOK("5", "{\"cell_type\": \"code\", \"metadata\": {}, \"source\": \"\"}"),
      "cell 1 has no 'outputs'" },
    { "odd output", BOOK("5", "{\"cell_type\": \"code\", \"metadata\": {}, \"source\": \"\", \"outputs\": [1]}"),
      "without 'output_type'" },
    { "stream without text", BOOK("5", "{\"cell_type\": \"code\", \"metadata\": {}, \"source\": \"\", \"outputs\": "
                                       "[{\"output_type\": \"stream\"}]}"),
      "a stream without" },
    { "display without data", BOOK("5", "{\"cell_type\": \"code\", \"metadata\": {}, \"source\": \"\", \"outputs\": "
                                        "[{\"output_type\": \"display_data\"}]}"),
      "without 'data'" },
    { "id is a number", BOOK("5", CELL(", \"id\": 7")), "cell 1 has an 'id'" },
    { "attachment is a text", BOOK("5", "{\"cell_type\": \"raw\", \"metadata\": {}, \"source\": \"\", \"attachments\": "
                                        "{\"a\": \"b\"}}"), "attachment" },
    { "NUL in a program", BOOK("5", "{\"cell_type\": \"code\", \"metadata\": {}, \"source\": \"a\\u0000b\", "
                                    "\"outputs\": []}"), "a NUL character" },
    { "another language", "{\"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {\"kernelspec\": {\"language\": "
                          "\"R\"}}, \"cells\": []}", "written in 'R'" },
    { "another language's own word",
      "{\"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {\"language_info\": {\"name\": \"julia\"}}, "
      "\"cells\": []}",
      "written in 'julia'" },
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct notebook nb = NOTEBOOK_INIT;
        struct hutch_err err = { 0 };

        if (hutch_notebook_parse("notebook 'x'", refused[i].text, strlen(refused[i].text), &nb, &err) == 0)
            fail_msg("%s: it was read", refused[i].label);
        if (!strstr(err.msg, refused[i].says) || !strstr(err.msg, "notebook 'x'") || strchr(err.msg, '\n'))
            fail_msg("%s: says '%s'", refused[i].label, err.msg);
    }
}

static struct notebook parse(const char *text)
{
    struct notebook nb = NOTEBOOK_INIT;
    struct hutch_err err = { 0 };

    if (hutch_notebook_parse("notebook", text, strlen(text), &nb, &err) < 0)
        fail_msg("%s", err.msg);
    return nb;
}

/* Ends it. */
static void assert_printed(struct notebook *nb, const char *want)
{
    struct hutch_err err = { 0 };
    auto_free char *text = NULL;
    size_t len;

    assert_int_equal(hutch_notebook_print(nb, &text, &len, &err), 0);
    assert_string_equal(text, want);
    assert_int_equal(len, strlen(want));
    hutch_notebook_done(nb);
}

/* The wanted texts are what nbformat.writes(nbformat.reads(text, 4)) of 5.5 gave. */
static const struct {
    const char *label, *text, *want;
} kept[] = {
    { "empty", BOOK("4", ""),
      "{\n \"cells\": [],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n" },
    { "unknown members, numbers, transient metadata",
      "{\"zz\": [1.50, 1e5, -0.0, 123456789012345678901234567890], \"nbformat\": 4, \"nbformat_minor\": 0, \"cells\": "
      "[], \"metadata\": "
      "{\"signature\": \"x\", \"orig_nbformat\": 2, \"b\": {}, \"a\": \"\\u00e9\\u2028\"}}",
      "{\n \"cells\": [],\n \"metadata\": {\n  \"a\": \"é\u2028\",\n  \"b\": {}\n },\n \"nbformat\": 4,\n"
      " \"nbformat_minor\": 0,\n \"zz\": [\n  1.5,\n"
      "  100000.0,\n  -0.0,\n  123456789012345678901234567890\n ]\n}\n" },
    { "a cell's lines, its mark of trust, and its streams",
      BOOK("4", "{\"cell_type\": \"code\", \"execution_count\": 3, \"metadata\": {\"trusted\": true, \"x\": 1}, "
                "\"source\": \"a\\nb\\u2028c\", "
                "\"outputs\": [{\"output_type\": \"stream\", \"name\": \"stdout\", \"text\": [\"50%\\r\", "
                "\"100%\\n\"]}, "
                "{\"output_type\": \"stream\", \"name\": \"stdout\", \"text\": \"x\\r\"}, "
                "{\"output_type\": \"stream\", \"name\": \"stderr\", \"text\": \"\"}]}"),
      "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 3,\n   \"metadata\": {\n"
      "    \"x\": 1\n   },\n   \"outputs\": [\n"
      "    {\n     \"name\": \"stdout\",\n     \"output_type\": \"stream\",\n     \"text\": [\n      \"100%\\n\",\n"
      "      \"x\\r\"\n     ]\n    },\n"
      "    {\n     \"name\": \"stderr\",\n     \"output_type\": \"stream\",\n     \"text\": []\n    }\n   ],\n"
      "   \"source\": [\n    \"a\\n\",\n"
      "    \"b\u2028\",\n    \"c\"\n   ]\n  }\n ],\n \"metadata\": {},\n"
      " \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n" },
};

static void test_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
        struct notebook nb = parse(kept[i].text);

        print_message("%s\n", kept[i].label);
        assert_printed(&nb, kept[i].want);
    }
}

/* What tests/notebooks/format-3.ipynb has not, as nbformat would refuse it. */
static void test_upgrade(void **state)
{
    struct notebook nb = parse(OLD("{\"cell_type\": \"heading\", \"level\": 100000000000, \"source\": \"x\"}, "
                                   "{\"cell_type\": \"heading\", \"level\": \"2\", \"source\": \"x\"}, "
                                   "{\"cell_type\": \"code\", \"input\": [\"a = 1\", \"a\"], \"outputs\": "
                                   "[{\"output_type\": \"pyout\", \"json\": \"no json\", \"metadata\": [], "
                                   "\"prompt_number\": 3}]}"));
    const struct cJSON *outputs = cJSON_GetObjectItem(nb.cells[2].value, "outputs");
    auto_free char *text = hutch_nbjson_print(outputs, NBJSON_COMPACT, NULL);

    (void)state;
    assert_int_equal(nb.minor, 5);
    assert_int_equal(strspn(nb.cells[0].source, "#"), 64);
    assert_string_equal(nb.cells[1].source, "# x");
    assert_string_equal(nb.cells[2].source, "a = 1\na");
    assert_true(hutch_notebook_is_executed(&nb.cells[2]) && !hutch_notebook_is_executed(&nb.cells[0]));
    assert_string_equal(text, "[{\"data\":{\"application/json\":\"no json\"},\"execution_count\":3,\"metadata\":{},"
                              "\"output_type\":\"execute_result\"}]");
    hutch_notebook_done(&nb);
}

/* Of a type's old name and its new one the last wins. */
static void test_upgrade_of_both_names(void **state)
{
    struct notebook nb = parse(OLD("{\"cell_type\": \"code\", \"input\": \"\", \"outputs\": ["
                                   "{\"output_type\": \"display_data\", \"text\": \"a\", \"text/plain\": \"b\", "
                                   "\"metadata\": {\"x\": 1, \"image/png\": 2, \"y\": 3, \"png\": 4}}]}"));
    auto_free char *text = hutch_nbjson_print(cJSON_GetObjectItem(nb.cells[0].value, "outputs"), NBJSON_COMPACT, NULL);

    (void)state;
    assert_string_equal(text, "[{\"data\":{\"text/plain\":\"b\"},\"metadata\":{\"image/png\":4,\"x\":1,\"y\":3},"
                              "\"output_type\":\"display_data\"}]");
    hutch_notebook_done(&nb);
}

static void test_ids(void **state)
{
    struct notebook nb = parse(BOOK("5", CELL(", \"id\": \"twice\"") ", " CELL("") ", " CELL(", \"id\": \"twice\"") ", "
                                    CELL(", \"id\": \"own\"")));
    const char *ids[4];

    (void)state;
    for (size_t i = 0; i < 4; i++)
        ids[i] = cJSON_GetStringValue(cJSON_GetObjectItem(nb.cells[i].value, "id"));
    assert_string_equal(ids[0], "twice");
    assert_string_equal(ids[3], "own");
    assert_int_equal(strspn(ids[1], "0123456789abcdef"), 8);
    assert_int_equal(strspn(ids[2], "0123456789abcdef"), 8);
    assert_string_not_equal(ids[1], ids[2]);
    hutch_notebook_done(&nb);
    nb = parse(BOOK("4", CELL("")));
    assert_null(cJSON_GetObjectItem(nb.cells[0].value, "id"));
    hutch_notebook_done(&nb);
}

static void test_which_are_executed(void **state)
{
    static const struct {
        const char *cell;
        bool is_executed;
    } cases[] = {
        { CELL(""), true },
        { "{\"cell_type\": \"markdown\", \"metadata\": {}, \"source\": \"1\"}", false },
        { "{\"cell_type\": \"code\", \"metadata\": {}, \"outputs\": [], \"source\": \" \\n\\t\\u00a0\\u2003\\u001f\"}",
          false },
        /* no space to Python */
        { "{\"cell_type\": \"code\", \"metadata\": {}, \"outputs\": [], \"source\": \"\\u200b\"}", true },
        { "{\"cell_type\": \"code\", \"metadata\": {\"tags\": [1, \"skip-execution\"]}, \"outputs\": [], \"source\": "
          "\"1\"}", false },
        { "{\"cell_type\": \"code\", \"metadata\": {\"tags\": \"skip-execution\"}, \"outputs\": [], \"source\": \"1\"}",
          true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[400];
        struct notebook nb;

        snprintf(text, sizeof(text), BOOK("4", "%s"), cases[i].cell);
        nb = parse(text);
        if (hutch_notebook_is_executed(&nb.cells[0]) != cases[i].is_executed)
            fail_msg("%s", cases[i].cell);
        hutch_notebook_done(&nb);
    }
}

static const char *source_of(const struct notebook *nb, size_t i)
{
    return nb->cells[i].source;
}

static void test_params(void **state)
{
    static const char *const params[] = { "a=1",  "b=text", "c=[1, true, null, {\"k\": 1.50}]", "d=\"q\\\"\\n\"", "e=",
                                          "f=a=b", "g=NaN",
                                          "h=tr\"ue", "i={}" };
    struct notebook nb = parse(BOOK("4", CELL("")));
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_notebook_set_params(&nb, params, ARRAY_SIZE(params), &err), 0);
    assert_int_equal(nb.n_cells, 2);
    assert_string_equal(source_of(&nb, 0), "# Parameters\na = 1\nb = \"text\"\nc = [1, True, None, {\"k\": 1.5}]\n"
                                           "d = \"q\\\"\\n\"\ne = \"\"\n"
                                           "f = \"a=b\"\ng = float('nan')\nh = \"tr\\\"ue\"\ni = {}\n");
    assert_true(nb.cells[0].is_injected);
    assert_true(hutch_notebook_is_executed(&nb.cells[0]));
    assert_int_equal(hutch_notebook_set_params(&nb, params, 1, &err), 0); /* it is replaced */
    assert_int_equal(nb.n_cells, 2);
    assert_string_equal(source_of(&nb, 0), "# Parameters\na = 1\n");
    hutch_notebook_done(&nb);

    nb = parse(BOOK("5", "{\"cell_type\": \"code\", \"id\": \"p\", \"metadata\": {\"tags\": [\"parameters\"]}, "
                         "\"outputs\": [], \"source\": \"a = 0\"}"));
    assert_int_equal(hutch_notebook_set_params(&nb, params, 1, &err), 0);
    assert_int_equal(nb.n_cells, 2);
    assert_string_equal(source_of(&nb, 1), "# Parameters\na = 1\n");
    assert_non_null(cJSON_GetObjectItem(nb.cells[1].value, "id"));
    hutch_notebook_done(&nb);

    nb = parse(BOOK("4", CELL("") ", {\"cell_type\": \"code\", \"metadata\": {\"tags\": [\"parameters\"]}, "
                                  "\"outputs\": [], \"source\": \"2\"}, "
                    CELL("") ", {\"cell_type\": \"raw\", \"metadata\": {}, \"source\": \"last\"}"));
    assert_int_equal(hutch_notebook_set_params(&nb, params, 1, &err), 0);
    assert_int_equal(nb.n_cells, 5);
    assert_true(nb.cells[1].is_parameters && nb.cells[2].is_injected);
    assert_string_equal(source_of(&nb, 3), "1");
    assert_string_equal(source_of(&nb, 4), "last");
    hutch_notebook_done(&nb);
}

static void test_results(void **state)
{
    struct notebook nb = parse(BOOK("4", CELL(", \"x\": 1")));
    const struct notebook_result result = {
        .execution_count = 7,
        .outputs = "[{\"output_type\": \"display_data\", \"data\": {\"text/html\": \"a\\nb\", \"application/json\": "
                   "[\"a\\nb\"], \"image/png\": "
                   "\"AA\\n\"}, \"metadata\": {}, \"transient\": {\"display_id\": \"d\"}}]",
        .t_busy = 1.25,
        .t_idle = 1700000000.5,
    };
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_notebook_begin(&nb, 0, &err), 0);
    assert_int_equal(hutch_notebook_set_result(&nb, 0, &result, &err), 0);
    assert_int_equal(hutch_notebook_add_error(&nb, 0, "Dead", "it died", &err), 0);
    assert_int_equal(hutch_notebook_set_language(&nb, "{\"name\": \"python\"}", &err), 0);
    assert_printed(&nb,
                   "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 7,\n"
                   "   \"metadata\": {\n    \"execution\": {\n"
                   "     \"iopub.status.busy\": \"1970-01-01T00:00:01.250000Z\",\n"
                   "     \"iopub.status.idle\": \"2023-11-14T22:13:20.500000Z\"\n    }\n"
                   "   },\n   \"outputs\": [\n    {\n     \"data\": {\n      \"application/json\": [\n"
                   "       \"a\\nb\"\n      ],\n"
                   "      \"image/png\": \"AA\\n\",\n      \"text/html\": [\n       \"a\\n\",\n       \"b\"\n      ]\n"
                   "     },\n"
                   "     \"metadata\": {},\n     \"output_type\": \"display_data\"\n    },\n    {\n"
                   "     \"ename\": \"Dead\",\n"
                   "     \"evalue\": \"it died\",\n     \"output_type\": \"error\",\n     \"traceback\": [\n"
                   "      \"\\u001b[0;31mDead\\u001b[0m: it died\"\n     ]\n    }\n   ],\n   \"source\": [\n    \"1\"\n"
                   "   ],\n   \"x\": 1\n  }\n ],\n"
                   " \"metadata\": {\n  \"language_info\": {\n   \"name\": \"python\"\n  }\n },\n \"nbformat\": 4,\n"
                   " \"nbformat_minor\": 4\n}\n");
}

#define TOLD(id, state, buffers) "{\"buffers\":" buffers ",\"id\":\"" id "\",\"state\":" state "}"

static void set_widget(struct notebook *nb, const char *told)
{
    struct hutch_err err = { 0 };

    assert_int_equal(hutch_notebook_set_widget(nb, told, &err), 0);
}

static void test_widgets(void **state)
{
    struct notebook nb = parse(BOOK("4", ""));

    (void)state;
    set_widget(&nb, TOLD("b", "{\"_model_name\":\"M\",\"_model_module\":\"m\",\"x\":1}", "[]"));
    set_widget(&nb, TOLD("a", "{\"no\":\"model\"}", "[]"));
    set_widget(&nb, TOLD("b", "{\"_model_name\":\"M\",\"_model_module\":\"m\",\"x\":2}", "[{\"data\":\"AA==\"}]"));
    assert_false(nb.has_lost_widgets);
    assert_printed(&nb,
                   "{\n \"cells\": [],\n \"metadata\": {\n  \"widgets\": {\n"
                   "   \"application/vnd.jupyter.widget-state+json\": {\n    \"state\": {\n     \"b\": {\n"
                   "      \"buffers\": [\n       {\n        \"data\": \"AA==\"\n       }\n      ],\n"
                   "      \"model_module\": \"m\",\n      \"model_module_version\": null,\n"
                   "      \"model_name\": \"M\",\n      \"state\": {\n       \"_model_module\": \"m\",\n"
                   "       \"_model_name\": \"M\",\n       \"x\": 2\n      }\n     }\n    },\n"
                   "    \"version_major\": 2,\n    \"version_minor\": 0\n   }\n  }\n },\n \"nbformat\": 4,\n"
                   " \"nbformat_minor\": 4\n}\n");
}

/* All of it is a program's: what is too much is left out, and what is written can be read again. */
static void test_widgets_are_bounded(void **state)
{
    auto_free char *large = calloc(1, NOTEBOOK_MAX_WIDGET_BYTES + 100), *text = NULL;
    struct notebook nb = parse(BOOK("4", "")), again = NOTEBOOK_INIT;
    struct hutch_err err;
    char deep[300] = "{\"buffers\":[],\"id\":\"deep\",\"state\":{\"_model_name\":";
    char told[60];
    size_t len;

    (void)state;
    for (int i = 0; i <= NOTEBOOK_MAX_WIDGETS; i++) {
        assert_int_equal(nb.has_lost_widgets, false);
        snprintf(told, sizeof(told), TOLD("%d", "{\"_model_name\":1}", "[]"), i);
        set_widget(&nb, told);
    }
    assert_true(nb.has_lost_widgets);
    assert_int_equal(nb.n_widgets, NOTEBOOK_MAX_WIDGETS);

    nb.has_lost_widgets = false;
    len = (size_t)sprintf(large, "{\"buffers\":[],\"id\":\"1\",\"state\":{\"_model_name\":\"");
    memset(large + len, 'x', NOTEBOOK_MAX_WIDGET_BYTES);
    strcpy(large + len + NOTEBOOK_MAX_WIDGET_BYTES, "\"}}");
    set_widget(&nb, large);
    assert_true(nb.has_lost_widgets);
    assert_int_equal(nb.n_widgets, NOTEBOOK_MAX_WIDGETS - 1); /* what it was before is not true any more */

    nb.has_lost_widgets = false;
    set_widget(&nb, TOLD("1", "{\"_model_name\":[[[[]]]]}", "[]"));
    set_widget(&nb, TOLD("1", "{\"_model_name\":[[[[1]]]]}", "[]")); /* another state of one that is known */
    assert_false(nb.has_lost_widgets);
    set_widget(&nb, "{\"id\":\"1\",\"lost\":true}");
    assert_true(nb.has_lost_widgets);
    assert_int_equal(nb.n_widgets, NOTEBOOK_MAX_WIDGETS - 1);
    set_widget(&nb, "{\"id\":\"1\",\"lost\":true}");
    assert_int_equal(nb.n_widgets, NOTEBOOK_MAX_WIDGETS - 1);
    len = strlen(deep);
    memset(deep + len, '[', 100);
    memset(deep + len + 100, ']', 100);
    strcpy(deep + len + 200, "}}");
    nb.has_lost_widgets = false;
    set_widget(&nb, TOLD("deep", "{\"_model_name\":\"[[[\\\"{{{\"}", "[]"));
    assert_false(nb.has_lost_widgets);
    set_widget(&nb, deep);
    assert_true(nb.has_lost_widgets);
    assert_int_equal(nb.n_widgets, NOTEBOOK_MAX_WIDGETS - 1); /* what it was before is not true any more */

    set_widget(&nb, "[]");
    set_widget(&nb, "{\"id\":\"1\"}");
    assert_int_equal(hutch_notebook_print(&nb, &text, &len, &err), 0);
    assert_int_equal(hutch_notebook_parse("it", text, len, &again, &err), 0);
    hutch_notebook_done(&again);
    hutch_notebook_done(&nb);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;

    for (const char *p = strstr(text, word); p; p = strstr(p + 1, word))
        n++;
    return n;
}

#define SHOWN(id, text)                                                                                     \
    "{\"output_type\": \"display_data\", \"data\": {\"text/plain\": \"" text "\"}, \"metadata\": {}, " \
    "\"transient\": {\"display_id\": \"" id "\"}}"

static void update(struct notebook *nb, const char *id, const char *text)
{
    struct cJSON *data = cJSON_CreateObject(), *metadata = cJSON_CreateObject();
    struct hutch_err err;

    cJSON_AddStringToObject(data, "text/plain", text);
    assert_int_equal(hutch_notebook_update(nb, id, data, metadata, &err), 0);
    cJSON_Delete(data);
    cJSON_Delete(metadata);
}

static void test_updates(void **state)
{
    struct notebook nb = parse(BOOK("4", CELL("") ", " CELL("") ", " CELL("")));
    struct notebook_result result = { .outputs = "[" SHOWN("a", "a0") ", " SHOWN("b", "b0") ", " SHOWN("a", "a1") "]" };
    struct hutch_err err;
    auto_free char *text = NULL;
    size_t len;

    (void)state;
    assert_false(hutch_notebook_has_display(&nb, "a"));
    assert_int_equal(hutch_notebook_set_result(&nb, 0, &result, &err), 0);
    assert_true(hutch_notebook_has_display(&nb, "a"));
    assert_false(hutch_notebook_has_display(&nb, "c"));
    update(&nb, "a", "over");
    update(&nb, "a", "new");
    update(&nb, "c", "nowhere");
    result.outputs = "[" SHOWN("a", "a2") "]";
    assert_int_equal(hutch_notebook_set_result(&nb, 1, &result, &err), 0);
    assert_int_equal(hutch_notebook_print(&nb, &text, &len, &err), 0);
    assert_null(strstr(text, "transient"));
    assert_int_equal(count(text, "\"new\""), 2);
    assert_int_equal(count(text, "\"b0\""), 1);
    assert_int_equal(count(text, "\"a2\""), 1); /* it came after them */
    hutch_notebook_done(&nb);
}

static void test_the_last_update_is_shown(void **state)
{
    struct notebook nb = parse(BOOK("4", CELL("") ", " CELL("")));
    struct notebook_result result = { .outputs = "[" SHOWN("a", "a0") ", " SHOWN("a", "a1") "]" };
    struct hutch_err err;
    auto_free char *text = NULL;
    size_t len;

    (void)state;
    assert_int_equal(hutch_notebook_set_result(&nb, 0, &result, &err), 0);
    update(&nb, "a", "new");
    assert_int_equal(hutch_notebook_set_result(&nb, 1, &result, &err), 0);
    update(&nb, "a", "last");
    assert_int_equal(hutch_notebook_print(&nb, &text, &len, &err), 0);
    assert_int_equal(count(text, "\"last\""), 4);
    assert_null(strstr(text, "\"new\""));
    hutch_notebook_done(&nb);
}

/* Every cell shows something of its own and changes all that was shown before: an output is changed once, when the file
 * is written. */
static void show_and_update(const void *context, size_t n)
{
    auto_free char *book = NULL, *text = NULL;
    struct notebook_result result = { .outputs = NULL };
    struct notebook nb;
    struct hutch_err err;
    size_t len;
    FILE *out = open_memstream(&book, &len);

    (void)context;
    fputs("{\"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 4, \"cells\": [", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s" CELL(""), i ? ", " : "");
    fputs("]}", out);
    assert_int_equal(fclose(out), 0);
    nb = parse(book);
    for (size_t i = 0; i < n; i++) {
        char outputs[512];

        snprintf(outputs, sizeof(outputs), "[" SHOWN("all", "0") ", " SHOWN("%zu", "1") "]", n - i);
        result.outputs = outputs;
        assert_int_equal(hutch_notebook_set_result(&nb, i, &result, &err), 0);
        update(&nb, "all", "news");
    }
    assert_int_equal(hutch_notebook_print(&nb, &text, &len, &err), 0);
    assert_int_equal(count(text, "\"news\""), n);
    hutch_notebook_done(&nb);
}

static void test_updates_cost_the_same_in_every_cell(void **state)
{
    (void)state;
    assert_grows_evenly("cells that show and update", show_and_update, NULL, 1000);
}

/* One update in many places: what it makes of the file is bounded, whichever half of it is large. */
static void test_updates_are_bounded(void **state)
{
    struct notebook nb = parse(BOOK("4", CELL("")));
    struct notebook_result result = { .outputs = "[" SHOWN("a", "a0") ", " SHOWN("a", "a1") "]" };
    struct cJSON *data = cJSON_CreateObject(), *metadata = cJSON_CreateObject();
    struct hutch_err err;
    auto_free char *text = NULL;

    (void)state;
    assert_int_equal(hutch_notebook_set_result(&nb, 0, &result, &err), 0);
    nb.output_bytes = NOTEBOOK_MAX_OUTPUTS - 300; /* room for one of the two */
    cJSON_AddStringToObject(data, "text/plain", "small");
    cJSON_AddStringToObject(metadata, "k",
                            "012345678901234567890123456789012345678901234567890123456789"
                            "012345678901234567890123456789012345678901234567890123456789"
                            "012345678901234567890123456789012345678901234567890123456789");
    assert_int_equal(hutch_notebook_update(&nb, "a", data, metadata, &err), 0);
    assert_int_equal(hutch_notebook_print(&nb, &text, NULL, &err), 0);
    assert_string_equal(strstr(text, "0123456789") ? "shown once" : "", "shown once");
    assert_null(strstr(strstr(text, "\"k\"") + 1, "\"k\""));
    assert_non_null(strstr(text, "[output left out: the notebook's outputs are too large]"));
    cJSON_Delete(data);
    cJSON_Delete(metadata);
    hutch_notebook_done(&nb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused), cmocka_unit_test(test_kept),   cmocka_unit_test(test_ids),
        cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_upgrade_of_both_names),
            cmocka_unit_test(test_which_are_executed),
        cmocka_unit_test(test_params),  cmocka_unit_test(test_results), cmocka_unit_test(test_updates),
        cmocka_unit_test(test_the_last_update_is_shown), cmocka_unit_test(test_updates_cost_the_same_in_every_cell),
        cmocka_unit_test(test_updates_are_bounded), cmocka_unit_test(test_widgets),
        cmocka_unit_test(test_widgets_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
