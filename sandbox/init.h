/* init.h - PID 1 of a sandbox: trusted code that builds the sandbox around itself, starts the worker in it, reaps,
 * and tells the supervisor how the worker ended. Its word is the fact behind every verdict. */
#ifndef HUTCH_INIT_H
#define HUTCH_INIT_H

#include "sandbox/err.h"
#include "sandbox/meminfo.h"
#include "sandbox/mounts.h"
#include "sandbox/seccomp.h"
#include "sandbox/userns.h"
#include "sandbox/worker.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

struct sandbox_spec;

/* What a sandbox is without although its policy tried: an errno says why, 0 that it has it. */
struct init_waived {
    uint32_t shares_inodes; /* of mount_sources, whose overlay_errnum may be 0 all the same */
    int32_t  overlay_errnum, proc_errnum, host_name_errnum, buffers_errnum;
};

/* Everything that init needs, made ready before clone(2) but for the filter: after it there is no parsing and no
 * look-up. */
struct init_job {
    const struct sandbox_spec *spec;
    struct id_plan ids;
    bool has_own_id; /* ids: no other sandbox has them */
    struct mount_sources sources;
    struct worker_plan plan;
    struct seccomp_program seccomp; /* room for BPF_MAXINSNS; the supervisor sends the program after INIT_GO */
    int  landlock_abi;  /* 0: not applied */
    int  landlock_fd;   /* init makes it: the worker's ruleset, -1 without */
    dev_t data_dev;     /* init finds it: of MOUNT_DATA, 0 without */
    bool counts_shared; /* samples also count shared memory that no process shows as its own: no cgroup counts it */
    struct init_waived waived; /* init finds it */
    bool wants_samples; /* memory, CPU time and processes are counted by init every SAMPLE_MS and sent */
    bool is_waiting;    /* there is no program: a worker comes from outside and is given to init by INIT_ADOPT */
    struct meminfo meminfo; /* what the sandbox's /proc/meminfo shows */
    int  control_fd;    /* init's end of a SOCK_SEQPACKET pair */
    int  parent_fd;     /* the supervisor's end, to be closed in the child */
    int  stdio[3];      /* what the worker gets as 0, 1, 2; of a waiting init whatever is open */
    int  report_fd;     /* what the worker gets as 3, or -1 */
};

#define INIT_SAMPLE_MS 100
#define INIT_CHECK_MAX_MS 60000
#define INIT_REPORT_FD 3 /* the number of report_fd in the worker */

/* From init to the supervisor. */
enum init_msg_kind {
    INIT_SETUP_FAILED, /* err; no foreign code has run */
    INIT_EXEC_FAILED,  /* err: the worker's program could not be executed */
    INIT_BUILT,        /* the sandbox is built and init confined: the worker's program may run from here on */
    INIT_STARTED,      /* … and runs */
    INIT_SAMPLE,       /* sample */
    INIT_ENDED,        /* ended; everything else in the sandbox dies now */
    INIT_READY,        /* a waiting init: the sandbox is built. With it comes the Landlock ruleset, where there is
                        * one */
    INIT_ADOPTED,      /* init has no capability left, is out of reach of any other process, and has its own filter */
    INIT_ATTACHED,     /* init knows the data directory */
    INIT_FOLLOWED,     /* followed: the worker now; 0: the order was refused, and nothing has changed */
    INIT_SIGNALLED,    /* an INIT_SIGNAL was carried out: what it was sent to has it, or had ended */
    INIT_PAUSED,       /* paused: after INIT_PAUSE, and when something has run in spite of it */
    INIT_LIMITED,      /* an INIT_LIMIT_MEMORY was carried out */
    INIT_OUTLIVED,     /* ended: the worker; all others but those of INIT_KEEP are dead, and INIT_FOLLOW may come */
    INIT_WATCHED,      /* process: its end will be told; status 1: it will not, as the order was refused */
    INIT_PROCESS_ENDED, /* process: one that was watched */
};
struct init_process {
    pid_t pid;
    int status; /* as wait(2) has it */
};
/* What is true or false is a number, 0 for false: no byte that a socket brings is an invalid one. */
struct init_sample {
    uint64_t memory_bytes; /* all processes: proportional share where readable, else resident */
    uint64_t cpu_ms;       /* user and system, living and gone; never less than in the sample before */
    uint64_t pids;         /* threads, without init */
    uint64_t in_flight;    /* descriptors that wait in unix sockets which some process has open */
    uint64_t unlinked_bytes; /* of files in MOUNT_DATA that have no name any more and are open in some process */
    uint32_t is_cpu_lower_bound; /* some children were reaped by the kernel, with what they used since the last look */
    uint32_t is_hidden;    /* a process did not let init read its /proc entries: what it holds is not counted */
    uint32_t is_cut_short; /* there was too much to count; the numbers are of what was reached */
    uint32_t is_memory_upper_bound; /* what several processes share counts for each */
};
struct init_end {
    int status;          /* of the worker, as wait(2) has it */
    struct rusage usage; /* of all that init has reaped */
    uint64_t cpu_ms;     /* of all processes, where init counts; else 0 */
    uint32_t is_cpu_lower_bound;
};
struct init_msg {
    enum init_msg_kind kind;
    struct init_waived waived; /* INIT_BUILT, INIT_STARTED, INIT_EXEC_FAILED, INIT_READY, INIT_SETUP_FAILED */
    uint32_t built; /* INIT_SETUP_FAILED: the layers that stood by then, 1u << enum sandbox_layer */
    union {
        struct hutch_err err;
        struct init_sample sample;
        struct init_end ended;
        pid_t followed;
        struct init_process process;
        struct {
            uint32_t is_still;  /* no process ran at the last look; 0: some did, and were stopped again */
            uint32_t is_answer; /* to INIT_PAUSE */
        } paused;
    };
};

/* From the supervisor to init. */
enum init_order_kind {
    INIT_GO,     /* the id maps are written */
    INIT_SIGNAL, /* value: signal to send to the worker's process group -> INIT_SIGNALLED */
    /* To a waiting init, in this order: */
    INIT_ADOPT,  /* value: the worker, which is its child by now -> INIT_ADOPTED */
    INIT_ATTACH, /* the data directory is in its place (attach.h) -> INIT_ATTACHED. May be left out */
    INIT_LIMIT_MEMORY, /* amount: bytes, the limit from here on, where it is less than before -> INIT_LIMITED. May be
                        * left out */
    INIT_START,  /* the worker is about to get its code. value: the memory holder, a process that only holds the
                  * worker's memory, which is not counted twice; 0 for none */
    /* At any time: */
    INIT_CHECK_INTERVAL, /* value: 0: a sample every INIT_SAMPLE_MS, as in the beginning. Else ms from one check of the
                          * CPU clocks to the next, which is far cheaper and leads to a sample only when CPU time was
                          * used */
    INIT_SPARE,  /* value: a process that the next INIT_FOLLOW leaves alone; INIT_MAX_SPARED at most */
    INIT_FOLLOW, /* value: a child of init that is the worker from here on. All others but the spared ones are killed ->
                  * INIT_FOLLOWED */
    INIT_KEEP,   /* value: a child of init that outlives the worker: as long as one lives, its end is INIT_OUTLIVED.
                  * INIT_MAX_SPARED living ones at most */
    INIT_PAUSE,  /* value: 1: all other processes stand still, as far as signals can do that (pause.h) -> INIT_PAUSED;
                  * 0: they go on. Where a control group can freeze them, init with them, that is not needed */
    INIT_EXEMPT, /* value: a child of init that neither INIT_FOLLOW nor INIT_OUTLIVED kills. It keeps nothing alive. One
                  * at most: the last one that was named */
    INIT_WATCH,  /* value: a child of init whose end is told -> INIT_WATCHED, then INIT_PROCESS_ENDED. WATCHED_MAX
                  * living ones at most */
    INIT_SIGNAL_PROCESS, /* pid: one that is watched; value: the signal for its process group */
};
#define INIT_MAX_SPARED 80

struct init_order {
    int what; /* enum init_order_kind */
    int value;
    uint64_t amount; /* INIT_LIMIT_MEMORY */
    pid_t pid; /* INIT_SIGNAL_PROCESS */
};

/* Runs in the child of clone(2) and never returns. */
_Noreturn void hutch_init_main(const struct init_job *job);

#endif
