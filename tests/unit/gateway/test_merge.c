/* runtime/gateway/merge.c: the answers of several workers as one. */
#include "runtime/gateway/merge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(merge_function *merge, const char *a, const char *b, const char *wanted)
{
    const char *const texts[] = { a, b };
    size_t len = 0;
    char *found = merge(texts, 2, &len);

    if (!wanted) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_string_equal(found, wanted);
    assert_int_equal(len, strlen(wanted));
    free(found);
}

static void test_lists(void **state)
{
    (void)state;
    check(hutch_merge_lists, "[1]", "[2,3]", "[1,2,3]");
    check(hutch_merge_lists, "[]", "[]", "[]");
    check(hutch_merge_lists, "{\"sessions\":[{\"id\":\"a\"}],\"nextLink\":null}",
          "{\"sessions\":[{\"id\":\"b\"}],\"nextLink\":null}",
          "{\"sessions\":[{\"id\":\"a\"},{\"id\":\"b\"}],\"nextLink\":null}");
    check(hutch_merge_lists, "[1]", "{", NULL);
    check(hutch_merge_lists, "", "[1]", NULL);
    check(hutch_merge_lists, "[1]", "{\"a\":[2]}", "[1]");
}

static void test_sums(void **state)
{
    (void)state;
    check(hutch_merge_sums, "{\"running\":1,\"pools\":[{\"name\":\"bare\",\"ready\":true,\"prepared\":2}]}",
          "{\"running\":2,\"pools\":[{\"name\":\"data\",\"ready\":true},"
          "{\"name\":\"bare\",\"ready\":false,\"prepared\":3}]}",
          "{\"running\":3,\"pools\":[{\"name\":\"bare\",\"ready\":false,\"prepared\":5},"
          "{\"name\":\"data\",\"ready\":true}]}");
    check(hutch_merge_sums, "{\"a\":\"x\",\"b\":null}", "{\"a\":\"y\",\"b\":1}", "{\"a\":\"x\",\"b\":null}");
}

static void test_metrics(void **state)
{
    (void)state;
    check(hutch_merge_metrics, "# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 2\nhutch_ready 1\nb 0.5\n",
          "# TYPE a counter\na{x=\"2\"} 5\na{x=\"1\"} 7\nhutch_ready 0\nb 0.25\n",
          "# TYPE a counter\na{x=\"1\"} 8\na{x=\"2\"} 7\nhutch_ready 0\nb 0.75\n");
}

/* A sample that one worker has alone keeps its number. */
static void test_metrics_of_one(void **state)
{
    (void)state;
    check(hutch_merge_metrics, "a 1\nb 2\n", "b 1\n", "a 1\nb 3\n");
    check(hutch_merge_metrics, "a 1\n", "", "a 1\n");
}

/* What the first has none of is not lost: it stands with what there is of its metric. */
static void test_metrics_of_another(void **state)
{
    (void)state;
    check(hutch_merge_metrics, "# HELP a x\n# TYPE a counter\na{x=\"1\"} 1\n# HELP ab y\n# TYPE ab counter\n",
          "# HELP a x\n# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 5\n# HELP ab y\n# TYPE ab counter\nab 2\n",
          "# HELP a x\n# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 5\n# HELP ab y\n# TYPE ab counter\nab 2\n");
    check(hutch_merge_metrics, "# HELP h x\n# TYPE h histogram\n# HELP b y\n# TYPE b gauge\nb 1\n",
          "# HELP h x\n# TYPE h histogram\nh_bucket{f=\"e\",le=\"1\"} 3\nh_sum{f=\"e\"} 4\n"
          "# HELP b y\n# TYPE b gauge\nb 1\n",
          "# HELP h x\n# TYPE h histogram\nh_bucket{f=\"e\",le=\"1\"} 3\nh_sum{f=\"e\"} 4\n"
          "# HELP b y\n# TYPE b gauge\nb 2\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_metrics_of_one),
        cmocka_unit_test(test_metrics_of_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
