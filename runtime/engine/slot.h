/* slot.h - one sandbox, from the order to build it to its removal.
 *
 * Who has it made owns it: a pool, which gives it away later by hutch_slot_take(), or a run. It tells its owner what
 * happens to it. */
#ifndef HUTCH_ENGINE_SLOT_H
#define HUTCH_ENGINE_SLOT_H

#include "runtime/engine/helper.h"
#include "runtime/engine/look.h"
#include "runtime/engine/template.h"
#include "runtime/engine/zygotes.h"
#include "runtime/run/supervisor.h"
#include "sandbox/ids.h"
#include "sandbox/sandbox.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/resource.h>

struct slot;

struct slot_events {
    /* A worker waits in it: hutch_slot_take() is to follow, now or later. */
    void (*on_prepared)(void *owner, struct slot *slot);
    /* With is_exec: the data directory is there, and nothing has it mounted yet. -1 with a reason: the slot has failed.
     * NULL: nothing is to be put into it. */
    int (*on_furnish)(void *owner, struct slot *slot, struct hutch_err *err);
    /* The data directory is in place: it is the owner's to begin. With is_exec init executes the program already. */
    void (*on_entered)(void *owner, struct slot *slot);
    /* SLOT_LIMITING: what hutch_slot_lower() has asked for holds. */
    void (*on_limited)(void *owner, struct slot *slot);
    /* SLOT_RUNNING: what the supervisor watches as number @which is ready, in the way of poll(2). */
    void (*on_ready)(void *owner, struct slot *slot, int which, short revents);
    /* SLOT_DYING: its processes are gone. */
    void (*on_dead)(void *owner, struct slot *slot);
    /* It was discarded: what it needs is not there, and another one would not get it either. */
    void (*on_refused)(void *owner, struct slot *slot, const struct hutch_err *why);
    /* It was discarded: a process of it was killed, or the host failed. @why NULL: not known. */
    void (*on_failed)(void *owner, struct slot *slot, const struct hutch_err *why);
};

enum slot_state {
    SLOT_NEW,        /* its template, or the launcher, is not there yet */
    SLOT_SOURCING,   /* the opener maps the owner of its data directory to ids of its own */
    SLOT_BUILDING,   /* LAUNCHER_BUILD or LAUNCHER_EXEC was sent */
    SLOT_STANDING,   /* BUILT came, init works on it */
    SLOT_READY,      /* INIT_READY came; waits for its interpreter */
    SLOT_FORKING,    /* ZYGOTE_WORKER was sent */
    SLOT_PREPARED,
    SLOT_OPENING,    /* taken: the data directory is opened */
    SLOT_ATTACHING,  /* … and mounted */
    SLOT_LIMITING,   /* process 1 is told of tighter limits */
    SLOT_RUNNING,
    SLOT_DYING,      /* all is over but the processes, which its files wait for */
    SLOT_DESTROYING, /* LAUNCHER_DESTROY was sent */
    SLOT_DEAD,
};

TAILQ_HEAD(slot_list, slot);

/* A data directory in memory that outlives a sandbox: sandbox/volume.h. */
struct slot_volume {
    int base_fd; /* owned; -1: there is none */
    int dirfd;   /* not owned; open for reading */
    bool is_lost; /* its opener is gone: no other one can mount it */
    LIST_ENTRY(slot_volume) link; /* file_memory.h, as the rest */
    bool is_held, is_greedy;
    void (*on_greedy)(void *owner);
    void *owner;
};
LIST_HEAD(volume_list, slot_volume);

#define SLOTS_SPARE_SUPERVISORS 32

/* All of one engine. */
struct slots {
    struct core *core;
    struct helper *helper;
    struct zygotes *zygotes;
    struct looks looks;
    struct slot_list list;
    unsigned n_building;
    uint64_t lost;                /* after they had been prepared */
    void (*on_room)(void *owner); /* fewer are being built */
    void *owner;
    struct id_lender ids;         /* open from the first sandbox on that can have one of its own */
    struct volume_list held;      /* volumes of sessions */
    struct deadline memory_clock; /* file_memory.h */
    bool has_no_volumes;          /* the opener could not make one */
    struct supervisor *spare_supervisors[SLOTS_SPARE_SUPERVISORS]; /* owned: each is large, and used again */
    size_t n_spare_supervisors;
};

struct slot {
    TAILQ_ENTRY(slot) link;  /* of all */
    TAILQ_ENTRY(slot) idle;  /* of its pool, while it is idle there */
    bool is_idle;            /* the pool's mark */
    struct slots *slots;
    const struct slot_events *events;
    void *owner;
    uint32_t id;
    enum slot_state state;
    double since;            /* in that state */
    double t_prepared;       /* 0: not yet */
    struct deadline clock;
    struct doomed doomed;
    struct template *template; /* a reference */
    unsigned zygote_index;   /* with is_exec not used */
    bool is_exec;            /* init executes the program of the template */
    const char *data_path;   /* not owned; the directory of the caller's for /mnt/data; NULL: a fresh one */
    struct slot_volume *given; /* not owned; the volume that is to be mounted in place of it; NULL: none */
    bool has_volume;         /* its fresh directory is one in memory */
    int volume_fd;           /* owned; the base of that, -1: not there yet, or it was handed on */
    bool shares_ids;         /* it is for a directory of the caller's, whose owner the opener cannot map */
    bool is_reaping, is_reaped; /* LAUNCHER_DESTROY was sent before its time; and is done */
    bool has_usage;          /* what its cgroup counted was read before that */
    struct cgroup_usage usage;
    struct zygote *zygote;   /* SLOT_FORKING: who forks */
    bool is_adopted, has_hello; /* INIT_ADOPTED came; the worker's word came */
    bool is_attached;        /* SLOT_ATTACHING: LAUNCHER_ATTACHED came */
    pid_t holder_pid;
    struct sandbox sb;
    char *seccomp;           /* owned until it is sent */
    size_t seccomp_len;
    int landlock_fd;         /* owned until it is sent */
    struct supervisor *supervisor; /* owned; from SLOT_FORKING on, or from the start with is_exec */
    int shut[4];             /* owned; what the program has closed: closed here when there is time */
    size_t n_shut;
    int theirs[4];           /* stdin, stdout, stderr, job: the worker's ends, owned until they are sent */
    int data_dirfd;          /* owned */
    uid_t uid;               /* its host ids, borrowed from slots->ids; 0: it shares those of others */
    gid_t gid;
    char why_shared[96];     /* empty: it does not, or the layer is off */
    bool waits_for_id;       /* SLOT_NEW: it has to have one, and all are in use */
    bool may_live;           /* the end of its processes was not seen: its id is not lent again by this engine */
    struct look count;       /* of what lies there, while its code runs */
    char name[32], data_name[32]; /* data_name "" without a fresh directory */
    struct watch control, out, err_out, job, death;
};

void hutch_slots_init(struct slots *slots, struct helper *helper, struct zygotes *zygotes, void (*on_room)(void *owner),
                      void *owner);
/* Every process is gone. */
void hutch_slots_done(struct slots *slots);
struct slot *hutch_slot_find(struct slots *slots, uint32_t id);

/* What the owner of them all hears of helpers, templates and zygotes, passed on. */
void hutch_slots_on_launcher(struct slots *slots);
void hutch_slots_on_lost_launcher(struct slots *slots);
void hutch_slots_on_lost_opener(struct slots *slots);
void hutch_slots_on_template(struct slots *slots, const struct template *template); /* the launcher has it */
void hutch_slots_on_no_template(struct slots *slots, const struct template *template, const struct hutch_err *why);
void hutch_slots_on_zygote(struct slots *slots); /* one is ready */
void hutch_slots_on_lost_zygote(struct slots *slots, const struct zygote *zygote);
bool hutch_slots_on_forked(struct slots *slots, const struct zygote *zygote, uint32_t id, pid_t pid);
bool hutch_slots_on_fork_failed(struct slots *slots, const struct zygote *zygote, uint32_t id,
                                const struct hutch_err *why);
/* False when none of them has that number, and @fd and @base_fd are still the caller's. */
bool hutch_slots_on_opened(struct slots *slots, uint32_t id, int fd, int base_fd, const struct hutch_err *why);
void hutch_slots_on_reply(struct slots *slots, const struct launcher_reply *reply, const char *text, int *fds,
                          size_t n_fds);

/* One with its data directory, for which nothing was ordered yet. NULL on ENOMEM and the like. @data_path with is_exec
 * only. @shares_ids: it is for a directory whose owner cannot be mapped: hutch_slots_map_in_memory(). */
struct slot *hutch_slot_create(struct slots *slots, struct template *template, unsigned zygote_index, bool is_exec,
                               bool shares_ids, const char *data_path, const struct slot_events *events, void *owner,
                               struct hutch_err *err);
/* Has it built. */
void hutch_slot_build(struct slot *slot);
/* SLOT_PREPARED: @events and @owner are told from here on, on_entered as the first thing, perhaps before this
 * returns. With @volume that one is mounted; it stays the caller's, and @data_path is any. */
void hutch_slot_take(struct slot *slot, const char *data_path, struct slot_volume *volume,
                     const struct slot_events *events, void *owner);
/* Entered, and nothing runs: makes limits tighter, as hutch_sandbox_lower(). After 1 on_limited follows. */
int hutch_slot_lower(struct slot *slot, const uint64_t limits[LIMIT_COUNT], struct hutch_err *err);
void hutch_slot_set_state(struct slot *slot, enum slot_state state);
/* Before it is entered: what it waits for, as in "the launcher". */
void hutch_slot_name_awaited(const struct slot *slot, char *text, size_t size);
/* It is over, of no use any more, or in the way: everything in it dies. The owner hears no more of it. */
void hutch_slot_discard(struct slot *slot);
/* It broke: on_failed. */
void hutch_slot_fail(struct slot *slot, const struct hutch_err *why);
/* SLOT_RUNNING: kills what is in it, for @reason; on_ready follows with its end, or without it where it hangs. */
void hutch_slot_stop(struct slot *slot, enum end_reason reason);
/* SLOT_RUNNING: kills what is in it; on_dead follows, when what it used is known. */
void hutch_slot_end(struct slot *slot);

#endif
