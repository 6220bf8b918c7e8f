/* wire.h - what the processes of the warm engine say to each other.
 *
 *   engine    the caller's process: holds every socket and all state
 *   opener    engine's only child. Opens host paths as detached mounts: with the caller's own privileges when root calls,
 *             else as owner of the user namespace that all the others live in
 *   anchor    process 1 of the pid namespace below; starts the launcher again when it dies. With it, everything dies
 *   launcher  clones inits and zygotes. Holds nothing that cannot be sent to it again
 *   zygote    an interpreter in an image, without capabilities; forks workers and further zygotes
 *   init      process 1 of one sandbox (sandbox/init.h)
 *   worker    the interpreter inside
 *
 * Every socket here is AF_UNIX SOCK_SEQPACKET with one message a packet, but for the worker's, which is SOCK_STREAM. The
 * structs cross as they are: all ends come from one build. Descriptors travel with the message (SCM_RIGHTS), in the order given. */
#ifndef HUTCH_LAUNCHER_WIRE_H
#define HUTCH_LAUNCHER_WIRE_H

#include "sandbox/err.h"
#include "sandbox/sandbox.h"
#include "runtime/data/snapshot.h"
#include "sandbox/worker.h"

#include <limits.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define WARM_MAX_FDS 64
#define WARM_SOCKET_FD 3 /* the engine's socket in the opener; the order socket in a zygote; the job socket in a worker */

/* --- engine and opener --- */

/* The opener is executed as: hutch-launcher GROUP WHY, with the engine's socket as descriptor 3 and nothing else open. GROUP is the
 * directory below which all of the engine's cgroups are going to be made, which the opener makes, or "" where there is none, for
 * the reason WHY. */

enum opener_order { OPENER_OPEN }; /* path -> OPENER_OPENED with the detached mount */
struct opener_request {
    uint32_t what;   /* enum opener_order */
    uint32_t id;     /* the engine's, comes back */
    uint32_t flags;  /* MOUNT_RDONLY, MOUNT_IDMAP */
    char path[PATH_MAX];
};

enum opener_says {
    OPENER_HELLO,    /* is_mapped_away; fd: the sweeper's socket. The first message, or OPENER_FAILED with id 0 */
    OPENER_LAUNCHER, /* fds: the socket of a launcher, which replaces any earlier one, and its pidfd. The orders sent to that one
                      * may be lost */
    OPENER_OPENED,   /* id; fd */
    OPENER_FAILED,   /* id; err */
};
struct opener_reply {
    uint32_t what; /* enum opener_says */
    uint32_t id;
    uint32_t is_mapped_away; /* root calls: the launcher sees host paths with somebody else's eyes, so sources go with the spec */
    struct hutch_err err;
};

/* --- engine and sweeper: a process of the opener's that does for the engine what may take long with a data directory --- */

/* Orders about the same names or the same data directory, its removal too, are carried out one after the other, others at the same time. After a death of
 * the sweeper's, give an order again that had no answer: snapshot.h. */
enum sweeper_order {
    SWEEPER_REMOVE,  /* name, with what broken orders about it have left; fd: the directory that it is in. No answer */
    SWEEPER_TAKE,    /* name; fds: store, data directory: hutch_snapshot_take() -> sweeper_reply, as for the next two */
    SWEEPER_RESTORE, /* name; fds: store, data directory */
    SWEEPER_SWITCH,  /* name, keep; fds: store, data directory */
};
struct sweep_request {
    uint32_t what; /* enum sweeper_order */
    uint32_t id;   /* the engine's, comes back */
    char name[32], keep[32];
    struct snapshot_bounds bounds;
};
struct sweeper_reply {
    uint32_t id;
    uint32_t has_failed; /* err says why, and everything is as it was */
    struct snapshot_report report;
    struct hutch_err err;
};

/* --- engine and launcher --- */

enum launcher_order {
    LAUNCHER_SPEC,    /* spec_id; fd: memfd with hutch_spec_encode(). If mapped away, then the root tree and one fd for each
                       * bind of the spec in order (without those that are optional and missing: see missing). No answer but LAUNCHER_FAILED */
    LAUNCHER_FORGET,  /* spec_id. No answer */
    LAUNCHER_ZYGOTE,  /* id, spec_id; fds: the zygote's end of its socket [, where its stderr goes] -> LAUNCHER_STARTED with its pidfd */
    LAUNCHER_BUILD,   /* id, spec_id, name, data_name -> LAUNCHER_BUILT with control, pidfd [, cgroup]: a sandbox that waits for a
                       * worker. Its init then says INIT_READY on control */
    LAUNCHER_EXEC,    /* the same, but init executes the spec's argv; fds: stdin, stdout, stderr, report. INIT_STARTED on control */
    LAUNCHER_DESTROY, /* name: the sandbox is over; its init is reaped, its cgroup removed -> LAUNCHER_DESTROYED */
};
struct launcher_request {
    uint32_t what; /* enum launcher_order */
    uint32_t id;
    uint32_t spec_id;
    char name[32];      /* of the cgroup, "hutch-" and 16 hex digits */
    char data_name[32]; /* directory below the source of the spec's MOUNT_DATA, "" for the source itself */
    uint64_t missing[4]; /* LAUNCHER_SPEC: bit i: mount i has no fd */
};

enum launcher_says { LAUNCHER_STARTED, LAUNCHER_BUILT, LAUNCHER_DESTROYED, LAUNCHER_FAILED };
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

/* --- engine and zygote --- */

enum zygote_order {
    ZYGOTE_WORKER, /* id; fds: init's pidfd, job, stdin, stdout, stderr [, Landlock ruleset] [, cgroup], as plan.has_... say; followed by
                    * the seccomp program, in the same packet -> ZYGOTE_FORKED */
    ZYGOTE_ZYGOTE, /* id; fd: the new one's socket; followed by what it imports, one name a line -> ZYGOTE_FORKED at once, and
                    * ZYGOTE_READY on the new socket when all is imported */
};
struct zygote_request {
    uint32_t what; /* enum zygote_order */
    uint32_t id;
    uint32_t text_len; /* bytes after this struct: the seccomp program, or names */
    struct worker_plan plan;
};

enum zygote_says { ZYGOTE_READY, ZYGOTE_FORKED, ZYGOTE_FAILED };
struct zygote_reply {
    uint32_t what; /* enum zygote_says */
    uint32_t id;
    pid_t pid;          /* ZYGOTE_FORKED: as its own pid namespace has it: what init adopts */
    char modules[4096]; /* ZYGOTE_READY: of the preload list, those that could not be imported, one a line */
    struct hutch_err err;
};

/* --- engine and worker --- */

/* From the worker, once, before it is given anything: trusted, as nobody else's code has run in it. What comes on this socket
 * after the job is not: one error record (lang/python_error.h) or whatever the program writes there. */
enum worker_says { WORKER_READY = 0x57524459, WORKER_FAILED };
struct worker_hello {
    uint32_t what; /* enum worker_says */
    pid_t pin_pid; /* of the process that holds the worker's memory, in the sandbox's pid namespace: init is told with INIT_START; 0 for none */
    struct hutch_err err;
};

/* To the worker: a header and then fields, each an uint32_t length (little endian) with so many bytes. */
#define WORKER_JOB_MAGIC 0x424f4a48u /* "HJOB" */
struct worker_job {
    uint32_t magic;
    uint32_t len; /* of all fields */
};
enum worker_job_field {
    JOB_MODE,    /* "file": write the code to JOB_NAME and run that as a script; "code": as python3 -c; "stdin": as python3 - */
    JOB_NAME,    /* file: absolute path, PROGRAM_DIR/NAME */
    JOB_CODE,
    JOB_ARGS,    /* what follows in sys.argv, each ended by a NUL */
    JOB_ENV,     /* the whole environment, NAME=VALUE, each ended by a NUL */
    JOB_CWD,
    JOB_RLIMITS, /* "7 64 64\n": resource, soft, hard; to be lowered before the program starts */
    JOB_FIELDS
};
#define WORKER_CODE_MAX (512u << 10) /* bytes of JOB_CODE; a larger program has a sandbox built for it that execs */

#endif
