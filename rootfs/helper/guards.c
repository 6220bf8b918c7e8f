/* guards.c - see guards.h.
 *
 * Both words are in the control block of the thread: fs:0x28 by the ABI of x86-64, and fs:0x30 in GNU's libc. A new
 * thread copies them from the one that makes it. What has been made with the old words has to follow:
 *
 *   stack guards   of functions that are still going to return. The worker never returns to what was called in its
 *                  zygote, but for a coroutine that has a stack of its own (greenlet). The guard is a word that no
 *                  other is equal to by chance, so all copies beside the stack of this thread are changed.
 *   addresses      rol(address ^ guard, 17): those of functions for exit(3), of C++ destructors of threads, of the
 *                  modules that look up names of users and hosts, of iconv(3), of fopencookie(3); and setjmp(3)'s. libc
 *                  has no list of them. But hardly any other word is the address of code when the mixing is undone:
 *                  with 100 MB of code one of 2^37. So the zygote looks at all of its memory, once, and notes them.
 *
 * Of ten million words one looks so by chance in some ten thousand zygotes, and changing it would be an error that
 * nobody finds. So an address is noted only with a second sign that it is one, by what stands beside it. Where one
 * without such a sign is found, or not the one that this file has made itself, the pointer guard stays as it is. */
#include "rootfs/helper/guards.h"

#include "rootfs/helper/memory.h"
#include "sandbox/fd.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)

#define MAX_NOTED  4096u
#define MAX_RANGES 4096u
#define NO_CODE    0 /* what a mixed NULL is, unmixed */

/* There in GNU's libc; in musl, the copy of the stack guard. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));
extern uintptr_t __stack_chk_guard __attribute__((weak));
extern void PyOS_BeforeFork(void) __attribute__((weak));
extern void PyOS_AfterFork_Parent(void) __attribute__((weak));
extern void PyOS_AfterFork_Child(void) __attribute__((weak));
extern int __cxa_atexit(void (*function)(void *), void *argument, void *library) __attribute__((weak));

enum kind { STACK_GUARD, ADDRESS };
struct noted {
    uintptr_t *at;
    uintptr_t value;
    enum kind kind;
};

static struct {
    struct noted list[MAX_NOTED];
    size_t n;
    bool is_made;      /* all memory was looked at */
    bool has_gap;      /* there may be a stack guard that is not in the list */
    bool has_doubtful; /* there may be a mixed address that is not in the list */
    bool has_threads;  /* a fork of this process starts threads, whose pointer guard would be the old one */
    bool has_own;      /* the mixing is as it is thought to be: the one of leave_mark() was found */
} notes;

struct range {
    uintptr_t start, end;
};
struct search {
    struct memory memory;
    uintptr_t stack;       /* of the caller: what is below is not in use */
    uintptr_t stack_guard, pointer_guard;
    struct range code[MAX_RANGES], data[MAX_RANGES]; /* ascending; executable; writable and private */
    size_t n_code, n_data;
};

static inline uintptr_t stack_guard(void)
{
    uintptr_t word;

    __asm__("mov %%fs:0x28, %0" : "=r"(word));
    return word;
}

static inline uintptr_t pointer_guard(void)
{
    uintptr_t word;

    __asm__("mov %%fs:0x30, %0" : "=r"(word));
    return word;
}

static inline uintptr_t mixed(uintptr_t address, uintptr_t guard)
{
    return (address ^ guard) << 17 | (address ^ guard) >> 47;
}

static inline uintptr_t unmixed(uintptr_t word, uintptr_t guard)
{
    return (word >> 17 | word << 47) ^ guard;
}

static bool has_stack_guard(void)
{
    return gnu_get_libc_version || (&__stack_chk_guard && __stack_chk_guard == stack_guard());
}

/* Not empty: LLVM leaves out calls of __cxa_atexit() for functions that are. */
static void do_nothing(void *argument)
{
    __asm__ volatile("" : : "r"(argument));
}

/* An address that must be found. */
static void leave_mark(void)
{
    static bool is_left;

    if (!is_left && gnu_get_libc_version && __cxa_atexit)
        is_left = __cxa_atexit(do_nothing, NULL, NULL) == 0;
}

static bool add_range(struct range *list, size_t *n, uintptr_t start, uintptr_t end)
{
    if (*n == MAX_RANGES)
        return false;
    list[(*n)++] = (struct range){ start, end };
    return true;
}

static bool read_ranges(struct search *search)
{
    bool is_whole = true;

    for (const char *line = search->memory.maps; *line; line = strchr(line, '\n') + 1) {
        uintptr_t start, end;
        const char *p = hutch_memory_read_line(line, &start, &end);

        if (p[2] == 'x')
            is_whole &= add_range(search->code, &search->n_code, start, end);
        if (p[0] == 'r' && p[1] == 'w' && p[3] == 'p')
            is_whole &= add_range(search->data, &search->n_data, start, end);
    }
    return is_whole;
}

static const struct range *find_range(const struct range *list, size_t n, uintptr_t address)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (address >= list[middle].end)
            low = middle + 1;
        else if (address < list[middle].start)
            high = middle;
        else
            return &list[middle];
    }
    return NULL;
}

/* Or NULL, or a small number: none has the bits of a mixed one, but by chance (one of 2^17). */
static bool is_address(uintptr_t word)
{
    return !(word >> 47);
}

static bool is_code(const struct search *search, uintptr_t word)
{
    uintptr_t address = unmixed(word, search->pointer_guard);

    return is_address(address) && find_range(search->code, search->n_code, address);
}

static void note(uintptr_t *at, enum kind kind)
{
    for (size_t i = 0; i < notes.n; i++)
        if (notes.list[i].at == at)
            return;
    if (notes.n < MAX_NOTED)
        notes.list[notes.n++] = (struct noted){ at, *at, kind };
    else if (kind == STACK_GUARD)
        notes.has_gap = true;
    else
        notes.has_doubtful = true;
}

/* @at has a mixed address of code. @before: how many words of its mapping precede it; there is no end of a file among
 * them. @after: how many follow it on its page. */
static void note_address(const struct search *search, uintptr_t *at, size_t before, size_t after)
{
    /* What exit(3) calls: the word before it says how, 2 to 4. */
    bool is_exit = before >= 1 && at[-1] >= 2 && at[-1] <= 4;
    /* The destructor of a thread's variable: four words, so that malloc(3) has a block of 48 bytes before it, and three
     * flags in the low bits. */
    bool is_thread_exit = before >= 1 && (at[-1] & ~(uintptr_t)7) == 48;
    /* setjmp(3)'s eight words: rbx, rbp, r12 to r15, rsp, rip. The second, the last but one and the last are mixed. */
    bool has_stack = before >= 7 && find_range(search->data, search->n_data, unmixed(at[-1], search->pointer_guard));
    bool is_jump = has_stack && !is_address(at[-6]) && is_address(unmixed(at[-6], search->pointer_guard));
    /* One that nothing jumps to any more: what is now in use has its second word. */
    bool is_remainder = has_stack && is_address(at[-6]);
    /* A table of functions: some of them NULL, and no two alike. */
    bool is_table = (before >= 1 && at[-1] != at[0] && is_code(search, at[-1])) ||
                    (after >= 1 && at[1] != at[0] && is_code(search, at[1])) ||
                    (before >= 1 && at[-1] == mixed(NO_CODE, search->pointer_guard)) ||
                    (after >= 1 && at[1] == mixed(NO_CODE, search->pointer_guard));

    if (is_jump) {
        note(at - 6, ADDRESS);
        note(at - 1, ADDRESS);
    }
    if (is_exit || is_thread_exit || is_jump || is_table)
        note(at, ADDRESS);
    else if (!is_remainder)
        notes.has_doubtful = true;
    if (is_exit && unmixed(*at, search->pointer_guard) == (uintptr_t)do_nothing)
        notes.has_own = true;
}

static void search_page(const struct search *search, uintptr_t *page, size_t before, bool is_stack)
{
    const uintptr_t *own = (const uintptr_t *)&notes, *own_end = own + sizeof(notes) / sizeof(*own);
    const uintptr_t guard = search->pointer_guard, nothing = mixed(NO_CODE, guard);
    size_t n = search->memory.page / sizeof(*page);

    for (size_t i = 0; i < n; i++) {
        uintptr_t *at = &page[i], word = *at;

        if (word != search->stack_guard && word != nothing && unmixed(word, guard) >> 47)
            continue;
        if ((at >= own && at < own_end) || (is_stack && (uintptr_t)at < search->stack))
            continue;
        if (word == search->stack_guard) {
            if (!is_stack && (char *)at != (char *)__builtin_thread_pointer() + 0x28)
                note(at, STACK_GUARD);
        } else if (gnu_get_libc_version && word == nothing) {
            note(at, ADDRESS);
        } else if (gnu_get_libc_version && is_code(search, word)) {
            note_address(search, at, before + i, n - 1 - i);
        }
    }
}

static bool search_range(struct search *search, const struct range *range)
{
    const uintptr_t page = search->memory.page;
    bool is_stack = search->stack >= range->start && search->stack < range->end;

    for (uintptr_t at = range->start; at < range->end;) {
        size_t pages = (range->end - at) / page < MEMORY_BATCH ? (range->end - at) / page : MEMORY_BATCH;

        if (!hutch_memory_read_pages(&search->memory, at, pages))
            return false;
        for (size_t i = 0; i < pages; i++, at += page)
            if (hutch_memory_is_anonymous(&search->memory, i))
                search_page(search, (uintptr_t *)at, (at - range->start) / sizeof(uintptr_t), is_stack);
    }
    return true;
}

/* What was noted before may have been freed, and the memory unmapped. */
static void forget_changed(const struct search *search)
{
    size_t n = 0;

    for (size_t i = 0; i < notes.n; i++)
        if (find_range(search->data, search->n_data, (uintptr_t)notes.list[i].at) &&
            *notes.list[i].at == notes.list[i].value)
            notes.list[n++] = notes.list[i];
    notes.n = n;
}

/* Handlers of forks may start threads. A worker that counts its own needs 25 us for that: proc(5) makes entries. */
static bool fork_starts_threads(void)
{
    int status = -1;
    pid_t pid;

    if (PyOS_BeforeFork)
        PyOS_BeforeFork();
    pid = fork();
    if (pid == 0) {
        if (PyOS_AfterFork_Child)
            PyOS_AfterFork_Child();
        _exit(!hutch_memory_has_one_thread());
    }
    if (PyOS_AfterFork_Parent)
        PyOS_AfterFork_Parent();
    return pid < 0 || TEMP_FAILURE_RETRY(waitpid(pid, &status, __WALL)) != pid || status != 0;
}

void hutch_guards_note(bool is_last)
{
    /* Shared, so that it is not searched itself. */
    struct search *search = mmap(NULL, sizeof(*search), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool is_whole;

    leave_mark();
    if (search == MAP_FAILED) {
        notes.has_gap = true;
        return;
    }
    search->stack = (uintptr_t)__builtin_frame_address(0);
    search->stack_guard = stack_guard();
    search->pointer_guard = pointer_guard();
    is_whole = hutch_memory_open(&search->memory, "maps") && read_ranges(search);
    if (is_whole)
        forget_changed(search);
    for (size_t i = 0; is_whole && i < search->n_data; i++)
        is_whole = search_range(search, &search->data[i]);
    hutch_memory_close(&search->memory);
    munmap(search, sizeof(*search));
    if (is_last)
        notes.has_threads = fork_starts_threads();
    notes.is_made = is_last;
    if (!is_whole)
        notes.has_gap = true;
}

/* It has no stack guard itself, which changes in between. */
__attribute__((no_stack_protector)) int hutch_guards_renew(void)
{
    const uintptr_t old = pointer_guard();
    bool has_addresses = notes.has_own && !notes.has_doubtful && !notes.has_threads;
    uintptr_t words[2];

    if (!notes.is_made || notes.has_gap || !has_stack_guard())
        return 0;
    if (syscall(SYS_getrandom, words, sizeof(words), 0) != sizeof(words))
        return -1;
    /* Where libc has it, too: a string that is read or written beyond its end stops there. */
    words[0] &= ~(uintptr_t)(gnu_get_libc_version ? 0xff : 0xff00);
    for (size_t i = 0; i < notes.n; i++) {
        const struct noted *noted = &notes.list[i];

        if (*noted->at != noted->value)
            continue;
        if (noted->kind == STACK_GUARD)
            *noted->at = words[0];
        else if (has_addresses)
            *noted->at = mixed(unmixed(noted->value, old), words[1]);
    }
    __asm__ volatile("mov %0, %%fs:0x28" : : "r"(words[0]) : "memory");
    if (has_addresses)
        __asm__ volatile("mov %0, %%fs:0x30" : : "r"(words[1]) : "memory");
    return 0;
}

#else

void hutch_guards_note(bool is_last)
{
    (void)is_last;
}

int hutch_guards_renew(void)
{
    return 0;
}

#endif
