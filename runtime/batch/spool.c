#include "runtime/batch/spool.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SPOOL_MAX (64ull << 30) /* bytes that a pipe or a gzipped file may hold */
#define COPY_CHUNK (1u << 18)

static const unsigned char gzip_magic[2] = { 0x1f, 0x8b }; /* RFC 1952 */

static int open_nameless(struct hutch_err *err)
{
    const char *dir = getenv("TMPDIR");
    char path[4096];
    int fd;

    if (!dir || dir[0] != '/')
        dir = "/tmp";
    fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if ((size_t)snprintf(path, sizeof(path), "%s/hutch-batch.XXXXXX", dir) >= sizeof(path))
        return hutch_err_set(err, ENAMETOOLONG, "make a temporary file in '%s'", dir);
    fd = mkostemp(path, O_CLOEXEC); /* a file system without O_TMPFILE */
    if (fd < 0)
        return hutch_err_set(err, errno, "make a temporary file in '%s'", dir);
    unlink(path);
    return fd;
}

/* Copies @from to a file without a name, which takes its place. */
static int copy_to_nameless(int from, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd to = open_nameless(err);
    auto_free char *buf = malloc(COPY_CHUNK);
    uint64_t total = 0;

    if (to < 0)
        return hutch_err_wrap(err, "keep '%s' for reading it again", name);
    if (!buf)
        return hutch_err_set(err, ENOMEM, "read '%s'", name);
    for (;;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(from, buf, COPY_CHUNK));

        if (n < 0)
            return hutch_err_set(err, errno, "read '%s'", name);
        if (n == 0)
            break;
        total += (uint64_t)n;
        if (total > SPOOL_MAX)
            return hutch_err_say(err, EFBIG, "'%s' holds more than %llu bytes", name, SPOOL_MAX);
        if (hutch_fd_write_all(to, buf, (size_t)n) < 0)
            return hutch_err_set(err, errno, "keep '%s' for reading it again in $TMPDIR or /tmp", name);
    }
    if (lseek(to, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "read '%s'", name);
    *ret_fd = hutch_fd_take(&to);
    return 0;
}

/* The program gzip and not libz: it is everywhere, its decoder runs in a process of its own, and hutch needs no library
 * for this alone. */
static int start_gzip(int from, const char *name, pid_t *ret_pid, int *ret_fd, struct hutch_err *err)
{
    static const char *const argv[] = { "gzip", "-dc", NULL };
    extern char **environ;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all;
    int pipe_fds[2], rc;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "unpack '%s'", name);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &all);
    rc = posix_spawn_file_actions_adddup2(&actions, from, STDIN_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    if (rc == 0) /* its errors are reported here, with the name of the file */
        rc = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(ret_pid, argv[0], &actions, &attributes, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(pipe_fds[1]);
    if (rc != 0) {
        close(pipe_fds[0]);
        return hutch_err_set(err, rc, "unpack '%s': execute 'gzip' (or unpack the file first)", name);
    }
    *ret_fd = pipe_fds[0];
    return 0;
}

static int gunzip(int from, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd out = -1;
    auto_fd unpacked = -1;
    pid_t pid;
    int status, rc;

    if (start_gzip(from, name, &pid, &out, err) < 0)
        return -1;
    rc = copy_to_nameless(out, name, &unpacked, err);
    if (rc < 0)
        kill(pid, SIGKILL);
    close(hutch_fd_take(&out));
    if (TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
        return rc < 0 ? -1 : hutch_err_set(err, errno, "unpack '%s'", name);
    if (rc < 0)
        return -1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return hutch_err_set(err, 0, "unpack '%s': gzip could not read all of it", name);
    *ret_fd = hutch_fd_take(&unpacked);
    return 0;
}

static bool is_gzipped(int fd)
{
    unsigned char magic[sizeof(gzip_magic)];

    return pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
           memcmp(magic, gzip_magic, sizeof(magic)) == 0;
}

static void replace_fd(int *fd, int *by)
{
    close(*fd);
    *fd = hutch_fd_take(by);
}

int hutch_batch_spool(int *fd, const char *name, struct hutch_err *err)
{
    struct stat st;
    int copy = -1;

    if (fstat(*fd, &st) < 0)
        return hutch_err_set(err, errno, "read '%s'", name);
    if (!S_ISREG(st.st_mode)) {
        if (copy_to_nameless(*fd, name, &copy, err) < 0)
            return -1;
        replace_fd(fd, &copy);
    }
    if (!is_gzipped(*fd))
        return 0;
    if (lseek(*fd, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "read '%s'", name);
    if (gunzip(*fd, name, &copy, err) < 0)
        return -1;
    replace_fd(fd, &copy);
    return 0;
}
