/* Policies: what the shipped ones say, how one extends another, and every refusal with its place.
 *
 * Finds the shipped ones in $HUTCH_POLICY_DIR, else in policies/ below the working directory. */
#include "runtime/config/policy.h"
#include "runtime/config/policy_find.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* A directory with a seccomp profile and whatever policies a test writes. */
struct place {
    char dir[64];
    char *written[16];
    size_t n_written;
};

/* ' stands for ". */
static void write_file(struct place *place, const char *name, const char *text)
{
    char *path = NULL;
    FILE *file;

    assert_true(asprintf(&path, "%s/%s", place->dir, name) > 0);
    file = fopen(path, "w");
    assert_non_null(file);
    for (const char *c = text; *c; c++)
        fputc(*c == '\'' ? '"' : *c, file);
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < place->n_written; i++)
        if (strcmp(place->written[i], path) == 0) {
            free(path);
            return;
        }
    assert_true(place->n_written < ARRAY_SIZE(place->written));
    place->written[place->n_written++] = path;
}

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    assert_non_null(place);
    strcpy(place->dir, "/tmp/hutch-test-policy.XXXXXX");
    assert_non_null(mkdtemp(place->dir));
    write_file(place, "seccomp-all.json", "{'defaultAction':'SCMP_ACT_ALLOW'}");
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;

    for (size_t i = 0; i < place->n_written; i++) {
        assert_int_equal(unlink(place->written[i]), 0);
        free(place->written[i]);
    }
    assert_int_equal(rmdir(place->dir), 0);
    free(place);
    return 0;
}

static const char *shipped(void)
{
    const char *dir = getenv("HUTCH_POLICY_DIR");

    return dir && *dir ? dir : "policies";
}

static void load_or_fail(const char *name, const char *dir, struct sandbox_spec *ret)
{
    struct hutch_err err;

    if (hutch_spec_init(ret, &err) < 0 || hutch_policy_load(name, dir, ret, &err) < 0)
        fail_msg("%s", err.msg);
}

/* The error of a policy "x", with the name of its directory taken out. */
static void error_of(const struct place *place, const char *name, char *buf, size_t size)
{
    struct sandbox_spec spec;
    struct hutch_err err = { .msg = "" };
    size_t dir_len = strlen(place->dir), used = 0;

    assert_int_equal(hutch_spec_init(&spec, &err), 0);
    if (hutch_policy_load(name, place->dir, &spec, &err) == 0)
        strcpy(err.msg, "success");
    hutch_spec_done(&spec);
    for (const char *c = err.msg; *c && used + 1 < size;) {
        if (strncmp(c, place->dir, dir_len) == 0) {
            buf[used++] = '.';
            c += dir_len;
        } else {
            buf[used++] = *c++;
        }
    }
    buf[used] = '\0';
}

static bool has(char *const *list, const char *text)
{
    for (; *list; list++)
        if (strcmp(*list, text) == 0)
            return true;
    return false;
}

/* ---- the shipped ones ---- */

static void test_default(void **state)
{
    static const uint64_t limits[LIMIT_COUNT] = {
        [LIMIT_MEMORY] = 512ull << 20,
        [LIMIT_PIDS] = 64,
        [LIMIT_CPUS] = 1000,
        [LIMIT_CPU_TIME] = 0,
        [LIMIT_WALL] = 30000,
        [LIMIT_OUTPUT] = 8ull << 20,
        [LIMIT_FILE_SIZE] = 512ull << 20,
        [LIMIT_OPEN_FILES] = 1024,
        [LIMIT_DATA_SIZE] = 1ull << 30,
        [LIMIT_DATA_FILES] = 100000,
        [LIMIT_TMP_SIZE] = 64ull << 20,
    };
    static const char *const masked[] = { "/proc/kcore",       "/proc/keys",      "/proc/timer_list",
                                          "/proc/sched_debug", "/proc/scsi",      "/proc/acpi",
                                          "/proc/asound",      "/proc/kallsyms",  "/proc/sysrq-trigger",
                                          "/proc/bus",         "/proc/fs",        "/proc/irq",
                                          "/proc/cmdline",     "/proc/interrupts" };
    static const char *const needed[] = { "/proc/meminfo", "/proc/cpuinfo", "/proc/stat",        "/proc/self",
                                          "/proc/loadavg", "/proc/uptime",  "/proc/filesystems", "/proc/cgroups",
                                          "/proc/vmstat",  "/proc/net",     "/proc/version",     "/proc" };
    struct sandbox_spec spec;

    (void)state;
    load_or_fail("default", shipped(), &spec);
    for (int i = 0; i < LIMIT_COUNT; i++)
        if (spec.limits[i] != limits[i])
            fail_msg("limit %s is %" PRIu64, hutch_limit_name((enum sandbox_limit)i), spec.limits[i]);
    for (int i = 0; i < LAYER_COUNT; i++) {
        bool is_tried = i == LAYER_LANDLOCK || i == LAYER_CGROUP || i == LAYER_OWN_UID ||
                        i == LAYER_OWN_INODES || i == LAYER_OWN_PROC || i == LAYER_HOST_NAME ||
                        i == LAYER_NET_BUFFERS;
        enum sandbox_need want = is_tried ? NEED_TRY : NEED_REQUIRE;

        if (spec.layers[i] != want)
            fail_msg("layer %s is %d", hutch_layer_name((enum sandbox_layer)i), (int)spec.layers[i]);
    }
    assert_int_equal(spec.limits_need, NEED_TRY);
    assert_int_equal(spec.network, NETWORK_NONE);
    assert_int_equal(spec.grace_ms, 2000);
    assert_string_equal(spec.cwd, "/mnt/data");
    assert_string_equal(hutch_spec_get_env(&spec, "HOME"), "/tmp");
    assert_string_equal(hutch_spec_get_env(&spec, "LANG"), "C.UTF-8");
    assert_string_equal(hutch_spec_get_env(&spec, "MPLBACKEND"), "Agg");
    assert_true(spec.seccomp.n_rules > 50);
    assert_int_equal(spec.seccomp.default_errnum, ENOSYS);
    for (size_t i = 0; i < ARRAY_SIZE(masked); i++)
        if (!has(spec.masked_paths, masked[i]))
            fail_msg("'%s' is not masked", masked[i]);
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
        if (has(spec.masked_paths, needed[i]))
            fail_msg("'%s' is masked", needed[i]);
    assert_true(has(spec.readonly_paths, "/proc/sys"));
    hutch_spec_done(&spec);
}

static void test_strict_is_default_and_less(void **state)
{
    struct sandbox_spec strict, loose;

    (void)state;
    load_or_fail("default", shipped(), &loose);
    load_or_fail("strict", shipped(), &strict);
    for (int i = 0; i < LAYER_COUNT; i++)
        assert_int_equal(strict.layers[i], i == LAYER_OWN_UID ? NEED_TRY : NEED_REQUIRE);
    assert_int_equal(strict.limits_need, NEED_REQUIRE);
    assert_int_equal(strict.network, NETWORK_NONE);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (loose.limits[i])
            assert_in_range(strict.limits[i], 1, loose.limits[i]);
    }
    assert_true(strict.limits[LIMIT_CPU_TIME] > 0);
    for (char **path = loose.masked_paths; *path; path++)
        if (!has(strict.masked_paths, *path))
            fail_msg("strict does not mask '%s'", *path);
    for (char **path = loose.readonly_paths; *path; path++)
        assert_true(has(strict.readonly_paths, *path));
    for (char **entry = loose.envp; *entry; entry++)
        assert_true(has(strict.envp, *entry));
    hutch_spec_done(&strict);
    hutch_spec_done(&loose);
}

static void test_trusted_keeps_the_isolation(void **state)
{
    struct sandbox_spec spec;

    (void)state;
    load_or_fail("trusted", shipped(), &spec);
    assert_int_equal(spec.network, NETWORK_HOST);
    for (int i = 0; i < LAYER_COUNT; i++) {
        bool is_tried = i == LAYER_LANDLOCK || i == LAYER_CGROUP || i == LAYER_OWN_UID ||
                        i == LAYER_OWN_INODES || i == LAYER_OWN_PROC || i == LAYER_HOST_NAME ||
                        i == LAYER_NET_BUFFERS;
        enum sandbox_need want = i == LAYER_NET_NS ? NEED_OFF : is_tried ? NEED_TRY : NEED_REQUIRE;

        if (spec.layers[i] != want)
            fail_msg("layer %s is %d", hutch_layer_name((enum sandbox_layer)i), (int)spec.layers[i]);
    }
    assert_true(spec.limits[LIMIT_MEMORY] > 1ull << 30);
    assert_true(spec.seccomp.n_rules > 50);
    hutch_spec_done(&spec);
}

/* ---- extending ---- */

#define HEAD "{'schema':1,'seccomp':'seccomp-all.json'"

static void test_extends_changes_single_fields(void **state)
{
    struct place *place = *state;
    struct sandbox_spec spec;

    write_file(
        place, "base.json",
        HEAD
        ",'limits':{'memory':'1G','pids':10,'wall':'5s','grace':'1s'},'layers':{'landlock':'require','cgroup':'off'},"
        "'environment':{'A':'1','B':'2','C':'3'},'hostname':'base','workdir':'/base',"
        "'mounts':[{'type':'bind','source':'/usr/share','target':'/a'},{'type':'tmpfs','target':'/b','size':'1M'}],"
        "'masked_paths':['/proc/a','/proc/b'],'readonly_paths':['/proc/sys']}");
    write_file(place, "child.json",
               "{'schema':1,'extends':'base','limits':{'pids':20,'wall':null},'layers':{'cgroup':'try'},"
               "'environment':{'B':'two','C':null,'D':'4'},'masked_paths':['/proc/c'],"
               "'mounts':[{'type':'bind','source':'/opt','target':'/a','readonly':false,'optional':true}]}");
    load_or_fail("child", place->dir, &spec);
    assert_int_equal(spec.limits[LIMIT_MEMORY], 1ull << 30); /* from the base */
    assert_int_equal(spec.limits[LIMIT_PIDS], 20);
    assert_int_equal(spec.limits[LIMIT_WALL], 0); /* null: unlimited */
    assert_int_equal(spec.grace_ms, 1000);
    assert_int_equal(spec.layers[LAYER_LANDLOCK], NEED_REQUIRE);
    assert_int_equal(spec.layers[LAYER_CGROUP], NEED_TRY);
    assert_string_equal(hutch_spec_get_env(&spec, "A"), "1");
    assert_string_equal(hutch_spec_get_env(&spec, "B"), "two");
    assert_null(hutch_spec_get_env(&spec, "C"));
    assert_string_equal(hutch_spec_get_env(&spec, "D"), "4");
    assert_string_equal(spec.hostname, "base");
    assert_string_equal(spec.cwd, "/base");
    assert_int_equal(spec.n_mounts, 2);
    assert_string_equal(spec.mounts[0].source, "/opt"); /* the same target: replaced, in its place */
    assert_int_equal(spec.mounts[0].flags, MOUNT_OPTIONAL | MOUNT_IDMAP);
    assert_string_equal(spec.mounts[1].target, "/b");
    assert_int_equal(spec.mounts[1].size_bytes, 1 << 20);
    assert_true(has(spec.masked_paths, "/proc/c")); /* lists of paths are replaced whole */
    assert_false(has(spec.masked_paths, "/proc/a"));
    assert_true(has(spec.readonly_paths, "/proc/sys"));
    assert_int_equal(spec.seccomp.default_verdict, SECCOMP_ALLOW); /* named in the base, relative to the base */
    hutch_spec_done(&spec);
}

static void test_extends_a_shipped_policy_by_one_field(void **state)
{
    struct place *place = *state;
    struct sandbox_spec spec, base;
    char path[128];

    write_file(place, "mine.json", "{'schema':1,'extends':'default','limits':{'memory':'2G'}}");
    snprintf(path, sizeof(path), "%s/mine.json", place->dir);
    load_or_fail("default", shipped(), &base);
    load_or_fail(path, shipped(), &spec);
    assert_int_equal(spec.limits[LIMIT_MEMORY], 2ull << 30);
    for (int i = 0; i < LIMIT_COUNT; i++)
        if (i != LIMIT_MEMORY)
            assert_int_equal(spec.limits[i], base.limits[i]);
    assert_memory_equal(spec.layers, base.layers, sizeof(spec.layers));
    assert_int_equal(spec.seccomp.n_rules, base.seccomp.n_rules);
    hutch_spec_done(&spec);
    hutch_spec_done(&base);
}

static void test_extends_by_path(void **state)
{
    struct place *place = *state;
    struct sandbox_spec spec;
    char path[128];

    write_file(place, "base.json", HEAD ",'limits':{'pids':7}}");
    write_file(place, "child.json", "{'schema':1,'extends':'./base.json'}"); /* beside the file, wherever we stand */
    snprintf(path, sizeof(path), "%s/child.json", place->dir);
    load_or_fail(path, "/nowhere", &spec);
    assert_int_equal(spec.limits[LIMIT_PIDS], 7);
    hutch_spec_done(&spec);
}

static void test_enforcement_counts_once_all_files_are_read(void **state)
{
    struct place *place = *state;
    struct sandbox_spec spec;

    write_file(place, "hard.json", HEAD ",'enforcement':'require','layers':{'landlock':'try','seccomp':'off'}}");
    load_or_fail("hard", place->dir, &spec);
    assert_int_equal(spec.limits_need, NEED_REQUIRE);
    assert_int_equal(spec.layers[LAYER_LANDLOCK], NEED_REQUIRE);
    assert_int_equal(spec.layers[LAYER_CGROUP], NEED_REQUIRE);
    assert_int_equal(spec.layers[LAYER_SECCOMP], NEED_OFF); /* not wanted stays not wanted */
    hutch_spec_done(&spec);

    write_file(place, "soft.json", "{'schema':1,'extends':'hard','enforcement':'best-effort'}");
    load_or_fail("soft", place->dir, &spec);
    assert_int_equal(spec.limits_need, NEED_TRY);
    assert_int_equal(spec.layers[LAYER_LANDLOCK], NEED_TRY);
    hutch_spec_done(&spec);

    write_file(place, "soft.json", "{'schema':1,'extends':'hard','layers':{'landlock':'try'}}");
    load_or_fail("soft", place->dir, &spec);
    assert_int_equal(spec.layers[LAYER_LANDLOCK], NEED_REQUIRE);
    hutch_spec_done(&spec);
}

static void test_numbers_and_texts_mean_the_same(void **state)
{
    struct place *place = *state;
    struct sandbox_spec a, b;

    write_file(place, "a.json",
               HEAD ",'limits':{'memory':'16M','cpus':'0.5','wall':'1.5s','cpu_time':'2','grace':0,'output':'1K'}}");
    write_file(place, "b.json",
               HEAD ",'limits':{'memory':16777216,'cpus':0.5,'wall':1.5,'cpu_time':2,'grace':'0','output':1024}}");
    load_or_fail("a", place->dir, &a);
    load_or_fail("b", place->dir, &b);
    assert_memory_equal(a.limits, b.limits, sizeof(a.limits));
    assert_int_equal(a.limits[LIMIT_CPUS], 500);
    assert_int_equal(a.limits[LIMIT_WALL], 1500);
    assert_int_equal(a.grace_ms, 0);
    assert_int_equal(b.grace_ms, 0);
    hutch_spec_done(&a);
    hutch_spec_done(&b);
}

static void test_without_seccomp(void **state)
{
    struct place *place = *state;
    struct sandbox_spec spec;

    write_file(place, "off.json", "{'schema':1,'seccomp':null,'layers':{'seccomp':'off'}}");
    load_or_fail("off", place->dir, &spec);
    assert_int_equal(spec.layers[LAYER_SECCOMP], NEED_OFF);
    assert_int_equal(spec.seccomp.n_rules, 0);
    hutch_spec_done(&spec);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    static const struct {
        const char *text;
        const char *want; /* after "policy './x.json': " */
    } cases[] = {
        { "", "line 1, column 1: the text ends where a value should stand" },
        { "[]", "at $: expected an object, got an array of 0" },
        { HEAD "} x", "line 1, column 43: something follows the end of the value" },
        { "{}", "at $: the key \"schema\" is missing" },
        { "{'schema':2}", "at $.schema: expected 1, the only schema that this version of hutch reads, got 2" },
        { "{'schema':'1'}", "at $.schema: expected 1, the only schema that this version of hutch reads, got \"1\"" },
        { HEAD ",'memory':'1G'}", "at $.memory: unknown key; known here: schema, description, extends, enforcement, "
                                  "layers, limits, network, data_place, gpu, seccomp, hostname, workdir, "
                                  "environment, mounts, root_changes, masked_paths, readonly_paths" },
        { HEAD ",'limits':{'pids':1},'limits':{'pids':2}}", "at $.limits: this key is there twice" },
        { HEAD ",'description':7}", "at $.description: expected a string, got 7" },
        { HEAD ",'enforcement':'strict'}",
          "at $.enforcement: expected \"best-effort\" or \"require\", got \"strict\"" },
        { HEAD ",'enforcement':true}", "at $.enforcement: expected \"best-effort\" or \"require\", got true" },
        { HEAD ",'layers':['landlock']}", "at $.layers: expected an object, got an array of 1" },
        { HEAD ",'layers':{'landlok':'try'}}", "at $.layers.landlok: unknown key; known here: user_namespace, "
                                               "mount_namespace, pid_namespace, net_namespace, "
                                               "ipc_namespace, uts_namespace, cgroup_namespace, readonly_root, "
                                               "no_capabilities, no_new_privs, seccomp, landlock, cgroup, own_uid, "
                                               "own_inodes, own_proc, host_name, network_buffers" },
        { HEAD ",'layers':{'landlock':'yes'}}",
          "at $.layers.landlock: expected \"off\", \"try\" or \"require\", got \"yes\"" },
        { HEAD ",'layers':{'landlock':null}}",
          "at $.layers.landlock: expected \"off\", \"try\" or \"require\", got null" },
        { HEAD ",'layers':{'user_namespace':'off'}}", "at $.layers.user_namespace: expected \"require\", got \"off\"" },
        { HEAD ",'layers':{'no_new_privs':'try'}}", "at $.layers.no_new_privs: expected \"require\", got \"try\"" },
        { HEAD ",'layers':{'own_proc':'off'}}", "at $.layers.own_proc: expected \"try\" or \"require\", got \"off\"" },
        { HEAD ",'layers':{'net_namespace':'off'}}", "at $.layers.net_namespace: expected \"require\", got \"off\"" },
        { HEAD ",'limits':{'pids':'many'}}",
          "at $.limits.pids: expected a whole number 1..4194304, or null, got \"many\"" },
        { HEAD ",'limits':{'pids':'64'}}",
          "at $.limits.pids: expected a whole number 1..4194304, or null, got \"64\"" },
        { HEAD ",'limits':{'pids':0}}", "at $.limits.pids: expected a whole number 1..4194304, or null, got 0" },
        { HEAD ",'limits':{'pids':-1}}", "at $.limits.pids: expected a whole number 1..4194304, or null, got -1" },
        { HEAD ",'limits':{'pids':1.5}}", "at $.limits.pids: expected a whole number 1..4194304, or null, got 1.5" },
        { HEAD ",'limits':{'pids':4194305}}",
          "at $.limits.pids: expected a whole number 1..4194304, or null, got 4194305" },
        { HEAD ",'limits':{'memory':'lots'}}",
          "at $.limits.memory: expected a size 4M..1024T such as \"512M\", or null, got \"lots\"" },
        { HEAD ",'limits':{'memory':'1K'}}",
          "at $.limits.memory: expected a size 4M..1024T such as \"512M\", or null, got \"1K\"" },
        { HEAD ",'limits':{'memory':-5}}",
          "at $.limits.memory: expected a size 4M..1024T such as \"512M\", or null, got -5" },
        { HEAD ",'limits':{'memory':1e300}}",
          "at $.limits.memory: expected a size 4M..1024T such as \"512M\", or null, got 1.0000000000000001e+300" },
        { HEAD ",'limits':{'memory':['1G']}}",
          "at $.limits.memory: expected a size 4M..1024T such as \"512M\", or null, got an array of 1" },
        { HEAD ",'limits':{'memory':2000000.5}}",
          "at $.limits.memory: expected a size 4M..1024T such as \"512M\", or null, got 2000000.5" },
        { HEAD ",'limits':{'cpus':0}}", "at $.limits.cpus: expected a number of CPUs 0.01..1024, or null, got 0" },
        { HEAD ",'limits':{'cpus':'2 CPUs'}}",
          "at $.limits.cpus: expected a number of CPUs 0.01..1024, or null, got \"2 CPUs\"" },
        { HEAD ",'limits':{'wall':'soon'}}",
          "at $.limits.wall: expected a duration 1ms..365d such as \"30s\", or null, got \"soon\"" },
        { HEAD ",'limits':{'wall':0}}",
          "at $.limits.wall: expected a duration 1ms..365d such as \"30s\", or null, got 0" },
        { HEAD ",'limits':{'wall':true}}",
          "at $.limits.wall: expected a duration 1ms..365d such as \"30s\", or null, got true" },
        { HEAD ",'limits':{'grace':null}}", "at $.limits.grace: expected a duration 0..10m such as \"2s\", got null" },
        { HEAD ",'limits':{'grace':'1h'}}",
          "at $.limits.grace: expected a duration 0..10m such as \"2s\", got \"1h\"" },
        { HEAD ",'limits':{'open_files':3}}",
          "at $.limits.open_files: expected a whole number 16..1048576, or null, got 3" },
        { HEAD ",'gpu':true}", "at $.gpu: expected \"none\", \"compute\" or \"modeset\", got true" },
        { HEAD ",'gpu':'all'}", "at $.gpu: expected \"none\", \"compute\" or \"modeset\", got \"all\"" },
        { HEAD ",'data_place':'ram'}",
          "at $.data_place: expected \"auto\", \"memory\" or \"disk\", got \"ram\"" },
        { HEAD ",'network':'bridge'}", "at $.network: expected \"none\" or \"host\", got \"bridge\"" },
        { "{'schema':1}", "no seccomp profile is named at $.seccomp, and $.layers.seccomp is not \"off\"" },
        { "{'schema':1,'seccomp':null}",
          "no seccomp profile is named at $.seccomp, and $.layers.seccomp is not \"off\"" },
        { "{'schema':1,'seccomp':true}",
          "at $.seccomp: expected the file name of a seccomp profile, or null, got true" },
        { "{'schema':1,'seccomp':''}", "at $.seccomp: expected the file name of a seccomp profile, or null, got \"\"" },
        { "{'schema':1,'seccomp':'none.json'}", "open seccomp profile './none.json': No such file or directory" },
        { HEAD ",'hostname':'a b'}",
          "at $.hostname: expected a host name of 1..64 letters, digits, '-' and '.', got \"a b\"" },
        { HEAD ",'hostname':''}",
          "at $.hostname: expected a host name of 1..64 letters, digits, '-' and '.', got \"\"" },
        { HEAD ",'hostname':'-x'}",
          "at $.hostname: expected a host name of 1..64 letters, digits, '-' and '.', got \"-x\"" },
        { HEAD ",'workdir':'data'}", "at $.workdir: expected an absolute path without '.' or '..', got \"data\"" },
        { HEAD ",'workdir':'/mnt/../etc'}",
          "at $.workdir: expected an absolute path without '.' or '..', got \"/mnt/../etc\"" },
        { HEAD ",'environment':['A=1']}", "at $.environment: expected an object, got an array of 1" },
        { HEAD ",'environment':{'A':1}}",
          "at $.environment.A: expected a string, or null to remove the variable, got 1" },
        { HEAD ",'environment':{'A=B':'1'}}",
          "at $.environment[\"A=B\"]: not the name of an environment variable (letters, digits and '_', at most 64)" },
        { HEAD ",'environment':{'':'1'}}",
          "at $.environment[\"\"]: not the name of an environment variable (letters, digits and '_', at most 64)" },
        { HEAD ",'environment':{'A':'1','A':'2'}}", "at $.environment.A: this key is there twice" },
        { HEAD ",'mounts':{}}", "at $.mounts: expected an array, got an object" },
        { HEAD ",'root_changes':'x'}",
          "at $.root_changes: expected an absolute path without '.' or '..', got \"x\"" },
        { HEAD ",'root_changes':null}",
          "at $.root_changes: expected a string, got null" },
        { HEAD ",'mounts':[{'target':'/a'}]}", "at $.mounts[0]: the key \"type\" is missing" },
        { HEAD ",'mounts':[{'type':'tmpfs'}]}", "at $.mounts[0]: the key \"target\" is missing" },
        { HEAD ",'mounts':[{'type':'proc','target':'/a'}]}",
          "at $.mounts[0].type: expected \"bind\" or \"tmpfs\", got \"proc\"" },
        { HEAD ",'mounts':[{'type':'bind','target':'/a'}]}", "at $.mounts[0]: the key \"source\" is missing" },
        { HEAD ",'mounts':[{'type':'bind','source':'a','target':'/a'}]}",
          "at $.mounts[0].source: expected an absolute path without '.' or '..', got \"a\"" },
        { HEAD ",'mounts':[{'type':'bind','source':'/a','target':'/a/../b'}]}",
          "at $.mounts[0].target: expected an absolute path without '.' or '..', got \"/a/../b\"" },
        { HEAD ",'mounts':[{'type':'tmpfs','source':'/a','target':'/a'}]}",
          "at $.mounts[0].source: a tmpfs has no source" },
        { HEAD ",'mounts':[{'type':'tmpfs','target':'/a','optional':true}]}",
          "at $.mounts[0].optional: a tmpfs is never missing" },
        { HEAD ",'mounts':[{'type':'bind','source':'/a','target':'/a','size':'1M'}]}",
          "at $.mounts[0].size: only a tmpfs has a size" },
        { HEAD ",'mounts':[{'type':'tmpfs','target':'/a','size':1}]}",
          "at $.mounts[0].size: expected a size 4K..1024T such as \"64M\", got 1" },
        { HEAD ",'mounts':[{'type':'bind','source':'/a','target':'/a','readonly':'no'}]}",
          "at $.mounts[0].readonly: expected true or false, got \"no\"" },
        { HEAD ",'mounts':[{'type':'tmpfs','target':'/x'},{'type':'tmpfs','target':'/'}]}",
          "at $.mounts[1].target: '/' is set up by hutch itself" },
        { HEAD ",'mounts':[{'type':'tmpfs','target':'//proc/sys'}]}",
          "at $.mounts[0].target: '//proc/sys' is set up by hutch itself" },
        { HEAD ",'mounts':[{'type':'tmpfs','target':'/tmp/'}]}",
          "at $.mounts[0].target: '/tmp/' is set up by hutch itself" },
        { HEAD ",'mounts':[{'type':'tmpfs','target':'/run/hutch/site'}]}",
          "at $.mounts[0].target: '/run/hutch/site' is set up by hutch itself" },
        { HEAD ",'masked_paths':'/proc/kcore'}", "at $.masked_paths: expected an array, got \"/proc/kcore\"" },
        { HEAD ",'masked_paths':['/a',7]}", "at $.masked_paths[1]: expected a string, got 7" },
        { HEAD ",'readonly_paths':['proc']}",
          "at $.readonly_paths[0]: expected an absolute path without '.' or '..', got \"proc\"" },
        { HEAD ",'extends':7}", "at $.extends: expected a string, got 7" },
        { HEAD ",'extends':'x'}", "at $.extends: policy './x.json' extends itself" },
        { HEAD ",'extends':'./none.json'}", "at $.extends: open policy './none.json': No such file or directory" },
        { HEAD ",'extends':'..'}",
          "at $.extends: '..' is not the name of a policy; write a path with a '/' for a file" },
        { HEAD ",'extends':'gone'}", "at $.extends: there is no policy 'gone' in '.' (there are: x)" },
    };
    struct place *place = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char got[512], want[600];

        write_file(place, "x.json", cases[i].text);
        error_of(place, "x", got, sizeof(got));
        snprintf(want, sizeof(want), "policy './x.json': %s", cases[i].want);
        if (strcmp(got, want) != 0)
            fail_msg("%s:\n  got    '%s'\n  wanted '%s'", cases[i].text, got, want);
    }
}

static void test_unknown_limit_names_those_there_are(void **state)
{
    struct place *place = *state;
    char got[512], want[512] = "policy './x.json': at $.limits.cores: unknown key; known here: ";

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        strcat(strcat(want, hutch_limit_name((enum sandbox_limit)i)), ", ");
    strcat(want, "grace");
    write_file(place, "x.json", HEAD ",'limits':{'cores':1}}");
    error_of(place, "x", got, sizeof(got));
    assert_string_equal(got, want);
}

static void test_error_in_a_base_names_the_way_there(void **state)
{
    struct place *place = *state;
    char got[512];

    write_file(place, "a.json", HEAD ",'limits':{'pids':0}}");
    write_file(place, "b.json", "{'schema':1,'extends':'a'}");
    error_of(place, "b", got, sizeof(got));
    assert_string_equal(got,
                        "policy './b.json': at $.extends: policy './a.json': at $.limits.pids: expected a whole number "
                        "1..4194304, or null, got 0");
}

static void test_cycles_and_long_chains_end(void **state)
{
    struct place *place = *state;
    char got[512], name[16], text[64];

    write_file(place, "a.json", "{'schema':1,'extends':'b'}");
    write_file(place, "b.json", "{'schema':1,'extends':'./a.json'}");
    error_of(place, "a", got, sizeof(got));
    assert_string_equal(
        got, "policy './a.json': at $.extends: policy './b.json': at $.extends: policy './a.json' extends itself");

    write_file(place, "p0.json", HEAD "}");
    for (int i = 1; i < 9; i++) {
        snprintf(name, sizeof(name), "p%d.json", i);
        snprintf(text, sizeof(text), "{'schema':1,'extends':'p%d'}", i - 1);
        write_file(place, name, text);
    }
    error_of(place, "p7", got, sizeof(got));
    assert_string_equal(got, "success");
    error_of(place, "p8", got, sizeof(got));
    assert_non_null(strstr(got, "more than 8 policies extend one another"));
}

static void test_names(void **state)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        { "nope", "there is no policy 'nope' in '.' (there are: one, two)" },
        { "", "'' is not the name of a policy; write a path with a '/' for a file" },
        { "..", "'..' is not the name of a policy; write a path with a '/' for a file" },
        { "a b", "'a b' is not the name of a policy; write a path with a '/' for a file" },
        { "./nope.json", "open policy './nope.json': No such file or directory" },
        { "/dev/null", "policy '/dev/null' is not a regular file" },
    };
    struct place *place = *state;
    char got[512];

    write_file(place, "one.json", HEAD "}");
    write_file(place, "two.json", HEAD "}");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        error_of(place, cases[i].name, got, sizeof(got));
        assert_string_equal(got, cases[i].want);
    }
}

static void test_large_file(void **state)
{
    struct place *place = *state;
    auto_free char *text = malloc(300000);
    char got[512];

    assert_non_null(text);
    memset(text, ' ', 299999);
    text[299999] = '\0';
    write_file(place, "x.json", text);
    error_of(place, "x", got, sizeof(got));
    assert_string_equal(got, "policy: read './x.json' (the limit is 262144 bytes): File too large");
}

static void test_deep_nesting(void **state)
{
    struct place *place = *state;
    char got[512];

    write_file(place, "x.json", "{'schema':[[[[[[[[[[[[[[]]]]]]]]]]]]]]}");
    error_of(place, "x", got, sizeof(got));
    assert_string_equal(got, "policy './x.json': line 1, column 18: nested too deeply");
}

static void test_many_mounts(void **state)
{
    struct place *place = *state;
    char text[8192] = HEAD ",'mounts':[{'type':'tmpfs','target':'/m'}", got[512];

    for (int i = 0; i < 64; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ",{'type':'tmpfs','target':'/m%d'}", i);
    strcat(text, "]}");
    write_file(place, "x.json", text);
    error_of(place, "x", got, sizeof(got));
    assert_string_equal(got, "policy './x.json': at $.mounts: more than 64 entries");
}

/* ---- where they are ---- */

static void test_policy_dir_from_the_environment(void **state)
{
    struct place *place = *state;
    auto_free char *before = getenv("HUTCH_POLICY_DIR") ? strdup(getenv("HUTCH_POLICY_DIR")) : NULL;
    auto_free char *dir = NULL;
    struct hutch_err err;

    setenv("HUTCH_POLICY_DIR", place->dir, 1);
    assert_int_equal(hutch_policy_dir(&dir, &err), 0);
    assert_string_equal(dir, place->dir);
    setenv("HUTCH_POLICY_DIR", "/nowhere", 1);
    assert_int_equal(hutch_policy_dir(&dir, &err), -1);
    assert_string_equal(err.msg, "HUTCH_POLICY_DIR names '/nowhere': No such file or directory");
    if (before)
        setenv("HUTCH_POLICY_DIR", before, 1);
    else
        unsetenv("HUTCH_POLICY_DIR");
}

/* ---- the description ---- */

static void test_every_key_is_documented(void **state)
{
    static const char *const keys[] = { "schema",      "description", "extends",      "enforcement",    "layers",
                                        "limits",      "network",     "seccomp",      "hostname",       "workdir",
                                        "environment", "mounts",      "masked_paths", "readonly_paths", "grace",
                                        "root_changes",
                                        "type",        "source",      "target",       "readonly",       "optional",
                                        "noexec",      "size",        "data_place" };
    const char *path = "docs/policy.md";
    auto_free char *text = NULL;
    struct hutch_err err;
    char quoted[64];
    size_t len;

    (void)state;
    if (hutch_fd_slurp_path(path, 1 << 20, &text, &len, &err) < 0)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < ARRAY_SIZE(keys) + LIMIT_COUNT + LAYER_COUNT; i++) {
        const char *key = i < ARRAY_SIZE(keys) ? keys[i]
                          : i < ARRAY_SIZE(keys) + LIMIT_COUNT
                              ? hutch_limit_name((enum sandbox_limit)(i - ARRAY_SIZE(keys)))
                              : hutch_layer_name((enum sandbox_layer)(i - ARRAY_SIZE(keys) - LIMIT_COUNT));

        snprintf(quoted, sizeof(quoted), "`%s`", key);
        if (!strstr(text, quoted))
            fail_msg("%s does not mention %s", path, quoted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_strict_is_default_and_less),
        cmocka_unit_test(test_trusted_keeps_the_isolation),
        cmocka_unit_test_setup_teardown(test_extends_changes_single_fields, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_extends_a_shipped_policy_by_one_field, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_extends_by_path, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_enforcement_counts_once_all_files_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_and_texts_mean_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_seccomp, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unknown_limit_names_those_there_are, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_error_in_a_base_names_the_way_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cycles_and_long_chains_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deep_nesting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_mounts, set_up, tear_down),
        cmocka_unit_test(test_every_key_is_documented),
        cmocka_unit_test_setup_teardown(test_policy_dir_from_the_environment, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
