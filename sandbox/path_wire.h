/* path_wire.h - what the engine says to a session's spawner (sandbox/process_wire.h) about a path inside, and what the
 * process that this forks for it answers: a child of init, with the worker's confinement, that does one order and ends.
 *
 * The order comes with the control socket, AF_UNIX SOCK_SEQPACKET, on which nothing more is sent: when the engine
 * closes it, the order is given up. The structs cross as they are, as all ends come from one build. What comes from
 * inside is not trusted. */
#ifndef HUTCH_PATH_WIRE_H
#define HUTCH_PATH_WIRE_H

#include <stdint.h>

#define PATH_TEXT_MAX 4096 /* of one path, with its NUL: PATH_MAX */

/* PATH_WATCH opens a directory for reading. */
enum path_kind { PATH_STAT, PATH_LIST, PATH_MAKE, PATH_RENAME, PATH_REMOVE, PATH_OPEN, PATH_WATCH, PATH_KINDS };
enum path_flag {
    PATH_FOLLOW = 1u << 0,
    PATH_PARENTS = 1u << 1, /* missing directories on the way are made */
    PATH_TREE = 1u << 2,
    PATH_WRITE = 1u << 3,   /* PATH_OPEN: for writing, else for reading; the others are of this one */
    PATH_CREATE = 1u << 4,
    PATH_NEW = 1u << 5,     /* O_EXCL */
    PATH_EMPTY = 1u << 6,   /* O_TRUNC */
    PATH_APPEND = 1u << 7,
};
/* Behind it: the path and for PATH_RENAME the new one, each ended by a NUL. */
struct path_order {
    uint32_t what;        /* SPAWNER_PATH */
    uint32_t kind;        /* enum path_kind */
    uint32_t flags;       /* enum path_flag */
    uint32_t mode;        /* of what is made */
    uint32_t depth;       /* PATH_LIST: levels, 1 at least */
    uint32_t max_entries;
};
#define PATH_DEPTH_MAX 32
#define PATH_ENTRIES_MAX 65536u
#define PATH_NAMES_MAX (4u << 20) /* bytes of all paths and targets of a list, with their NULs */

/* The answer: PATH_ENTRIES, any number of them, and then PATH_DONE, with a descriptor where something was opened; or
 * PATH_FAILED. Behind each of the first two: records, as many as it says. */
enum path_says { PATH_ENTRIES = 0x48544150, PATH_DONE, PATH_FAILED };
enum path_step { /* what failed */
    PATH_STEP_ORDER, PATH_STEP_FORK, PATH_STEP_LOOK, PATH_STEP_READ, PATH_STEP_PARENTS, PATH_STEP_MAKE,
    PATH_STEP_RENAME, PATH_STEP_REMOVE, PATH_STEP_OPEN, PATH_STEPS
};
struct path_said {
    uint32_t what;      /* enum path_says */
    uint32_t step;      /* PATH_FAILED: enum path_step, */
    int32_t errnum;     /* … and why */
    uint32_t n;         /* records */
    uint32_t truncated; /* PATH_DONE: of a list */
    uint32_t existed;   /* PATH_DONE: what was to be made */
};
/* Not aligned. Behind it: the path below the directory of a list, else "", and the target of a link, else "", each
 * ended by a NUL that its length counts. */
struct path_record {
    uint64_t bytes;
    int64_t mtime_s;
    uint32_t mtime_ns;
    uint32_t mode; /* st_mode */
    uint32_t uid, gid;
    uint16_t path_len, target_len;
    uint32_t has_target;
};
#define PATH_PACKET_MAX (32u << 10) /* bytes of one answer */

#endif
