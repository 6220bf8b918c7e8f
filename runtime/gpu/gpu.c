#include "runtime/gpu/gpu.h"

#include "runtime/gpu/cdi.h"
#include "runtime/gpu/ioctls.h"
#include "runtime/gpu/ldcache.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/spec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIBRARY_CACHE "/etc/ld.so.cache"
#define MODULE_VERSION "/proc/driver/nvidia/version"
#define BIN_DIR GPU_DIR "/bin"
#define CDI_KIND "nvidia.com/gpu"
#define MAX_NODES 256 /* of one directory, and so of GPUs */
#define MAX_CDI_FILES 64
#define MAX_VERSION 32

/* Those for computing and for looking after GPUs (the toolkit's "compute" and "utility"), without the number of their
 * interface. libnvidia-nvvm alone has another one than 1 or its version. */
static const char *const libraries[] = {
    "libcuda",              "libnvidia-ml",          "libnvidia-ptxjitcompiler", "libnvidia-nvvm",
    "libnvidia-gpucomp",    "libnvidia-opencl",      "libnvidia-compiler",       "libnvidia-allocator",
    "libcudadebugger",      "libnvidia-cfg",         "libnvidia-nscq",           "libnvidia-fatbinaryloader",
    "libnvidia-pkcs11",     "libnvidia-pkcs11-openssl3", "libnvidia-tileiras",
};
/* Where the libraries are that the cache does not know, as those of a driver in a place of its own. */
static const char *const library_dirs[] = {
#if defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu/nvidia/current",
#else
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current",
#endif
    "/usr/lib64", "/usr/lib", "/run/opengl-driver/lib",
};
static const char *const programs[] = { "/usr/bin/nvidia-smi", "/run/current-system/sw/bin/nvidia-smi" };
static const char *const cdi_dirs[] = { "/var/run/cdi", "/etc/cdi" };

struct search {
    struct sandbox_spec *spec;
    const char *root;
    int root_fd;      /* owned */
    bool is_host;     /* root is "/" */
    bool has_gpu, has_control, has_uvm, has_cuda;
    char driver[MAX_VERSION]; /* of the libraries; empty: not known */
    char from[PATH_MAX];
    size_t n_left_out;        /* what a specification names, and is not for a sandbox */
    struct text_buffer devices, files; /* JSON */
};

/* --- files of the host ------------------------------------------------------------------------------------------ */

/* Links are followed within the root. @real has room for PATH_MAX bytes, and gets the path that is mounted. -1 with
 * errno. */
static int look_at(const struct search *s, const char *path, struct stat *st, char *real)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = (int)syscall(SYS_openat2, s->root_fd, path, &how, sizeof(how));
    char self[32];
    ssize_t n;

    if (fd < 0 || fstat(fd, st) < 0)
        return -1;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, real, PATH_MAX - 1);
    if (n < 0)
        return -1;
    real[n] = '\0';
    return 0;
}

/* NULL with errno ENOENT: it is not there; all else is an error. */
static int slurp(const struct search *s, const char *path, size_t max, struct stat *st, char **ret, size_t *ret_len,
                 struct hutch_err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = (int)syscall(SYS_openat2, s->root_fd, path, &how, sizeof(how));

    if (fd < 0 || fstat(fd, st) < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (!S_ISREG(st->st_mode))
        return hutch_err_set(err, 0, "'%s' is not a file", path);
    return hutch_fd_slurp(fd, max, path, ret, ret_len, err);
}

static bool is_missing(const struct hutch_err *err)
{
    return err->errnum == ENOENT || err->errnum == ENOTDIR;
}

static void list(struct text_buffer *to, const char *text)
{
    if (to->len)
        hutch_text_add_string(to, ",");
    hutch_json_quote(to, text, strlen(text));
}

static struct sandbox_mount *add_bind(struct search *s, const char *real, const struct stat *st, const char *target,
                                      unsigned flags, struct hutch_err *err)
{
    struct sandbox_mount *m = hutch_spec_add_mount(s->spec, MOUNT_BIND, real, target,
                                                   MOUNT_RDONLY | MOUNT_PUBLIC | flags, err);

    if (m) {
        m->dev = st->st_dev;
        m->ino = st->st_ino;
    }
    return m;
}

/* --- nodes ------------------------------------------------------------------------------------------------------ */

static bool is_numbered(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(name, prefix, len) == 0 && name[len] && strlen(name + len) <= 4 &&
           strspn(name + len, "0123456789") == strlen(name + len);
}

/* Whether a sandbox may be handed the node at @path: those of NVIDIA's drivers, by their names. */
static bool is_known_node(const struct search *s, const char *path)
{
    const char *name = strncmp(path, "/dev/", 5) == 0 ? path + 5 : "";

    return strcmp(name, "nvidiactl") == 0 || strcmp(name, "nvidia-uvm") == 0 || strcmp(name, "nvidia-uvm-tools") == 0 ||
           (strcmp(name, "nvidia-modeset") == 0 && s->spec->gpu == GPU_MODESET) || is_numbered(name, "nvidia") ||
           is_numbered(name, "nvidia-caps/nvidia-cap");
}

static void note_node(struct search *s, const char *path)
{
    s->has_gpu |= is_numbered(path, "/dev/nvidia");
    s->has_control |= strcmp(path, "/dev/nvidiactl") == 0;
    s->has_uvm |= strcmp(path, "/dev/nvidia-uvm") == 0;
    list(&s->devices, path);
}

/* 0 where it is not there, too. The code inside is another user than any of the host's, so a node has to be open to
 * all; those of MIG's capabilities that are root's alone are left out. */
static int add_node(struct search *s, const char *path, struct hutch_err *err)
{
    const bool is_capability = strncmp(path, "/dev/nvidia-caps/", 17) == 0;
    const mode_t need = is_capability ? 0004 : 0006;
    char real[PATH_MAX];
    struct stat st;

    if (look_at(s, path, &st, real) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : hutch_err_set(err, errno, "look at '%s'", path);
    if (!S_ISCHR(st.st_mode) && (s->is_host || !S_ISREG(st.st_mode)))
        return hutch_err_set(err, 0, "'%s' is not a device node", path);
    if ((st.st_mode & need) != need) {
        if (is_capability) {
            s->n_left_out++;
            return 0;
        }
        return hutch_err_set(err, 0, "the device node '%s' has the mode %04o, so that code in a sandbox, which is no "
                                     "user of the host's, cannot open it (the module's parameter NVreg_DeviceFileMode "
                                     "makes it 0666)", path, st.st_mode & 07777);
    }
    if (!add_bind(s, real, &st, path, MOUNT_DEVICE, err))
        return -1;
    note_node(s, path);
    return 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strverscmp((*a)->d_name, (*b)->d_name);
}

/* Those of a directory of the root's that are numbered, in their order. */
static int add_numbered_nodes(struct search *s, const char *dir, const char *prefix, struct hutch_err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = (int)syscall(SYS_openat2, s->root_fd, dir, &how, sizeof(how));
    struct dirent **names;
    int n = fd < 0 ? 0 : scandirat(fd, ".", &names, NULL, compare_names), rc = 0, n_taken = 0;

    if (n < 0)
        return hutch_err_set(err, errno, "list '%s'", dir);
    for (int i = 0; i < n; i++) {
        char path[NAME_MAX + 64];

        if (rc == 0 && is_numbered(names[i]->d_name, prefix)) {
            snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
            rc = ++n_taken > MAX_NODES ? hutch_err_set(err, 0, "'%s' has more than %d nodes", dir, MAX_NODES)
                                       : add_node(s, path, err);
        }
        free(names[i]);
    }
    if (fd >= 0)
        free(names);
    return rc;
}

static int find_nodes(struct search *s, struct hutch_err *err)
{
    static const char *const fixed[] = { "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                         "/dev/nvidia-modeset" };

    if (add_numbered_nodes(s, "/dev", "nvidia", err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        if (is_known_node(s, fixed[i]) && add_node(s, fixed[i], err) < 0)
            return -1;
    return add_numbered_nodes(s, "/dev/nvidia-caps", "nvidia-cap", err);
}

static int check_nodes(const struct search *s, struct hutch_err *err)
{
    const char *missing = !s->has_gpu ? "/dev/nvidia0" : !s->has_control ? "/dev/nvidiactl" : "/dev/nvidia-uvm";

    if (s->has_gpu && s->has_control && s->has_uvm)
        return 0;
    return hutch_err_set(err, 0, "there is no GPU of NVIDIA's that a sandbox could be handed: below '%s', '%s' is not "
                                 "there%s (%s)", s->root, missing, s->from[0] ? ", or not named" : "",
                         s->has_gpu ? "nvidia-modprobe -c 0 -u makes it"
                                    : "the driver's kernel module makes it; GPUs of other makers cannot be handed in");
}

/* --- files of the driver ---------------------------------------------------------------------------------------- */

/* The driver's version in a library's name: "libcuda.so.535.104.05". Empty: there is none. */
static const char *version_of(const char *name)
{
    const char *so = strstr(name, ".so."), *version = so ? so + 4 : "";

    return strchr(version, '.') && strspn(version, "0123456789.") == strlen(version) ? version : "";
}

/* "libcuda" of "libcuda.so.1" */
static bool is_library(const char *name, const char *library)
{
    size_t len = strlen(library);

    return strncmp(name, library, len) == 0 && strncmp(name + len, ".so", 3) == 0 &&
           (name[len + 3] == '.' || name[len + 3] == '\0') && strspn(name + len, ".so0123456789") == strlen(name + len);
}

static const char *find_library(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
        if (is_library(name, libraries[i]))
            return libraries[i];
    return NULL;
}

static int add_link(struct search *s, const char *name, const char *to, struct hutch_err *err)
{
    char target[PATH_MAX];

    if (strcmp(name, to) == 0)
        return 0;
    snprintf(target, sizeof(target), GPU_DIR "/%.*s", NAME_MAX, name);
    return hutch_spec_add_mount(s->spec, MOUNT_SYMLINK, to, target, 0, err) ? 0 : -1;
}

static int add_file(struct search *s, const char *real, const struct stat *st, const char *dir, struct hutch_err *err)
{
    const char *name = strrchr(real, '/') + 1;
    char target[PATH_MAX];

    if (!S_ISREG(st->st_mode))
        return hutch_err_set(err, 0, "'%s' of the GPU's driver is not a file", real);
    if (!(st->st_mode & 0004))
        return hutch_err_set(err, 0, "'%s' of the GPU's driver has the mode %04o, so that code in a sandbox cannot "
                                     "read it", real, st->st_mode & 07777);
    snprintf(target, sizeof(target), "%s/%.*s", dir, NAME_MAX, name);
    if (!add_bind(s, real, st, target, 0, err))
        return -1;
    list(&s->files, name);
    return 0;
}

/* One library by the name that it is asked for, and by the usual ones. Files of another version than libcuda's are
 * those of a driver that was there before. */
static int add_library(struct search *s, const char *asked, const char *path, struct hutch_err *err)
{
    const char *library = find_library(asked), *name, *version;
    char real[PATH_MAX], usual[NAME_MAX + 1];
    struct stat st;

    if (look_at(s, path, &st, real) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : hutch_err_set(err, errno, "look at '%s'", path);
    name = strrchr(real, '/') + 1;
    if (!find_library(name))
        return hutch_err_set(err, 0, "'%s' leads to '%s', which is no library of the GPU's driver by its name", path,
                             real);
    version = version_of(name);
    if (s->driver[0] && version[0] && strcmp(s->driver, version) != 0) {
        hutch_log_debug("gpu: '%s' is not of the driver %s", real, s->driver);
        return 0;
    }
    if (strcmp(library, "libcuda") == 0)
        s->has_cuda = true;
    snprintf(usual, sizeof(usual), "%s.so.%d", library, strcmp(library, "libnvidia-nvvm") == 0 ? 4 : 1);
    if (add_file(s, real, &st, GPU_DIR, err) < 0 || add_link(s, asked, name, err) < 0 ||
        add_link(s, usual, name, err) < 0)
        return -1;
    return strcmp(library, "libcuda") == 0 ? add_link(s, "libcuda.so", name, err) : 0;
}

static void note_driver(struct search *s, const char *path)
{
    char real[PATH_MAX];
    struct stat st;
    const char *version = look_at(s, path, &st, real) == 0 ? version_of(strrchr(real, '/') + 1) : "";

    if (!s->driver[0] && version[0] && strlen(version) < sizeof(s->driver))
        strcpy(s->driver, version);
}

/* libcuda first, which says the driver's version. */
static int add_cached_libraries(struct search *s, const struct ldcache *cache, struct hutch_err *err)
{
    const char *name, *path;

    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
        bool has_one = false;
        size_t at = 0;

        while (!has_one && hutch_ldcache_next(cache, &at, &name, &path)) {
            if (!is_library(name, libraries[i]) || name[strlen(libraries[i]) + 3] == '\0' || path[0] != '/')
                continue;
            if (i == 0)
                note_driver(s, path);
            has_one = true;
            if (add_library(s, name, path, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int find_in_cache(struct search *s, struct hutch_err *err)
{
    struct ldcache cache = LDCACHE_INIT;
    auto_free char *data = NULL;
    struct stat st;
    size_t len;
    int rc;

    if (slurp(s, LIBRARY_CACHE, LDCACHE_MAX_BYTES, &st, &data, &len, err) < 0)
        return is_missing(err) ? 0 : -1;
    if (hutch_ldcache_parse("'" LIBRARY_CACHE "'", data, len, &cache, err) < 0)
        return -1;
    data = NULL; /* the cache's */
    rc = add_cached_libraries(s, &cache, err);
    hutch_ldcache_done(&cache);
    if (s->has_cuda)
        snprintf(s->from, sizeof(s->from), LIBRARY_CACHE);
    return rc;
}

static int find_in_dirs(struct search *s, struct hutch_err *err)
{
    for (size_t d = 0; d < ARRAY_SIZE(library_dirs) && !s->has_cuda; d++) {
        char name[64], path[256];

        for (size_t i = 0; i < ARRAY_SIZE(libraries); i++) {
            snprintf(name, sizeof(name), "%s.so.%d", libraries[i],
                     strcmp(libraries[i], "libnvidia-nvvm") == 0 ? 4 : 1);
            snprintf(path, sizeof(path), "%s/%s", library_dirs[d], name);
            if (i == 0)
                note_driver(s, path);
            if (add_library(s, name, path, err) < 0)
                return -1;
            if (!s->has_cuda)
                break;
        }
        if (s->has_cuda)
            snprintf(s->from, sizeof(s->from), "%s", library_dirs[d]);
    }
    return 0;
}

static int find_program(struct search *s, struct hutch_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        char real[PATH_MAX];
        struct stat st;

        if (look_at(s, programs[i], &st, real) == 0 && strcmp(strrchr(real, '/'), "/nvidia-smi") == 0)
            return add_file(s, real, &st, BIN_DIR, err);
    }
    return 0;
}

static int check_driver(const struct search *s, struct hutch_err *err)
{
    auto_free char *text = NULL;
    struct hutch_err ignored;
    const char *version;
    struct stat st;
    size_t len, n;

    if (!s->has_cuda)
        return hutch_err_set(err, 0, "the GPU's driver has no library libcuda.so.1 here: neither '" LIBRARY_CACHE "' "
                                     "nor the usual directories below '%s' have it (Debian: apt install libcuda1)",
                             s->root);
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug …" */
    if (slurp(s, MODULE_VERSION, 4096, &st, &text, &len, &ignored) < 0 || !s->driver[0])
        return 0;
    version = strstr(text, "Module ");
    version = version ? version + strcspn(version, "0123456789\n") : "";
    n = strspn(version, "0123456789.");
    if (n == 0 || (n == strlen(s->driver) && memcmp(version, s->driver, n) == 0))
        return 0;
    return hutch_err_set(err, 0, "the kernel's module of the GPU's driver is version %.*s and its libraries are "
                                 "version %s, which do not work together (restart the host, or load the module again)",
                         (int)(n < MAX_VERSION ? n : MAX_VERSION), version, s->driver);
}

/* --- a specification -------------------------------------------------------------------------------------------- */

/* It says what is bound, so nobody but root may have written it; for another root the caller may, too. */
static int check_owner(const struct search *s, const char *path, const struct stat *st, struct hutch_err *err)
{
    if ((st->st_uid == 0 || (!s->is_host && st->st_uid == geteuid())) && !(st->st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    return hutch_err_set(err, 0, "'%s' says which files of the host the code is shown, and others than root can write "
                                 "to it (owner %u, mode %04o)", path, st->st_uid, st->st_mode & 07777);
}

static const char *name_of(const char *path)
{
    return strrchr(path, '/') + 1;
}

static int add_edits(struct search *s, const struct cdi_spec *cdi, struct hutch_err *err)
{
    s->n_left_out = cdi->n_others;
    for (size_t i = 0; i < cdi->n; i++)
        if (!cdi->edits[i].is_node && is_library(name_of(cdi->edits[i].path), "libcuda"))
            note_driver(s, cdi->edits[i].path);
    for (size_t i = 0; i < cdi->n; i++) {
        const struct cdi_edit *edit = &cdi->edits[i];
        char real[PATH_MAX];
        struct stat st;
        int rc = 0;

        if (edit->is_node && is_known_node(s, edit->path))
            rc = add_node(s, edit->path, err);
        else if (!edit->is_node && find_library(name_of(edit->path)))
            rc = add_library(s, name_of(edit->path), edit->path, err);
        else if (!edit->is_node && strcmp(name_of(edit->path), "nvidia-smi") == 0 &&
                 look_at(s, edit->path, &st, real) == 0 && strcmp(name_of(real), "nvidia-smi") == 0)
            rc = add_file(s, real, &st, BIN_DIR, err);
        else
            s->n_left_out++;
        if (rc < 0)
            return -1;
    }
    if (check_nodes(s, err) < 0)
        return -1;
    return s->has_cuda ? check_driver(s, err)
                       : hutch_err_set(err, 0, "no library libcuda.so of the GPU's driver is named and there");
}

/* 1: it was of NVIDIA's GPUs. */
static int use_file(struct search *s, const char *path, struct hutch_err *err)
{
    struct cdi_spec cdi = CDI_SPEC_INIT;
    auto_free char *text = NULL, *what = NULL;
    struct stat st;
    size_t len;
    int rc;

    if (asprintf(&what, "'%s'", path) < 0)
        return hutch_err_set(err, ENOMEM, "read '%s'", path);
    if (slurp(s, path, CDI_MAX_BYTES, &st, &text, &len, err) < 0 || hutch_cdi_parse(what, text, len, &cdi, err) < 0)
        return -1;
    rc = strcmp(cdi.kind, CDI_KIND) == 0;
    if (rc) {
        snprintf(s->from, sizeof(s->from), "%s", path);
        if (check_owner(s, path, &st, err) < 0)
            rc = -1;
        else if (add_edits(s, &cdi, err) < 0)
            rc = hutch_err_wrap(err, "the specification '%s' (nvidia-ctk cdi generate makes it anew)", path);
    }
    hutch_cdi_done(&cdi);
    return rc;
}

static int is_specification(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return dot && dot > entry->d_name && (strcmp(dot, ".json") == 0 || strcmp(dot, ".yaml") == 0);
}

/* 1: there was one, and it was used. */
static int find_specification(struct search *s, struct hutch_err *err)
{
    for (size_t d = 0; d < ARRAY_SIZE(cdi_dirs); d++) {
        struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        auto_fd fd = (int)syscall(SYS_openat2, s->root_fd, cdi_dirs[d], &how, sizeof(how));
        struct dirent **names;
        int n, rc = 0;

        if (fd < 0)
            continue;
        n = scandirat(fd, ".", &names, is_specification, alphasort);
        if (n < 0)
            return hutch_err_set(err, errno, "list '%s'", cdi_dirs[d]);
        if (n > MAX_CDI_FILES)
            rc = hutch_err_set(err, 0, "'%s' has more than %d specifications", cdi_dirs[d], MAX_CDI_FILES);
        for (int i = 0; i < n; i++) {
            char path[PATH_MAX];

            snprintf(path, sizeof(path), "%s/%s", cdi_dirs[d], names[i]->d_name);
            if (rc == 0)
                rc = use_file(s, path, err);
            free(names[i]);
        }
        free(names);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* --- put together ----------------------------------------------------------------------------------------------- */

static int find_all(struct search *s, struct hutch_err *err)
{
    int rc = find_specification(s, err);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (find_nodes(s, err) < 0 || check_nodes(s, err) < 0 || find_in_cache(s, err) < 0)
        return -1;
    if (!s->has_cuda && find_in_dirs(s, err) < 0)
        return -1;
    return check_driver(s, err) < 0 || find_program(s, err) < 0 ? -1 : 0;
}

static int describe(struct search *s, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"devices\":[");
    hutch_text_add(&t, s->devices.data, s->devices.len);
    hutch_text_add_string(&t, "],\"driver\":");
    if (s->driver[0])
        hutch_json_quote(&t, s->driver, strlen(s->driver));
    else
        hutch_text_add_string(&t, "null");
    hutch_text_add_string(&t, ",\"files\":[");
    hutch_text_add(&t, s->files.data, s->files.len);
    hutch_text_add_string(&t, "],\"from\":");
    hutch_json_quote(&t, s->from, strlen(s->from));
    hutch_text_add_string(&t, ",\"root\":");
    hutch_json_quote(&t, s->root, strlen(s->root));
    hutch_text_addf(&t, ",\"left_out\":%zu}", s->n_left_out);
    t.is_broken |= s->devices.is_broken || s->files.is_broken;
    free(s->spec->gpu_found);
    s->spec->gpu_found = hutch_text_take(&t, NULL);
    return s->spec->gpu_found ? 0 : hutch_err_set(err, ENOMEM, "say which GPUs there are");
}

/* The directory stands in a zygote too, which has nothing of the host's: a dynamic linker that has once not found it
 * would not look again. */
static int add_dir(struct search *s, struct hutch_err *err)
{
    struct sandbox_mount *m = hutch_spec_add_mount(s->spec, MOUNT_TMPFS, NULL, GPU_DIR, MOUNT_RDONLY, err);

    if (!m)
        return -1;
    m->size_bytes = 1u << 20;
    m->mode = 0755;
    return 0;
}

static int prepend(struct sandbox_spec *spec, const char *name, const char *dir, bool is_first, struct hutch_err *err)
{
    const char *had = hutch_spec_get_env(spec, name);
    auto_free char *value = NULL;

    if (had && strstr(had, dir))
        return 0;
    if (asprintf(&value, "%s%s%s", is_first || !had ? dir : had, had && *had ? ":" : "",
                 !had ? "" : is_first ? had : dir) < 0) {
        value = NULL;
        return hutch_err_set(err, ENOMEM, "set %s", name);
    }
    return hutch_spec_set_env(spec, name, value, err);
}

int hutch_gpu_set_environment(struct sandbox_spec *spec, struct hutch_err *err)
{
    if (spec->gpu == GPU_NONE)
        return 0;
    return prepend(spec, "LD_LIBRARY_PATH", GPU_DIR, true, err) < 0 || prepend(spec, "PATH", BIN_DIR, false, err) < 0
               ? -1 : 0;
}

int hutch_gpu_add(struct sandbox_spec *spec, const char *root, struct hutch_err *err)
{
    struct search s = { .spec = spec,
                        .root = root && *root ? root : "/",
                        .devices = TEXT_BUFFER_INIT,
                        .files = TEXT_BUFFER_INIT };
    auto_fd fd = -1;
    int rc = -1;

    if (spec->gpu == GPU_NONE)
        return 0;
    s.is_host = strcmp(s.root, "/") == 0;
    fd = open(s.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return hutch_err_set(err, errno, "look for the GPU's driver below '%s'", s.root);
    s.root_fd = fd;
    if (add_dir(&s, err) == 0 && find_all(&s, err) == 0 && describe(&s, err) == 0 &&
        hutch_gpu_allow_ioctls(spec, err) == 0)
        rc = hutch_gpu_set_environment(spec, err);
    hutch_text_done(&s.devices);
    hutch_text_done(&s.files);
    return rc;
}
