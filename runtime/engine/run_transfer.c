#include "runtime/engine/run_transfer.h"

#include "runtime/data/files.h"
#include "runtime/engine/run.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_MODE 0644

void hutch_run_transfer_done(struct run_transfer *t)
{
    for (size_t i = 0; i < t->n_puts; i++) {
        free(t->puts[i].name);
        free(t->puts[i].data);
    }
    for (size_t i = 0; i < t->n_fetched; i++) {
        hutch_fd_closep(&t->fetched[i].fd);
        free((char *)t->fetched[i].path);
        free(t->names[i]);
    }
    free(t->puts);
    free(t->fetched);
    free(t->names);
    *t = (struct run_transfer)RUN_TRANSFER_INIT;
}

/* --- what is asked for -------------------------------------------------------------------------------------------- */

/* What follows @dir in an absolute path; NULL: it is elsewhere. */
static const char *follow(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (strncmp(path, dir, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return NULL;
    path += len;
    return path + strspn(path, "/");
}

/* The same for the data directory, by any of its names. */
static const char *below_data(const char *path, const struct transfer_places *places)
{
    const char *rest = follow(path, INSIDE_DATA_DIR);

    for (const char *const *t = places->data_targets; !rest && t && *t; t++)
        rest = follow(path, *t);
    for (const char *const *t = places->own_data_targets; !rest && t && *t; t++)
        rest = follow(path, *t);
    return rest;
}

/* The name below the data directory; the caller frees it. */
static int find_name(const char *path, const struct transfer_places *places, char **ret, struct hutch_err *err)
{
    auto_free char *name = NULL;
    const char *rest = below_data(path[0] == '/' ? path : places->cwd, places);
    size_t len = rest ? strlen(rest) : 0;
    char quoted[FILES_QUOTED];

    if (!rest)
        return hutch_err_say(err, EINVAL, "the file '%s' is not below " INSIDE_DATA_DIR ", and no other place can be "
                             "written or read from outside", hutch_files_quote(path, quoted));
    while (len > 0 && path[0] != '/' && rest[len - 1] == '/')
        len--;
    if (path[0] == '/')
        name = strdup(rest);
    else if (asprintf(&name, "%.*s%s%s", (int)len, rest, len ? "/" : "", path) < 0)
        name = NULL;
    if (!name)
        return hutch_err_set(err, ENOMEM, "keep the name of a file");
    if (hutch_files_check_name(name, err) < 0)
        return -1;
    *ret = name;
    name = NULL;
    return 0;
}

static int take_put(struct run_transfer *t, const struct hutch_file *file, const struct transfer_places *places,
                    struct hutch_err *err)
{
    struct put_file *put = &t->puts[t->n_puts];

    if (!file->path || (file->len && !file->data) || file->mode & ~0777u)
        return hutch_err_say(err, EINVAL, "a file without a path or data, or with the mode %o", file->mode);
    if (find_name(file->path, places, &put->name, err) < 0)
        return -1;
    t->n_puts++;
    put->mode = file->mode ? (mode_t)file->mode : DEFAULT_MODE;
    put->len = file->len;
    if (file->len == 0)
        return 0;
    put->data = malloc(file->len);
    if (!put->data)
        return hutch_err_set(err, ENOMEM, "keep a file of %zu bytes", file->len);
    memcpy(put->data, file->data, file->len);
    return 0;
}

static int take_fetch(struct run_transfer *t, const char *path, const struct transfer_places *places,
                      struct hutch_err *err)
{
    char *name = NULL, *kept;

    if (find_name(path, places, &name, err) < 0)
        return -1;
    kept = strdup(path);
    if (!kept) {
        free(name);
        return hutch_err_set(err, ENOMEM, "keep the name of a file");
    }
    t->names[t->n_fetched] = name;
    t->fetched[t->n_fetched++] = (struct hutch_fetched){ .path = kept, .fd = -1, .code = ENOENT };
    return 0;
}

int hutch_run_transfer_take(struct run_transfer *t, const struct hutch_request *request,
                            const struct transfer_places *places, struct hutch_err *err)
{
    size_t bytes = 0, n_fetch = 0;

    while (request->fetch && request->fetch[n_fetch] && n_fetch <= TRANSFER_MAX_FETCH)
        n_fetch++;
    if (request->n_files > TRANSFER_MAX_PUT || n_fetch > TRANSFER_MAX_FETCH)
        return hutch_err_say(err, EINVAL, "at most %d files can be put into a run, and %d fetched", TRANSFER_MAX_PUT,
                             TRANSFER_MAX_FETCH);
    for (size_t i = 0; i < request->n_files; i++) {
        if (request->files[i].len > TRANSFER_MAX_BYTES - bytes)
            return hutch_err_say(err, EINVAL, "the files for a run are more than %u bytes: share a directory instead",
                                 TRANSFER_MAX_BYTES);
        bytes += request->files[i].len;
    }
    if (request->n_files && !(t->puts = calloc(request->n_files, sizeof(*t->puts))))
        return hutch_err_set(err, ENOMEM, "keep files");
    if (n_fetch && (!(t->fetched = calloc(n_fetch, sizeof(*t->fetched))) ||
                    !(t->names = calloc(n_fetch, sizeof(*t->names)))))
        return hutch_err_set(err, ENOMEM, "keep the names of files");
    for (size_t i = 0; i < request->n_files; i++)
        if (take_put(t, &request->files[i], places, err) < 0)
            return -1;
    for (size_t i = 0; i < n_fetch; i++)
        if (take_fetch(t, request->fetch[i], places, err) < 0)
            return -1;
    return 0;
}

/* --- before the start --------------------------------------------------------------------------------------------- */

static int check_bounds(const struct engine_run *run, struct hutch_err *err)
{
    const uint64_t *limits = run->limits;
    uint64_t bytes = 0;

    for (size_t i = 0; i < run->transfer.n_puts; i++)
        bytes += run->transfer.puts[i].len;
    if ((limits[LIMIT_DATA_SIZE] && bytes > limits[LIMIT_DATA_SIZE]) ||
        (limits[LIMIT_DATA_FILES] && run->transfer.n_puts > limits[LIMIT_DATA_FILES]))
        return hutch_err_say(err, EFBIG, "put %zu files with %" PRIu64 " bytes into the run's directory: that is more "
                             "than its limits, %" PRIu64 " files and %" PRIu64 " bytes", run->transfer.n_puts, bytes,
                             limits[LIMIT_DATA_FILES], limits[LIMIT_DATA_SIZE]);
    return 0;
}

int hutch_run_transfer_put(struct engine_run *run, struct hutch_err *err)
{
    if (check_bounds(run, err) < 0)
        return -1;
    for (size_t i = 0; i < run->transfer.n_puts; i++) {
        const struct put_file *put = &run->transfer.puts[i];
        char quoted[FILES_QUOTED];
        auto_fd fd = -1;

        if (hutch_files_open(run->slot->data_dirfd, put->name, O_WRONLY, &fd, err) < 0)
            return hutch_err_wrap(err, "put a file into the run's directory");
        if ((put->len && hutch_fd_write_all(fd, put->data, put->len) < 0) || fchmod(fd, put->mode) < 0)
            return hutch_err_set(err, errno, "put '%s' with %zu bytes into the run's directory",
                                 hutch_files_quote(put->name, quoted), put->len);
    }
    return 0;
}

/* --- after the end ------------------------------------------------------------------------------------------------ */

static void fetch_one(int dirfd, const char *name, struct hutch_fetched *fetched)
{
    auto_fd fd = -1;
    struct hutch_err err;
    struct stat st;

    if (hutch_files_open(dirfd, name, O_RDONLY, &fd, &err) < 0) {
        fetched->code = err.errnum ? err.errnum : EINVAL;
    } else if (fstat(fd, &st) < 0) {
        fetched->code = errno;
    } else {
        fetched->code = 0;
        fetched->size = (uint64_t)st.st_size;
        fetched->fd = hutch_fd_take(&fd);
    }
}

void hutch_run_transfer_fetch(struct engine_run *run, bool has_files)
{
    const struct slot *slot = run->slot;
    struct run_transfer *t = &run->transfer;
    const char *kept = run->data_dir ? NULL : run->result.directory;
    auto_fd dir = kept && t->n_fetched ? open(kept, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
    /* What was in memory and could not be copied may have been emptied. */
    const bool is_lost = (kept && dir < 0) || (run->t_landing > 0 && slot->has_volume);

    for (size_t i = 0; has_files && i < t->n_fetched; i++)
        if (is_lost)
            t->fetched[i].code = EIO;
        else
            fetch_one(kept ? dir : slot->data_dirfd, t->names[i], &t->fetched[i]);
}
