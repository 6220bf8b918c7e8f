#include "rootfs/helper/memory.h"

#include "rootfs/helper/own_proc.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAPS_BYTES (4ul << 20)
#define SCRATCH    (MAPS_BYTES + MEMORY_BATCH * sizeof(uint64_t))

static bool read_maps(struct memory *memory)
{
    size_t n = 0;
    ssize_t got;

    while ((got = read(memory->maps_fd, memory->maps + n, MAPS_BYTES - 1 - n)) > 0)
        n += (size_t)got;
    memory->maps[n] = '\0';
    return got == 0 && n > 0 && memory->maps[n - 1] == '\n';
}

bool hutch_memory_open(struct memory *memory, const char *file)
{
    int dumpable;

    *memory = (struct memory){ .page = (uintptr_t)sysconf(_SC_PAGESIZE), .maps_fd = -1, .pagemap_fd = -1 };
    /* A zygote that was forked from one that has made workers is not dumpable, and its /proc/self/pagemap belongs to
     * root. */
    dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    if (dumpable == 0)
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    memory->maps_fd = hutch_own_proc_open(file);
    memory->pagemap_fd = hutch_own_proc_open("pagemap");
    if (dumpable == 0)
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    /* Shared, so that it is not made one mapping with what lies beside it, and is no part of what is looked for. */
    memory->maps = mmap(NULL, SCRATCH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory->maps == MAP_FAILED) {
        memory->maps = NULL;
        return false;
    }
    memory->entries = (uint64_t *)(memory->maps + MAPS_BYTES);
    return memory->maps_fd >= 0 && memory->pagemap_fd >= 0 && read_maps(memory);
}

void hutch_memory_close(struct memory *memory)
{
    if (memory->maps)
        munmap(memory->maps, SCRATCH);
    memory->maps = NULL;
    hutch_fd_closep(&memory->pagemap_fd);
    hutch_fd_closep(&memory->maps_fd);
}

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

const char *hutch_memory_read_line(const char *line, uintptr_t *ret_start, uintptr_t *ret_end)
{
    return read_hex(read_hex(line, ret_start) + 1, ret_end) + 1;
}

bool hutch_memory_read_pages(struct memory *memory, uintptr_t start, size_t pages)
{
    ssize_t want = (ssize_t)(pages * sizeof(*memory->entries));

    return pread(memory->pagemap_fd, memory->entries, (size_t)want,
                 (off_t)(start / memory->page * sizeof(*memory->entries))) == want;
}

/* proc(5), pagemap: 63 present, 62 swapped out, 61 of a file or shared. */
bool hutch_memory_is_anonymous(const struct memory *memory, size_t i)
{
    return memory->entries[i] >> 62 && !(memory->entries[i] >> 61 & 1);
}

bool hutch_memory_has_one_thread(void)
{
    uint64_t threads;

    return hutch_own_proc_status("Threads:", &threads) && threads == 1;
}
