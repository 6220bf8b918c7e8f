#include "runtime/cli/flavour.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What packages.txt lists, parted by blanks; the usual release is the first. */
static const char flavours[] = HUTCH_FLAVOURS, releases[] = HUTCH_RELEASES;

static bool has_word(const char *list, const char *word, size_t len)
{
    for (size_t n; *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (n == len && strncmp(list, word, n) == 0)
            return true;
    }
    return false;
}

static size_t usual_len(void)
{
    return strcspn(releases, " ");
}

static bool is_usual(const char *release)
{
    return strlen(release) == usual_len() && strncmp(release, releases, usual_len()) == 0;
}

static int fill(struct flavour *flavour, const char *name, size_t name_len, const char *release, size_t release_len,
                struct hutch_err *err)
{
    flavour->name = strndup(name, name_len);
    flavour->release = strndup(release, release_len);
    if (flavour->name && flavour->release)
        return 0;
    hutch_flavour_done(flavour);
    return hutch_err_set(err, ENOMEM, "name an image");
}

int hutch_flavour_of_image(const char *image, struct flavour *ret, struct hutch_err *err)
{
    const char *dash = strrchr(image, '-');

    if (has_word(flavours, image, strlen(image)))
        return fill(ret, image, strlen(image), releases, usual_len(), err);
    if (dash && has_word(flavours, image, (size_t)(dash - image)) && !is_usual(dash + 1) &&
        has_word(releases, dash + 1, strlen(dash + 1)))
        return fill(ret, image, (size_t)(dash - image), dash + 1, strlen(dash + 1), err);
    return hutch_err_set(err, ENOENT, "'%.80s' is none of the images that are built: %s", image, flavours);
}

int hutch_flavour_choose(const char *name, const char *release, struct flavour *ret, char **ret_image,
                         struct hutch_err *err)
{
    const size_t len = release ? strlen(release) : usual_len();
    const bool is_named = release && !is_usual(release);

    if (!release)
        release = releases;
    if (!has_word(releases, release, len))
        return hutch_err_set(err, 0, "--suite: '%.80s' is none of the releases of Debian that images are made of: %s",
                             release, releases);
    if (fill(ret, name, strlen(name), release, len, err) < 0)
        return -1;
    if (asprintf(ret_image, "%s%s%s", name, is_named ? "-" : "", is_named ? release : "") >= 0)
        return 0;
    *ret_image = NULL;
    hutch_flavour_done(ret);
    return hutch_err_set(err, ENOMEM, "name an image");
}

void hutch_flavour_done(struct flavour *flavour)
{
    free(flavour->name);
    free(flavour->release);
    *flavour = (struct flavour)FLAVOUR_INIT;
}
