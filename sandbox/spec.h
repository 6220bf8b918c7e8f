/* spec.h - everything there is to know about one sandbox, as plain data.
 *
 * A policy file and an OCI config both compile to a struct sandbox_spec; the code in sandbox/ reads
 * nothing else. All strings and arrays are owned by the spec and released by hutch_spec_done(). */
#ifndef HUTCH_SPEC_H
#define HUTCH_SPEC_H

#include "sandbox/err.h"
#include "sandbox/seccomp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Who made a limit or a layer real. Reported for each, so that nothing is ever silently weaker. */
enum sandbox_enforcer {
    ENFORCER_NONE,       /* asked for, and nothing enforces it */
    ENFORCER_CGROUP,     /* cgroup v2 controller */
    ENFORCER_RLIMIT,     /* setrlimit(2): per process, or per user of the sandbox's own user namespace */
    ENFORCER_AFFINITY,   /* sched_setaffinity(2), which the seccomp filter keeps from being widened */
    ENFORCER_KERNEL,     /* a namespace, a mount option, a filter: the kernel itself, no counting needed */
    ENFORCER_SUPERVISOR, /* hutch watches from outside and kills; a burst between two looks gets through */
    ENFORCER_COUNT
};

/* Every number that a policy may bound. */
enum sandbox_limit {
    LIMIT_MEMORY,    /* bytes, all processes together where a cgroup counts; per process with rlimits */
    LIMIT_PIDS,      /* processes and threads alive at once, without hutch's own init */
    LIMIT_CPUS,      /* thousandths of a CPU */
    LIMIT_CPU_TIME,  /* milliseconds of CPU, user + system, of all processes together */
    LIMIT_WALL,      /* milliseconds from the start of the user's program */
    LIMIT_OUTPUT,    /* bytes, of stdout and of stderr each */
    LIMIT_FILE_SIZE, /* bytes of one file */
    LIMIT_OPEN_FILES,/* descriptors per process */
    LIMIT_DATA_SIZE, /* bytes below /mnt/data, new and old together */
    LIMIT_DATA_FILES,/* directory entries below /mnt/data */
    LIMIT_TMP_SIZE,  /* bytes of /tmp, a tmpfs */
    LIMIT_COUNT
};

/* Every layer of isolation that a policy may name. */
enum sandbox_layer {
    LAYER_USER_NS,
    LAYER_MOUNT_NS,
    LAYER_PID_NS,
    LAYER_NET_NS,
    LAYER_IPC_NS,
    LAYER_UTS_NS,
    LAYER_CGROUP_NS,
    LAYER_READONLY_ROOT,
    LAYER_CAPABILITIES,
    LAYER_NO_NEW_PRIVS,
    LAYER_SECCOMP,
    LAYER_LANDLOCK,
    LAYER_CGROUP,
    LAYER_OWN_UID, /* the host id behind it is no other sandbox's: ids.h */
    LAYER_OWN_INODES, /* the image's files have inodes of the sandbox's own: overlay.h */
    LAYER_OWN_PROC,   /* /proc is a procfs of the sandbox's own pid namespace, and not bare_proc.h's files */
    LAYER_HOST_NAME,  /* the host name inside is the policy's, and not that of what is around hutch */
    LAYER_NET_BUFFERS, /* buffers of TCP sockets are bounded: netns.h */
    LAYER_COUNT
};

enum sandbox_need {
    NEED_OFF,     /* not wanted */
    NEED_TRY,     /* wanted; absence is reported in the result */
    NEED_REQUIRE, /* wanted; absence is an error before any code runs */
};

enum sandbox_mount_kind {
    MOUNT_BIND,    /* a host path, or tree_fd */
    MOUNT_TMPFS,   /* private, bounded by size_bytes and inodes */
    MOUNT_PROC,    /* procfs of the sandbox's own pid namespace */
    MOUNT_DEV,     /* a tmpfs with null zero full random urandom, fd links, and shm */
    MOUNT_SYMLINK, /* source is the link's text */
};

#define MOUNT_RDONLY   (1u << 0)
#define MOUNT_NOEXEC   (1u << 1)
#define MOUNT_OPTIONAL (1u << 2) /* a missing source is skipped without a word */
#define MOUNT_IDMAP    (1u << 3) /* when root calls: the source's owner becomes the sandbox user, see userns.h */
#define MOUNT_DATA     (1u << 4) /* this is the output directory: writable for Landlock and watched for size */
#define MOUNT_DEVICE   (1u << 5) /* BIND: a device node of the host, below a MOUNT_DEV: code inside may open it and call
                                  * ioctl(2) on it */
#define MOUNT_PUBLIC   (1u << 6) /* BIND: everybody may use it, so no id of a sandbox's has to be its owner's */
#define MOUNT_LAYER    (1u << 7) /* a tree that lies over the image, at "/": hutch_spec_add_layer() */
#define MOUNT_CHANGES  (1u << 8) /* BIND: what is written to the root goes there: hutch_spec_set_changes() */
#define MOUNT_OF_ROOT  (MOUNT_LAYER | MOUNT_CHANGES) /* the root is made of them; they have no place below it */
/* nosuid is always set, and so is nodev but for MOUNT_DEVICE. */

#define SPEC_MAX_LAYERS 12 /* over one image: overlay.h */

struct sandbox_mount {
    enum sandbox_mount_kind kind;
    unsigned flags;
    char    *source;     /* BIND: absolute host path without symbolic links; SYMLINK: text; otherwise NULL */
    char    *target;     /* absolute path inside */
    uint64_t size_bytes; /* TMPFS, DEV (its shm): upper bound, 0 takes the default of 64 MiB */
    uint64_t inodes;     /* TMPFS: upper bound, 0 takes one per 4 KiB of size */
    mode_t   mode;       /* TMPFS: of its root, 0 takes 0755 */
    int      tree_fd;    /* BIND: detached mount from open_tree(2) to use instead of source, owned; else -1 */
    dev_t    dev;        /* BIND: the file that source has to lead to when it is mounted: the caller has opened it; */
    ino_t    ino;        /* 0: any */
};

/* A small file that the sandbox finds at an absolute path below a MOUNT_TMPFS of the spec, /run/hutch/… as a rule. */
struct sandbox_file {
    char  *target;
    char  *data;
    size_t len;
    mode_t mode; /* e.g. 0444 */
};

enum sandbox_network {
    NETWORK_NONE, /* a namespace with loopback only */
    NETWORK_HOST, /* the host's network, unfiltered: only for code that the operator wrote himself */
};

/* Where a fresh data directory is. */
enum sandbox_data_place {
    DATA_AUTO,   /* in memory where there is room for it: runtime/run/data_place.h */
    DATA_MEMORY, /* there, or no code runs */
    DATA_DISK,
};

/* Which of the host's GPUs' device nodes and driver libraries are inside: runtime/gpu/gpu.h. */
enum sandbox_gpu {
    GPU_NONE,
    GPU_COMPUTE, /* what CUDA and NVML take */
    GPU_MODESET, /* and the node for the modes of displays */
};

enum sandbox_root_kind {
    ROOT_DIR,  /* rootfs_path is a whole tree, used read-only */
    ROOT_HOST, /* the host's /usr and a chosen few of /etc, read-only */
};

struct sandbox_spec {
    char *hostname;

    enum sandbox_root_kind root_kind;
    char *rootfs_path; /* ROOT_DIR: absolute host path without symbolic links */

    struct sandbox_mount *mounts; /* in the order they are made, after the root */
    size_t n_mounts;
    struct sandbox_file *files;
    size_t n_files;
    char **masked_paths;          /* NULL-terminated: made empty and unreadable; a missing one is fine */
    char **readonly_paths;        /* NULL-terminated: bound onto themselves read-only */

    enum sandbox_network network;
    enum sandbox_data_place data_place;
    enum sandbox_gpu gpu;
    char *gpu_found; /* a JSON object for the result: what of it is among the mounts; NULL: nothing */

    uid_t uid_inside; /* 1000 unless a policy says otherwise; never 0 */
    gid_t gid_inside;

    enum sandbox_need layers[LAYER_COUNT];
    uint64_t limits[LIMIT_COUNT];      /* 0: unlimited */
    enum sandbox_need limits_need;     /* NEED_REQUIRE: memory, pids and cpus must come from the cgroup */
    uint64_t grace_ms;                 /* between SIGTERM and SIGKILL on a timeout */

    struct seccomp_rules seccomp;      /* meaningful unless layers[LAYER_SECCOMP] is NEED_OFF */

    char **argv; /* NULL-terminated; argv[0] is looked up in PATH of envp when it has no slash */
    char **envp; /* NULL-terminated "K=V"; nothing else of the caller's environment gets in */
    char **env_left_out; /* names that the policy removes, NULL-terminated or NULL: hutch itself sets none of them */
    char *cwd;   /* absolute, inside */
};

/* What a sandbox lacks of what hutch can do on a host of its own: the name in results, in hutch doctor and in the
 * documentation. Where not even LEVEL_NO_PROC can be had no code runs. */
enum sandbox_level {
    LEVEL_FULL,
    LEVEL_NO_PROC, /* without LAYER_OWN_PROC; every other layer of the policy's stands as the result says */
    LEVEL_COUNT
};

/* Fills @spec with the empty description: every layer required except cgroup, landlock, own_uid and own_inodes
 * (tried), no limits, no network, DATA_AUTO, uid and gid 1000, cwd "/", hostname "hutch". -1 on ENOMEM. */
int hutch_spec_init(struct sandbox_spec *spec, struct hutch_err *err);
void hutch_spec_done(struct sandbox_spec *spec);

/* Each appends a copy. A later mount or environment entry with the same target or name replaces the
 * earlier one (in its place). Errors: ENOMEM; 0 for a target that is not absolute, has "." or ".." components,
 * an empty environment name or one with '='. */
struct sandbox_mount *hutch_spec_add_mount(struct sandbox_spec *spec, enum sandbox_mount_kind kind, const char *source,
                                           const char *target, unsigned flags, struct hutch_err *err);
/* A host directory, absolute and without symbolic links, over the image and over the layers that were added before:
 * what has the same path in both is the layer's, and directories are merged. Errors: also E2BIG (SPEC_MAX_LAYERS). */
int hutch_spec_add_layer(struct sandbox_spec *spec, const char *source, struct hutch_err *err);
/* A host directory, absolute and without symbolic links, for the changes of the root, which can be written then: of
 * its two directories `upper` gets every file that is new or changed, as overlayfs leaves it, and `work` is the
 * kernel's. The image and its layers are never written. For one sandbox at a time. */
int hutch_spec_set_changes(struct sandbox_spec *spec, const char *source, struct hutch_err *err);
/* That mount, or NULL: the root is read-only. */
const struct sandbox_mount *hutch_spec_find_changes(const struct sandbox_spec *spec);
/* Those of @from, behind what @to has. */
int hutch_spec_copy_layers(const struct sandbox_spec *from, struct sandbox_spec *to, struct hutch_err *err);
int hutch_spec_add_file(struct sandbox_spec *spec, const char *target, const char *data, size_t len, mode_t mode,
                        struct hutch_err *err);
int hutch_spec_set_env(struct sandbox_spec *spec, const char *name, const char *value, struct hutch_err *err);
/* NULL when unset; the text stays the spec's. */
const char *hutch_spec_get_env(const struct sandbox_spec *spec, const char *name);
/* Whether a host path other than the data directory, layers of the image and what is MOUNT_PUBLIC is mounted that has
 * all of @flags (MOUNT_...); 0: any. */
bool hutch_spec_binds(const struct sandbox_spec *spec, unsigned flags);

/* Whether the absolute @path is @dir or something below it, by their words alone. */
bool hutch_spec_path_is_below(const char *path, const char *dir);

/* Replaces a string field or a NULL-terminated list field by a copy. */
int hutch_spec_set_string(char **field, const char *value, struct hutch_err *err);
int hutch_spec_set_list(char ***field, const char *const *values, size_t n, struct hutch_err *err);

/* The names used in policies and results: "memory", "user_namespace", "cgroup", "no_proc", … */
const char *hutch_limit_name(enum sandbox_limit limit);
const char *hutch_layer_name(enum sandbox_layer layer);
const char *hutch_enforcer_name(enum sandbox_enforcer enforcer);
const char *hutch_level_name(enum sandbox_level level);

#endif
