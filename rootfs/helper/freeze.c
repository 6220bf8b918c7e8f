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
#include "rootfs/helper/memory.h"
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

__attribute__((visibility("default"))) int hutch_zygote_freeze(int is_again);

#define JOIN       256ul        /* pages between two that are moved, which are taken along: fork copies mappings one by
                                 * one, too */
#define NEAR       (64ul << 10) /* bytes on either side of the thread pointer */
#define WORTH_KIB  (16ul << 10) /* anonymous memory: less is copied faster than it is fetched page by page */
#define AGAIN_KIB  (2ul << 10)  /* likewise when some was moved before: fork copies a mapping's whole table then, with
                                 * what was moved in it, for one page that was written to since */

struct freezer {
    struct memory memory;
    uintptr_t thread, stack; /* addresses that are to stay where they are */
    int memfd;
    uint64_t used, max; /* of the memfd */
};

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
    const uintptr_t page = f->memory.page;

    while (start < end) {
        size_t pages = (end - start) / page < MEMORY_BATCH ? (end - start) / page : MEMORY_BATCH, i = 0;

        if (!hutch_memory_read_pages(&f->memory, start, pages))
            return;
        while (i < pages) {
            size_t first = i, last = i;

            if (!hutch_memory_is_anonymous(&f->memory, i++))
                continue;
            for (; i < pages && i - last <= JOIN; i++)
                if (hutch_memory_is_anonymous(&f->memory, i))
                    last = i;
            i = last + 1;
            move(f, start + first * page, (last - first + 1) * page, prot);
        }
        start += pages * page;
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
    uintptr_t near_start = (f->thread - NEAR) & ~(f->memory.page - 1),
              near_end = (f->thread + NEAR) & ~(f->memory.page - 1);

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

    for (const char *line = f->memory.maps, *eol; *line; line = eol + 1) {
        const char *p;

        eol = strchr(line, '\n'); /* there is one: hutch_memory_open() */
        if (strncmp(line, "VmFlags:", 8) == 0) {
            if (is_wanted && is_ordinary(line + 8, eol))
                freeze_mapping(f, start, end, prot);
        } else if (*line < 'A' || *line > 'Z') {
            p = hutch_memory_read_line(line, &start, &end);
            prot = PROT_READ | (p[1] == 'w' ? PROT_WRITE : 0);
            is_wanted = p[0] == 'r' && p[2] == '-' && p[3] == 'p';
        }
    }
}

static bool is_worth_it(const char *maps, size_t least_kib)
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
    return kib >= least_kib;
}

static bool has_foreign_allocator(const char *maps)
{
    static const char *const names[] = { "jemalloc", "tcmalloc", "mimalloc", "libarrow" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strstr(maps, names[i]))
            return true;
    return false;
}

/* 0 when done, -1 when nothing was done. Either way the program goes on as before. @is_again: it was done before. */
int hutch_zygote_freeze(int is_again)
{
    struct freezer f = { .stack = (uintptr_t)__builtin_frame_address(0) };
    unsigned long all = ~0ul, old;
    struct rlimit limit;
    int rc = -1;

#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(f.thread));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(f.thread));
#else
    return -1;
#endif
    if (!hutch_memory_has_one_thread())
        return -1;
    /* Writing to the memfd counts as writing to a file. */
    if (getrlimit(RLIMIT_FSIZE, &limit) < 0)
        return -1;
    f.max = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX >> 1 : limit.rlim_cur;
    f.memfd = (int)syscall(SYS_memfd_create, "zygote", 3 /* MFD_CLOEXEC | MFD_ALLOW_SEALING */);
    if (hutch_memory_open(&f.memory, "smaps") && f.memfd >= 0 &&
        is_worth_it(f.memory.maps, is_again ? AGAIN_KIB : WORTH_KIB) &&
        !has_foreign_allocator(f.memory.maps) &&
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &old, sizeof(all)) == 0) {
        freeze_all(&f);
        /* All forks read these pages: no process may ever write to the file, not even one that finds a way to open
         * it. */
        if (f.used > 0 && fcntl(f.memfd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
            _exit(1);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
        rc = 0;
    }
    hutch_memory_close(&f.memory);
    hutch_fd_closep(&f.memfd);
    return rc;
}
