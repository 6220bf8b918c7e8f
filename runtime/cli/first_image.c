#include "runtime/cli/first_image.h"

#include "rootfs/stores.h"
#include "runtime/cli/beside.h"
#include "runtime/cli/say.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS (5 * 60 * 1000)

static const char *const flavours[] = { "minimal", "python", "python-full", "node" };

static bool is_flavour(const char *image)
{
    size_t i = 0;

    while (i < ARRAY_SIZE(flavours) && strcmp(flavours[i], image) != 0)
        i++;
    return i < ARRAY_SIZE(flavours);
}

static bool is_there(const char *home, const char *image)
{
    struct hutch_err err;
    struct store store;

    if (hutch_stores_open(home, image, &store, &err) < 0)
        return err.errnum != ENOENT; /* what is wrong is the run's to say */
    hutch_store_done(&store);
    return true;
}

/* An empty line is a yes, as the capital letter says. */
static bool is_wanted(const char *image)
{
    struct pollfd terminal = { .fd = STDIN_FILENO, .events = POLLIN };
    char answer[64];
    ssize_t n;

    fprintf(stderr, "hutch: there is no image '%s' yet. It is built from Debian's packages: some hundred megabytes are "
                    "fetched, and it takes minutes. Build it now? [Y/n] ", image);
    fflush(stderr);
    n = poll(&terminal, 1, ANSWER_MS) == 1 ? read(STDIN_FILENO, answer, sizeof(answer) - 1) : -1;
    if (n <= 0) {
        fputc('\n', stderr);
        return false;
    }
    answer[n] = '\0';
    return answer[0] == '\n' || strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0;
}

static int start_builder(const char *image, pid_t *ret, struct hutch_err *err)
{
    static char name[] = "hutch-rootfs", build_word[] = "build";
    char *argv[] = { name, build_word, (char *)(uintptr_t)image, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    char path[PATH_MAX];
    int rc;

    if (hutch_beside_find(name, path, err) < 0)
        return -1;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawn_file_actions_init(&actions);
    /* Standard input and output are the program's: the builder's digest is not for them. */
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn(ret, path, &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return rc != 0 ? hutch_err_set(err, rc, "run '%s'", path) : 0;
}

/* A key at the terminal interrupts the builder, which cleans up first. */
static int build(const char *image, struct hutch_err *err)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, interrupt, quit;
    int status = 0, rc;
    pid_t pid;

    sigaction(SIGINT, &ignore, &interrupt);
    sigaction(SIGQUIT, &ignore, &quit);
    rc = start_builder(image, &pid, err);
    if (rc == 0 && TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
        rc = hutch_err_set(err, errno, "wait for the builder of image '%s'", image);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGQUIT, &quit, NULL);
    if (rc < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return rc;
    if (WIFSIGNALED(status))
        raise(WTERMSIG(status));
    return hutch_err_set(err, 0, "the image '%s' could not be built, as is said above; other ways to have one are in "
                                 "docs/images.md, and '--rootfs host' takes the host's own Python", image);
}

int hutch_first_image(const char *home, const char *image, bool is_yes, struct hutch_err *err)
{
    const bool may_ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);

    if ((!is_yes && !may_ask) || !is_flavour(image) || is_there(home, image) || (!is_yes && !is_wanted(image)))
        return 0;
    hutch_say("the image '%s' is built now, once", image);
    return build(image, err);
}
