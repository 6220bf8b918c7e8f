#include "sandbox/meminfo.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/stat.h>

#define NAME_WIDTH   16 /* as the kernel has it: proc(5) */
#define NUMBER_WIDTH 8  /* at least */
#define STAT_MAX     8192

/* The lines that programs read, in the kernel's order: procps, psutil, libuv, the JDK, R's ps and Rust's sysinfo among
 * them. Left out is what describes the host's hardware and the kernel's own use. */
#define ZERO SIZE_MAX
#define OF(field) offsetof(struct meminfo_values, field)
static const struct { const char *name; size_t at; } lines[] = {
    { "MemTotal:", OF(total) },  { "MemFree:", OF(free) },      { "MemAvailable:", OF(available) },
    { "Buffers:", ZERO },        { "Cached:", OF(cached) },     { "SwapCached:", ZERO },
    { "Active:", OF(used) },     { "Inactive:", OF(cached) },   { "Unevictable:", ZERO },
    { "Mlocked:", ZERO },        { "SwapTotal:", ZERO },        { "SwapFree:", ZERO },
    { "Dirty:", ZERO },          { "Writeback:", ZERO },        { "AnonPages:", OF(used) },
    { "Mapped:", ZERO },         { "Shmem:", OF(shmem) },       { "KReclaimable:", OF(slab) },
    { "Slab:", OF(slab) },       { "SReclaimable:", OF(slab) }, { "SUnreclaim:", ZERO },
    { "KernelStack:", ZERO },    { "PageTables:", ZERO },       { "CommitLimit:", OF(total) },
    { "Committed_AS:", OF(used) },
};
_Static_assert(ARRAY_SIZE(lines) * (NAME_WIDTH + 20 + sizeof(" kB")) < MEMINFO_MAX, "any number has room");

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t subtract(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static size_t count_digits(uint64_t number)
{
    size_t n = 1;

    while (number /= 10)
        n++;
    return n;
}

size_t hutch_meminfo_format(const struct meminfo_values *values, char *buf)
{
    size_t width = count_digits(values->total > values->widest ? values->total : values->widest);
    char *p = buf;

    if (width < NUMBER_WIDTH)
        width = NUMBER_WIDTH;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        uint64_t number = 0;
        char *digit;

        if (lines[i].at != ZERO)
            memcpy(&number, (const char *)values + lines[i].at, sizeof(number));
        number = smaller(number, values->total);
        memset(p, ' ', NAME_WIDTH + width);
        memcpy(p, lines[i].name, strlen(lines[i].name));
        p += NAME_WIDTH + width;
        digit = p;
        do
            *--digit = (char)('0' + number % 10);
        while (number /= 10);
        p = stpcpy(p, " kB\n");
    }
    return (size_t)(p - buf);
}

void hutch_meminfo_from_count(uint64_t total, uint64_t counted, struct meminfo_values *ret)
{
    uint64_t left = subtract(total, counted);

    *ret = (struct meminfo_values){ .total = total / 1024, .free = left / 1024, .available = left / 1024 };
    ret->used = ret->total - ret->free;
}

/* "name 1234" at the beginning of a line, in KiB; not of the first, which is anon's. */
static uint64_t find_stat(const char *stat, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = strchr(stat, '\n'); line; line = strchr(line + 1, '\n'))
        if (strncmp(line + 1, name, len) == 0 && line[1 + len] == ' ')
            return strtoull(line + 1 + len, NULL, 10) / 1024;
    return 0;
}

void hutch_meminfo_from_group(uint64_t total, uint64_t current, const char *stat, struct meminfo_values *ret)
{
    uint64_t cached = find_stat(stat, "file"), shmem = find_stat(stat, "shmem");
    uint64_t slab = find_stat(stat, "slab_reclaimable");

    hutch_meminfo_from_count(total, current, ret);
    ret->cached = smaller(cached, ret->used);
    ret->shmem = smaller(shmem, ret->cached);
    ret->slab = smaller(slab, ret->used - ret->cached);
    ret->available += ret->cached - ret->shmem + ret->slab;
    ret->used -= ret->cached + ret->slab;
}

static int write_values(int fd, const struct meminfo_values *values)
{
    char buf[MEMINFO_MAX];
    size_t len = hutch_meminfo_format(values, buf);

    return pwrite(fd, buf, len, 0) == (ssize_t)len ? 0 : -1;
}

/* A file in the tmpfs of /dev, which is the sandbox's own: written through a copy of that mount in which it can be, and
 * shown as a mount in which it cannot. Its name is moved to where another mount covers it. One write of the same length
 * replaces the whole text, so a reader never finds less than all lines. One that reads in the middle of a write may
 * find some of the old ones. */
static int make_file(int *ret_file_fd, int *ret_mount_fd, const struct meminfo_values *values, struct hutch_err *err)
{
    struct mount_attr writable = { .attr_clr = MOUNT_ATTR_RDONLY };
    struct mount_attr shown = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                            MOUNT_ATTR_NOEXEC };
    auto_fd dev = open_tree(AT_FDCWD, "/dev", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    auto_fd file = -1, mount = -1;

    if (dev < 0)
        return hutch_err_set(err, errno, "open '/dev'");
    if (mount_setattr(dev, "", AT_EMPTY_PATH, &writable, sizeof(writable)) < 0)
        return hutch_err_set(err, errno, "make '/dev' writable");
    file = openat(dev, "meminfo", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0444);
    if (file < 0 || write_values(file, values) < 0)
        return hutch_err_set(err, errno, "write '/dev/meminfo'");
    mount = open_tree(AT_FDCWD, "/dev/meminfo", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (renameat(dev, "meminfo", dev, "shm/meminfo") < 0)
        return hutch_err_set(err, errno, "move '/dev/meminfo'");
    if (mount < 0 || mount_setattr(mount, "", AT_EMPTY_PATH, &shown, sizeof(shown)) < 0)
        return hutch_err_set(err, errno, "make '/dev/meminfo' a mount");
    *ret_file_fd = hutch_fd_take(&file);
    *ret_mount_fd = hutch_fd_take(&mount);
    return 0;
}

/* A /dev that is the host's is nothing to write to. */
static bool has_own_dev(const struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mounts[i].kind == MOUNT_DEV && strcmp(spec->mounts[i].target, "/dev") == 0)
            return true;
    return false;
}

int hutch_meminfo_show(const struct sandbox_spec *spec, struct meminfo *m, struct hutch_err *err)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
    auto_fd place = -1, file = -1, mount = -1;
    struct sysinfo host;
    struct stat st;

    if (!m->limit)
        return 0;
    place = (int)syscall(SYS_openat2, AT_FDCWD, "/proc/meminfo", &how, sizeof(how));
    if (place < 0 || fstat(place, &st) < 0)
        return hutch_err_set(err, errno, "open '/proc/meminfo'");
    if (!S_ISREG(st.st_mode)) /* the policy masks it: /dev/null covers it */
        return 0;
    if (!has_own_dev(spec))
        return hutch_err_set(err, 0, "'/dev' is not the sandbox's own");
    if (sysinfo(&host) < 0)
        return hutch_err_set(err, errno, "ask for the host's memory");
    m->total = smaller(m->limit, (uint64_t)host.totalram * host.mem_unit);
    m->widest = m->total / 1024;
    hutch_meminfo_from_count(m->total, 0, &m->shown);
    m->shown.widest = m->widest;
    if (make_file(&file, &mount, &m->shown, err) < 0)
        return -1;
    if (move_mount(mount, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return hutch_err_set(err, errno, "mount on '/proc/meminfo'");
    m->file_fd = hutch_fd_take(&file);
    return 0;
}

static bool read_at_start(int fd, char *buf, size_t size)
{
    ssize_t n = pread(fd, buf, size - 1, 0);

    if (n <= 0)
        return false;
    buf[n] = '\0';
    return true;
}

static void show(struct meminfo *m, struct meminfo_values *values)
{
    values->widest = m->widest; /* the file is as long as ever */
    if (memcmp(values, &m->shown, sizeof(*values)) != 0 && write_values(m->file_fd, values) == 0)
        m->shown = *values;
}

void hutch_meminfo_lower(struct meminfo *m, uint64_t bytes)
{
    struct meminfo_values values;

    if (m->file_fd < 0 || bytes >= m->total)
        return;
    m->total = bytes;
    hutch_meminfo_from_count(m->total, 0, &values);
    show(m, &values);
}

void hutch_meminfo_update(struct meminfo *m, uint64_t counted)
{
    struct meminfo_values values;
    char text[STAT_MAX];

    if (m->file_fd < 0)
        return;
    if (m->current_fd < 0) {
        hutch_meminfo_from_count(m->total, counted, &values);
    } else {
        uint64_t current;

        if (!read_at_start(m->current_fd, text, sizeof(text)))
            return;
        current = strtoull(text, NULL, 10);
        if (!read_at_start(m->stat_fd, text, sizeof(text)))
            return;
        hutch_meminfo_from_group(m->total, current, text, &values);
    }
    show(m, &values);
}

void hutch_meminfo_done(struct meminfo *m)
{
    hutch_fd_closep(&m->current_fd);
    hutch_fd_closep(&m->stat_fd);
    hutch_fd_closep(&m->file_fd);
}
