/* cpu_ledger.h - the CPU time of all processes of a sandbox together, as a total that never falls.
 *
 * A process that is reaped adds its time to its parent's count of reaped children. One whose parent ignores SIGCHLD (or
 * has set SA_NOCLDWAIT) is reaped by the kernel, which adds it to no count: then the ledger keeps what was last seen of
 * it. What it used after that is lost, so the total is a lower bound. Source: wait_task_zombie() and
 * do_notify_parent() of the kernel, proc(5). */
#ifndef HUTCH_CPU_LEDGER_H
#define HUTCH_CPU_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CPU_LEDGER_MAX 4096     /* processes that are remembered; what others leave behind is not known */
#define CPU_TICK_MAX_NS 20000000 /* what proc(5) leaves out of a process's reaped children: a tick of user and one of
                                  * system time, a hundredth of a second each */

/* One process at one look. */
struct cpu_seen {
    pid_t pid, parent;
    uint64_t started;   /* in ticks since the host's start: with the number it names one process for ever */
    uint64_t own_ns;
    uint64_t reaped_ns; /* of its children, rounded down to ticks */
};

struct cpu_entry {
    struct cpu_seen seen;
    uint64_t need_ns;     /* of its children that are gone since the last look */
    uint64_t borrowed_ns; /* of that, what was taken to hide in the rounding of reaped_ns; CPU_TICK_MAX_NS at most */
};

struct cpu_ledger {
    struct cpu_entry looks[2][CPU_LEDGER_MAX]; /* this look and the last one, each sorted by number */
    size_t n[2];
    int now;              /* which is this look */
    uint64_t reaped_ns;   /* by init itself, at the last look */
    uint64_t lost_ns;     /* of processes that are gone and in no count */
    uint64_t doubtful_ns; /* gone since the last look, and in no count yet: the parent may have been looked at before
                           * it reaped. The next look tells */
    uint64_t total_ns;
    bool is_lower_bound;
};

void hutch_cpu_ledger_begin(struct cpu_ledger *ledger);
/* Once for each process between hutch_cpu_ledger_begin() and hutch_cpu_ledger_end(). */
void hutch_cpu_ledger_see(struct cpu_ledger *ledger, const struct cpu_seen *seen);
/* @reaped_ns: of the children that init itself has reaped. Returns the total. */
uint64_t hutch_cpu_ledger_end(struct cpu_ledger *ledger, uint64_t reaped_ns);
/* Instead of hutch_cpu_ledger_end(), when the look did not reach all processes: the last whole one stays. */
void hutch_cpu_ledger_drop(struct cpu_ledger *ledger);

#endif
