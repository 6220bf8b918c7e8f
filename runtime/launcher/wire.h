/* wire.h - what the engine, the opener and the launcher say to each other.
 *
 *   engine    the caller's process: holds every socket and all state
 *   opener    engine's only child. Opens host paths as detached mounts: with the caller's own privileges when root
 *             calls, else as owner of the user namespace that all the others live in
 *   anchor    process 1 of the pid namespace below; starts the launcher again when it dies. With it, everything dies
 *   launcher  clones inits (sandbox/init.h) and zygotes (sandbox/zygote_wire.h). Holds nothing that cannot be sent to
 *             it again
 *
 * Every socket here is AF_UNIX SOCK_SEQPACKET with one message a packet. The structs cross as they are: all ends come
 * from one build. Descriptors travel with the message (SCM_RIGHTS), in the order given. */
#ifndef HUTCH_LAUNCHER_WIRE_H
#define HUTCH_LAUNCHER_WIRE_H

#include "sandbox/err.h"
#include "sandbox/sandbox.h"
#include "runtime/data/changes.h"
#include "runtime/data/snapshot.h"
#include "sandbox/userns.h"
#include "sandbox/worker.h"

#include <limits.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define WARM_MAX_FDS 64
#define WARM_SOCKET_FD 3 /* the engine's socket in the opener */

/* --- engine and opener --- */

/* The opener is executed as: hutch-launcher GROUP WHY, with the engine's socket as descriptor 3 and nothing else open.
 * GROUP is the directory below which all of the engine's cgroups are going to be made, which the opener makes, or ""
 * where there is none, for the reason WHY. */

enum opener_order {
    OPENER_OPEN, /* path -> OPENER_OPENED with the detached mount */
    /* bytes, files, uid, gid: a new file system in memory for a data directory; or fd: such a one for another sandbox
     * -> OPENER_OPENED with the detached mount for the sandbox, and the base that holds it: sandbox/volume.h */
    OPENER_VOLUME,
    OPENER_PING, /* -> OPENER_PONG: it takes up orders */
};
struct opener_request {
    uint32_t what;   /* enum opener_order */
    uint32_t id;     /* the engine's, comes back */
    uint32_t flags;  /* MOUNT_RDONLY, MOUNT_IDMAP */
    uid_t uid;       /* MOUNT_IDMAP, OPENER_VOLUME: the host ids that the owner becomes; 0: those that are shared */
    gid_t gid;
    uint64_t bytes, files; /* OPENER_VOLUME: its bounds */
    char path[PATH_MAX];
};

enum opener_says {
    /* is_mapped_away; fds: as of OPENER_DISK. The first message, or OPENER_FAILED with id 0 */
    OPENER_HELLO,
    OPENER_DISK,     /* fds: the socket of a disk worker, which replaces any earlier one, and its pidfd */
    /* fds: the socket of a launcher, which replaces any earlier one, its pidfd and the anchor's. The orders sent to the
     * earlier one may be lost */
    OPENER_LAUNCHER,
    OPENER_OPENED,   /* id; fd, and for a volume its base */
    OPENER_FAILED,   /* id; err */
    OPENER_PONG,
};
struct opener_reply {
    uint32_t what; /* enum opener_says */
    uint32_t id;
    /* root calls: the launcher sees host paths with somebody else's eyes, so sources go with the spec */
    uint32_t is_mapped_away;
    struct id_range ids; /* OPENER_HELLO: the host ids that sandboxes may borrow; with a count of 0, err says why not */
    struct hutch_err err;
};

/* --- engine and disk worker: a process of the opener's, for what may take long with a data directory --- */

/* Orders about the same names or the same data directory, its removal too, are carried out one after the other, others
 * at the same time. After a death of the disk worker's, give an order again that had no answer: snapshot.h. */
enum disk_order {
    DISK_REMOVE,  /* name, with what broken orders about it have left; fd: the directory that it is in. No answer */
    DISK_TAKE,    /* name; fds: store, data directory: hutch_snapshot_take() -> disk_reply, as for the next two */
    DISK_RESTORE, /* name; fds: store, data directory */
    DISK_SWITCH,  /* name, keep; fds: store, data directory */
    DISK_COUNT,   /* look; fds: store, data directory: hutch_collect_usage() -> disk_reply with bytes and entries */
    /* look; fds: store, data directory [, a memory file with what lay there before]: the same, at rest, and
     * hutch_collect_changes() -> disk_reply; fd: a memory file with the changes, see changes_wire.h */
    DISK_LIST,
    /* the same between two cells: hutch_collect_step() in place of hutch_collect_changes(); fds: the changes, and the
     * list of what lies there now */
    DISK_STEP,
    DISK_DROP,    /* fd: a volume's base, which is held until the engine has closed its own. No answer */
    DISK_NOTE,    /* look; fds: store, data directory: hutch_collect_snapshot() -> disk_reply; fd: a list, as above */
    DISK_PING,    /* -> disk_reply with id 0: it takes up orders */
};
struct disk_request {
    uint32_t what; /* enum disk_order */
    uint32_t id;   /* the engine's, comes back */
    uint32_t flags; /* SNAPSHOT_...: SNAPSHOT_RESUMES where it was given before, and has no answer */
    char name[32], keep[32];
    struct snapshot_bounds bounds;
    struct collect_bounds look;
};
struct disk_reply {
    uint32_t id;         /* 0: it only says that it is there */
    uint32_t has_failed; /* err says why, and everything is as it was */
    struct snapshot_report report;
    uint64_t bytes, entries;
    int64_t newest_ns;   /* DISK_STEP: that of the list, see struct file_list */
    double took_ms;      /* without the time for which it waited */
    struct hutch_err err;
};

/* --- engine and launcher --- */

enum launcher_order {
    /* spec_id; fd: memfd with hutch_spec_encode(). If mapped away, then the root tree and one fd for each bind of the
     * spec in order (without those that are optional and missing: see missing). No answer but LAUNCHER_FAILED */
    LAUNCHER_SPEC,
    LAUNCHER_FORGET,  /* spec_id. No answer */
    /* id, spec_id; fds: the zygote's end of its socket [, where its stderr goes] -> LAUNCHER_STARTED with its pidfd */
    LAUNCHER_ZYGOTE,
    /* id, spec_id, name, data_name [, uid, gid] [, has_data; fd: its data directory as a detached mount] ->
     * LAUNCHER_BUILT with control, pidfd [, cgroup]: a sandbox that waits for a worker. Its init then says INIT_READY
     * on control */
    LAUNCHER_BUILD,
    /* the same, but init executes the spec's argv; fds: stdin, stdout, stderr, report [, the data directory].
     * INIT_STARTED on control */
    LAUNCHER_EXEC,
    /* id, spec_id, name; fd: a detached mount -> LAUNCHER_ATTACHED: it is the data directory of a sandbox that this
     * launcher has built */
    LAUNCHER_ATTACH,
    LAUNCHER_DESTROY, /* name: the sandbox is over; its init is reaped, its cgroup removed -> LAUNCHER_DESTROYED */
    LAUNCHER_PING,    /* -> LAUNCHER_PONG: it takes up orders */
};
struct launcher_request {
    uint32_t what; /* enum launcher_order */
    uint32_t id;
    uint32_t spec_id;
    char name[32];      /* of the cgroup, "hutch-" and 16 hex digits */
    char data_name[32]; /* directory below the source of the spec's MOUNT_DATA, "" for the source itself */
    uint32_t has_data;
    uid_t uid;          /* host ids that it alone has; 0: the launcher's own, which it shares … */
    gid_t gid;
    char why_shared[96]; /* … for this reason */
    uint64_t missing[4]; /* LAUNCHER_SPEC: bit i: mount i has no fd */
};

enum launcher_says {
    LAUNCHER_STARTED, LAUNCHER_BUILT, LAUNCHER_ATTACHED, LAUNCHER_DESTROYED, LAUNCHER_FAILED, LAUNCHER_PONG
};
struct launcher_reply {
    uint32_t what; /* enum launcher_says */
    uint32_t id;
    uint32_t spec_id; /* LAUNCHER_FAILED: id 0 and this one: the spec itself is no good */
    struct rusage usage; /* LAUNCHER_DESTROYED: of init and all that it and the kernel reaped; zero when unknown */
    uint32_t has_cgroup, controllers; /* CGROUP_* */
    uint32_t wants_samples;
    uint32_t text_len;  /* LAUNCHER_BUILT: bytes of the seccomp program, which follows this struct in the same packet */
    struct worker_plan plan;
    struct sandbox_enforcement enforcement;
    struct hutch_err err;
};

#endif
