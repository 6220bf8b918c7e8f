/* test_spec.c - the description of a sandbox: what it begins as, what replaces what, and what it refuses. */
#include "sandbox/spec.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
    struct sandbox_spec *spec = calloc(1, sizeof(*spec));
    struct hutch_err err;

    assert_int_equal(hutch_spec_init(spec, &err), 0);
    *state = spec;
    return 0;
}

static int tear_down(void **state)
{
    hutch_spec_done(*state);
    hutch_spec_done(*state); /* twice does no harm */
    free(*state);
    return 0;
}

static void test_the_empty_description_is_strict(void **state)
{
    const struct sandbox_spec *spec = *state;

    for (size_t i = 0; i < LAYER_COUNT; i++) {
        bool is_tried = i == LAYER_LANDLOCK || i == LAYER_CGROUP || i == LAYER_OWN_UID ||
                        i == LAYER_OWN_INODES;

        assert_int_equal(spec->layers[i], is_tried ? NEED_TRY : NEED_REQUIRE);
    }
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        assert_int_equal(spec->limits[i], 0);
    assert_int_equal(spec->uid_inside, 1000);
    assert_int_equal(spec->gid_inside, 1000);
    assert_int_equal(spec->network, NETWORK_NONE);
    assert_int_equal(spec->grace_ms, 2000);
    assert_string_equal(spec->hostname, "hutch");
    assert_string_equal(spec->cwd, "/");
    assert_null(spec->rootfs_path);
    assert_int_equal(spec->n_mounts, 0);
    assert_int_equal(spec->n_files, 0);
    assert_null(spec->argv[0]);
    assert_null(spec->envp[0]); /* nothing of the caller's environment */
    assert_null(spec->masked_paths[0]);
    assert_null(spec->readonly_paths[0]);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < LIMIT_COUNT; i++)
        for (int j = 0; j <= i; j++)
            assert_int_equal(strcmp(hutch_limit_name(i), hutch_limit_name(j)) == 0, i == j);
    for (int i = 0; i < LAYER_COUNT; i++)
        for (int j = 0; j <= i; j++)
            assert_int_equal(strcmp(hutch_layer_name(i), hutch_layer_name(j)) == 0, i == j);
    for (int i = 0; i < ENFORCER_COUNT; i++)
        for (int j = 0; j <= i; j++)
            assert_int_equal(strcmp(hutch_enforcer_name(i), hutch_enforcer_name(j)) == 0, i == j);
    assert_string_equal(hutch_limit_name(LIMIT_MEMORY), "memory");
    assert_string_equal(hutch_layer_name(LAYER_USER_NS), "user_namespace");
    assert_string_equal(hutch_enforcer_name(ENFORCER_NONE), "none");
}

static const struct { const char *target, *error; } bad_targets[] = {
    { "", "'' is not an absolute path inside the sandbox" },
    { "tmp", "'tmp' is not an absolute path inside the sandbox" },
    { "./tmp", "'./tmp' is not an absolute path inside the sandbox" },
    { "/.", "path '/.' inside the sandbox has a '.' or '..' component" },
    { "/..", "path '/..' inside the sandbox has a '.' or '..' component" },
    { "/tmp/..", "path '/tmp/..' inside the sandbox has a '.' or '..' component" },
    { "/tmp/../etc", "path '/tmp/../etc' inside the sandbox has a '.' or '..' component" },
    { "/tmp//./x", "path '/tmp//./x' inside the sandbox has a '.' or '..' component" },
    { "/tmp/..//", "path '/tmp/..//' inside the sandbox has a '.' or '..' component" },
};
static const char *const good_targets[] = { "/", "/tmp", "/a//b/", "/...", "/..a/.b/b..", "/ name with space/\n" };

static void test_targets(void **state)
{
    struct sandbox_spec *spec = *state;
    struct hutch_err err;

    for (size_t i = 0; i < ARRAY_SIZE(bad_targets); i++) {
        assert_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, bad_targets[i].target, 0, &err));
        assert_string_equal(err.msg, bad_targets[i].error);
        assert_int_equal(hutch_spec_add_file(spec, bad_targets[i].target, "x", 1, 0444, &err), -1);
        assert_string_equal(err.msg, bad_targets[i].error);
    }
    assert_int_equal(spec->n_mounts, 0);
    assert_int_equal(spec->n_files, 0);
    for (size_t i = 0; i < ARRAY_SIZE(good_targets); i++) {
        assert_non_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, good_targets[i], 0, &err));
        assert_int_equal(hutch_spec_add_file(spec, good_targets[i], "x", 1, 0444, &err), 0);
    }
    assert_int_equal(spec->n_mounts, ARRAY_SIZE(good_targets));
    assert_int_equal(spec->n_files, ARRAY_SIZE(good_targets));
}

static void test_a_later_mount_replaces_in_place(void **state)
{
    struct sandbox_spec *spec = *state;
    struct sandbox_mount *m;
    struct hutch_err err;
    int tree = open("/", O_PATH | O_CLOEXEC);

    assert_non_null(hutch_spec_add_mount(spec, MOUNT_PROC, NULL, "/proc", 0, &err));
    m = hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/mnt/data", MOUNT_RDONLY, &err);
    assert_non_null(m);
    m->size_bytes = 12345;
    m->tree_fd = tree; /* the spec owns it now */
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/tmp", 0, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_BIND, "/srv", "/mnt/data", MOUNT_DATA, &err));
    assert_int_equal(spec->n_mounts, 3);
    assert_string_equal(spec->mounts[0].target, "/proc");
    assert_string_equal(spec->mounts[1].target, "/mnt/data"); /* where it was: order is nesting */
    assert_string_equal(spec->mounts[1].source, "/srv");
    assert_int_equal(spec->mounts[1].kind, MOUNT_BIND);
    assert_int_equal(spec->mounts[1].flags, MOUNT_DATA);
    assert_int_equal(spec->mounts[1].size_bytes, 0); /* nothing is left of the earlier one */
    assert_int_equal(spec->mounts[1].tree_fd, -1);
    assert_int_equal(fcntl(tree, F_GETFD), -1);
    assert_string_equal(spec->mounts[2].target, "/tmp");
}

static void test_many_mounts_and_files(void **state)
{
    struct sandbox_spec *spec = *state;
    struct hutch_err err;
    char target[32];

    for (int i = 0; i < 500; i++) {
        snprintf(target, sizeof(target), "/m%d", i % 250);
        assert_non_null(hutch_spec_add_mount(spec, MOUNT_BIND, target, target, (unsigned)i, &err));
    }
    assert_int_equal(spec->n_mounts, 250);
    for (unsigned i = 0; i < 250; i++)
        assert_int_equal(spec->mounts[i].flags, i + 250);
}

static void test_files_hold_any_bytes(void **state)
{
    struct sandbox_spec *spec = *state;
    struct hutch_err err;
    char data[] = { 'a', '\0', '\n', (char)0xff };

    assert_int_equal(hutch_spec_add_file(spec, "/run/hutch/a", data, sizeof(data), 0555, &err), 0);
    assert_int_equal(hutch_spec_add_file(spec, "/run/hutch/empty", NULL, 0, 0444, &err), 0);
    data[0] = 'b'; /* it is a copy */
    assert_int_equal(spec->files[0].len, 4);
    assert_memory_equal(spec->files[0].data, "a\0\n\xff\0", 5);
    assert_int_equal(spec->files[0].mode, 0555);
    assert_int_equal(spec->files[1].len, 0);
    assert_string_equal(spec->files[1].data, "");
}

static void test_environment(void **state)
{
    struct sandbox_spec *spec = *state;
    struct hutch_err err;

    assert_null(hutch_spec_get_env(spec, "PATH"));
    assert_int_equal(hutch_spec_set_env(spec, "PATH", "/bin", &err), 0);
    assert_int_equal(hutch_spec_set_env(spec, "PATHS", "x", &err), 0);
    assert_int_equal(hutch_spec_set_env(spec, "EMPTY", "", &err), 0);
    assert_int_equal(hutch_spec_set_env(spec, "EQ", "a=b=c", &err), 0);
    assert_int_equal(hutch_spec_set_env(spec, "PATH", "/usr/bin:/bin", &err), 0);
    assert_string_equal(spec->envp[0], "PATH=/usr/bin:/bin");
    assert_string_equal(spec->envp[1], "PATHS=x");
    assert_null(spec->envp[4]);
    assert_string_equal(hutch_spec_get_env(spec, "PATH"), "/usr/bin:/bin");
    assert_string_equal(hutch_spec_get_env(spec, "EMPTY"), "");
    assert_string_equal(hutch_spec_get_env(spec, "EQ"), "a=b=c");
    assert_null(hutch_spec_get_env(spec, "PAT"));
    assert_null(hutch_spec_get_env(spec, "path"));
}

static void test_bad_environment_names(void **state)
{
    static const struct { const char *name, *error; } rows[] = {
        { "", "'' is not the name of an environment variable" },
        { "A=B", "'A=B' is not the name of an environment variable" },
        { "=", "'=' is not the name of an environment variable" },
    };
    struct sandbox_spec *spec = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err;

        assert_int_equal(hutch_spec_set_env(spec, rows[i].name, "x", &err), -1);
        assert_string_equal(err.msg, rows[i].error);
    }
    assert_null(spec->envp[0]);
}

static void test_strings_and_lists(void **state)
{
    static const char *const list[] = { "a", "", "c" };
    struct sandbox_spec *spec = *state;
    struct hutch_err err;

    assert_int_equal(hutch_spec_set_string(&spec->cwd, "/mnt/data", &err), 0);
    assert_string_equal(spec->cwd, "/mnt/data");
    assert_int_equal(hutch_spec_set_string(&spec->cwd, NULL, &err), 0);
    assert_null(spec->cwd);
    assert_int_equal(hutch_spec_set_list(&spec->argv, list, 3, &err), 0);
    assert_string_equal(spec->argv[1], "");
    assert_string_equal(spec->argv[2], "c");
    assert_null(spec->argv[3]);
    assert_ptr_not_equal(spec->argv[0], list[0]);
    assert_int_equal(hutch_spec_set_list(&spec->argv, (const char *const *)spec->argv, 1, &err), 0); /* of itself */
    assert_string_equal(spec->argv[0], "a");
    assert_null(spec->argv[1]);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_the_empty_description_is_strict),
        T(test_names),
        T(test_targets),
        T(test_a_later_mount_replaces_in_place),
        T(test_many_mounts_and_files),
        T(test_files_hold_any_bytes),
        T(test_environment),
        T(test_bad_environment_names),
        T(test_strings_and_lists),
    };

    return cmocka_run_group_tests_name("spec", tests, NULL, NULL);
}
