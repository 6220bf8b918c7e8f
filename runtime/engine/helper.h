/* helper.h - the engine's helper processes: the opener, its disk worker, and the launcher that it starts.
 *
 * Whichever ends is started again, and whichever is silent when it was given an order is killed first. What is lost
 * with it is told to the owner, who asks for it anew. */
#ifndef HUTCH_ENGINE_HELPER_H
#define HUTCH_ENGINE_HELPER_H

#include "runtime/engine/core.h"
#include "runtime/engine/link.h"
#include "runtime/engine/patience.h"
#include "runtime/launcher/wire.h"

#include <sys/queue.h>

struct helper_events {
    /* A launcher is there, for the first time or again: it knows no template, no zygote and no sandbox. */
    void (*on_launcher)(void *owner);
    /* With it went what it was asked for. */
    void (*on_lost_launcher)(void *owner);
    /* @text: what followed the reply in its packet. @fds that are not taken are closed. */
    void (*on_launcher_reply)(void *owner, const struct launcher_reply *reply, const char *text, int *fds,
                              size_t n_fds);
    /* The answer to hutch_helper_open() and hutch_helper_open_volume(). @fd: the mount, the callee's from here on; -1:
     * @why. @base_fd: a volume's base, likewise, else -1. */
    void (*on_opened)(void *owner, uint32_t id, int fd, int base_fd, const struct hutch_err *why);
    /* The answer to hutch_helper_order_files(); NULL: the disk worker is gone, and with it every order that it has not
     * answered. @fds: what came with it; they stay the caller's. */
    void (*on_files)(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds);
    /* The opener is gone, and with it every process that the engine had. */
    void (*on_lost)(void *owner);
};

/* An opener or a disk worker that was given up and is not over yet, as it hangs or has something to finish. */
struct corpse {
    LIST_ENTRY(corpse) link;
    struct helper *helper;
    struct watch watch;
    struct deadline clock; /* when it is killed */
    struct doomed doomed;
    int pidfd; /* owned */
};
LIST_HEAD(corpse_list, corpse);

struct helper {
    struct core *core;
    const struct helper_events *events;
    void *owner;
    char *launcher_path, *cgroup;  /* owned; the program; where the sandboxes' groups go, "" for nowhere … */
    char cgroup_why_not[160];      /* … and why */
    unsigned controllers;          /* CGROUP_* that they can have */
    pid_t pid;            /* of the opener; 0: not running */
    int pidfd;            /* owned; a caller that reaps every child may have its number given to another process */
    int launcher_pidfd, anchor_pidfd, disk_pidfd; /* owned; -1: unset */
    struct link opener, launcher, disk;
    struct patience opener_patience, launcher_patience, disk_patience;
    struct corpse_list corpses;
    unsigned n_corpses;
    bool has_hello, has_launcher;
    /* root calls: the launcher sees host paths with another user's eyes, so sources go with the template */
    bool is_mapped_away;
    struct id_range ids; /* the host ids that sandboxes may borrow; none: */
    char why_no_ids[96];
    pid_t launcher_pid;
    double since;         /* when it was started, or its launcher was lost */
    double retry_at;      /* when it is started again; LOOP_NEVER */
    struct deadline clock;
    unsigned failures;    /* in a row, without a sandbox between */
    unsigned launchers;   /* that came since the start … */
    bool had_launcher;    /* … of this opener */
    uint64_t lost_launchers;
};

/* Starts nothing yet. @events and @owner stay the caller's. */
void hutch_helper_init(struct helper *h, struct core *core, const struct helper_events *events, void *owner);
int hutch_helper_start(struct helper *h, struct hutch_err *err);
/* Has all end that it started, and waits for that, at most a second and a bit. */
void hutch_helper_stop(struct helper *h);
void hutch_helper_done(struct helper *h);

/* The launcher gets @request, now or, when it is lost meanwhile, never: its loss is told. Errors: ESRCH when there is
 * none. */
int hutch_helper_order(struct helper *h, const struct launcher_request *request, const int *fds, size_t n_fds,
                       struct hutch_err *err);
/* Has a host path opened as a detached mount; answered by on_opened. @uid, @gid: with MOUNT_IDMAP the host ids that its
 * owner becomes, 0: those that sandboxes share. */
int hutch_helper_open(struct helper *h, uint32_t id, const char *path, unsigned flags, uid_t uid, gid_t gid,
                      struct hutch_err *err);
/* Has a volume made for a sandbox with these host ids, of @bytes and @files; or, where @base_fd is one's base, has that
 * mounted for another sandbox, after which @base_fd is of no use. Answered by on_opened. */
int hutch_helper_open_volume(struct helper *h, uint32_t id, int base_fd, uint64_t bytes, uint64_t files, uid_t uid,
                             gid_t gid, struct hutch_err *err);
/* An order about a data directory, with the data root as the store; answered by on_files. @list_fd: what
 * DISK_LIST or DISK_STEP compares with, else -1. False when there is no disk worker. */
bool hutch_helper_order_files(struct helper *h, const struct disk_request *request, int data_dirfd, int list_fd);
/* Has the memory of a volume freed by another process than the caller's, which closes its own descriptors next. */
void hutch_helper_drop_volume(struct helper *h, int base_fd);
/* Removes the directory @name of the data root, whenever that is: what lies there may be any number of files. */
void hutch_helper_remove_directory(struct helper *h, const char *name);

#endif
