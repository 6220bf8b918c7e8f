/* anchor.h - process 1 of the engine's pid namespace: with it, everything in there dies. It reaps, and keeps a launcher
 * alive. */
#ifndef HUTCH_LAUNCHER_ANCHOR_H
#define HUTCH_LAUNCHER_ANCHOR_H

struct cgroup_base;
struct id_plan;

/* In a fresh child of the opener, in its new namespaces. @sock: a copy of the engine's socket in the opener, to send
 * each launcher's socket over and to see the engine's end by; @go_fd: readable when the id maps are written, closed
 * when the opener has ended. */
_Noreturn void hutch_anchor_main(int sock, int go_fd, const struct id_plan *plan, const struct cgroup_base *base);

#endif
