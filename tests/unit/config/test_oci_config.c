/* A spec as config.json: each field where the runtime specification has it, numbers whole, and what cannot be said an
 * error or a gap with a name. */
#include "runtime/config/oci_config.h"

#include "runtime/config/oci_gaps.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static const struct oci_ids ids = { .runtime_uid = 500, .runtime_gid = 501, .uid = 100000, .gid = 200000 };

static void make_spec(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "python3", "a \"b\"\n" }, *const masked[] = { "/proc/kcore", "/proc/keys" },
                      *const readonly[] = { "/proc/sys" };
    struct hutch_err err;

    assert_int_equal(hutch_spec_init(spec, &err), 0);
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_PROC, NULL, "/proc", 0, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_DEV, NULL, "/dev", 0, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/tmp", 0, &err));
    spec->mounts[2].mode = 01777;
    spec->mounts[2].size_bytes = 64 << 20;
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/run", MOUNT_RDONLY, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/running", MOUNT_RDONLY, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/mnt/data", MOUNT_DATA, &err));
    assert_non_null(hutch_spec_add_mount(spec, MOUNT_BIND, "/srv/set", "/set", MOUNT_RDONLY | MOUNT_NOEXEC, &err));
    assert_int_equal(hutch_spec_add_file(spec, "/run/x", "1", 1, 0444, &err), 0);
    assert_int_equal(hutch_spec_set_list(&spec->argv, argv, ARRAY_SIZE(argv), &err), 0);
    assert_int_equal(hutch_spec_set_list(&spec->masked_paths, masked, ARRAY_SIZE(masked), &err), 0);
    assert_int_equal(hutch_spec_set_list(&spec->readonly_paths, readonly, ARRAY_SIZE(readonly), &err), 0);
    assert_int_equal(hutch_spec_set_env(spec, "HOME", "/tmp", &err), 0);
    spec->layers[LAYER_SECCOMP] = NEED_OFF;
}

/* The value at a path such as "linux.resources.memory.limit" or "mounts.2.options.0". */
static const cJSON *at(const cJSON *node, const char *path)
{
    auto_free char *copy = strdup(path);
    char *rest = copy;

    assert_non_null(copy);
    for (const char *key = strsep(&rest, "."); key; key = strsep(&rest, ".")) {
        node = cJSON_IsArray(node) ? cJSON_GetArrayItem(node, (int)strtol(key, NULL, 10))
                                   : cJSON_GetObjectItemCaseSensitive(node, key);
        if (!node)
            fail_msg("there is no '%s' of '%s'", key, path);
    }
    return node;
}

static cJSON *make_config(const struct sandbox_spec *spec, char **ret_text)
{
    struct hutch_err err;
    char *text = NULL;
    cJSON *config;

    if (hutch_oci_config_make(spec, &ids, "/store/root", &text, &err) < 0)
        fail_msg("%s", err.msg);
    config = cJSON_Parse(text);
    assert_non_null(config);
    if (ret_text)
        *ret_text = text;
    else
        free(text);
    return config;
}

/* As it is printed without spaces. */
static void assert_at(const cJSON *config, const char *path, const char *want)
{
    auto_free char *have = cJSON_PrintUnformatted(at(config, path));

    assert_non_null(have);
    if (strcmp(have, want) != 0)
        fail_msg("%s: %s, not %s", path, have, want);
}

static void test_every_part_has_its_place(void **state)
{
    static const struct { const char *path, *want; } rows[] = {
        { "ociVersion", "\"1.0.2\"" },
        { "root", "{\"path\":\"/store/root\",\"readonly\":true}" },
        { "hostname", "\"hutch\"" },
        { "process.args", "[\"python3\",\"a \\\"b\\\"\\n\"]" },
        { "process.env", "[\"HOME=/tmp\"]" },
        { "process.cwd", "\"/\"" },
        { "process.terminal", "false" },
        { "process.noNewPrivileges", "true" },
        { "process.user", "{\"uid\":1000,\"gid\":1000,\"umask\":18}" },
        { "process.capabilities",
          "{\"bounding\":[],\"effective\":[],\"inheritable\":[],\"permitted\":[],\"ambient\":[]}" },
        { "linux.uidMappings", "[{\"containerID\":0,\"hostID\":500,\"size\":1},"
                               "{\"containerID\":1000,\"hostID\":100000,\"size\":1}]" },
        { "linux.gidMappings", "[{\"containerID\":0,\"hostID\":501,\"size\":1},"
                               "{\"containerID\":1000,\"hostID\":200000,\"size\":1}]" },
        { "linux.namespaces", "[{\"type\":\"user\"},{\"type\":\"mount\"},{\"type\":\"pid\"},{\"type\":\"ipc\"},"
                              "{\"type\":\"uts\"},{\"type\":\"cgroup\"},{\"type\":\"network\"}]" },
        { "linux.maskedPaths", "[\"/proc/kcore\",\"/proc/keys\"]" },
        { "linux.readonlyPaths", "[\"/proc/sys\"]" },
        { "linux.rootfsPropagation", "\"private\"" },
        { "linux.resources", "{}" },
        { "linux.sysctl", "{\"net.ipv4.tcp_rmem\":\"4096 16384 65536\",\"net.ipv4.tcp_wmem\":\"4096 16384 65536\"}" },
    };
    struct sandbox_spec spec;
    cJSON *config;

    (void)state;
    make_spec(&spec);
    config = make_config(&spec, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_at(config, rows[i].path, rows[i].want);
    assert_null(cJSON_GetObjectItem(at(config, "linux"), "seccomp"));
    cJSON_Delete(config);
    hutch_spec_done(&spec);
}

static void test_mounts(void **state)
{
    static const struct { const char *path, *want; } rows[] = {
        { "mounts.0.type", "\"proc\"" },
        { "mounts.0.options", "[\"nosuid\",\"nodev\",\"noexec\"]" },
        { "mounts.1.destination", "\"/dev\"" },
        { "mounts.1.options", "[\"nosuid\",\"nodev\",\"noexec\",\"ro\",\"size=65536\",\"nr_inodes=64\",\"mode=755\"]" },
        { "mounts.2.type", "\"devpts\"" },
        { "mounts.3.destination", "\"/dev/shm\"" },
        { "mounts.4.destination", "\"/tmp\"" },
        { "mounts.4.options", "[\"nosuid\",\"nodev\",\"size=67108864\",\"nr_inodes=16400\",\"mode=1777\",\"uid=1000\","
                              "\"gid=1000\"]" },
        /* with a file in it: a directory of the bundle */
        { "mounts.5", "{\"destination\":\"/run\",\"type\":\"bind\",\"source\":\"files/run\",\"options\":[\"rbind\","
                      "\"rprivate\",\"rnosuid\",\"rnodev\",\"rro\"]}" },
        { "mounts.6.type", "\"tmpfs\"" }, /* /running is not below /run */
        { "mounts.7.options", "[\"nosuid\",\"nodev\",\"mode=755\",\"uid=1000\",\"gid=1000\"]" }, /* no limit */
        { "mounts.8", "{\"destination\":\"/set\",\"type\":\"bind\",\"source\":\"/srv/set\",\"options\":[\"rbind\","
                      "\"rprivate\",\"rnosuid\",\"rnodev\",\"rnoexec\",\"rro\"]}" },
    };
    struct sandbox_spec spec;
    cJSON *config;

    (void)state;
    make_spec(&spec);
    config = make_config(&spec, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_at(config, rows[i].path, rows[i].want);
    assert_int_equal(cJSON_GetArraySize(at(config, "mounts")), 9);
    cJSON_Delete(config);
    hutch_spec_done(&spec);
}

static bool has_rlimit(const cJSON *config, const char *want)
{
    const cJSON *one;
    bool found = false;

    cJSON_ArrayForEach(one, at(config, "process.rlimits"))
    {
        auto_free char *text = cJSON_PrintUnformatted(one);

        found |= text && strcmp(text, want) == 0;
    }
    return found;
}

static void test_limits(void **state)
{
    struct sandbox_spec spec;
    auto_free char *text = NULL;
    cJSON *config;

    (void)state;
    make_spec(&spec);
    spec.limits[LIMIT_MEMORY] = 512 << 20;
    spec.limits[LIMIT_PIDS] = 64;
    spec.limits[LIMIT_CPUS] = 1500;
    spec.limits[LIMIT_CPU_TIME] = 10000;
    spec.limits[LIMIT_OPEN_FILES] = 256;
    spec.limits[LIMIT_FILE_SIZE] = 1000000000000000; /* as a double it is printed as 1e+15, which runtimes refuse */
    config = make_config(&spec, &text);
    assert_at(config, "linux.resources", "{\"memory\":{\"limit\":536870912,\"swap\":536870912},\"pids\":{\"limit\":64},"
                                         "\"cpu\":{\"period\":100000,\"quota\":150000}}");
    assert_true(has_rlimit(config, "{\"type\":\"RLIMIT_NPROC\",\"hard\":64,\"soft\":64}"));
    assert_true(has_rlimit(config, "{\"type\":\"RLIMIT_CPU\",\"hard\":12,\"soft\":11}"));
    assert_true(has_rlimit(config, "{\"type\":\"RLIMIT_NOFILE\",\"hard\":256,\"soft\":256}"));
    assert_true(has_rlimit(config, "{\"type\":\"RLIMIT_CORE\",\"hard\":0,\"soft\":0}"));
    assert_non_null(strstr(text, "\t1000000000000000"));
    assert_null(strstr(text, "e+"));
    cJSON_Delete(config);
    hutch_spec_done(&spec);
}

static void test_network_of_the_host(void **state)
{
    struct sandbox_spec spec;
    cJSON *config;

    (void)state;
    make_spec(&spec);
    spec.network = NETWORK_HOST;
    spec.layers[LAYER_NET_NS] = NEED_OFF;
    config = make_config(&spec, NULL);
    assert_int_equal(cJSON_GetArraySize(at(config, "linux.namespaces")), 6);
    assert_null(cJSON_GetObjectItem(at(config, "linux"), "sysctl"));
    cJSON_Delete(config);
    hutch_spec_done(&spec);
}

static char *memory_calls[] = { (char *)"read", (char *)"memfd_create", NULL };
static char *only_withheld[] = { (char *)"memfd_create", NULL };
static char *masked_calls[] = { (char *)"clone", NULL };
static char *killed_calls[] = { (char *)"ptrace", NULL };

static void test_seccomp(void **state)
{
    struct seccomp_arg conditions[] = { { 0, SECCOMP_OP_MASKED_EQ, 4294967295, 7 },
                                        { 1, SECCOMP_OP_GT, 0, 4294967298 } };
    struct seccomp_rule rules[] = {
        { .names = memory_calls, .verdict = SECCOMP_ALLOW },
        { .names = only_withheld, .verdict = SECCOMP_ALLOW },
        { .names = masked_calls, .verdict = SECCOMP_ERRNO, .errnum = 1, .n_args = 2,
          .args = conditions },
        { .names = killed_calls, .verdict = SECCOMP_KILL_PROCESS },
    };
    struct sandbox_spec spec;
    auto_free char *text = NULL;
    cJSON *config;

    (void)state;
    make_spec(&spec);
    spec.layers[LAYER_SECCOMP] = NEED_REQUIRE;
    spec.seccomp = (struct seccomp_rules){ .default_verdict = SECCOMP_ERRNO, .default_errnum = 38, .rules = rules,
                                           .n_rules = ARRAY_SIZE(rules) };
    config = make_config(&spec, &text);
    assert_at(config, "linux.seccomp.defaultAction", "\"SCMP_ACT_ERRNO\"");
    assert_at(config, "linux.seccomp.defaultErrnoRet", "38");
    assert_at(config, "linux.seccomp.flags", "[]");
    assert_int_equal(cJSON_GetArraySize(at(config, "linux.seccomp.architectures")), 1);
    assert_at(config, "linux.seccomp.syscalls.0.names", "[\"read\",\"memfd_create\"]");
    assert_at(config, "linux.seccomp.syscalls.2", "{\"names\":[\"clone\"],\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":1,"
              "\"args\":[{\"index\":0,\"value\":4294967295,\"valueTwo\":7,\"op\":\"SCMP_CMP_MASKED_EQ\"},"
              "{\"index\":1,\"value\":4294967298,\"op\":\"SCMP_CMP_GT\"}]}");
    assert_at(config, "linux.seccomp.syscalls.3", "{\"names\":[\"ptrace\"],\"action\":\"SCMP_ACT_KILL_PROCESS\"}");
    cJSON_Delete(config);

    /* With a limit on memory, what only a cgroup counts is withheld: a rule with no other name is no rule. */
    spec.limits[LIMIT_MEMORY] = 1 << 30;
    config = make_config(&spec, NULL);
    assert_at(config, "linux.seccomp.syscalls.0.names", "[\"read\"]");
    assert_at(config, "linux.seccomp.syscalls.1.names", "[\"clone\"]");
    assert_at(config, "linux.seccomp.syscalls.3", "{\"names\":[\"memfd_create\",\"memfd_secret\",\"shmget\",\"msgget\","
                                                  "\"semget\"],"
                                                  "\"action\":\"SCMP_ACT_ERRNO\",\"errnoRet\":38}");
    cJSON_Delete(config);
    spec.seccomp = (struct seccomp_rules){ 0 };
    hutch_spec_done(&spec);
}

/* --- refusals --------------------------------------------------------------------------------------------------- */

static void require_landlock(struct sandbox_spec *spec) { spec->layers[LAYER_LANDLOCK] = NEED_REQUIRE; }
static void require_own_uid(struct sandbox_spec *spec) { spec->layers[LAYER_OWN_UID] = NEED_REQUIRE; }
static void require_own_inodes(struct sandbox_spec *spec) { spec->layers[LAYER_OWN_INODES] = NEED_REQUIRE; }
static void want_disk(struct sandbox_spec *spec) { spec->data_place = DATA_DISK; }
static void want_writable(struct sandbox_spec *spec) { spec->mounts[6].flags = 0; }
static void want_writable_files(struct sandbox_spec *spec) { spec->mounts[3].flags = 0; }

static void want_link(struct sandbox_spec *spec)
{
    struct hutch_err err;

    assert_non_null(hutch_spec_add_mount(spec, MOUNT_SYMLINK, "/mnt/data", "/workspace", 0, &err));
}

static void want_bytes(struct sandbox_spec *spec)
{
    struct hutch_err err;

    assert_int_equal(hutch_spec_set_env(spec, "X", "\xff", &err), 0);
}

static void test_refusals(void **state)
{
    static const struct { void (*change)(struct sandbox_spec *spec); const char *message; } rows[] = {
        { require_landlock, "requires 'landlock'" },
        { require_own_uid, "requires 'own_uid'" },
        { require_own_inodes, "requires 'own_inodes'" },
        { want_disk, "\"data_place\": \"disk\"" },
        { want_writable, "the policy's mount '/set' can be written" },
        { want_writable_files, "cannot put files into '/run'" },
        { want_link, "'/workspace' is a link" },
        { want_bytes, "is not UTF-8" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sandbox_spec spec;
        struct hutch_err err;
        char *text = NULL;

        make_spec(&spec);
        rows[i].change(&spec);
        assert_int_equal(hutch_oci_config_make(&spec, &ids, "/store/root", &text, &err), -1);
        assert_null(text);
        if (!strstr(err.msg, rows[i].message))
            fail_msg("%s: not in '%s'", rows[i].message, err.msg);
        hutch_spec_done(&spec);
    }
}

/* --- gaps ------------------------------------------------------------------------------------------------------- */

static void take_name(void *ctx, const char *name, const char *what_is_lost)
{
    char *names = ctx;

    assert_true(strlen(what_is_lost) > 10);
    strcat(names, name);
    strcat(names, " ");
}

static void test_gaps_have_names(void **state)
{
    struct sandbox_spec spec;
    char names[512] = "";

    (void)state;
    make_spec(&spec);
    hutch_oci_gaps_each(&spec, take_name, names);
    assert_string_equal(names, "landlock cgroup own_uid own_inodes data dev meminfo init result ");
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        spec.limits[i] = 1;
    spec.layers[LAYER_SECCOMP] = NEED_REQUIRE;
    spec.layers[LAYER_LANDLOCK] = NEED_OFF;
    names[0] = '\0';
    hutch_oci_gaps_each(&spec, take_name, names);
    assert_string_equal(names, "memory pids cpus cpu_time wall output cgroup own_uid own_inodes seccomp data dev "
                               "meminfo init result ");
    hutch_spec_done(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_has_its_place), cmocka_unit_test(test_mounts), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_network_of_the_host),      cmocka_unit_test(test_seccomp),
        cmocka_unit_test(test_refusals),                 cmocka_unit_test(test_gaps_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
