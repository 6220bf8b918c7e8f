/* sockets.h - what the kernel holds for the sockets of a network namespace, open or in flight. Source: sock_diag(7). */
#ifndef HUTCH_SOCKETS_H
#define HUTCH_SOCKETS_H

#include <stdint.h>

#define SOCKETS_FEW 32 /* below that their buffers do not matter, where netns.h has bounded them */

/* For hutch_sockets_memory(), in the network namespace that is asked about. -1 with errno. */
int hutch_sockets_open(void);

/* An estimate, in bytes: buffers as far as the kernel tells, and the sockets themselves. A queue whose sender has
 * closed counts as full. @n_used: how many sockets there are, from /proc/net/sockstat. @few: with fewer their
 * buffers are not asked for. No allocation. */
uint64_t hutch_sockets_memory(int fd, uint64_t n_used, uint64_t few);

#endif
