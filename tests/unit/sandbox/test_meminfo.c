/* test_meminfo.c - what a sandbox finds in /proc/meminfo: lines that are as long whatever they say, numbers of its own
 * limit, and a file that it cannot change. */
#include "tests/unit/box.h"

#include "sandbox/meminfo.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#define MIB (1ull << 20)

static uint64_t line_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    uint64_t kib = 0;

    if (!at || (at != text && at[-1] != '\n') || sscanf(at + strlen(name), "%" SCNu64 " kB\n", &kib) != 1)
        fail_msg("no line '%s' in:\n%s", name, text);
    return kib;
}

static size_t format(const struct meminfo_values *values, char *buf)
{
    size_t len = hutch_meminfo_format(values, buf);

    assert_true(len > 0 && len < MEMINFO_MAX && buf[len - 1] == '\n');
    assert_int_equal(strnlen(buf, len), len);
    buf[len] = '\0';
    return len;
}

/* One write replaces the whole text: it is as long as the one before. */
static void test_length_never_changes(void **state)
{
    static const uint64_t totals[] = { 4 * MIB, 512 * MIB, 1024 * MIB, 96 * 1024 * MIB, 1024 * 1024 * MIB, UINT64_MAX };
    char buf[MEMINFO_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(totals); i++) {
        const uint64_t counts[] = { 0, 1, 1023, 1024, totals[i] / 2, totals[i] - 1, totals[i],
                                    totals[i] < UINT64_MAX ? totals[i] + 1 : totals[i], UINT64_MAX };
        struct meminfo_values values;
        size_t len = 0, lines = 0;

        for (size_t j = 0; j < ARRAY_SIZE(counts); j++) {
            uint64_t left = counts[j] < totals[i] ? totals[i] - counts[j] : 0;
            size_t now;

            hutch_meminfo_from_count(totals[i], counts[j], &values);
            now = format(&values, buf);
            assert_true(len == 0 || now == len);
            len = now;
            assert_int_equal(line_of(buf, "MemTotal:"), totals[i] / 1024);
            assert_int_equal(line_of(buf, "MemFree:"), left / 1024);
            assert_int_equal(line_of(buf, "MemAvailable:"), left / 1024);
            assert_int_equal(line_of(buf, "SwapTotal:"), 0);
            assert_int_equal(line_of(buf, "SwapFree:"), 0);
        }
        for (const char *p = buf; (p = strchr(p, '\n')); p++)
            lines++;
        assert_int_equal(len % lines, 0); /* and so is each line */
    }
    /* Nothing is larger than the total, whatever is put in. */
    {
        struct meminfo_values all = { 65536, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                      0 };

        format(&all, buf);
        assert_int_equal(line_of(buf, "Cached:"), 65536);
        assert_null(strstr(buf, "18446744073709551615"));
    }
}

/* As the kernel prints it: parsers that look at columns find them. */
static void test_lines_of_the_kernel(void **state)
{
    static const char *const names[] = { "MemTotal:",  "MemFree:", "MemAvailable:", "Buffers:",      "Cached:",
                                         "SwapCached:", "Active:",  "Inactive:",     "SReclaimable:", "Shmem:",
                                         "Slab:",      "SwapTotal:", "SwapFree:" };
    struct meminfo_values values;
    char buf[MEMINFO_MAX];

    (void)state;
    hutch_meminfo_from_count(512 * MIB, 200 * MIB, &values);
    format(&values, buf);
    assert_memory_equal(
        buf, "MemTotal:         524288 kB\nMemFree:          319488 kB\nMemAvailable:     319488 kB\n", 84);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        line_of(buf, names[i]);
}

/* What the kernel would give back is available, but not free; memory of tmpfs it would not. */
static void test_numbers_of_a_group(void **state)
{
    static const char stat[] =
        "anon 104857600\nfile 62914560\nkernel 9437184\nshmem 20971520\nfile_mapped 1048576\ninactive_file 4096\n"
        "slab_reclaimable 5242880\nslab_unreclaimable 1048576\nslab 6291456\nworkingset_refault_file 77\n";
    struct meminfo_values v;

    (void)state;
    hutch_meminfo_from_group(512 * MIB, 170 * MIB, stat, &v);
    assert_int_equal(v.total, 512 * 1024);
    assert_int_equal(v.free, 342 * 1024);
    assert_int_equal(v.cached, 60 * 1024);
    assert_int_equal(v.shmem, 20 * 1024);
    assert_int_equal(v.slab, 5 * 1024);
    assert_int_equal(v.available, (342 + 40 + 5) * 1024);
    assert_int_equal(v.used, (170 - 65) * 1024);
    /* Numbers that were read at different moments, or are not there, give no nonsense. */
    hutch_meminfo_from_group(512 * MIB, 10 * MIB, stat, &v);
    assert_int_equal(v.cached, 10 * 1024);
    assert_int_equal(v.slab, 0);
    assert_int_equal(v.available, 502 * 1024);
    assert_int_equal(v.used, 0);
    hutch_meminfo_from_group(64 * MIB, 900 * MIB, "", &v);
    assert_int_equal(v.free + v.available + v.cached, 0);
    assert_int_equal(v.used, 64 * 1024);
}

static int file_with(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
    return fd;
}

static void test_update(void **state)
{
    struct meminfo m = MEMINFO_INIT;
    char buf[MEMINFO_MAX];

    (void)state;
    hutch_meminfo_update(&m, 1); /* not shown: nothing happens */
    m.total = 256 * MIB;
    m.file_fd = file_with("");
    hutch_meminfo_update(&m, 100 * MIB);
    memset(buf, 0, sizeof(buf));
    assert_true(pread(m.file_fd, buf, sizeof(buf) - 1, 0) > 0);
    assert_int_equal(line_of(buf, "MemAvailable:"), 156 * 1024);
    m.current_fd = file_with("52428800\n");
    m.stat_fd = file_with("anon 1\nfile 10485760\nshmem 0\nslab_reclaimable 0\n");
    hutch_meminfo_update(&m, 100 * MIB);
    assert_true(pread(m.file_fd, buf, sizeof(buf) - 1, 0) > 0);
    assert_int_equal(line_of(buf, "MemFree:"), 206 * 1024);
    assert_int_equal(line_of(buf, "MemAvailable:"), 216 * 1024);
    hutch_meminfo_done(&m);
    assert_true(m.file_fd == -1 && m.current_fd == -1 && m.stat_fd == -1);
    hutch_meminfo_done(&m);
}

/* A limit that is lower has a shorter number, and the file stays as long as it is. */
static void test_lower(void **state)
{
    struct meminfo m = MEMINFO_INIT;
    char buf[MEMINFO_MAX] = "";
    ssize_t len;

    (void)state;
    hutch_meminfo_lower(&m, 1); /* not shown: nothing happens */
    assert_int_equal(m.total, 0);
    m.total = 1024 * 1024 * MIB;
    m.widest = m.total / 1024;
    m.file_fd = file_with("");
    hutch_meminfo_update(&m, 0);
    len = pread(m.file_fd, buf, sizeof(buf) - 1, 0);
    hutch_meminfo_lower(&m, 2 * m.total);
    assert_int_equal(m.total, 1024 * 1024 * MIB);
    hutch_meminfo_lower(&m, 64 * MIB);
    assert_int_equal(pread(m.file_fd, buf, sizeof(buf) - 1, 0), len);
    assert_int_equal(line_of(buf, "MemTotal:"), 64 * 1024);
    assert_int_equal(line_of(buf, "MemAvailable:"), 64 * 1024);
    hutch_meminfo_update(&m, 16 * MIB);
    assert_int_equal(pread(m.file_fd, buf, sizeof(buf) - 1, 0), len);
    assert_int_equal(line_of(buf, "MemTotal:"), 64 * 1024);
    assert_int_equal(line_of(buf, "MemFree:"), 48 * 1024);
    hutch_meminfo_done(&m);
}

/* --- in a sandbox ------------------------------------------------------------------------------------------------- */

static uint64_t host_kib(void)
{
    struct sysinfo host;

    assert_int_equal(sysinfo(&host), 0);
    return (uint64_t)host.totalram * host.mem_unit / 1024;
}

static char *shell(uint64_t limit, const char *script)
{
    struct sandbox_spec spec;

    box_spec(&spec, script);
    spec.limits[LIMIT_MEMORY] = limit;
    return box_shell(&spec);
}

static void test_total_is_the_limit(void **state)
{
    const struct { uint64_t limit, kib; } cases[] = {
        { 96 * MIB, 96 * 1024 },
        { 1ull << 50, host_kib() }, /* not more than there is */
        { 0, host_kib() },          /* no limit: the host's own file */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *out = shell(cases[i].limit, "cat /proc/meminfo");

        assert_int_equal(line_of(out, "MemTotal:"), cases[i].kib);
        assert_int_equal(strstr(out, "DirectMap4k:") != NULL, cases[i].limit == 0); /* of the kernel's own file only */
        free(out);
    }
}

static void test_it_cannot_be_changed(void **state)
{
    char *out = shell(96 * MIB,
                      "m=/proc/meminfo; (echo x >$m) 2>/dev/null && echo written; (echo x >>$m) 2>/dev/null && echo "
                      "appended; chmod 666 $m 2>/dev/null && echo opened; rm -f $m 2>/dev/null && echo removed;"
                      "mv $m /tmp/ 2>/dev/null && echo moved; ln $m /tmp/l 2>/dev/null && echo linked;"
                      "umount $m 2>/dev/null && echo unmounted; mount -o remount,rw $m 2>/dev/null && echo remounted;"
                      "touch $m 2>/dev/null && echo touched; find / -name meminfo -writable 2>/dev/null;"
                      "ls -A /dev/shm; ls /proc/1/fd 2>/dev/null; find /dev -name meminfo; grep -c '/proc/meminfo ro,' "
                      "/proc/self/mountinfo; stat -c %a $m; for f in /proc/self/fd/*; do readlink $f; done | grep "
                      "meminfo; echo end");

    (void)state;
    assert_string_equal(out, "1\n444\nend\n");
    free(out);
}

/* What was allocated is missing after some sample, and is there again when it was given back. */
static void test_it_follows_the_count(void **state)
{
    char *out = shell(512 * MIB,
                      "free() { while read n v u; do [ $n = MemAvailable: ] && echo $v; done </proc/meminfo; }\n"
                      "until [ $(free) -lt 524288 ]; do :; done; before=$(free)\n"
                      "x=$(head -c 60000000 /dev/zero | tr '\\0' x)\n"
                      "until [ $(free) -lt $((before - 50000)) ]; do :; done; echo fell\n"
                      "x=; until [ $(free) -gt $((before - 20000)) ]; do x=; done; echo rose\n"
                      "grep -c . /proc/meminfo; grep MemTotal /proc/meminfo");

    (void)state;
    assert_string_equal(out, "fell\nrose\n25\nMemTotal:         524288 kB\n");
    free(out);
}

/* Optional: a sandbox without our /dev starts, and a policy's mask stays what it is. */
static void test_where_it_cannot_be(void **state)
{
    static const char *const masked[] = { "/proc/meminfo" };
    struct sandbox_spec spec;
    struct hutch_err err;
    char *out;

    (void)state;
    box_spec(&spec, "wc -c </proc/meminfo; ls /dev | grep mem; echo end");
    spec.limits[LIMIT_MEMORY] = 96 * MIB;
    assert_int_equal(hutch_spec_set_list(&spec.masked_paths, masked, 1, &err), 0);
    out = box_shell(&spec);
    assert_string_equal(out, "0\nend\n");
    free(out);

    box_spec(&spec, "cat /proc/meminfo");
    spec.limits[LIMIT_MEMORY] = 96 * MIB;
    assert_non_null(hutch_spec_add_mount(&spec, MOUNT_BIND, "/dev", "/dev", MOUNT_RDONLY, &err));
    out = box_shell(&spec);
    assert_true(line_of(out, "MemTotal:") == host_kib());
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length_never_changes),
        cmocka_unit_test(test_lines_of_the_kernel),
        cmocka_unit_test(test_numbers_of_a_group),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_lower),
        cmocka_unit_test(test_total_is_the_limit),
        cmocka_unit_test(test_it_cannot_be_changed),
        cmocka_unit_test(test_it_follows_the_count),
        cmocka_unit_test(test_where_it_cannot_be),
    };

    alarm(100); /* ends a test that hangs */
    return cmocka_run_group_tests_name("meminfo", tests, NULL, NULL);
}
