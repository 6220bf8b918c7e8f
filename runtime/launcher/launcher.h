/* launcher.h - clones sandboxes and zygotes for the engine. It holds nothing that a fresh one could not be told
 * again. */
#ifndef HUTCH_LAUNCHER_LAUNCHER_H
#define HUTCH_LAUNCHER_LAUNCHER_H

struct cgroup_base;

/* In a fresh child of the anchor. @sock: the engine's orders (runtime/launcher/wire.h). @is_mapped_away: sources come
 * as descriptors. */
_Noreturn void hutch_launcher_main(int sock, const struct cgroup_base *base, int is_mapped_away);

/* Where the anchor mounts an empty tmpfs for the launcher to put such sources. */
#define LAUNCHER_SHELF "/tmp"

#endif
