#include "runtime/cli/settings.h"

#include "rootfs/stores.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/version.h"
#include "runtime/config/limits.h"
#include "runtime/config/policy_find.h"
#include "runtime/config/profile.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_plain(const struct run_opts *opts, bool is_server)
{
    if (opts->rootfs || opts->network || opts->gpu || opts->workdir || opts->volumes.n || opts->tmpfs.n)
        return false;
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (is_server && opts->limits[i])
            return false;
    return !is_server || opts->env.n == 0;
}

static void add_text(struct text_buffer *t, const char *text)
{
    for (; *text; text++)
        hutch_text_addf(t, *text > ' ' && *text < 127 && *text != '%' ? "%c" : "%%%02x", (unsigned char)*text);
    hutch_text_add_string(t, ";");
}

/* The path, and what changes when something else is there. */
static bool add_file(struct text_buffer *t, const char *path)
{
    auto_free char *real = realpath(path, NULL);
    struct stat st;

    if (!real || stat(real, &st) < 0)
        return false;
    add_text(t, real);
    hutch_text_addf(t, "%" PRIu64 ":%" PRIu64 ":%" PRId64 ".%09ld:%" PRId64 ";", (uint64_t)st.st_dev,
                    (uint64_t)st.st_ino, (int64_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (int64_t)st.st_size);
    return true;
}

/* The path, and which directory that is: what lies in it changes with each run. */
static bool add_directory(struct text_buffer *t, const char *path)
{
    auto_free char *real = realpath(path, NULL);
    struct stat st;

    if (!real || stat(real, &st) < 0)
        return false;
    add_text(t, real);
    hutch_text_addf(t, "%" PRIu64 ":%" PRIu64 ";", (uint64_t)st.st_dev, (uint64_t)st.st_ino);
    return true;
}

static bool add_image(struct text_buffer *t, const char *name, const char *home)
{
    auto_image_root image = IMAGE_ROOT_INIT;
    struct hutch_err ignored;
    bool is_told;

    if (name[0] == '/')
        return add_file(t, name);
    is_told = hutch_stores_find(home, name, &image, &ignored) == 0 && add_file(t, image.path);
    for (size_t i = 0; is_told && i < image.n_layers; i++)
        is_told = add_file(t, image.layers[i]);
    return is_told;
}

/* With all files beside it, as a policy names others. One that lies elsewhere may name any. */
static bool add_policy(struct text_buffer *t, const char *name)
{
    auto_free char *folder = NULL;
    struct dirent **entries;
    struct hutch_err ignored;
    bool is_told = true;
    int n;

    if (strchr(name, '/') || hutch_policy_dir(&folder, &ignored) < 0)
        return false;
    n = scandir(folder, &entries, NULL, alphasort);
    add_text(t, name);
    for (int i = 0; i < n; i++) {
        auto_free char *path = NULL;

        if (entries[i]->d_name[0] != '.')
            is_told = asprintf(&path, "%s/%s", folder, entries[i]->d_name) >= 0 && add_file(t, path) && is_told;
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return n > 0 && is_told;
}

char *hutch_settings_line(const struct run_opts *opts, const char *home, bool is_server)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    size_t len;

    add_text(&t, HUTCH_VERSION);
    if (is_plain(opts, is_server) && add_directory(&t, home) &&
        add_image(&t, opts->image ? opts->image : PROFILE_IMAGE, home) &&
        add_policy(&t, opts->policy ? opts->policy : "default"))
        return hutch_text_take(&t, &len);
    hutch_text_done(&t);
    return NULL;
}
