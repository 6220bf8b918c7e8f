#include "runtime/data/files.h"

#include "runtime/data/changes.h"
#include "sandbox/fd.h"
#include "runtime/text/json_write.h"
#include "sandbox/opath.h"
#include "sandbox/rmtree.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MAX_SWAPS 16 /* times that a name may turn out to be something else than a moment before */

/* ---- names ---- */

const char *hutch_files_quote(const char *name, char buf[FILES_QUOTED])
{
    static const char hex[] = "0123456789abcdef";
    char all[4 * 64 + 1], *to = all;
    size_t len = strlen(name), head = len > 60 ? 30 : len;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];

        if (i == head && len > 60) { /* at worst 4 * 30 + 3, cut below */
            to = mempcpy(to, "...", 3);
            i = len - 30;
            c = (unsigned char)name[i];
        }
        if (c >= 0x20 && c < 0x7f && c != '\\' && c != '\'') {
            *to++ = (char)c;
        } else {
            *to++ = '\\';
            *to++ = 'x';
            *to++ = hex[c >> 4];
            *to++ = hex[c & 15];
        }
    }
    *to = '\0';
    len = (size_t)(to - all);
    if (len < FILES_QUOTED)
        return memcpy(buf, all, len + 1);
    memcpy(buf, all, 60);
    memcpy(buf + 60, "...", 3);
    memcpy(buf + 63, to - 60, 61);
    return buf;
}

int hutch_files_check_name(const char *name, struct hutch_err *err)
{
    char quoted[FILES_QUOTED];
    const char *p = name;

    if (!name[0])
        return hutch_err_say(err, EINVAL, "the name of a file is empty");
    if (strlen(name) >= PATH_MAX)
        return hutch_err_say(err, ENAMETOOLONG, "the name of a file has %zu bytes, more than %d", strlen(name),
                             PATH_MAX - 1);
    if (name[0] == '/')
        return hutch_err_say(err, EINVAL, "'%s' is not below the data directory: give a relative name",
                             hutch_files_quote(name, quoted));
    while (*p) {
        size_t len = strcspn(p, "/");

        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return hutch_err_say(err, EINVAL, "'%s' has a part that is empty, '.' or '..'",
                                 hutch_files_quote(name, quoted));
        p += len;
        if (*p == '/' && !*++p)
            return hutch_err_say(err, EINVAL, "'%s' ends in '/'", hutch_files_quote(name, quoted));
    }
    return 0;
}

/* Fails with the sentence for what the kernel said of @name. */
static int refuse(const char *doing, const char *name, int errnum, struct hutch_err *err)
{
    char quoted[FILES_QUOTED];

    hutch_files_quote(name, quoted);
    switch (errnum) {
    case ELOOP:
        return hutch_err_say(err, ELOOP, "%s '%s': it is a symbolic link, or behind one", doing, quoted);
    case EXDEV:
        return hutch_err_say(err, EXDEV, "%s '%s': something else is mounted there", doing, quoted);
    case EWOULDBLOCK:
        return hutch_err_say(err, EAGAIN, "%s '%s': a process inside holds on to it", doing, quoted);
    case ENXIO: /* a FIFO without a reader, a socket */
        return hutch_err_set(err, 0, "%s '%s': it is not a regular file", doing, quoted);
    default:
        return hutch_err_set(err, errnum, "%s '%s'", doing, quoted);
    }
}

int hutch_files_open_beneath(int dirfd, const char *name, uint64_t flags, mode_t mode)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
}

/* The directory that @name is in, and its last part. */
static int open_parent(int dirfd, const char *name, int *ret_fd, const char **ret_last)
{
    const char *slash = strrchr(name, '/');
    auto_free char *path = slash ? strndup(name, (size_t)(slash - name)) : strdup(".");
    int fd;

    if (!path) {
        errno = ENOMEM;
        return -1;
    }
    fd = hutch_files_open_beneath(dirfd, path, O_PATH | O_DIRECTORY, 0);
    if (fd < 0)
        return -1;
    *ret_fd = fd;
    *ret_last = slash ? slash + 1 : name;
    return 0;
}

/* ---- list ---- */

/* Seconds, exact to the millisecond, before 1970 too. */
static bool add_mtime(cJSON *object, int64_t ns)
{
    int64_t ms = ns / 1000000 - (ns % 1000000 < 0);
    uint64_t size = ms < 0 ? -(uint64_t)ms : (uint64_t)ms;
    char digits[32];

    snprintf(digits, sizeof(digits), "%s%llu.%03u", ms < 0 ? "-" : "", (unsigned long long)(size / 1000),
             (unsigned)(size % 1000));
    return hutch_json_add(object, "mtime", cJSON_CreateRaw(digits));
}

int hutch_files_list(int dirfd, const struct collect_bounds *bounds, char **ret_json, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_file_changes_done))) struct file_changes found = FILE_CHANGES_INIT;
    cJSON *array;
    char *json = NULL;

    if (hutch_collect_list(dirfd, bounds, &found, err) < 0)
        return -1;
    if (found.truncated)
        return hutch_err_set(err, E2BIG,
                             "list the data directory: more than %zu files, or longer names, than can be listed",
                             bounds->max_listed);
    array = cJSON_CreateArray();
    for (size_t i = 0; array && i < found.added.n; i++) {
        const struct file_change *f = &found.added.items[i];
        cJSON *object = cJSON_CreateObject();

        cJSON_AddItemToArray(array, object);
        if (!object || !hutch_json_add_path(object, f->path) || !hutch_json_add_u64(object, "size", f->size) ||
            !hutch_json_add_string(object, "mime", f->mime) ||
            !hutch_json_add_string(object, "type", hutch_file_type_name(f->type)) || !add_mtime(object, f->mtime_ns)) {
            cJSON_Delete(array);
            array = NULL;
        }
    }
    if (array)
        json = cJSON_PrintUnformatted(array);
    cJSON_Delete(array);
    if (!json)
        return hutch_err_set(err, ENOMEM, "list %zu files of the data directory", found.added.n);
    *ret_json = json;
    return 0;
}

static bool add_changes(cJSON *files, const char *key, const struct file_change_list *list, bool is_there)
{
    cJSON *array = hutch_json_add_new(files, key, cJSON_CreateArray());

    if (array == NULL)
        return false;
    for (size_t i = 0; i < list->n; i++) {
        const struct file_change *change = &list->items[i];
        cJSON *object = cJSON_CreateObject();

        if (object == NULL)
            return false;
        cJSON_AddItemToArray(array, object);
        if (!hutch_json_add_path(object, change->path))
            return false;
        if (is_there &&
            (!hutch_json_add_u64(object, "size", change->size) || !hutch_json_add_string(object, "mime", change->mime)))
            return false;
        if (change->type != FILE_REGULAR && !hutch_json_add_string(object, "type", hutch_file_type_name(change->type)))
            return false;
    }
    return true;
}

bool hutch_files_add_changes(cJSON *object, const struct file_changes *changes)
{
    return add_changes(object, "added", &changes->added, true) &&
           add_changes(object, "modified", &changes->modified, true) &&
           add_changes(object, "deleted", &changes->deleted, false) &&
           hutch_json_add_bool(object, "truncated", changes->truncated);
}

/* ---- open ---- */

static int open_to_read(int dirfd, const char *name, int *ret_fd, struct hutch_err *err)
{
    char quoted[FILES_QUOTED];
    struct stat st;
    /* nonblocking: neither a FIFO nor a lease, fcntl(2), is waited for */
    auto_fd fd = hutch_files_open_beneath(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);

    if (fd < 0)
        return refuse("read", name, errno, err);
    if (fstat(fd, &st) < 0)
        return refuse("read", name, errno, err);
    if (S_ISDIR(st.st_mode))
        return refuse("read", name, EISDIR, err);
    if (!S_ISREG(st.st_mode))
        return hutch_err_set(err, 0, "read '%s': it is not a regular file", hutch_files_quote(name, quoted));
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

/* Gives what root made to the owner of the data directory. Anybody else is that owner, or cannot give anything away.
 * @fd: O_PATH is fine. */
static int give(int fd, const struct stat *top, mode_t mode)
{
    if (geteuid() == 0 && fchownat(fd, "", top->st_uid, top->st_gid, AT_EMPTY_PATH) < 0)
        return -1;
    return hutch_opath_chmod(fd, mode); /* whatever the caller's umask is */
}

/* Goes down to the directory that @name is in, and makes what is missing on the way. */
static int make_parents(int dirfd, const char *name, const struct stat *top, int *ret_fd, const char **ret_last)
{
    auto_fd fd = hutch_files_open_beneath(dirfd, ".", O_PATH | O_DIRECTORY, 0);
    const char *p = name, *slash;

    if (fd < 0)
        return -1;
    for (; (slash = strchr(p, '/')) != NULL; p = slash + 1) {
        char part[NAME_MAX + 1];
        bool is_new;
        int next;

        if ((size_t)(slash - p) > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        *(char *)mempcpy(part, p, (size_t)(slash - p)) = '\0';
        is_new = mkdirat(fd, part, 0755) == 0;
        if (!is_new && errno != EEXIST)
            return -1;
        next = hutch_files_open_beneath(fd, part, O_PATH | O_DIRECTORY, 0);
        if (next < 0)
            return -1;
        close(fd);
        fd = next;
        if (is_new && give(fd, top, 0755) < 0)
            return -1;
    }
    *ret_fd = hutch_fd_take(&fd);
    *ret_last = p;
    return 0;
}

/* A new file, never one that is there: whoever holds that keeps what it has, its other names keep their contents, its
 * mode cannot be in the way, and a link has nothing to point the writing to. */
static int open_to_write(int dirfd, const char *name, int *ret_fd, struct hutch_err *err)
{
    char quoted[FILES_QUOTED];
    auto_fd parent = -1, fd = -1;
    struct stat top, st;
    const char *last;

    if (fstat(dirfd, &top) < 0)
        return refuse("write", name, errno, err);
    if (make_parents(dirfd, name, &top, &parent, &last) < 0)
        return refuse("write", name, errno, err);
    for (int i = 0; i < MAX_SWAPS; i++) {
        fd = hutch_files_open_beneath(parent, last, O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK | O_NOCTTY, 0644);
        if (fd >= 0)
            break;
        if (errno != EEXIST)
            return refuse("write", name, errno, err);
        if (fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
            if (errno == ENOENT)
                continue;
            return refuse("write", name, errno, err);
        }
        if (S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
            return refuse("write", name, S_ISDIR(st.st_mode) ? EISDIR : ELOOP, err);
        if (!S_ISREG(st.st_mode))
            return hutch_err_set(err, 0, "write '%s': it is not a regular file", hutch_files_quote(name, quoted));
        if (unlinkat(parent, last, 0) < 0 && errno != ENOENT)
            return refuse("write", name, errno, err);
    }
    if (fd < 0)
        return hutch_err_say(err, EAGAIN, "write '%s', which keeps changing", hutch_files_quote(name, quoted));
    if (give(fd, &top, 0644) < 0)
        return refuse("give away", name, errno, err);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

int hutch_files_open(int dirfd, const char *name, int flags, int *ret_fd, struct hutch_err *err)
{
    if (flags != O_RDONLY && flags != O_WRONLY)
        return hutch_err_say(err, EINVAL, "a file is opened with O_RDONLY or O_WRONLY, and not with %#x",
                             (unsigned)flags);
    if (hutch_files_check_name(name, err) < 0)
        return -1;
    return flags == O_RDONLY ? open_to_read(dirfd, name, ret_fd, err) : open_to_write(dirfd, name, ret_fd, err);
}

/* ---- delete, copy ---- */

int hutch_files_delete(int dirfd, const char *name, struct hutch_err *err)
{
    char quoted[FILES_QUOTED];
    auto_fd parent = -1;
    struct hutch_err why;
    const char *last;
    struct stat st;

    if (hutch_files_check_name(name, err) < 0)
        return -1;
    if (open_parent(dirfd, name, &parent, &last) < 0 ||
        fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return refuse("delete", name, errno, err);
    if (hutch_rmtree(parent, last, &why) < 0) /* whose message has names as they are */
        return hutch_err_set(err, why.errnum, "delete '%s', or something in it", hutch_files_quote(name, quoted));
    return 0;
}
