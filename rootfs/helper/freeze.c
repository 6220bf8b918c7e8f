/* freeze.c - makes a zygote cheap to fork: moves what it has in memory into a file that it maps privately.
 *
 * fork(2) copies the page tables of every mapping that holds anonymous pages: 1.6 ms for an interpreter with pandas and
 * matplotlib (84 MB), and as much again to take them apart when the child ends. For a private mapping of a file without
 * anonymous pages the kernel copies nothing; the child fetches what it touches (mm/memory.c: vma_needs_copy(), since
 * Linux 2.6). So everything anonymous goes into a memfd, which is mapped where it was, with the same protection:
 * nothing changes for the program, and fork costs 0.4 ms. What the zygote writes afterwards is anonymous again, and is
 * inherited in the old way.
 *
 * Left as they are: the stack of the caller; the neighbourhood of the thread pointer, into which the kernel writes when
 * it pleases (rseq(2)); executable memory; pages that were never touched; every mapping that is special in any way,
 * above all those that a fork is to find empty (MADV_WIPEONFORK: the state of random generators). Between copying and
 * mapping a piece, nothing may write to it: signals are blocked, there is no other thread, and what this code needs is
 * on the stack or in memory of its own. The one thing that libc's wrappers write is errno, near the thread pointer.
 *
 * One difference remains: after madvise(MADV_DONTNEED) such memory has its old contents and not zeros. glibc, musl and
 * Python's allocator do not count on zeros; jemalloc and its like do, so nothing is frozen where one of them is
 * loaded. */
#include "sandbox/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int hutch_zygote_freeze(void);

#define MAPS_BYTES (4ul << 20)
#define BATCH      (1ul << 16)  /* pages looked at together */
#define JOIN       256ul        /* pages between two that are moved, which are taken along: fork copies mappings one by
                                 * one, too */
#define NEAR       (64ul << 10) /* bytes on either side of the thread pointer */
#define WORTH_KIB  (16ul << 10) /* anonymous memory: less is copied faster than it is fetched page by page */

/* proc(5), pagemap: 63 present, 62 swapped out, 61 of a file or shared. */
static bool is_anonymous(uint64_t entry)
{
    return entry >> 62 && !(entry >> 61 & 1);
}

struct freezer {
    uintptr_t page, thread, stack; /* size; addresses that are to stay where they are */
    int maps_fd, pagemap_fd, memfd;
    char *maps;         /* MAPS_BYTES */
    uint64_t *entries;  /* BATCH */
    uint64_t used, max; /* of the memfd */
};

static const char *read_hex(const char *p, uintptr_t *ret)
{
    *ret = 0;
    for (;; p++) {
        int digit = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;

        if (digit < 0)
            return p;
        *ret = *ret << 4 | (uintptr_t)digit;
    }
}

static void move(struct freezer *f, uintptr_t start, size_t len, int prot)
{
    size_t done = 0;

    if (f->used + len > f->max)
        return;
    while (done < len) {
        /* Not pwrite(3): what checks memory in a test build objects to reading across objects. */
        long n = syscall(SYS_pwrite64, f->memfd, start + done, len - done, f->used + done);

        if (n <= 0)
            return; /* this piece stays as it is */
        done += (size_t)n;
    }
    if (mmap((void *)start, len, prot, MAP_PRIVATE | MAP_FIXED, f->memfd, (off_t)f->used) != MAP_FAILED)
        f->used += len;
}

static void move_anonymous(struct freezer *f, uintptr_t start, uintptr_t end, int prot)
{
    while (start < end) {
        size_t pages = (end - start) / f->page < BATCH ? (end - start) / f->page : BATCH, i = 0;
        ssize_t want = (ssize_t)(pages * sizeof(*f->entries));

        if (pread(f->pagemap_fd, f->entries, (size_t)want, (off_t)(start / f->page * sizeof(*f->entries))) != want)
            return;
        while (i < pages) {
            size_t first = i, last = i;

            if (!is_anonymous(f->entries[i++]))
                continue;
            for (; i < pages && i - last <= JOIN; i++)
                if (is_anonymous(f->entries[i]))
                    last = i;
            i = last + 1;
            move(f, start + first * f->page, (last - first + 1) * f->page, prot);
        }
        start += pages * f->page;
    }
}

/* Whether "VmFlags:" in proc(5)'s words tells of nothing but an ordinary mapping. */
static bool is_ordinary(const char *flags, const char *eol)
{
    static const char *const ordinary[] = { "rd", "wr", "mr", "mw", "me", "ac", "sd", "nr", "hg", "nh", "mg" };

    for (const char *p = flags; p + 1 < eol; p++) {
        bool is_known = false;

        if (*p == ' ')
            continue;
        for (size_t i = 0; i < ARRAY_SIZE(ordinary) && !is_known; i++)
            is_known = memcmp(p, ordinary[i], 2) == 0;
        if (!is_known)
            return false;
        p++;
    }
    return true;
}

static void freeze_mapping(struct freezer *f, uintptr_t start, uintptr_t end, int prot)
{
    uintptr_t near_start = (f->thread - NEAR) & ~(f->page - 1), near_end = (f->thread + NEAR) & ~(f->page - 1);

    if (f->stack >= start && f->stack < end)
        return;
    if (near_start >= end || near_end <= start) {
        move_anonymous(f, start, end, prot);
        return;
    }
    if (near_start > start)
        move_anonymous(f, start, near_start, prot);
    if (near_end < end)
        move_anonymous(f, near_end, end, prot);
}

/* Goes through the text of /proc/self/smaps: for each mapping a line as in maps, then its counts, at last its flags. */
static void freeze_all(struct freezer *f)
{
    uintptr_t start = 0, end = 0;
    bool is_wanted = false;
    int prot = 0;

    for (const char *line = f->maps, *eol; *line; line = eol + 1) {
        const char *p;

        eol = strchr(line, '\n'); /* there is one: read_maps() */
        if (strncmp(line, "VmFlags:", 8) == 0) {
            if (is_wanted && is_ordinary(line + 8, eol))
                freeze_mapping(f, start, end, prot);
        } else if (*line < 'A' || *line > 'Z') {
            p = read_hex(read_hex(line, &start) + 1, &end) + 1; /* "rw-p" */
            prot = PROT_READ | (p[1] == 'w' ? PROT_WRITE : 0);
            is_wanted = p[0] == 'r' && p[2] == '-' && p[3] == 'p';
        }
    }
}

static bool is_worth_it(const char *maps)
{
    static const char name[] = "\nAnonymous:";
    size_t kib = 0;

    for (const char *p = maps; (p = strstr(p, name)) != NULL;) {
        size_t n = 0;

        for (p += sizeof(name) - 1; *p == ' '; p++)
            ;
        for (; *p >= '0' && *p <= '9'; p++)
            n = n * 10 + (size_t)(*p - '0');
        kib += n;
    }
    return kib >= WORTH_KIB;
}

static bool has_foreign_allocator(const char *maps)
{
    static const char *const names[] = { "jemalloc", "tcmalloc", "mimalloc", "libarrow" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strstr(maps, names[i]))
            return true;
    return false;
}

static bool read_maps(struct freezer *f)
{
    size_t n = 0;
    ssize_t got;

    while ((got = read(f->maps_fd, f->maps + n, MAPS_BYTES - 1 - n)) > 0)
        n += (size_t)got;
    f->maps[n] = '\0';
    return got == 0 && n > 0 && f->maps[n - 1] == '\n';
}

/* The link count of a directory of threads is two more than there are. By the system call: old libcs have stat(2) by
 * another name. */
static bool is_single_threaded(void)
{
    struct statx st;

    return syscall(SYS_statx, AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &st) == 0 && st.stx_nlink == 3;
}

/* 0 when done, -1 when nothing was done. Either way the program goes on as before. */
int hutch_zygote_freeze(void)
{
    struct freezer f = { .page = (uintptr_t)sysconf(_SC_PAGESIZE), .stack = (uintptr_t)__builtin_frame_address(0) };
    size_t scratch = MAPS_BYTES + BATCH * sizeof(*f.entries);
    unsigned long all = ~0ul, old;
    struct rlimit limit;
    int rc = -1, dumpable;

#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(f.thread));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(f.thread));
#else
    return -1;
#endif
    if (!is_single_threaded())
        return -1;
    /* Writing to the memfd counts as writing to a file. */
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0)
        return -1;
    f.max = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX >> 1 : limit.rlim_cur;
    /* A zygote that was forked from one that has made workers is not dumpable, and its /proc/self/pagemap belongs to
     * root. */
    dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    if (dumpable == 0)
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    f.maps_fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    f.pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (dumpable == 0)
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    f.memfd = (int)syscall(SYS_memfd_create, "zygote", 3 /* MFD_CLOEXEC | MFD_ALLOW_SEALING */);
    /* Shared, so that it is not made one mapping with what lies beside it, and is left alone. */
    f.maps = mmap(NULL, scratch, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f.maps_fd >= 0 && f.pagemap_fd >= 0 && f.memfd >= 0 && f.maps != MAP_FAILED && read_maps(&f) &&
        is_worth_it(f.maps) && !has_foreign_allocator(f.maps) &&
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &old, sizeof(all)) == 0) {
        f.entries = (uint64_t *)(f.maps + MAPS_BYTES);
        freeze_all(&f);
        /* All forks read these pages: no process may ever write to the file, not even one that finds a way to open
         * it. */
        if (f.used > 0 && fcntl(f.memfd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
            _exit(1);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
        rc = 0;
    }
    if (f.maps != MAP_FAILED)
        munmap(f.maps, scratch);
    hutch_fd_closep(&f.memfd);
    hutch_fd_closep(&f.pagemap_fd);
    hutch_fd_closep(&f.maps_fd);
    return rc;
}
