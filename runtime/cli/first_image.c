#include "runtime/cli/first_image.h"

#include "rootfs/stores.h"
#include "runtime/cli/ask.h"
#include "runtime/cli/beside.h"
#include "runtime/cli/flavour.h"
#include "runtime/cli/say.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_there(const char *home, const char *image)
{
    struct hutch_err err;
    struct store store;

    if (hutch_stores_open(home, image, &store, &err) < 0)
        return err.errnum != ENOENT; /* what is wrong is the run's to say */
    hutch_store_done(&store);
    return true;
}

static bool is_wanted(const char *image)
{
    auto_free char *question = NULL;

    if (asprintf(&question, "there is no image '%s' yet. It is built from Debian's packages: some hundred megabytes "
                            "are fetched, and it takes minutes. Build it now?", image) < 0) {
        question = NULL;
        return false;
    }
    return hutch_ask(question, true);
}

static int build(const char *image, const struct flavour *flavour, struct hutch_err *err)
{
    const char *const argv[] = { "hutch-rootfs", "build", flavour->name, "--suite", flavour->release, NULL };

    if (hutch_beside_run_rootfs(argv, err) == 0)
        return 0;
    return hutch_err_set(err, 0, "the image '%s' could not be built, as is said above; other ways to have one are in "
                                 "docs/images.md, and '--rootfs host' takes the host's own Python", image);
}

int hutch_first_image(const char *home, const char *image, bool is_yes, struct hutch_err *err)
{
    const bool may_ask = hutch_ask_can();
    auto_flavour flavour = FLAVOUR_INIT;

    if (!is_yes && !may_ask)
        return 0;
    if (hutch_flavour_of_image(image, &flavour, err) < 0)
        return err->errnum == ENOENT ? 0 : -1;
    if (is_there(home, image) || (!is_yes && !is_wanted(image)))
        return 0;
    hutch_say("the image '%s' is built now, once", image);
    return build(image, &flavour, err);
}
