#include "rootfs/store_layers.h"

#include "rootfs/layer.h"
#include "rootfs/oci_image.h"
#include "rootfs/record.h"
#include "rootfs/source.h"
#include "rootfs/store_priv.h"
#include "rootfs/tree.h"
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define UNPACKED "unpacked"
#define MADE "made"
#define EXTENDED "extended"
#define READ_SIZE (1u << 20)
#define TURN_MS 100

/* --- whose turn it is ------------------------------------------------------------------------------------------- */

/* 1: it is ours. 0: another's. A directory below tmp/, so that one that is left is swept like others. */
static int try_turn(const struct store *store, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd tmp = hutch_store_open_dir(store->dirfd, "tmp"), lock = -1, fd = -1;

    if (tmp < 0)
        return hutch_err_set(err, errno, "open '%s/tmp'", store->path);
    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0)
        return -1;
    if (mkdirat(tmp, name, 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "create '%s/tmp/%s'", store->path, name);
    fd = hutch_store_open_dir(tmp, name);
    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s/tmp/%s'", store->path, name);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 0 : hutch_err_set(err, errno, "lock '%s/tmp/%s'", store->path, name);
    *ret_fd = hutch_fd_take(&fd);
    return 1;
}

int hutch_store_turn_begin(const struct store *store, const char *text, int (*wait)(void *ctx), void *ctx,
                           struct store_turn *ret, struct hutch_err *err)
{
    const struct timespec pause = { .tv_nsec = TURN_MS * 1000000l };
    struct store_turn turn = { .store = store, .dirfd = -1 };
    char name[STORE_REQUEST_NAME];
    int rc;

    hutch_store_name_request(text, name);
    snprintf(turn.name, sizeof(turn.name), "request-%s", name);
    while ((rc = try_turn(store, turn.name, &turn.dirfd, err)) == 0) {
        if (wait(ctx) != 0)
            return hutch_err_set(err, ECANCELED, "wait for another process that makes the same");
        nanosleep(&pause, NULL);
    }
    if (rc < 0)
        return -1;
    *ret = turn;
    return 0;
}

void hutch_store_turn_end(struct store_turn *turn)
{
    struct hutch_err ignored;
    auto_fd tmp = turn->store ? hutch_store_open_dir(turn->store->dirfd, "tmp") : -1;

    if (tmp >= 0 && hutch_rmtree(tmp, turn->name, &ignored) < 0)
        turn->name[0] = '\0'; /* the next start tries again */
    hutch_fd_closep(&turn->dirfd);
    turn->store = NULL;
}

/* --- a layer ---------------------------------------------------------------------------------------------------- */

void hutch_store_layer_done(struct store_layer *layer)
{
    free(layer->lock);
    layer->lock = NULL;
}

static int digest_file(int dirfd, const char *name, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err)
{
    __attribute__((cleanup(hutch_digest_done))) struct digest digest = DIGEST_INIT;
    auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    auto_free char *block = malloc(READ_SIZE);
    ssize_t n = 0;

    if (fd < 0 || !block)
        return hutch_err_set(err, fd < 0 ? errno : ENOMEM, "open '%s'", name);
    if (hutch_digest_start(&digest, err) < 0)
        return -1;
    while ((n = TEMP_FAILURE_RETRY(read(fd, block, READ_SIZE))) > 0)
        if (hutch_digest_update(&digest, block, (size_t)n, err) < 0)
            return -1;
    return n < 0 ? hutch_err_set(err, errno, "read '%s'", name) : hutch_digest_finish(&digest, ret_hex, err);
}

struct layer_progress {
    const struct store_unpack *limits;
    const char *doing;
    uint64_t total;
};

static int tell_progress(void *ctx, uint64_t bytes)
{
    struct layer_progress *p = ctx;

    return p->limits->progress ? p->limits->progress(p->limits->ctx, p->doing, bytes, p->total) : 0;
}

static int unpack_archive(const struct store_work *work, const char *archive, int to, struct layer_progress *progress,
                          struct hutch_err *err)
{
    __attribute__((cleanup(hutch_tree_done))) struct tree tree = { .dirfd = -1, .parent_fd = -1 };
    __attribute__((cleanup(hutch_source_done))) struct source source = SOURCE_INIT;
    const struct store_unpack *limits = progress->limits;
    struct layer_budget budget = { .bytes = limits->max_bytes ? limits->max_bytes : STORE_MAX_BYTES,
                                   .entries = limits->max_entries ? limits->max_entries : STORE_MAX_LAYER_ENTRIES };
    auto_free char *member = strdup(archive);
    struct oci_layer layer = { .member = member };
    auto_fd fd = fcntl(to, F_DUPFD_CLOEXEC, 3);
    struct stat st;

    budget.max_bytes = budget.bytes;
    budget.max_entries = budget.entries;
    source.is_dir = true;
    source.path = strdup("the builder's archive");
    source.fd = fcntl(work->dirfd, F_DUPFD_CLOEXEC, 3);
    if (!member || !source.path || source.fd < 0 || fd < 0 || fstatat(work->dirfd, archive, &st, 0) < 0)
        return hutch_err_set(err, member && source.path ? errno : ENOMEM, "open the builder's archive");
    layer.size = (uint64_t)st.st_size;
    progress->doing = "unpack";
    progress->total = layer.size;
    if (digest_file(work->dirfd, archive, layer.diff_id, err) < 0 || hutch_tree_open(fd, &tree, err) < 0)
        return -1;
    hutch_fd_take(&fd);
    tree.entries_left = &budget.entries;
    if (hutch_layer_unpack(&source, &layer, &tree, &budget, tell_progress, progress, err) < 0)
        return -1;
    return hutch_tree_finish_part(&tree, err);
}

/* What has an allowed name and is no directory is a stranger, too: it would cover one of the image. */
static int check_names(int dirfd, const char *const *allowed, const char *where, struct hutch_err *err)
{
    auto_fd fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **entries = NULL;
    int n = fd < 0 ? -1 : scandirat(fd, ".", &entries, NULL, NULL), rc = 0;

    if (n < 0)
        return hutch_err_set(err, errno, "look into the builder's archive");
    for (int i = 0; i < n; i++) {
        const char *const *name = allowed;
        struct stat st;

        while (*name && strcmp(*name, entries[i]->d_name) != 0)
            name++;
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0 && rc == 0 &&
            (!*name || fstatat(fd, *name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
             (!S_ISDIR(st.st_mode) && strcmp(*name, "lock.json") != 0)))
            rc = hutch_err_set(err, 0, "a layer may not have '%s%.80s'", where, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int write_record(int made, struct layer_progress *progress, struct store_layer *ret, struct hutch_err *err)
{
    auto_fd root = hutch_store_open_dir(made, "root");
    auto_fd fd = openat(made, "record", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *out = root < 0 || fd < 0 ? NULL : fdopen(fd, "w");
    struct record_totals totals;
    int rc;

    if (!out)
        return hutch_err_set(err, errno, "create the record of the layer");
    hutch_fd_take(&fd);
    progress->doing = "record";
    rc = hutch_record_write(root, out, &totals, tell_progress, progress, err);
    if (fclose(out) == EOF && rc == 0)
        rc = hutch_err_set(err, errno, "write the record of the layer");
    if (rc < 0)
        return -1;
    ret->bytes = totals.bytes;
    ret->entries = totals.entries;
    return digest_file(made, "record", ret->digest, err);
}

int hutch_store_unpack_layer(const struct store_work *work, const char *archive, const char *const *places,
                             const struct store_unpack *limits, struct store_layer *ret, struct hutch_err *err)
{
    static const char *const outer[] = { "lock.json", "tree", NULL };
    struct layer_progress progress = { .limits = limits };
    auto_fd unpacked = -1, made = -1, tree = -1, lock = -1;
    struct store_layer layer = { .lock = NULL };
    size_t len;

    if (mkdirat(work->dirfd, UNPACKED, 0700) < 0 || mkdirat(work->dirfd, MADE, 0700) < 0)
        return hutch_err_set(err, errno, "make room for a layer");
    unpacked = hutch_store_open_dir(work->dirfd, UNPACKED);
    made = hutch_store_open_dir(work->dirfd, MADE);
    if (unpacked < 0 || made < 0)
        return hutch_err_set(err, errno, "make room for a layer");
    if (unpack_archive(work, archive, unpacked, &progress, err) < 0 ||
        check_names(unpacked, outer, "", err) < 0)
        return -1;
    tree = hutch_store_open_dir(unpacked, "tree");
    lock = openat(unpacked, "lock.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (tree < 0 || lock < 0)
        return hutch_err_set(err, errno, "find the layer in the builder's archive");
    if (check_names(tree, places, "/", err) < 0)
        return -1;
    if (renameat(unpacked, "tree", made, "root") < 0)
        return hutch_err_set(err, errno, "keep the layer");
    if (write_record(made, &progress, &layer, err) < 0 ||
        hutch_fd_slurp(lock, STORE_MAX_LOCK, "lock.json", &layer.lock, &len, err) < 0)
        return -1;
    *ret = layer;
    return 0;
}

/* --- an extended image ------------------------------------------------------------------------------------------ */

static int write_extension(const struct store_work *work, const char *text, uint64_t bytes, uint64_t entries,
                           struct hutch_err *err)
{
    auto_free char *numbers = NULL;
    auto_fd dir = -1;

    if (mkdirat(work->dirfd, EXTENDED, 0700) < 0)
        return hutch_err_set(err, errno, "make room for an image");
    dir = hutch_store_open_dir(work->dirfd, EXTENDED);
    if (dir < 0)
        return hutch_err_set(err, errno, "make room for an image");
    if (asprintf(&numbers, "{\"version\":1,\"bytes\":%llu,\"entries\":%llu,\"unpacked\":%lld}",
                 (unsigned long long)bytes, (unsigned long long)entries, (long long)time(NULL)) < 0) {
        numbers = NULL;
        return hutch_err_set(err, ENOMEM, "describe the image");
    }
    return hutch_fd_write_new(dir, EXTENSION_FILE, text, 0600, err) < 0
               ? -1 : hutch_fd_write_new(dir, "image.json", numbers, 0600, err);
}

/* Moves tmp/WORK/@from to @to, unless that is there: then it is the same. */
static int move_in(const struct store *store, const struct store_work *work, const char *from, const char *to,
                   struct hutch_err *err)
{
    struct stat st;

    if (fstatat(store->dirfd, to, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return 0;
    return renameat(work->dirfd, from, store->dirfd, to) == 0 ? 0 : hutch_err_set(err, errno, "put '%s' into the store",
                                                                                 to);
}

/* Under the store's lock. One that was cut off is none: hutch_store_find_request(). */
static int write_request(const struct store *store, const char *request, const char *hex, struct hutch_err *err)
{
    char name[STORE_REQUEST_NAME], path[16 + STORE_REQUEST_NAME], head[DIGEST_HEX + 16];
    auto_fd fd = -1;

    hutch_store_name_request(request, name);
    snprintf(path, sizeof(path), "requests/%s", name);
    snprintf(head, sizeof(head), "sha256:%s\n", hex);
    fd = openat(store->dirfd, "requests/.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || hutch_fd_write_all(fd, head, strlen(head)) < 0 ||
        hutch_fd_write_all(fd, request, strlen(request)) < 0 ||
        renameat(store->dirfd, "requests/.new", store->dirfd, path) < 0)
        return hutch_err_set(err, errno, "remember what was asked for");
    return 0;
}

int hutch_store_add_extension(const struct store *store, const struct store_work *work,
                              const struct extension *extension, uint64_t bytes, uint64_t entries, const char *about,
                              const char *name, const char *request, char ret_hex[DIGEST_HEX + 1],
                              struct hutch_err *err)
{
    char text[EXTENSION_MAX_TEXT], hex[DIGEST_HEX + 1], layer_path[16 + DIGEST_HEX], tree_path[16 + DIGEST_HEX];
    auto_fd made = hutch_store_open_dir(work->dirfd, MADE), lock = -1;
    size_t len = hutch_extension_print(extension, text);

    if (made < 0)
        return hutch_err_set(err, errno, "open the layer");
    if (hutch_digest_of(text, len, hex, err) < 0 || hutch_fd_write_new(made, "layer.json", about, 0600, err) < 0 ||
        write_extension(work, text, bytes, entries, err) < 0 || hutch_store_lock(store, LOCK_EX, &lock, err) < 0)
        return -1;
    snprintf(layer_path, sizeof(layer_path), "layers/%s", extension->layers[extension->n_layers - 1]);
    snprintf(tree_path, sizeof(tree_path), "trees/%s", hex);
    if (move_in(store, work, MADE, layer_path, err) < 0 || move_in(store, work, EXTENDED, tree_path, err) < 0 ||
        (name && hutch_store_write_name(store, name, hex, err) < 0) || write_request(store, request, hex, err) < 0)
        return -1;
    memcpy(ret_hex, hex, sizeof(hex));
    return 0;
}

int hutch_store_keep_extension(const struct store *store, const struct store_work *work,
                               const struct extension *extension, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err)
{
    char text[EXTENSION_MAX_TEXT], tree_path[16 + DIGEST_HEX];
    size_t len = hutch_extension_print(extension, text);
    uint64_t bytes = 0;
    auto_fd lock = -1;

    for (size_t i = 0; i < extension->n_layers; i++)
        bytes += hutch_store_layer_bytes(store, extension->layers[i]);
    if (hutch_digest_of(text, len, ret_hex, err) < 0)
        return -1;
    if (hutch_store_has_tree(store, ret_hex))
        return 0;
    snprintf(tree_path, sizeof(tree_path), "trees/%s", ret_hex);
    return write_extension(work, text, bytes, 0, err) < 0 || hutch_store_lock(store, LOCK_EX, &lock, err) < 0
               ? -1 : move_in(store, work, EXTENDED, tree_path, err);
}

int hutch_store_set_name(const struct store *store, const char *name, const char *hex, struct hutch_err *err)
{
    auto_fd lock = -1;

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0)
        return -1;
    if (!hutch_store_has_tree(store, hex))
        return hutch_err_set(err, ENOENT, "the image was removed just now");
    return hutch_store_write_name(store, name, hex, err);
}

static char *read_description(int dirfd, const char *path)
{
    auto_fd fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct hutch_err ignored;
    char *text = NULL;
    size_t len;

    return fd < 0 || hutch_fd_slurp(fd, STORE_MAX_LOCK, path, &text, &len, &ignored) < 0 ? NULL : text;
}

char *hutch_store_read_layer(const struct store *store, const char *hex)
{
    char path[32 + DIGEST_HEX];

    snprintf(path, sizeof(path), "layers/%s/layer.json", hex);
    return read_description(store->dirfd, path);
}

char *hutch_store_read_layer_of(const char *tree)
{
    const char *slash = strrchr(tree, '/');
    auto_free char *path = NULL;

    if (!slash || asprintf(&path, "%.*s/layer.json", (int)(slash - tree), tree) < 0) {
        path = NULL;
        return NULL;
    }
    return read_description(AT_FDCWD, path);
}

/* --- what is needed still --------------------------------------------------------------------------------------- */

bool hutch_store_find_extending(const struct store *store, const char *hex, bool only_named, char *ret, size_t size)
{
    struct store_image *images;
    struct hutch_err ignored;
    bool is_found = false;
    size_t n;

    if (hutch_store_list(store, &images, &n, &ignored) < 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool is_named = images[i].n_names > 0;

        if (!is_found && images[i].extension.n_layers > 0 && strcmp(images[i].extension.base, hex) == 0 &&
            (is_named || !only_named)) {
            snprintf(ret, size, is_named ? "%.80s" : "sha256:%.12s", is_named ? images[i].names[0] : images[i].digest);
            is_found = true;
        }
        hutch_store_image_done(&images[i]);
    }
    free(images);
    return is_found;
}

struct layer_sweep {
    const struct store *store;
    bool is_dry;
    struct store_image *images; /* that there are */
    size_t n;
    void (*each)(void *ctx, const char *hex, uint64_t bytes);
    void *ctx;
};

static bool is_needed(const struct layer_sweep *s, const char *hex)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->images[i].extension.n_layers; k++)
            if ((!s->is_dry || s->images[i].n_names > 0) && strcmp(s->images[i].extension.layers[k], hex) == 0)
                return true;
    return false;
}

/* Into tmp/, where it is swept if this process is killed before it has removed it. */
static void sweep_layer(void *ctx, const char *entry)
{
    struct layer_sweep *s = ctx;
    char path[16 + DIGEST_HEX], gone[32 + DIGEST_HEX];
    auto_fd tmp = hutch_store_open_dir(s->store->dirfd, "tmp"), held = -1;
    struct hutch_err ignored;
    uint64_t bytes;

    if (tmp < 0 || !hutch_digest_is_hex(entry) || is_needed(s, entry) ||
        hutch_store_lock_layer(s->store, entry, LOCK_EX | LOCK_NB, &held, &ignored) < 0)
        return;
    bytes = hutch_store_layer_bytes(s->store, entry);
    snprintf(path, sizeof(path), "layers/%s", entry);
    snprintf(gone, sizeof(gone), "%ld-%s", (long)getpid(), entry);
    if (!s->is_dry && (renameat(s->store->dirfd, path, tmp, gone) < 0 ||
                       hutch_rmtree(tmp, gone, &ignored) < 0))
        return;
    if (s->each)
        s->each(s->ctx, entry, bytes);
}

int hutch_store_sweep_layers(const struct store *store, bool is_dry,
                             void (*each)(void *ctx, const char *hex, uint64_t bytes), void *ctx,
                             struct hutch_err *err)
{
    struct layer_sweep s = { .store = store, .is_dry = is_dry, .each = each, .ctx = ctx };
    auto_fd lock = -1;
    int rc;

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0 || hutch_store_list(store, &s.images, &s.n, err) < 0)
        return -1;
    rc = hutch_store_each_entry(store, "layers", sweep_layer, &s, err);
    for (size_t i = 0; i < s.n; i++)
        hutch_store_image_done(&s.images[i]);
    free(s.images);
    return rc;
}

static void sweep_request(void *ctx, const char *entry)
{
    const struct store *store = ctx;
    auto_fd dir = hutch_store_open_dir(store->dirfd, "requests");
    auto_fd fd = dir < 0 ? -1 : openat(dir, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char text[DIGEST_HEX + 16] = "", hex[DIGEST_HEX + 1];

    if (fd < 0 || hutch_fd_read_full(fd, text, sizeof(text) - 1) < 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    if (!hutch_digest_parse(text, hex) || !hutch_store_has_tree(store, hex))
        unlinkat(dir, entry, 0);
}

int hutch_store_sweep_requests(const struct store *store, struct hutch_err *err)
{
    auto_fd lock = -1;

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0)
        return -1;
    return hutch_store_each_entry(store, "requests", sweep_request, (void *)(uintptr_t)store, err);
}

/* --- verifying -------------------------------------------------------------------------------------------------- */

uint64_t hutch_store_layer_bytes(const struct store *store, const char *hex)
{
    auto_free char *text = hutch_store_read_layer(store, hex);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(json, "bytes");
    uint64_t n = cJSON_IsNumber(bytes) && bytes->valuedouble >= 0 && bytes->valuedouble < 9e15
                     ? (uint64_t)bytes->valuedouble : 0;

    cJSON_Delete(json);
    return n;
}

int hutch_store_open_layer(const struct store *store, const char *hex, int *ret_fd, struct hutch_err *err)
{
    char of_record[DIGEST_HEX + 1];
    auto_fd layer = -1;

    if (hutch_store_lock_layer(store, hex, LOCK_SH, &layer, err) < 0 ||
        digest_file(layer, "record", of_record, err) < 0)
        return -1;
    if (strcmp(of_record, hex) != 0)
        return hutch_err_set(err, 0, "the record of layer sha256:%.12s is not the one that it is called after", hex);
    *ret_fd = hutch_fd_take(&layer);
    return 0;
}
