/* opener.h - the engine's only child: makes the user namespace that all the others live in, and opens host paths as
 * mounts. */
#ifndef HUTCH_LAUNCHER_OPENER_H
#define HUTCH_LAUNCHER_OPENER_H

/* @sock: the engine's. @cgroup: where the engine's groups go, "" for nowhere because of @why_not. Ends when the engine
 * does, and takes all other processes with it. Returns the exit status. */
int hutch_opener_main(int sock, const char *cgroup, const char *why_not);

#endif
