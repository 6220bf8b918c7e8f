/* test_freeze.c - a frozen process is the same process, with next to nothing anonymous left in it. */
#include "rootfs/helper/freeze.c"
#include "rootfs/helper/memory.c"
#include "rootfs/helper/own_proc.c"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cmocka.h>

#define BYTES (24u << 20)

static char data[] = "what the program was built with, and has changed since";
static char zeros[3 << 12];

static long anonymous_kib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[128];
    long kib = -1;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static unsigned char *fill(unsigned char *p, size_t len)
{
    for (size_t i = 0; p && i < len; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    return p;
}

static bool is_filled(const unsigned char *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != (unsigned char)(i * 2654435761u >> 13))
            return false;
    return true;
}

/* Exit code of a child that runs @body: what freezing does must not befall the other tests. */
static int in_child(int (*body)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int contents_stay(void)
{
    unsigned char *heap = fill(malloc(BYTES), BYTES), *small = fill(malloc(100), 100);
    unsigned char *sealed = fill(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), BYTES);
    int status;
    pid_t pid;

    data[0] = 'W';
    zeros[5000] = 1;
    if (mprotect(sealed, BYTES, PROT_READ) < 0 || anonymous_kib() < 2 * (long)BYTES / 1024)
        return 1;
    if (hutch_zygote_freeze(false) < 0 || anonymous_kib() > BYTES / 1024)
        return 2;
    if (!is_filled(heap, BYTES) || !is_filled(small, 100) || !is_filled(sealed, BYTES) || data[0] != 'W' ||
        zeros[5000] != 1)
        return 3;
    pid = fork();
    if (pid == 0) { /* what a child writes is its own */
        memset(heap, 0, BYTES);
        data[0] = 'x';
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0 || !is_filled(heap, BYTES) || data[0] != 'W')
        return 4;
    free(small);
    free(heap);
    heap = calloc(1, BYTES); /* memory that is given out as zeros still is */
    for (size_t i = 0; heap && i < BYTES; i++)
        if (heap[i])
            return 5;
    return 0;
}

static void test_contents_stay(void **state)
{
    (void)state;
    assert_int_equal(in_child(contents_stay), 0);
}

/* Most of it changed since: anonymous pages beside those of the file. */
static int twice(void)
{
    unsigned char *heap = fill(malloc(BYTES), BYTES);

    if (hutch_zygote_freeze(false) < 0)
        return 1;
    for (size_t i = 0; i < BYTES / 6 * 5; i += 4096)
        heap[i]++;
    if (hutch_zygote_freeze(true) < 0 || anonymous_kib() > BYTES / 2048)
        return 2;
    for (size_t i = 0; i < BYTES / 6 * 5; i += 4096)
        heap[i]--;
    return is_filled(heap, BYTES) ? 0 : 3;
}

static void test_twice(void **state)
{
    (void)state;
    assert_int_equal(in_child(twice), 0);
}

/* The state of a random generator that says so must not reach children, frozen or not. */
static int wiped_on_fork(void)
{
    unsigned char *secret = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *heap = fill(malloc(BYTES), BYTES);
    int status;
    pid_t pid;

    secret[7] = 42;
    if (madvise(secret, 4096, MADV_WIPEONFORK) < 0 || hutch_zygote_freeze(false) < 0 || secret[7] != 42 ||
        !is_filled(heap, BYTES))
        return 1;
    pid = fork();
    if (pid == 0)
        _exit(secret[7]);
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 2;
}

static void test_wiped_on_fork(void **state)
{
    (void)state;
    assert_int_equal(in_child(wiped_on_fork), 0);
}

static void *wait_for_lock(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

static int beside_a_thread(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    int rc;

    pthread_mutex_lock(&lock);
    if (pthread_create(&thread, NULL, wait_for_lock, &lock) != 0)
        return 1;
    rc = hutch_zygote_freeze(false);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return rc == -1 ? 0 : 2;
}

static void test_refuses_beside_a_thread(void **state)
{
    (void)state;
    assert_int_equal(in_child(beside_a_thread), 0);
}

static int undumpable(void)
{
    unsigned char *heap = fill(malloc(BYTES), BYTES);

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || hutch_zygote_freeze(false) < 0)
        return 1;
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 && is_filled(heap, BYTES) && anonymous_kib() < BYTES / 1024 ? 0 : 2;
}

static void test_undumpable(void **state)
{
    (void)state;
    assert_int_equal(in_child(undumpable), 0);
}

/* What is larger than a file may be stays where it is, without a signal. */
static int beyond_the_file_size(void)
{
    struct rlimit limit = { BYTES / 2, BYTES / 2 };
    unsigned char *heap = fill(malloc(BYTES), BYTES);

    if (setrlimit(RLIMIT_FSIZE, &limit) < 0 || hutch_zygote_freeze(false) < 0)
        return 1;
    return is_filled(heap, BYTES) && anonymous_kib() >= BYTES / 1024 ? 0 : 2;
}

static void test_beyond_the_file_size(void **state)
{
    (void)state;
    assert_int_equal(in_child(beyond_the_file_size), 0);
}

static int small(void)
{
    return hutch_zygote_freeze(false) == -1 ? 0 : 1;
}

static void test_leaves_a_small_one_alone(void **state)
{
    (void)state;
    assert_int_equal(in_child(small), 0);
}

/* What is too little at first is worth it when the rest was moved before. */
static int little(void)
{
    const size_t size = 4ul << 20;
    unsigned char *heap = fill(malloc(size), size);

    if (hutch_zygote_freeze(false) != -1 || anonymous_kib() < (long)size / 1024)
        return 1;
    if (hutch_zygote_freeze(true) < 0 || anonymous_kib() > 1024)
        return 2;
    return is_filled(heap, size) ? 0 : 3;
}

static void test_little_is_moved_again(void **state)
{
    (void)state;
    assert_int_equal(in_child(little), 0);
}

/* The file behind it all is not to be written to by any way there may be. */
static int sealed(void)
{
    unsigned char *heap = fill(malloc(BYTES), BYTES);
    uintptr_t at = (uintptr_t)(heap + BYTES / 2), start, end;
    char path[128], line[512];
    FILE *f;
    int fd = -1;

    if (hutch_zygote_freeze(false) < 0)
        return 1;
    f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && at >= start && at < end) {
            snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", start, end);
            fd = open(path, O_RDWR | O_CLOEXEC);
            break;
        }
    if (fd < 0 && errno == EPERM)
        return 0; /* an ordinary user cannot even open it: proc(5) */
    if (fd < 0 || pwrite(fd, "x", 1, 0) != -1 || errno != EPERM || ftruncate(fd, 0) != -1)
        return 2;
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && is_filled(heap, BYTES) ? 0 : 3;
}

static void test_is_sealed(void **state)
{
    (void)state;
    assert_int_equal(in_child(sealed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves_a_small_one_alone),
        cmocka_unit_test(test_little_is_moved_again),
        cmocka_unit_test(test_is_sealed),
        cmocka_unit_test(test_contents_stay),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_wiped_on_fork),
        cmocka_unit_test(test_refuses_beside_a_thread),
        cmocka_unit_test(test_undumpable),
        cmocka_unit_test(test_beyond_the_file_size),
    };

    return cmocka_run_group_tests_name("freeze", tests, NULL, NULL);
}
