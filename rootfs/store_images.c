#include "rootfs/store_priv.h"

#include "sandbox/fd.h"
#include "rootfs/layer.h"
#include "rootfs/oci_image.h"
#include "rootfs/record.h"
#include "rootfs/store_layers.h"
#include "sandbox/rmtree.h"
#include "rootfs/source.h"
#include "rootfs/tree.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_NAMED 200 /* bytes of a source in messages, so that they have room for the reason */

#define auto_source __attribute__((cleanup(hutch_source_done))) struct source
#define auto_work __attribute__((cleanup(hutch_store_work_end))) struct store_work

/* --- unpacking -------------------------------------------------------------------------------------------- */

int hutch_store_write_name(const struct store *store, const char *name, const char *hex, struct hutch_err *err)
{
    char file[STORE_MAX_NAME + 1], text[DIGEST_HEX + 16];
    auto_fd names = hutch_store_open_dir(store->dirfd, "names");
    auto_fd fd = -1;

    hutch_store_encode_name(name, file);
    snprintf(text, sizeof(text), "sha256:%s\n", hex);
    /* No name begins with a dot. One left by a killed process is simply written over. */
    fd = names < 0 ? -1 : openat(names, ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0 || renameat(names, ".new", names, file) < 0)
        return hutch_err_set(err, errno, "name the image '%s'", name);
    return 0;
}

struct unpacking {
    const struct store_unpack *opts;
    const char *doing;
    uint64_t devices;
    uint64_t before, total; /* stored bytes of the layers that are done, and of all */
};

static int tell_progress(void *ctx, uint64_t bytes)
{
    struct unpacking *u = ctx;

    if (!u->opts->progress)
        return 0;
    return u->opts->progress(u->opts->ctx, u->doing, u->before + bytes, u->total);
}

/* docker save does not say how large its layers are. */
static int measure(const struct source *source, struct oci_image *image, uint64_t *ret_total, struct hutch_err *err)
{
    uint64_t total = 0;

    for (size_t i = 0; i < image->n_layers; i++) {
        if (!image->layers[i].digest[0]) {
            __attribute__((cleanup(hutch_member_done))) struct member member = MEMBER_INIT;

            if (hutch_source_find(source, image->layers[i].member, &member, err) < 0)
                return -1;
            image->layers[i].size = member.size;
        }
        total += image->layers[i].size;
    }
    *ret_total = total;
    return 0;
}

static int unpack_layers(const struct source *source, struct oci_image *image, int root_fd, struct unpacking *u,
                         struct hutch_err *err)
{
    struct layer_budget budget = { .bytes = u->opts->max_bytes ? u->opts->max_bytes : STORE_MAX_BYTES,
                                   .entries = u->opts->max_entries ? u->opts->max_entries : STORE_MAX_ENTRIES };
    __attribute__((cleanup(hutch_tree_done))) struct tree tree = { .dirfd = -1, .parent_fd = -1 };
    int fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 3);

    budget.max_bytes = budget.bytes;
    budget.max_entries = budget.entries;
    if (fd < 0)
        return hutch_err_set(err, errno, "open the new root tree");
    if (hutch_tree_open(fd, &tree, err) < 0) {
        close(fd);
        return -1;
    }
    tree.entries_left = &budget.entries;
    if (measure(source, image, &u->total, err) < 0)
        return -1;
    u->doing = "unpack";
    for (size_t i = 0; i < image->n_layers; i++) {
        if (hutch_layer_unpack(source, &image->layers[i], &tree, &budget, tell_progress, u, err) < 0)
            return -1;
        u->before += image->layers[i].size;
    }
    u->devices = tree.n_devices;
    return hutch_tree_finish(&tree, err);
}

static int write_image_json(int dirfd, const struct record_totals *totals, const struct unpacking *u,
                            struct hutch_err *err)
{
    auto_fd fd = openat(dirfd, "image.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cJSON *json = cJSON_CreateObject();
    auto_free char *text = NULL;

    cJSON_AddNumberToObject(json, "version", 1);
    cJSON_AddNumberToObject(json, "bytes", (double)totals->bytes);
    cJSON_AddNumberToObject(json, "entries", (double)totals->entries);
    cJSON_AddNumberToObject(json, "devices", (double)u->devices);
    cJSON_AddNumberToObject(json, "unpacked", (double)time(NULL));
    if (u->opts->source)
        cJSON_AddStringToObject(json, "source", u->opts->source);
    text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    if (!text)
        return hutch_err_set(err, ENOMEM, "write 'image.json'");
    if (fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0)
        return hutch_err_set(err, errno, "write 'image.json'");
    return 0;
}

static int write_record(const struct store_work *work, int root_fd, struct unpacking *u, struct hutch_err *err)
{
    auto_fd fd = openat(work->dirfd, "record", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct record_totals totals;
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    int rc;

    if (!out)
        return hutch_err_set(err, errno, "create the record of the tree");
    hutch_fd_take(&fd);
    u->doing = "record";
    u->before = 0;
    rc = hutch_record_write(root_fd, out, &totals, tell_progress, u, err);
    if (fclose(out) == EOF && rc == 0)
        rc = hutch_err_set(err, errno, "write the record of the tree");
    return rc < 0 ? -1 : write_image_json(work->dirfd, &totals, u, err);
}

/* Makes what is in @work the tree @hex, unless another process was faster, and names it. */
static int commit_tree(const struct store *store, const struct store_work *work, const char *hex, const char *name,
                       struct hutch_err *err)
{
    char from[sizeof(work->name) + 16], to[16 + DIGEST_HEX];
    auto_fd lock = -1;
    bool is_new = false;

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0)
        return -1;
    if (work && !hutch_store_has_tree(store, hex)) {
        snprintf(from, sizeof(from), "tmp/%s", work->name);
        snprintf(to, sizeof(to), "trees/%s", hex);
        if (renameat(store->dirfd, from, store->dirfd, to) < 0)
            return hutch_err_set(err, errno, "put the image into the store");
        is_new = true;
    }
    if (!hutch_store_has_tree(store, hex))
        return hutch_err_set(err, ENOENT, "the image was removed just now");
    if (!name || hutch_store_write_name(store, name, hex, err) == 0)
        return 0;
    if (is_new && renameat(store->dirfd, to, store->dirfd, from) < 0)
        return hutch_err_wrap(err, "the image is in the store, but without its name");
    return -1;
}

/* Messages speak of what the user has named, and not of a directory of ours. */
static int name_source(struct source *source, const char *text, struct hutch_err *err)
{
    char *copy = strndup(text, MAX_NAMED);

    if (!copy)
        return hutch_err_set(err, ENOMEM, "unpack '%s'", text);
    hutch_freep(&source->path);
    source->path = copy;
    return 0;
}

/* What an archive calls itself takes no name away from another image: that is for the user to say. */
static int check_own_name(const struct store *store, const char *name, const char *digest, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1];
    struct hutch_err none;

    if (hutch_store_resolve(store, name, hex, file, &none) < 0 || strcmp(hex, digest) == 0)
        return 0;
    return hutch_err_set(err, EEXIST, "the archive calls its image '%s', as another in the store is called: give it a "
                                      "name (--name %s replaces that)", name, name);
}

int hutch_store_unpack(const struct store *store, const char *archive, const struct store_unpack *opts,
                       struct store_image *ret, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_oci_image_done))) struct oci_image image = OCI_IMAGE_INIT;
    auto_source source = SOURCE_INIT;
    auto_work work = STORE_WORK_INIT;
    struct oci_choice choice = { .select = opts->select, .platform = opts->platform };
    struct unpacking u = { .opts = opts };
    const char *name = opts->name;
    auto_fd root = -1;

    if (name && !hutch_store_is_name(name))
        return hutch_err_set(
            err, 0, "'%.80s' cannot be an image's name (letters, digits, and \"._-/:@\" after the first)", name);
    if (hutch_store_work_begin(store, &work, err) < 0 ||
        hutch_source_open(archive, work.dirfd, opts->max_bytes ? opts->max_bytes : STORE_MAX_BYTES, &source, err) < 0 ||
        (opts->source && name_source(&source, opts->source, err) < 0) ||
        hutch_oci_image_read(&source, &choice, &image, err) < 0)
        return -1;
    if (!name && image.name && hutch_store_is_name(image.name))
        name = image.name;
    if (name && name != opts->name && check_own_name(store, name, image.digest, err) < 0)
        return -1;
    if (hutch_store_has_tree(store, image.digest)) {
        if (commit_tree(store, NULL, image.digest, name, err) < 0)
            return hutch_err_wrap(err, "unpack '%s'", source.path);
        return ret ? hutch_store_describe(store, image.digest, ret, err) : 0;
    }
    if (mkdirat(work.dirfd, "root", 0700) < 0)
        return hutch_err_set(err, errno, "create a root tree in '%s'", store->path);
    root = hutch_store_open_dir(work.dirfd, "root");
    if (root < 0)
        return hutch_err_set(err, errno, "open a root tree in '%s'", store->path);
    if (unpack_layers(&source, &image, root, &u, err) < 0 || write_record(&work, root, &u, err) < 0 ||
        hutch_image_config_write(&image.config, work.dirfd, err) < 0 ||
        commit_tree(store, &work, image.digest, name, err) < 0)
        return hutch_err_wrap(err, "unpack '%s'", source.path);
    return ret ? hutch_store_describe(store, image.digest, ret, err) : 0;
}

/* --- verifying, removing ---------------------------------------------------------------------------------- */

struct verifying {
    store_difference_fn *difference;
    store_progress_fn *progress;
    void *ctx;
    uint64_t before, total;
};

static int verify_progress(void *ctx, uint64_t bytes)
{
    struct verifying *v = ctx;

    return v->progress ? v->progress(v->ctx, "verify", v->before + bytes, v->total) : 0;
}

static void verify_difference(void *ctx, const char *what, const char *path)
{
    struct verifying *v = ctx;

    if (v->difference)
        v->difference(v->ctx, what, path);
}

/* The tree root in the directory @dir of an image or a layer, with the record beside it. */
static int verify_tree(int dir, struct verifying *v, uint64_t *ret_n, struct hutch_err *err)
{
    auto_fd root = hutch_store_open_dir(dir, "root");
    FILE *in;
    int rc;

    if (root < 0)
        return hutch_err_set(err, errno, "open the tree");
    in = hutch_record_open(dir, "record", err);
    if (!in)
        return -1;
    rc = hutch_record_verify(root, in, ret_n, verify_difference, verify_progress, v, err);
    fclose(in);
    return rc;
}

/* Its base is another image, which is verified as that. */
static int verify_layers(const struct store *store, const struct extension *extension, struct verifying *v,
                         uint64_t *ret_n, struct hutch_err *err)
{
    *ret_n = 0;
    for (size_t i = 0; i < extension->n_layers; i++) {
        auto_fd layer = -1;
        uint64_t n = 0;

        if (hutch_store_open_layer(store, extension->layers[i], &layer, err) < 0 || verify_tree(layer, v, &n, err) < 0)
            return -1;
        *ret_n += n;
        v->before += hutch_store_layer_bytes(store, extension->layers[i]);
    }
    return 0;
}

int hutch_store_verify(const struct store *store, const char *name, uint64_t *ret_n, store_difference_fn *difference,
                       store_progress_fn *progress, void *ctx, struct hutch_err *err)
{
    struct verifying v = { .difference = difference, .progress = progress, .ctx = ctx };
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1];
    struct store_image image = { .names = NULL };
    struct extension extension;
    auto_fd tree = -1;
    int rc;

    if (hutch_store_resolve(store, name, hex, file, err) < 0 ||
        hutch_store_lock_tree(store, hex, LOCK_SH, &tree, err) < 0)
        return -1;
    hutch_store_read_numbers(tree, &image);
    v.total = image.bytes;
    hutch_store_image_done(&image);
    rc = hutch_extension_read(tree, &extension, err);
    if (rc == 0)
        rc = verify_tree(tree, &v, ret_n, err);
    else if (rc > 0)
        rc = verify_layers(store, &extension, &v, ret_n, err);
    return rc < 0 ? hutch_err_wrap(err, "verify image '%s'", name) : 0;
}

struct unnaming {
    const struct store *store;
    int names_fd;
    const char *hex;
    bool is_dry; /* only count */
    unsigned n;
};

static void unname(void *ctx, const char *entry)
{
    struct unnaming *u = ctx;
    char text[DIGEST_HEX + 16] = "", hex[DIGEST_HEX + 1];
    auto_fd fd = openat(u->names_fd, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || hutch_fd_read_full(fd, text, sizeof(text) - 1) <= 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    if (!hutch_digest_parse(text, hex) || strcmp(hex, u->hex) != 0)
        return;
    if (u->is_dry || unlinkat(u->names_fd, entry, 0) == 0)
        u->n++;
}

/* Under the store's lock: takes trees/@hex away with its names. *ret_held, which keeps others from sweeping it, is the
 * caller's until hutch_rmtree() has removed tmp/@gone. Errors: EBUSY. */
static int take_away(const struct store *store, const char *hex, int tmp, int names, char gone[128], int *ret_held,
                     struct hutch_err *err)
{
    struct unnaming u = { .store = store, .names_fd = names, .hex = hex };
    char tree[16 + DIGEST_HEX];
    auto_fd held = -1;

    if (hutch_store_lock_tree(store, hex, LOCK_EX | LOCK_NB, &held, err) < 0)
        return -1;
    snprintf(tree, sizeof(tree), "trees/%s", hex);
    snprintf(gone, 128, "%ld-%s", (long)getpid(), hex);
    if (renameat(store->dirfd, tree, tmp, gone) < 0)
        return hutch_err_set(err, errno, "take it out of the store");
    if (hutch_store_each_entry(store, "names", unname, &u, err) < 0)
        return -1;
    *ret_held = hutch_fd_take(&held);
    return 0;
}

/* Unless another image extends it. */
static int check_not_extended(const struct store *store, const char *hex, struct hutch_err *err)
{
    char other[128];

    if (!hutch_store_find_extending(store, hex, false, other, sizeof(other)))
        return 0;
    return hutch_err_set(err, 0, "the image '%s' extends it: remove that first%s", other,
                         strncmp(other, "sha256:", 7) == 0 ? " (hutch rootfs prune removes those without a name)" : "");
}

int hutch_store_remove(const struct store *store, const char *name, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1], gone[128];
    auto_fd lock = -1, held = -1, names = -1, tmp = -1;
    struct unnaming u = { .store = store, .hex = hex, .is_dry = true };

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0 || hutch_store_resolve(store, name, hex, file, err) < 0)
        return -1;
    names = hutch_store_open_dir(store->dirfd, "names");
    tmp = hutch_store_open_dir(store->dirfd, "tmp");
    if (names < 0 || tmp < 0)
        return hutch_err_set(err, errno, "open the store '%s'", store->path);
    u.names_fd = names;
    if (hutch_store_each_entry(store, "names", unname, &u, err) < 0)
        return -1;
    if (file[0] && u.n > 1) { /* only a name */
        if (unlinkat(names, file, 0) < 0)
            return hutch_err_set(err, errno, "remove the name '%s'", name);
        return 0;
    }
    if (check_not_extended(store, hex, err) < 0 || take_away(store, hex, tmp, names, gone, &held, err) < 0)
        return hutch_err_wrap(err, "remove image '%s'", name);
    /* Gone from here on. The files take their time, without the store's lock. */
    hutch_fd_closep(&lock);
    if (hutch_rmtree(tmp, gone, err) < 0 || hutch_store_sweep_layers(store, false, NULL, NULL, err) < 0)
        return -1;
    return hutch_store_sweep_requests(store, err);
}

/* --- pruning ---------------------------------------------------------------------------------------------- */

struct pruning {
    const struct store *store;
    int names, tmp;
    bool is_dry;
    store_pruned_fn *tell;
    void *ctx;
    struct hutch_err err; /* of the first name that could not be removed */
};

/* One whose tree is gone. What else may lie there is not ours to judge. */
static void prune_name(void *ctx, const char *entry)
{
    char text[DIGEST_HEX + 16] = "", hex[DIGEST_HEX + 1], name[STORE_MAX_NAME + 1];
    struct pruning *p = ctx;
    auto_fd fd = openat(p->names, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (!hutch_store_decode_name(entry, name) || fd < 0 || hutch_fd_read_full(fd, text, sizeof(text) - 1) <= 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    if (!hutch_digest_parse(text, hex) || hutch_store_has_tree(p->store, hex))
        return;
    if (!p->is_dry && unlinkat(p->names, entry, 0) < 0) {
        if (!p->err.msg[0])
            hutch_err_set(&p->err, errno, "remove the name '%s'", entry);
        return;
    }
    p->tell(p->ctx, STORE_PRUNED_NAME, name, 0);
}

static void prune_layer(void *ctx, const char *hex, uint64_t bytes)
{
    struct pruning *p = ctx;

    p->tell(p->ctx, STORE_PRUNED_LAYER, hex, bytes);
}

/* Looks again, under the lock: it may have got a name, or another image may extend it. */
static int prune_tree(struct pruning *p, const char *hex, uint64_t bytes, struct hutch_err *err)
{
    struct unnaming u = { .store = p->store, .names_fd = p->names, .hex = hex, .is_dry = true };
    auto_fd lock = -1, held = -1;
    char gone[128], ignored[128];
    int rc;

    if (hutch_store_lock(p->store, LOCK_EX, &lock, err) < 0 ||
        hutch_store_each_entry(p->store, "names", unname, &u, err) < 0)
        return -1;
    if (u.n > 0 || hutch_store_find_extending(p->store, hex, p->is_dry, ignored, sizeof(ignored)))
        return 0;
    rc = hutch_store_lock_tree(p->store, hex, LOCK_EX | LOCK_NB, &held, err);
    hutch_fd_closep(&held);
    if (rc == 0 && !p->is_dry)
        rc = take_away(p->store, hex, p->tmp, p->names, gone, &held, err);
    if (rc < 0 && err->errnum == ENOENT) /* another was faster */
        return 0;
    if (rc < 0 && err->errnum != EBUSY)
        return hutch_err_wrap(err, "remove image sha256:%.12s", hex);
    hutch_fd_closep(&lock);
    if (rc == 0 && !p->is_dry && hutch_rmtree(p->tmp, gone, err) < 0)
        return -1;
    p->tell(p->ctx, rc < 0 ? STORE_PRUNED_BUSY : STORE_PRUNED_IMAGE, hex, bytes);
    return 0;
}

int hutch_store_prune(const struct store *store, bool is_dry, store_pruned_fn *tell, void *ctx, struct hutch_err *err)
{
    auto_fd lock = -1, names = hutch_store_open_dir(store->dirfd, "names"),
            tmp = hutch_store_open_dir(store->dirfd, "tmp");
    struct pruning p = { .store = store, .names = names, .tmp = tmp, .is_dry = is_dry, .tell = tell, .ctx = ctx };
    struct store_image *images;
    size_t n;
    int rc;

    if (names < 0 || tmp < 0)
        return hutch_err_set(err, errno, "open the store '%s'", store->path);
    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0 ||
        hutch_store_each_entry(store, "names", prune_name, &p, err) < 0)
        return -1;
    hutch_fd_closep(&lock);
    if (p.err.msg[0]) {
        *err = p.err;
        return -1;
    }
    rc = hutch_store_list(store, &images, &n, err);
    if (rc < 0)
        return -1;
    /* What extends goes before what is extended; its bytes are those of layers, which others may have, too. */
    for (int is_base = 0; is_base <= 1; is_base++)
        for (size_t i = 0; i < n; i++)
            if (rc == 0 && images[i].n_names == 0 && (images[i].extension.n_layers == 0) == is_base)
                rc = prune_tree(&p, images[i].digest, is_base ? images[i].bytes : 0, err);
    for (size_t i = 0; i < n; i++)
        hutch_store_image_done(&images[i]);
    free(images);
    if (rc == 0)
        rc = hutch_store_sweep_layers(store, is_dry, prune_layer, &p, err);
    return rc == 0 && !is_dry ? hutch_store_sweep_requests(store, err) : rc;
}
