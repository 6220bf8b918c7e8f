/* test_parts.c - the engine's pieces that need no processes: the scan of imports, the encoding of a job, and
 * what is said about options and requests that are no good. */
#include "runtime/hutch.h"
#include "runtime/lang/python_imports.h"
#include "runtime/engine/job.h"

#include "sandbox/fd.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "sandbox/rmtree.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>

/* --- imports ------------------------------------------------------------------------------------------------------ */

static void note(void *context, const char *name, size_t len)
{
    char *text = context;

    snprintf(text + strlen(text), 512 - strlen(text), "%.*s ", (int)len, name);
}

static const struct {
    const char *label, *code, *names;
} import_cases[] = {
    { "nothing", "", "" },
    { "one", "import numpy", "numpy " },
    { "a list with parts and aliases", "import a.b, c as d ,e\n", "a c e " },
    { "from", "from numpy.linalg import norm, svd as s\n", "numpy " },
    { "in brackets", "from a import (\n  b,\n  c)\n", "a " },
    { "indented, behind a colon, behind a semicolon", "def f():\n\timport a\nif x: import b; import c\n", "a b c " },
    { "try", "try:\n    import a\nexcept ImportError:\n    import b\n", "a b " },
    { "relative ones are no modules of an image", "from . import a\nfrom .b import c\n", "" },
    { "from without import", "from a\n", "" },
    { "names that only begin so", "imports = 1\nimporta\nfrom_ = 2\nfroma import b\n", "" },
    { "a comment", "# import a\nx = 1 # ; import b\nimport c # import d\n", "c " },
    { "a string of three quotes", "'''\nimport a\n'''\nx = \"\"\"\nimport b\n\"\"\"; import c\n", "c " },
    { "one that does not end", "import a\n'''\nimport b\n", "a " },
    { "continued by a backslash", "import \\\n  a, \\\n  b\nfrom \\\r\n c import d\n", "a b c " },
    { "a mark of UTF-8", "\xef\xbb\xbfimport a\n", "a " },
    { "other letters", "import \xc3\xa9t\xc3\xa9\n", "\xc3\xa9t\xc3\xa9 " },
    { "cut", "import", "" },
    { "cut behind a comma", "import a,", "a " },
};

static void test_imports(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(import_cases); i++) {
        char names[512] = "";

        hutch_imports_scan(import_cases[i].code, strlen(import_cases[i].code), note, names);
        if (strcmp(names, import_cases[i].names) != 0)
            fail_msg("%s: '%s' instead of '%s'", import_cases[i].label, names, import_cases[i].names);
    }
}

static void count(void *context, const char *name, size_t len)
{
    const char **bounds = context;

    assert_true(name >= bounds[0] && name + len <= bounds[1] && len > 0);
}

/* Whatever the text is, nothing beyond its end is read: it ends where an unmapped page would be found by the
 * sanitizer. */
static void test_imports_of_anything(void **state)
{
    static const char *const pieces[] = { "import ", "from ", "a", ".", ",", " as ", "'''", "\"",          "\n",
                                          "\\",      "\\\n",  ";", ":", "#", "\r\n", "\0",  "\xef\xbb\xbf" };
    unsigned seed = 20240229;

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        size_t len = 0, room = (size_t)rand() % 64;
        char *text = malloc(room + 1);
        const char *bounds[2];

        while (len < room) {
            const char *piece = pieces[(size_t)rand() % ARRAY_SIZE(pieces)];
            size_t n = strlen(piece) ? strlen(piece) : 1;

            n = n < room - len ? n : room - len;
            memcpy(text + len, piece, n);
            len += n;
        }
        text = realloc(text, len ? len : 1);
        bounds[0] = text;
        bounds[1] = text + len;
        hutch_imports_scan(text, len, count, bounds);
        free(text);
    }
}

static void test_imports_are_bounded(void **state)
{
    char *text = malloc(IMPORTS_MAX_SCAN + 100), names[512] = "";

    (void)state;
    memset(text, '\n', IMPORTS_MAX_SCAN + 100);
    memcpy(text + IMPORTS_MAX_SCAN - 10, "import a\n", 9);
    memcpy(text + IMPORTS_MAX_SCAN + 10, "import b\n", 9);
    hutch_imports_scan(text, IMPORTS_MAX_SCAN + 100, note, names);
    assert_string_equal(names, "a ");
    free(text);
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

static void expect_field(const char **at, const char *want, size_t len)
{
    const unsigned char *p = (const unsigned char *)*at;
    size_t n = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;

    assert_int_equal(n, len);
    assert_memory_equal(*at + 4, want, len);
    *at += 4 + n;
}

static void test_job(void **state)
{
    const struct job job = {
        .mode = "file",
        .name = "/run/hutch/code/main.py",
        .code = "print(1)\n",
        .code_len = 9,
        .args = (const char *const[]){ "a", "", "b c", NULL },
        .env = (const char *const[]){ "A=1", NULL },
        .cwd = "/mnt/data",
        .rlimits = { { { RLIMIT_CPU, 2, 3 }, { RLIMIT_FSIZE, 1024, 1024 } }, 2 },
    };
    struct worker_job head;
    struct hutch_err err;
    char rlimits[64], *text;
    const char *at;
    size_t len;

    (void)state;
    assert_int_equal(hutch_job_encode(&job, &text, &len, &err), 0);
    memcpy(&head, text, sizeof(head));
    assert_int_equal(head.magic, WORKER_JOB_MAGIC);
    assert_int_equal(head.len, len - sizeof(head));
    at = text + sizeof(head);
    snprintf(rlimits, sizeof(rlimits), "%d 2 3\n%d 1024 1024\n", RLIMIT_CPU, RLIMIT_FSIZE);
    expect_field(&at, "file", 4);
    expect_field(&at, job.name, strlen(job.name));
    expect_field(&at, job.code, 9);
    expect_field(&at, "a\0\0b c", 7);
    expect_field(&at, "A=1", 4);
    expect_field(&at, "/mnt/data", 9);
    expect_field(&at, rlimits, strlen(rlimits));
    assert_ptr_equal(at, text + len);
    free(text);
}

/* Those of a job that is encoded: all else stays, whether there are more than before, or fewer. */
static void test_job_with_other_limits(void **state)
{
    struct job job = { .mode = "code", .name = "", .code = "pass", .code_len = 4, .cwd = "/" };
    struct job_rlimits rlimits = { .n = 0 };
    struct hutch_err err;
    char *text, *want;
    size_t len, want_len;

    (void)state;
    assert_int_equal(hutch_job_encode(&job, &text, &len, &err), 0);
    for (unsigned i = 0; i <= JOB_MAX_RLIMITS; i++) {
        assert_int_equal(hutch_job_set_rlimits(&text, &len, &rlimits, &err), 0);
        job.rlimits = rlimits;
        assert_int_equal(hutch_job_encode(&job, &want, &want_len, &err), 0);
        assert_int_equal(len, want_len);
        assert_memory_equal(text, want, len);
        free(want);
        if (i < JOB_MAX_RLIMITS)
            hutch_job_add_rlimit(&rlimits, (int)i, UINT64_MAX - i, RLIM_INFINITY);
    }
    rlimits.n = 0;
    job.rlimits = rlimits;
    assert_int_equal(hutch_job_set_rlimits(&text, &len, &rlimits, &err), 0);
    assert_int_equal(hutch_job_encode(&job, &want, &want_len, &err), 0);
    assert_int_equal(len, want_len);
    assert_memory_equal(text, want, len);
    free(want);
    free(text);
}

static void test_job_of_nothing(void **state)
{
    const struct job job = { .mode = "code", .name = "", .code = "", .cwd = "/" };
    struct hutch_err err;
    char *text;
    size_t len;

    (void)state;
    assert_int_equal(hutch_job_encode(&job, &text, &len, &err), 0);
    assert_int_equal(len, sizeof(struct worker_job) + JOB_FIELDS * 4 + 4 + 1);
    free(text);
}

/* --- options and requests ----------------------------------------------------------------------------------------- */

struct place {
    char dir[48], home[64];
    struct hutch_engine_options options;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/hutch-test-engine.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->home, sizeof(p->home), "%s/home", p->dir);
    hutch_engine_options_init(&p->options);
    p->options.home = p->home;
    p->options.image = "/";
    p->options.launcher = "/bin/false"; /* nothing here comes so far that it would matter */
    p->options.policy_dir = "policies";
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { .msg = "" };
    auto_fd fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(hutch_rmtree(fd, p->dir + strlen("/tmp/"), &err), 0);
    free(p);
    return 0;
}

static void test_options(void **state)
{
    static const char *const modules[] = { "numpy", NULL }, *const bad_modules[] = { "os; import sys", NULL };
    const struct hutch_zygote unnamed = { .modules = modules }, bad_name = { .name = "a b" },
                              twice[] = { { .name = "a" }, { .name = "a", .parent = "a" } },
                              no_parent[] = { { .name = "a" }, { .name = "b" } },
                              late[] = { { .name = "a", .parent = "b" }, { .name = "b" } },
                              bounds = { .name = "a", .min = 5, .max = 2 },
                              bad_module = { .name = "a", .modules = bad_modules };
    const struct {
        const char *label;
        const struct hutch_zygote *zygotes;
        size_t n;
        const char *launcher, *policy, *image, *message;
        int code;
    } rows[] = {
        { "a zygote without a name", &unnamed, 1, NULL, NULL, NULL,
          "zygote '': a name consists of letters, digits, '-' and '_'", EINVAL },
        { "a name that is none", &bad_name, 1, NULL, NULL, NULL, "zygote 'a b': a name consists", EINVAL },
        { "a name twice", twice, 2, NULL, NULL, NULL, "zygote 'a' is there twice", EINVAL },
        { "two roots", no_parent, 2, NULL, NULL, NULL, "zygote 'b' needs a parent", EINVAL },
        { "a parent that comes later", late, 2, NULL, NULL, NULL, "zygote 'a': there is no zygote 'b' before it",
          EINVAL },
        { "min above max", &bounds, 1, NULL, NULL, NULL, "zygote 'a': min 5 is above max 2", EINVAL },
        { "code as a module", &bad_module, 1, NULL, NULL, NULL,
          "zygote 'a': 'os; import sys' is not the name of a module", EINVAL },
        { "no zygotes", &unnamed, 0, NULL, NULL, NULL, "there are 0 zygotes", EINVAL },
        { "no launcher", NULL, 0, "/no/such/launcher", NULL, NULL, "find the helper program '/no/such/launcher'",
          ENOENT },
        { "no policy", NULL, 0, NULL, "no-such", NULL, "there is no policy 'no-such'", -1 },
        { "no image", NULL, 0, NULL, NULL, "no-such", "", ENOENT },
        { "no root tree", NULL, 0, NULL, NULL, "/no/such", "option '--rootfs': look at '/no/such'", ENOENT },
    };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_engine_options options = p->options;
        struct hutch_engine *engine = NULL;
        struct hutch_error error;

        options.zygotes = rows[i].zygotes;
        options.n_zygotes = rows[i].n;
        if (rows[i].launcher)
            options.launcher = rows[i].launcher;
        options.policy = rows[i].policy;
        if (rows[i].image)
            options.image = rows[i].image;
        assert_int_equal(hutch_engine_open(&options, &engine, &error), -1);
        if (!strstr(error.message, rows[i].message) || (rows[i].code >= 0 && error.code != rows[i].code))
            fail_msg("%s: %d '%s'", rows[i].label, error.code, error.message);
        assert_int_equal(hutch_engine_open(&options, &engine, NULL), -1); /* nobody wants to know why */
    }
}

static unsigned n_results;

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    uint64_t *ids = user;

    assert_non_null(result->message);
    ids[id]++;
    n_results++;
}

static void test_requests(void **state)
{
    static const char *const no_equals[] = { "A", NULL }, *const no_name[] = { "=1", NULL };
    const struct {
        const char *label;
        struct hutch_request r;
        const char *message;
    } rows[] = {
        { "no code", { .code = NULL }, "there is no code" },
        { "a NUL", { .code = "a\0b", .code_len = 3 }, "the code has a NUL byte in it" },
        { "a language that is none", { .code = "x", .language = "cobol" }, "there is no language 'cobol'" },
        { "a name with a slash", { .code = "x", .name = "a/b.py" }, "'a/b.py' is not the name of a program file" },
        { "a name that leads up", { .code = "x", .name = ".." }, "'..' is not the name of a program file" },
        { "-c of a shell", { .code = "x", .name = "-c", .language = "sh" }, "the name '-c' is for Python only" },
        { "a variable without a value", { .code = "x", .env = no_equals }, "environment 'A': expected NAME=VALUE" },
        { "a variable without a name", { .code = "x", .env = no_name }, "environment '=1': expected NAME=VALUE" },
        { "more time than the policy has",
          { .code = "x", .wall_ms = 31000 },
          "wall_ms of 31000 is above the policy's 30000" },
        { "more memory",
          { .code = "x", .memory_bytes = 1ull << 40 },
          "memory_bytes of 1099511627776 is above the policy's 536870912" },
        { "too little memory", { .code = "x", .memory_bytes = 1 }, "memory_bytes of 1 is too small" },
        { "no such policy", { .code = "x", .policy = "no-such" }, "there is no policy 'no-such'" },
        { "no such directory", { .code = "x", .data_dir = "/no/such" }, "look at the data directory '/no/such'" },
        { "a file as a directory", { .code = "x", .data_dir = "/dev/null" }, "the data directory '/dev/null'" },
    };
    struct place *p = *state;
    struct hutch_engine *engine;
    struct hutch_error error;

    if (hutch_engine_open(&p->options, &engine, &error) < 0)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_request request = rows[i].r;

        request.size = sizeof(request);
        assert_int_equal(hutch_engine_submit(engine, &request, NULL, &error), -1);
        if (!strstr(error.message, rows[i].message) || error.code == 0)
            fail_msg("%s: %d '%s'", rows[i].label, error.code, error.message);
    }
    {
        char own[96];
        struct hutch_request request = { .size = sizeof(request), .code = "x", .data_dir = own };

        snprintf(own, sizeof(own), "%s/runs", p->home);
        assert_int_equal(hutch_engine_submit(engine, &request, NULL, &error), -1);
        assert_non_null(strstr(error.message, "hutch keeps its images and state in"));
    }
    hutch_engine_free(engine);
}

/* A caller with an older header has fewer fields; what follows them in his memory is nothing to us. */
static void test_sizes(void **state)
{
    struct place *p = *state;
    struct hutch_engine *engine;
    struct hutch_error error;
    struct hutch_request request;
    struct hutch_engine_stats stats;

    if (hutch_engine_open(&p->options, &engine, &error) < 0)
        fail_msg("%s", error.message);
    memset(&request, 0x55, sizeof(request));
    request.size = offsetof(struct hutch_request, name);
    request.language = NULL;
    request.code = "x";
    request.code_len = 0;
    assert_int_equal(hutch_engine_submit(engine, &request, NULL, &error), 0);
    memset(&stats, 0x55, sizeof(stats));
    stats.size = offsetof(struct hutch_engine_stats, prepared);
    hutch_engine_get_stats(engine, &stats);
    assert_int_equal(stats.running, 1);
    assert_int_equal(stats.prepared, 0x55555555);
    hutch_engine_free(engine);
}

/* The queue has its bound; and where nothing can ever run, every run that was accepted gets its one result all the
 * same. */
static void test_queue_and_a_broken_engine(void **state)
{
    struct place *p = *state;
    struct hutch_engine *engine;
    struct hutch_error error = { 0 };
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    uint64_t ids[8] = { 0 }, id;
    struct hutch_request request;

    p->options.max_running = 2;
    p->options.max_queued = 3;
    if (hutch_engine_open(&p->options, &engine, &error) < 0)
        fail_msg("%s", error.message);
    hutch_request_init(&request);
    request.code = "print(1)";
    request.on_result = on_result;
    request.user = ids;
    for (uint64_t i = 1; i <= 5; i++) {
        assert_int_equal(hutch_engine_submit(engine, &request, &id, &error), 0);
        assert_int_equal(id, i);
    }
    assert_int_equal(hutch_engine_submit(engine, &request, &id, &error), -1);
    assert_int_equal(error.code, EAGAIN);
    assert_string_equal(error.message, "3 runs wait already, which is the most that may");
    hutch_engine_get_stats(engine, &stats);
    assert_int_equal(stats.running, 2);
    assert_int_equal(stats.queued, 3);

    assert_int_equal(hutch_engine_cancel(engine, 4), 1);
    assert_int_equal(hutch_engine_cancel(engine, 4), 0); /* once is enough */
    assert_int_equal(hutch_engine_cancel(engine, 77), 0);
    assert_int_equal(hutch_engine_submit(engine, &request, &id, &error), 0); /* there is room again */
    assert_int_equal(id, 6);
    n_results = 0;
    while (n_results < 6) {
        struct pollfd fd = { .fd = hutch_engine_fd(engine), .events = POLLIN };

        assert_int_equal(poll(&fd, 1, 30000), 1);
        hutch_engine_dispatch(engine, &error);
    }
    assert_int_equal(hutch_engine_dispatch(engine, &error), -1);
    assert_string_equal(error.message, "the helper program '/bin/false' ended as soon as it was started");
    for (id = 1; id <= 6; id++)
        assert_int_equal(ids[id], 1);
    hutch_engine_get_stats(engine, &stats);
    assert_int_equal(stats.submitted, 6);
    assert_int_equal(stats.finished, 6);
    assert_int_equal(stats.running + stats.queued, 0);
    hutch_engine_free(engine);
    hutch_engine_free(NULL);
}

static void test_verdict_texts(void **state)
{
    (void)state;
    assert_string_equal(hutch_verdict_text(HUTCH_OK), "ok");
    assert_string_equal(hutch_verdict_text(HUTCH_OUTPUT_LIMIT), "output_limit");
    assert_string_equal(hutch_verdict_text(HUTCH_SETUP_FAILED), "setup_failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_imports),
        cmocka_unit_test(test_imports_of_anything),
        cmocka_unit_test(test_imports_are_bounded),
        cmocka_unit_test(test_job),
        cmocka_unit_test(test_job_with_other_limits),
        cmocka_unit_test(test_job_of_nothing),
        cmocka_unit_test(test_verdict_texts),
        cmocka_unit_test_setup_teardown(test_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sizes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue_and_a_broken_engine, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("engine parts", tests, NULL, NULL);
}
