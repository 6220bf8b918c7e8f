#include "runtime/cli/first_image.h"

#include "rootfs/stores.h"
#include "runtime/cli/beside.h"
#include "runtime/cli/say.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
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

static int build(const char *image, struct hutch_err *err)
{
    const char *const argv[] = { "hutch-rootfs", "build", image, NULL };

    if (hutch_beside_run_rootfs(argv, err) == 0)
        return 0;
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
