#include "store.h"

#include "fd.h"
#include "home.h"
#include "layer.h"
#include "oci_image.h"
#include "record.h"
#include "rmtree.h"
#include "source.h"
#include "tree.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_NAME 200
#define MAX_IMAGE_JSON 4096
#define MIN_DIGEST_PREFIX 6

#define auto_source __attribute__((cleanup(hutch_source_done))) struct source
#define auto_work __attribute__((cleanup(hutch_store_work_end))) struct store_work

static int open_dir(int dirfd, const char *name)
{
    return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The lock on the whole store. *ret_fd is the lock. */
static int lock_store(const struct store *store, int operation, int *ret_fd, struct hutch_err *err)
{
    auto_fd fd = openat(store->dirfd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || TEMP_FAILURE_RETRY(flock(fd, operation)) < 0)
        return hutch_err_set(err, errno, "lock the store '%s'", store->path);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

/* Removes what killed processes left in tmp/. Best effort: what cannot be removed now is tried again next time. */
static void sweep(const struct store *store)
{
    struct hutch_err ignored;
    auto_fd lock = -1;
    int fd = open_dir(store->dirfd, "tmp");
    DIR *tmp = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *de;

    if (!tmp) {
        hutch_fd_closep(&fd);
        return;
    }
    while ((de = readdir(tmp))) {
        auto_fd work = -1;

        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        /* Held so that nobody is between making a directory and locking it. */
        if (lock < 0 && lock_store(store, LOCK_EX | LOCK_NB, &lock, &ignored) < 0)
            break;
        work = open_dir(fd, de->d_name);
        if (work >= 0 && flock(work, LOCK_EX | LOCK_NB) < 0)
            continue;
        if (hutch_rmtree(fd, de->d_name, &ignored) < 0)
            continue;
    }
    closedir(tmp);
}

/* Asks ext2-4 to put each directory below @name into a part of the disk of its own, as it does for those of "/": ext4 looks
 * at every inode that was freed in the last minutes before it hands one out, so that a tree unpacked where another was just
 * removed takes ten times as long (seen with Linux 6.18: 8.4 s instead of 0.8 s for 10,000 files). ioctl_iflags(2). */
static void spread_children(int dirfd, const char *name)
{
    auto_fd fd = open_dir(dirfd, name);
    int flags;

    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        return;
    flags |= FS_TOPDIR_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
        return; /* another file system, which need not have the problem either */
}

int hutch_store_open(const char *home, struct store *ret, struct hutch_err *err)
{
    static const char *const below[] = { "names", "trees", "tmp" };
    auto_free char *real = NULL;
    auto_fd home_fd = -1, dirfd = -1;
    char *path;

    if (hutch_home_create(home, &home_fd, &real, err) < 0)
        return -1;
    if (mkdirat(home_fd, "images", 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "create '%s/images'", real);
    dirfd = open_dir(home_fd, "images");
    if (dirfd < 0)
        return hutch_err_set(err, errno, "open '%s/images'", real);
    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        if (mkdirat(dirfd, below[i], 0700) == 0)
            spread_children(dirfd, below[i]);
        else if (errno != EEXIST)
            return hutch_err_set(err, errno, "create '%s/images/%s'", real, below[i]);
    }
    if (asprintf(&path, "%s/images", real) < 0)
        return hutch_err_set(err, ENOMEM, "open the store");
    *ret = (struct store){ .path = path, .dirfd = hutch_fd_take(&dirfd) };
    sweep(ret);
    return 0;
}

void hutch_store_done(struct store *store)
{
    hutch_freep(&store->path);
    store->path = NULL;
    hutch_fd_closep(&store->dirfd);
}

int hutch_store_work_begin(const struct store *store, struct store_work *ret, struct hutch_err *err)
{
    struct store_work work = { .store = store, .dirfd = -1 };
    auto_fd tmp = open_dir(store->dirfd, "tmp");
    auto_fd lock = -1;
    uint64_t random;

    if (tmp < 0)
        return hutch_err_set(err, errno, "open '%s/tmp'", store->path);
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return hutch_err_set(err, errno, "get random bytes");
    snprintf(work.name, sizeof(work.name), "%ld-%016llx", (long)getpid(), (unsigned long long)random);
    if (lock_store(store, LOCK_EX, &lock, err) < 0)
        return -1;
    if (mkdirat(tmp, work.name, 0700) < 0)
        return hutch_err_set(err, errno, "create '%s/tmp/%s'", store->path, work.name);
    work.dirfd = open_dir(tmp, work.name);
    if (work.dirfd < 0 || flock(work.dirfd, LOCK_EX | LOCK_NB) < 0) {
        hutch_err_set(err, errno, "lock '%s/tmp/%s'", store->path, work.name);
        hutch_store_work_end(&work);
        return -1;
    }
    *ret = work;
    return 0;
}

void hutch_store_work_end(struct store_work *work)
{
    struct hutch_err ignored;
    auto_fd tmp = work->store ? open_dir(work->store->dirfd, "tmp") : -1;

    /* When it fails, the next start tries again. */
    if (tmp >= 0 && hutch_rmtree(tmp, work->name, &ignored) < 0)
        work->name[0] = '\0';
    hutch_fd_closep(&work->dirfd);
    work->store = NULL;
}

/* --- names ------------------------------------------------------------------------------------------------ */

/* What docker and others call images: letters, digits, and "._-/:@" after the first character. */
static bool is_name(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static const char more[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@";
    size_t len = strlen(name);

    return len > 0 && len <= MAX_NAME && strchr(first, name[0]) && strspn(name, more) == len;
}

/* As on disk. No name has a '%'. */
static void encode_name(const char *name, char ret[MAX_NAME + 1])
{
    size_t i;

    for (i = 0; name[i] && i < MAX_NAME; i++)
        ret[i] = name[i] == '/' ? '%' : name[i];
    ret[i] = '\0';
}

static bool has_tree(const struct store *store, const char *hex)
{
    char path[16 + DIGEST_HEX];
    struct stat st;

    snprintf(path, sizeof(path), "trees/%s", hex);
    return fstatat(store->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* The digest that a name stands for. False when there is none, or its tree is gone. */
static bool read_name(const struct store *store, const char *file, char ret_hex[DIGEST_HEX + 1])
{
    char text[DIGEST_HEX + 16];
    auto_fd names = open_dir(store->dirfd, "names");
    auto_fd fd = names < 0 ? -1 : openat(names, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, text, sizeof(text) - 1);

    if (n <= 0)
        return false;
    text[n] = '\0';
    if (text[n - 1] == '\n')
        text[n - 1] = '\0';
    return hutch_digest_parse(text, ret_hex) && has_tree(store, ret_hex);
}

/* The caller holds the store's lock. */
static int write_name(const struct store *store, const char *name, const char *hex, struct hutch_err *err)
{
    char file[MAX_NAME + 1], text[DIGEST_HEX + 16];
    auto_fd names = open_dir(store->dirfd, "names");
    auto_fd fd = -1;

    encode_name(name, file);
    snprintf(text, sizeof(text), "sha256:%s\n", hex);
    /* No name begins with a dot. One left by a killed process is simply written over. */
    fd = names < 0 ? -1 : openat(names, ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0 || renameat(names, ".new", names, file) < 0)
        return hutch_err_set(err, errno, "name the image '%s'", name);
    return 0;
}

/* Calls @each with the sorted entries of a directory of the store. */
static int each_entry(const struct store *store, const char *dir, void (*each)(void *ctx, const char *entry), void *ctx,
                      struct hutch_err *err)
{
    auto_fd fd = open_dir(store->dirfd, dir);
    struct dirent **entries = NULL;
    int n = fd < 0 ? -1 : scandirat(fd, ".", &entries, NULL, alphasort);

    if (n < 0)
        return hutch_err_set(err, errno, "read '%s/%s'", store->path, dir);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.')
            each(ctx, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return 0;
}

struct prefix_search {
    const char *prefix;
    char found[DIGEST_HEX + 1];
    unsigned n;
};

static void match_prefix(void *ctx, const char *entry)
{
    struct prefix_search *search = ctx;

    if (!hutch_digest_is_hex(entry) || strncmp(entry, search->prefix, strlen(search->prefix)) != 0)
        return;
    memcpy(search->found, entry, sizeof(search->found));
    search->n++;
}

struct name_list {
    const struct store *store;
    char text[256];
};

static void append_name(void *ctx, const char *entry)
{
    struct name_list *list = ctx;
    char hex[DIGEST_HEX + 1], name[MAX_NAME + 1];
    size_t len = strlen(list->text);

    if (!read_name(list->store, entry, hex))
        return;
    snprintf(name, sizeof(name), "%s", entry);
    for (char *p = name; *p; p++)
        if (*p == '%')
            *p = '/';
    if (len + strlen(name) + 8 < sizeof(list->text))
        snprintf(list->text + len, sizeof(list->text) - len, "%s%s", len ? ", " : "", name);
    else if (len + 5 < sizeof(list->text) && list->text[len - 1] != '.')
        memcpy(list->text + len, " ...", 5);
}

static int no_such_image(const struct store *store, const char *name, struct hutch_err *err)
{
    struct name_list list = { .store = store, .text = "" };

    if (each_entry(store, "names", append_name, &list, err) < 0)
        return -1;
    if (list.text[0])
        hutch_err_set(err, 0, "there is no image '%.80s' in the store; there are: %s (others are made with: hutch rootfs build FLAVOUR)",
                      name, list.text);
    else
        hutch_err_set(err, 0, "there is no image '%.80s' in '%s', which is empty; build the default one with: hutch rootfs build python",
                      name, store->path);
    err->errnum = ENOENT;
    return -1;
}

/* What @name stands for. @ret_file is the name as on disk, "" when it was a digest. */
static int resolve(const struct store *store, const char *name, char ret_hex[DIGEST_HEX + 1], char ret_file[MAX_NAME + 1],
                   struct hutch_err *err)
{
    struct prefix_search search = { .prefix = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name };
    char latest[MAX_NAME + 16];
    size_t len = strlen(search.prefix);

    if (is_name(name)) {
        encode_name(name, ret_file);
        if (read_name(store, ret_file, ret_hex))
            return 0;
        snprintf(latest, sizeof(latest), "%s:latest", name);
        if (is_name(latest)) {
            encode_name(latest, ret_file);
            if (read_name(store, ret_file, ret_hex))
                return 0;
        }
    }
    ret_file[0] = '\0';
    if (len < MIN_DIGEST_PREFIX || len > DIGEST_HEX || strspn(search.prefix, "0123456789abcdef") != len)
        return no_such_image(store, name, err);
    if (each_entry(store, "trees", match_prefix, &search, err) < 0)
        return -1;
    if (search.n == 0)
        return no_such_image(store, name, err);
    if (search.n > 1)
        return hutch_err_set(err, EINVAL, "'%s' is the beginning of %u digests", name, search.n);
    memcpy(ret_hex, search.found, DIGEST_HEX + 1);
    return 0;
}

/* --- finding ---------------------------------------------------------------------------------------------- */

/* Opens trees/@hex and locks it. A tree that is removed while we wait for the lock is no longer there. */
static int lock_tree(const struct store *store, const char *hex, int operation, int *ret_fd, struct hutch_err *err)
{
    char path[16 + DIGEST_HEX];
    struct stat held, there;
    auto_fd fd = -1;

    snprintf(path, sizeof(path), "trees/%s", hex);
    fd = open_dir(store->dirfd, path);
    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s/%s'", store->path, path);
    if (TEMP_FAILURE_RETRY(flock(fd, operation)) < 0) {
        if (errno == EWOULDBLOCK)
            return hutch_err_set(err, EBUSY, "image sha256:%.12s is in use by a running sandbox", hex);
        return hutch_err_set(err, errno, "lock '%s/%s'", store->path, path);
    }
    if (fstat(fd, &held) < 0 || fstatat(store->dirfd, path, &there, AT_SYMLINK_NOFOLLOW) < 0 || held.st_ino != there.st_ino ||
        held.st_dev != there.st_dev)
        return hutch_err_set(err, ENOENT, "image sha256:%.12s was removed just now", hex);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

int hutch_store_find(const struct store *store, const char *name, char **ret_path, int *ret_lockfd, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1], file[MAX_NAME + 1];
    auto_fd fd = -1;
    char *path;

    if (resolve(store, name, hex, file, err) < 0 || lock_tree(store, hex, LOCK_SH, &fd, err) < 0)
        return -1;
    if (asprintf(&path, "%s/trees/%s/root", store->path, hex) < 0)
        return hutch_err_set(err, ENOMEM, "find image '%s'", name);
    *ret_path = path;
    *ret_lockfd = hutch_fd_take(&fd);
    return 0;
}

/* --- listing ---------------------------------------------------------------------------------------------- */

static uint64_t json_number(const cJSON *json, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);

    return cJSON_IsNumber(value) && value->valuedouble >= 0 && value->valuedouble < 9e15 ? (uint64_t)value->valuedouble : 0;
}

/* Numbers for people; a file that is not readable leaves them 0. */
static void read_image_json(int tree_fd, struct store_image *image)
{
    struct hutch_err ignored;
    auto_free char *text = NULL;
    auto_fd fd = openat(tree_fd, "image.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    cJSON *json;
    size_t len;

    if (fd < 0 || hutch_fd_slurp(fd, MAX_IMAGE_JSON, "image.json", &text, &len, &ignored) < 0)
        return;
    json = cJSON_Parse(text);
    image->bytes = json_number(json, "bytes");
    image->entries = json_number(json, "entries");
    image->unpacked = (int64_t)json_number(json, "unpacked");
    cJSON_Delete(json);
}

static int write_image_json(int dirfd, const struct record_totals *totals, struct hutch_err *err)
{
    char text[256];
    auto_fd fd = openat(dirfd, "image.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int n = snprintf(text, sizeof(text), "{\"version\":1,\"bytes\":%llu,\"entries\":%llu,\"unpacked\":%lld}\n",
                     (unsigned long long)totals->bytes, (unsigned long long)totals->entries, (long long)time(NULL));

    if (fd < 0 || hutch_fd_write_all(fd, text, (size_t)n) < 0)
        return hutch_err_set(err, errno, "write 'image.json'");
    return 0;
}

struct listing {
    const struct store *store;
    struct store_image *images;
    size_t n;
    bool is_out_of_memory;
};

static void list_tree(void *ctx, const char *entry)
{
    struct listing *l = ctx;
    struct store_image *bigger;
    char path[16 + DIGEST_HEX];
    auto_fd fd = -1;

    if (!hutch_digest_is_hex(entry))
        return;
    bigger = reallocarray(l->images, l->n + 1, sizeof(*bigger));
    if (!bigger) {
        l->is_out_of_memory = true;
        return;
    }
    l->images = bigger;
    l->images[l->n] = (struct store_image){ .names = NULL };
    memcpy(l->images[l->n].digest, entry, DIGEST_HEX + 1);
    snprintf(path, sizeof(path), "trees/%s", entry);
    fd = open_dir(l->store->dirfd, path);
    if (fd >= 0)
        read_image_json(fd, &l->images[l->n]);
    l->n++;
}

static void list_name(void *ctx, const char *entry)
{
    struct listing *l = ctx;
    char hex[DIGEST_HEX + 1];

    if (!read_name(l->store, entry, hex))
        return;
    for (size_t i = 0; i < l->n; i++) {
        struct store_image *image = &l->images[i];
        char **bigger;

        if (strcmp(image->digest, hex) != 0)
            continue;
        bigger = reallocarray(image->names, image->n_names + 1, sizeof(*bigger));
        if (!bigger || !(bigger[image->n_names] = strdup(entry))) {
            l->is_out_of_memory = true;
            image->names = bigger ? bigger : image->names;
            return;
        }
        image->names = bigger;
        for (char *p = image->names[image->n_names]; *p; p++)
            if (*p == '%')
                *p = '/';
        image->n_names++;
    }
}

static int by_first_name(const void *a, const void *b)
{
    const struct store_image *x = a, *y = b;

    if ((x->n_names > 0) != (y->n_names > 0))
        return x->n_names > 0 ? -1 : 1;
    return x->n_names > 0 ? strcmp(x->names[0], y->names[0]) : strcmp(x->digest, y->digest);
}

int hutch_store_list(const struct store *store, struct store_image **ret, size_t *ret_n, struct hutch_err *err)
{
    struct listing l = { .store = store };
    int rc = each_entry(store, "trees", list_tree, &l, err);

    if (rc == 0)
        rc = each_entry(store, "names", list_name, &l, err);
    if (rc == 0 && l.is_out_of_memory)
        rc = hutch_err_set(err, ENOMEM, "list the images");
    if (rc < 0) {
        for (size_t i = 0; i < l.n; i++)
            hutch_store_image_done(&l.images[i]);
        free(l.images);
        return -1;
    }
    if (l.n > 0)
        qsort(l.images, l.n, sizeof(*l.images), by_first_name);
    *ret = l.images;
    *ret_n = l.n;
    return 0;
}

void hutch_store_image_done(struct store_image *image)
{
    for (size_t i = 0; i < image->n_names; i++)
        free(image->names[i]);
    free(image->names);
    *image = (struct store_image){ .names = NULL };
}

/* Fills @ret for the image @hex. */
static int describe(const struct store *store, const char *hex, struct store_image *ret, struct hutch_err *err)
{
    struct listing l = { .store = store };

    list_tree(&l, hex);
    if (each_entry(store, "names", list_name, &l, err) < 0 || l.is_out_of_memory || l.n != 1) {
        for (size_t i = 0; i < l.n; i++)
            hutch_store_image_done(&l.images[i]);
        free(l.images);
        return hutch_err_set(err, ENOMEM, "describe the image");
    }
    *ret = l.images[0];
    free(l.images);
    return 0;
}

/* --- unpacking -------------------------------------------------------------------------------------------- */

struct unpacking {
    const struct store_unpack *opts;
    const char *doing;
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

static int unpack_layers(const struct source *source, struct oci_image *image, int root_fd, struct unpacking *u, struct hutch_err *err)
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
    if (measure(source, image, &u->total, err) < 0)
        return -1;
    u->doing = "unpack";
    for (size_t i = 0; i < image->n_layers; i++) {
        if (hutch_layer_unpack(source, &image->layers[i], &tree, &budget, tell_progress, u, err) < 0)
            return -1;
        u->before += image->layers[i].size;
    }
    return hutch_tree_finish(&tree, err);
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
    return rc < 0 ? -1 : write_image_json(work->dirfd, &totals, err);
}

/* Makes what is in @work the tree @hex, unless another process was faster, and names it. */
static int commit(const struct store *store, const struct store_work *work, const char *hex, const char *name, struct hutch_err *err)
{
    char from[sizeof(work->name) + 16], to[16 + DIGEST_HEX];
    auto_fd lock = -1;
    bool is_new = false;

    if (lock_store(store, LOCK_EX, &lock, err) < 0)
        return -1;
    if (work && !has_tree(store, hex)) {
        snprintf(from, sizeof(from), "tmp/%s", work->name);
        snprintf(to, sizeof(to), "trees/%s", hex);
        if (renameat(store->dirfd, from, store->dirfd, to) < 0)
            return hutch_err_set(err, errno, "put the image into the store");
        is_new = true;
    }
    if (!has_tree(store, hex))
        return hutch_err_set(err, ENOENT, "the image was removed just now");
    if (!name || write_name(store, name, hex, err) == 0)
        return 0;
    if (is_new && renameat(store->dirfd, to, store->dirfd, from) < 0)
        return hutch_err_wrap(err, "the image is in the store, but without its name");
    return -1;
}

int hutch_store_unpack(const struct store *store, const char *archive, const struct store_unpack *opts, struct store_image *ret,
                       struct hutch_err *err)
{
    __attribute__((cleanup(hutch_oci_image_done))) struct oci_image image = OCI_IMAGE_INIT;
    auto_source source = SOURCE_INIT;
    auto_work work = STORE_WORK_INIT;
    struct unpacking u = { .opts = opts };
    const char *name = opts->name;
    auto_fd root = -1;

    if (name && !is_name(name))
        return hutch_err_set(err, 0, "'%.80s' cannot be an image's name (letters, digits, and \"._-/:@\" after the first)", name);
    if (hutch_store_work_begin(store, &work, err) < 0 ||
        hutch_source_open(archive, work.dirfd, opts->max_bytes ? opts->max_bytes : STORE_MAX_BYTES, &source, err) < 0 ||
        hutch_oci_image_read(&source, &image, err) < 0)
        return -1;
    if (!name && image.name && is_name(image.name))
        name = image.name;
    if (has_tree(store, image.digest)) {
        if (commit(store, NULL, image.digest, name, err) < 0)
            return hutch_err_wrap(err, "unpack '%s'", archive);
        return ret ? describe(store, image.digest, ret, err) : 0;
    }
    if (mkdirat(work.dirfd, "root", 0700) < 0)
        return hutch_err_set(err, errno, "create a root tree in '%s'", store->path);
    root = open_dir(work.dirfd, "root");
    if (root < 0)
        return hutch_err_set(err, errno, "open a root tree in '%s'", store->path);
    if (unpack_layers(&source, &image, root, &u, err) < 0 || write_record(&work, root, &u, err) < 0 ||
        commit(store, &work, image.digest, name, err) < 0)
        return hutch_err_wrap(err, "unpack '%s'", archive);
    return ret ? describe(store, image.digest, ret, err) : 0;
}

/* --- verifying, removing ---------------------------------------------------------------------------------- */

struct verifying {
    store_difference_fn *difference;
    store_progress_fn *progress;
    void *ctx;
    uint64_t total;
};

static int verify_progress(void *ctx, uint64_t bytes)
{
    struct verifying *v = ctx;

    return v->progress ? v->progress(v->ctx, "verify", bytes, v->total) : 0;
}

static void verify_difference(void *ctx, const char *what, const char *path)
{
    struct verifying *v = ctx;

    if (v->difference)
        v->difference(v->ctx, what, path);
}

int hutch_store_verify(const struct store *store, const char *name, uint64_t *ret_n, store_difference_fn *difference,
                       store_progress_fn *progress, void *ctx, struct hutch_err *err)
{
    struct verifying v = { .difference = difference, .progress = progress, .ctx = ctx };
    char hex[DIGEST_HEX + 1], file[MAX_NAME + 1];
    struct store_image image = { .names = NULL };
    auto_fd tree = -1, root = -1, fd = -1;
    FILE *in;
    int rc;

    if (resolve(store, name, hex, file, err) < 0 || lock_tree(store, hex, LOCK_SH, &tree, err) < 0)
        return -1;
    read_image_json(tree, &image);
    v.total = image.bytes;
    root = open_dir(tree, "root");
    fd = openat(tree, "record", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    in = root < 0 || fd < 0 ? NULL : fdopen(fd, "r");
    if (!in)
        return hutch_err_set(err, errno, "open the tree and the record of image '%s'", name);
    hutch_fd_take(&fd);
    rc = hutch_record_verify(root, in, ret_n, verify_difference, verify_progress, &v, err);
    fclose(in);
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

int hutch_store_remove(const struct store *store, const char *name, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1], file[MAX_NAME + 1], tree[16 + DIGEST_HEX], gone[128];
    auto_fd lock = -1, held = -1, names = -1, tmp = -1;
    struct unnaming u = { .store = store, .hex = hex, .is_dry = true };

    if (lock_store(store, LOCK_EX, &lock, err) < 0 || resolve(store, name, hex, file, err) < 0)
        return -1;
    names = open_dir(store->dirfd, "names");
    tmp = open_dir(store->dirfd, "tmp");
    if (names < 0 || tmp < 0)
        return hutch_err_set(err, errno, "open the store '%s'", store->path);
    u.names_fd = names;
    if (each_entry(store, "names", unname, &u, err) < 0)
        return -1;
    if (file[0] && u.n > 1) { /* only a name */
        if (unlinkat(names, file, 0) < 0)
            return hutch_err_set(err, errno, "remove the name '%s'", name);
        return 0;
    }
    if (lock_tree(store, hex, LOCK_EX | LOCK_NB, &held, err) < 0)
        return hutch_err_wrap(err, "remove image '%s'", name);
    snprintf(tree, sizeof(tree), "trees/%s", hex);
    snprintf(gone, sizeof(gone), "%ld-%s", (long)getpid(), hex);
    if (renameat(store->dirfd, tree, tmp, gone) < 0)
        return hutch_err_set(err, errno, "remove image '%s'", name);
    u.is_dry = false;
    if (each_entry(store, "names", unname, &u, err) < 0)
        return -1;
    /* Gone from here on. The files take their time, without the store's lock; @held keeps others from sweeping them. */
    hutch_fd_closep(&lock);
    return hutch_rmtree(tmp, gone, err);
}
