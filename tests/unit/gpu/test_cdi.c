/* test_cdi.c - specifications of devices: what they name, and what is refused. */
#include "runtime/gpu/cdi.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* As nvidia-ctk cdi generate writes it. */
static const char toolkits[] =
    "---\n"
    "cdiVersion: 0.5.0\n"
    "containerEdits:\n"
    "  deviceNodes:\n"
    "  - path: /dev/nvidia-modeset\n"
    "  - path: /dev/nvidiactl\n"
    "  env:\n"
    "  - NVIDIA_VISIBLE_DEVICES=void\n"
    "  hooks:\n"
    "  - args:\n"
    "    - nvidia-cdi-hook\n"
    "    - create-symlinks\n"
    "    - --link\n"
    "    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so\n"
    "    hookName: createContainer\n"
    "    path: /usr/bin/nvidia-cdi-hook\n"
    "  mounts:\n"
    "  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05\n"
    "    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05\n"
    "    options:\n"
    "    - ro\n"
    "    - nosuid\n"
    "devices:\n"
    "- containerEdits:\n"
    "    deviceNodes:\n"
    "    - path: /dev/nvidia0\n"
    "  name: \"0\"\n"
    "- containerEdits:\n"
    "    deviceNodes:\n"
    "    - path: /dev/nvidia0\n"
    "    - hostPath: /dev/dri/card1\n"
    "      path: /dev/dri/card0\n"
    "  name: all\n"
    "kind: nvidia.com/gpu\n";

static void test_the_toolkits(void **state)
{
    static const struct { const char *path; bool is_node; } want[] = {
        { "/dev/nvidia-modeset", true },
        { "/dev/nvidiactl", true },
        { "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05", false },
        { "/dev/nvidia0", true },
        { "/dev/dri/card1", true },
    };
    struct cdi_spec spec = CDI_SPEC_INIT;
    struct hutch_err err;

    (void)state;
    if (hutch_cdi_parse("it", toolkits, strlen(toolkits), &spec, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(spec.kind, "nvidia.com/gpu");
    assert_int_equal(spec.n, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_string_equal(spec.edits[i].path, want[i].path);
        assert_int_equal(spec.edits[i].is_node, want[i].is_node);
    }
    assert_int_equal(spec.n_others, 2);
    hutch_cdi_done(&spec);
}

/* Of several devices without one that is all of them: each path once. */
static void test_devices_together(void **state)
{
    static const char text[] =
        " {\"kind\": \"nvidia.com/gpu\", \"later\": {\"a\": [1]}, \"devices\": ["
        "{\"name\": \"0\", \"containerEdits\": {\"deviceNodes\": [{\"path\": \"/dev/a\"}, {\"path\": \"/dev/b\"}]}},"
        "{\"name\": \"1\", \"containerEdits\": {\"deviceNodes\": [{\"path\": \"/dev/a\"}, {\"path\": \"/dev/c\"}],"
        " \"additionalGids\": [1], \"mounts\": null}}]}";
    struct cdi_spec spec = CDI_SPEC_INIT;
    struct hutch_err err;

    (void)state;
    if (hutch_cdi_parse("it", text, strlen(text), &spec, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(spec.n, 3);
    assert_string_equal(spec.edits[2].path, "/dev/c");
    assert_int_equal(spec.n_others, 1);
    hutch_cdi_done(&spec);
}

static void test_what_is_refused(void **state)
{
    static const struct { const char *text, *why; } rows[] = {
        { "", "nothing in it" },
        { "{", "it:" },
        { "{}", "there is no kind" },
        { "[]", "it: at $: expected" },
        { "kind: 1", "at $.kind: expected" },
        { "kind: a\nkind: b", "kind" },
        { "kind: a\ndevices: b", "at $.devices: expected" },
        { "kind: a\ndevices:\n- b", "at $.devices[0]: expected" },
        { "kind: a\ncontainerEdits:\n  deviceNodes:\n  - path: dev/x", "there is no absolute path" },
        { "kind: a\ncontainerEdits:\n  deviceNodes:\n  - type: c", "there is no absolute path" },
        { "kind: a\ncontainerEdits:\n  mounts:\n  - containerPath: /x", "there is no absolute path" },
        { "kind: a\ncontainerEdits:\n  mounts:\n  - hostPath: 1", "hostPath: expected" },
        { "kind: a\ncontainerEdits: &x\n", "something other than mappings" },
    };
    struct cdi_spec spec = CDI_SPEC_INIT;
    struct hutch_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (hutch_cdi_parse("it", rows[i].text, strlen(rows[i].text), &spec, &err) == 0)
            fail_msg("%s: taken", rows[i].text);
        if (!strstr(err.msg, rows[i].why))
            fail_msg("%s: %s", rows[i].text, err.msg);
        assert_null(spec.edits);
    }
}

static void test_too_many(void **state)
{
    struct cdi_spec spec = CDI_SPEC_INIT;
    struct hutch_err err;
    size_t len = 0;
    char *text = malloc((CDI_MAX_EDITS + 2) * 64);

    (void)state;
    len += (size_t)sprintf(text, "kind: a\ncontainerEdits:\n  mounts:\n");
    for (int i = 0; i < CDI_MAX_EDITS; i++)
        len += (size_t)sprintf(text + len, "  - hostPath: /x%d\n", i);
    assert_int_equal(hutch_cdi_parse("it", text, len, &spec, &err), 0);
    assert_int_equal(spec.n, CDI_MAX_EDITS);
    hutch_cdi_done(&spec);
    len += (size_t)sprintf(text + len, "  deviceNodes:\n  - path: /dev/x\n");
    assert_int_equal(hutch_cdi_parse("it", text, len, &spec, &err), -1);
    assert_non_null(strstr(err.msg, "more than 4096 nodes and mounts"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_toolkits),
        cmocka_unit_test(test_devices_together),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_too_many),
    };

    return cmocka_run_group_tests_name("cdi", tests, NULL, NULL);
}
