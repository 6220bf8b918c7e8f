#include "rootfs/store_priv.h"

#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "rootfs/home.h"
#include "sandbox/rmtree.h"

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

#define MIN_DIGEST_PREFIX 6

int hutch_store_lock(const struct store *store, int operation, int *ret_fd, struct hutch_err *err)
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
    int fd = hutch_store_open_dir(store->dirfd, "tmp");
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
        /* Held so that no other process is between making a directory and locking it. */
        if (lock < 0 && hutch_store_lock(store, LOCK_EX | LOCK_NB, &lock, &ignored) < 0)
            break;
        work = hutch_store_open_dir(fd, de->d_name);
        if (work >= 0 && flock(work, LOCK_EX | LOCK_NB) < 0)
            continue;
        if (hutch_rmtree(fd, de->d_name, &ignored) < 0)
            continue;
    }
    closedir(tmp);
}

/* Asks ext2-4 to put each directory below @name into a part of the disk of its own, as it does for those of "/": ext4
 * looks at every inode that was freed in the last minutes before it hands one out, so that a tree unpacked where
 * another was just removed takes ten times as long (seen with Linux 6.18: 8.4 s instead of 0.8 s for 10,000 files).
 * ioctl_iflags(2). */
static void spread_children(int dirfd, const char *name)
{
    auto_fd fd = hutch_store_open_dir(dirfd, name);
    int flags;

    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        return;
    flags |= FS_TOPDIR_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
        return; /* another file system, which need not have the problem either */
}

int hutch_store_open(const char *home, struct store *ret, struct hutch_err *err)
{
    static const char *const below[] = { "names", "trees", "layers", "requests", "tmp" };
    auto_free char *real = NULL;
    auto_fd home_fd = -1, dirfd = -1;
    char *path;

    if (hutch_home_create(home, &home_fd, &real, err) < 0)
        return -1;
    if (mkdirat(home_fd, "images", 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "create '%s/images'", real);
    dirfd = hutch_store_open_dir(home_fd, "images");
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

int hutch_store_open_shared(const char *path, struct store *ret, struct hutch_err *err)
{
    auto_free char *real = realpath(path, NULL);
    auto_fd dirfd = real ? open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    auto_fd names = dirfd < 0 ? -1 : hutch_store_open_dir(dirfd, "names");
    auto_fd trees = names < 0 ? -1 : hutch_store_open_dir(dirfd, "trees");

    if (trees < 0)
        return hutch_err_set(err, errno, "there is no store of images that can be read at '%.200s'", path);
    *ret = (struct store){ .path = real, .dirfd = hutch_fd_take(&dirfd), .is_shared = true };
    real = NULL;
    return 0;
}

int hutch_store_dup(const struct store *store, struct store *ret, struct hutch_err *err)
{
    auto_free char *path = strdup(store->path);
    auto_fd dirfd = fcntl(store->dirfd, F_DUPFD_CLOEXEC, 3);

    if (!path || dirfd < 0)
        return hutch_err_set(err, path ? errno : ENOMEM, "open the store '%s'", store->path);
    *ret = (struct store){ .path = path, .dirfd = hutch_fd_take(&dirfd), .is_shared = store->is_shared };
    path = NULL;
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
    auto_fd tmp = hutch_store_open_dir(store->dirfd, "tmp");
    auto_fd lock = -1;
    uint64_t random;

    if (tmp < 0)
        return hutch_err_set(err, errno, "open '%s/tmp'", store->path);
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return hutch_err_set(err, errno, "get random bytes");
    snprintf(work.name, sizeof(work.name), "%ld-%016llx", (long)getpid(), (unsigned long long)random);
    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0)
        return -1;
    if (mkdirat(tmp, work.name, 0700) < 0)
        return hutch_err_set(err, errno, "create '%s/tmp/%s'", store->path, work.name);
    work.dirfd = hutch_store_open_dir(tmp, work.name);
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
    auto_fd tmp = work->store ? hutch_store_open_dir(work->store->dirfd, "tmp") : -1;

    /* When it fails, the next start tries again. */
    if (tmp >= 0 && hutch_rmtree(tmp, work->name, &ignored) < 0)
        work->name[0] = '\0';
    hutch_fd_closep(&work->dirfd);
    work->store = NULL;
}

/* --- names ------------------------------------------------------------------------------------------------ */

bool hutch_store_is_name(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    static const char more[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@";
    size_t len = strlen(name);

    return len > 0 && len <= STORE_MAX_NAME && strchr(first, name[0]) && strspn(name, more) == len;
}

void hutch_store_encode_name(const char *name, char ret[STORE_MAX_NAME + 1])
{
    size_t i;

    for (i = 0; i < STORE_MAX_NAME && name[i]; i++)
        ret[i] = name[i] == '/' ? '%' : name[i];
    ret[i] = '\0';
}

bool hutch_store_decode_name(const char *entry, char ret[STORE_MAX_NAME + 1])
{
    if (snprintf(ret, STORE_MAX_NAME + 1, "%s", entry) > STORE_MAX_NAME)
        return false;
    for (char *p = ret; *p; p++)
        if (*p == '%')
            *p = '/';
    return hutch_store_is_name(ret);
}

bool hutch_store_has_tree(const struct store *store, const char *hex)
{
    char path[16 + DIGEST_HEX];
    struct stat st;

    snprintf(path, sizeof(path), "trees/%s", hex);
    return fstatat(store->dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

bool hutch_store_read_name(const struct store *store, const char *file, char ret_hex[DIGEST_HEX + 1])
{
    char text[DIGEST_HEX + 16];
    auto_fd names = hutch_store_open_dir(store->dirfd, "names");
    auto_fd fd = names < 0 ? -1 : openat(names, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, text, sizeof(text) - 1);

    if (n <= 0)
        return false;
    text[n] = '\0';
    if (text[n - 1] == '\n')
        text[n - 1] = '\0';
    return hutch_digest_parse(text, ret_hex) && hutch_store_has_tree(store, ret_hex);
}

int hutch_store_each_entry(const struct store *store, const char *dir, void (*each)(void *ctx, const char *entry),
                           void *ctx, struct hutch_err *err)
{
    auto_fd fd = hutch_store_open_dir(store->dirfd, dir);
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
    char *text;
    size_t size;
};

static void append_name(void *ctx, const char *entry)
{
    struct name_list *list = ctx;
    char hex[DIGEST_HEX + 1], name[STORE_MAX_NAME + 1];
    size_t len = strlen(list->text);

    if (!hutch_store_decode_name(entry, name) || !hutch_store_read_name(list->store, entry, hex))
        return;
    if (len + strlen(name) + 8 < list->size)
        snprintf(list->text + len, list->size - len, "%s%s", len ? ", " : "", name);
    else if (len + 5 < list->size && list->text[len - 1] != '.')
        memcpy(list->text + len, " ...", 5);
}

int hutch_store_append_names(const struct store *store, char *text, size_t size, struct hutch_err *err)
{
    struct name_list list = { .store = store, .text = text, .size = size };

    return hutch_store_each_entry(store, "names", append_name, &list, err);
}

static int no_such_image(const struct store *store, const char *name, struct hutch_err *err)
{
    char names[256] = "";

    if (hutch_store_append_names(store, names, sizeof(names), err) < 0)
        return -1;
    if (names[0])
        hutch_err_set(
            err, 0,
            "there is no image '%.80s' in the store; there are: %s (others come by: hutch rootfs build, pull or "
            "unpack)", name, names);
    else
        hutch_err_set(
            err, 0,
            "there is no image '%.80s' in '%s', which is empty; build the default one with: hutch rootfs build python",
            name, store->path);
    err->errnum = ENOENT;
    return -1;
}

int hutch_store_resolve(const struct store *store, const char *name, char ret_hex[DIGEST_HEX + 1],
                        char ret_file[STORE_MAX_NAME + 1], struct hutch_err *err)
{
    struct prefix_search search = { .prefix = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name };
    char latest[STORE_MAX_NAME + 16];
    size_t len = strlen(search.prefix);

    if (hutch_store_is_name(name)) {
        hutch_store_encode_name(name, ret_file);
        if (hutch_store_read_name(store, ret_file, ret_hex))
            return 0;
        snprintf(latest, sizeof(latest), "%s:latest", name);
        if (hutch_store_is_name(latest)) {
            hutch_store_encode_name(latest, ret_file);
            if (hutch_store_read_name(store, ret_file, ret_hex))
                return 0;
        }
    }
    ret_file[0] = '\0';
    if (len < MIN_DIGEST_PREFIX || len > DIGEST_HEX || strspn(search.prefix, "0123456789abcdef") != len)
        return no_such_image(store, name, err);
    if (hutch_store_each_entry(store, "trees", match_prefix, &search, err) < 0)
        return -1;
    if (search.n == 0)
        return no_such_image(store, name, err);
    if (search.n > 1)
        return hutch_err_set(err, EINVAL, "'%s' is the beginning of %u digests", name, search.n);
    memcpy(ret_hex, search.found, DIGEST_HEX + 1);
    return 0;
}

/* --- finding ---------------------------------------------------------------------------------------------- */

/* Every reader of a shared tree may hold any lock of it. Its owner holds one against readers for a moment only, while
 * the tree is renamed; so after that time a reader goes on without. */
static int lock_for_reading(int fd)
{
    const struct timespec pause = { .tv_nsec = 10000000 };

    for (int turn = 0; turn < 200; turn++) {
        if (TEMP_FAILURE_RETRY(flock(fd, LOCK_SH | LOCK_NB)) == 0)
            return 0;
        if (errno != EWOULDBLOCK)
            return -1;
        nanosleep(&pause, NULL);
    }
    hutch_log_debug("store: another process has held a lock of the tree for two seconds: going on without");
    return 0;
}

/* @what it is, for messages. */
static int lock_directory(const struct store *store, const char *path, const char *what, int operation, int *ret_fd,
                          struct hutch_err *err)
{
    struct stat held, there;
    auto_fd fd = hutch_store_open_dir(store->dirfd, path);

    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s/%s'", store->path, path);
    /* A network file system may know no locks; then the owner may remove what is in use. */
    if ((operation == LOCK_SH ? lock_for_reading(fd) : TEMP_FAILURE_RETRY(flock(fd, operation))) < 0 &&
        !(store->is_shared && (errno == ENOLCK || errno == EOPNOTSUPP || errno == EINVAL))) {
        if (errno == EWOULDBLOCK)
            return hutch_err_set(err, EBUSY, "%s is in use by a running sandbox", what);
        return hutch_err_set(err, errno, "lock '%s/%s'", store->path, path);
    }
    if (fstat(fd, &held) < 0 || fstatat(store->dirfd, path, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
        held.st_ino != there.st_ino || held.st_dev != there.st_dev)
        return hutch_err_set(err, ENOENT, "%s was removed just now", what);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

int hutch_store_lock_tree(const struct store *store, const char *hex, int operation, int *ret_fd, struct hutch_err *err)
{
    char path[16 + DIGEST_HEX], what[32];

    snprintf(path, sizeof(path), "trees/%s", hex);
    snprintf(what, sizeof(what), "image sha256:%.12s", hex);
    return lock_directory(store, path, what, operation, ret_fd, err);
}

int hutch_store_lock_layer(const struct store *store, const char *hex, int operation, int *ret_fd,
                           struct hutch_err *err)
{
    char path[16 + DIGEST_HEX], what[32];

    snprintf(path, sizeof(path), "layers/%s", hex);
    snprintf(what, sizeof(what), "layer sha256:%.12s", hex);
    return lock_directory(store, path, what, operation, ret_fd, err);
}

int hutch_store_find_layer(const struct store *store, const char *hex, char **ret_path, int *ret_lockfd,
                           struct hutch_err *err)
{
    auto_fd fd = -1;
    char *path;

    if (hutch_store_lock_layer(store, hex, LOCK_SH, &fd, err) < 0)
        return -1;
    if (asprintf(&path, "%s/layers/%s/root", store->path, hex) < 0)
        return hutch_err_set(err, ENOMEM, "find layer '%s'", hex);
    *ret_path = path;
    *ret_lockfd = hutch_fd_take(&fd);
    return 0;
}

/* --- requests --------------------------------------------------------------------------------------------- */

/* A name for the file of a request. It need not be a digest, which would bring libcrypto along: the file has the whole
 * request, and one that is another's is not taken. FNV-1a, twice with different beginnings. */
void hutch_store_name_request(const char *text, char ret[STORE_REQUEST_NAME])
{
    uint64_t a = 0xcbf29ce484222325, b = 0x84222325cbf29ce4;

    for (; *text; text++) {
        a = (a ^ (unsigned char)*text) * 0x100000001b3;
        b = (b ^ (unsigned char)*text) * 0x100000001b3;
    }
    snprintf(ret, STORE_REQUEST_NAME, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

bool hutch_store_find_request(const struct store *store, const char *text, char ret_hex[DIGEST_HEX + 1])
{
    char path[16 + STORE_REQUEST_NAME], name[STORE_REQUEST_NAME];
    struct hutch_err ignored;
    auto_free char *known = NULL;
    auto_fd fd = -1;
    char *end;
    size_t len;

    hutch_store_name_request(text, name);
    snprintf(path, sizeof(path), "requests/%s", name);
    fd = openat(store->dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || hutch_fd_slurp(fd, STORE_MAX_REQUEST, path, &known, &len, &ignored) < 0 || strlen(known) != len)
        return false;
    end = strchr(known, '\n');
    if (!end)
        return false;
    *end = '\0';
    return strcmp(end + 1, text) == 0 && hutch_digest_parse(known, ret_hex) && hutch_store_has_tree(store, ret_hex);
}

int hutch_store_find(const struct store *store, const char *name, char **ret_path, int *ret_lockfd,
                     struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1];
    auto_fd fd = -1;
    char *path;

    if (hutch_store_resolve(store, name, hex, file, err) < 0 ||
        hutch_store_lock_tree(store, hex, LOCK_SH, &fd, err) < 0)
        return -1;
    if (asprintf(&path, "%s/trees/%s/root", store->path, hex) < 0)
        return hutch_err_set(err, ENOMEM, "find image '%s'", name);
    *ret_path = path;
    *ret_lockfd = hutch_fd_take(&fd);
    return 0;
}
