/* netns.h - the network namespace of a sandbox without network: loopback, and nothing else. */
#ifndef HUTCH_NETNS_H
#define HUTCH_NETNS_H

#include "sandbox/err.h"

#define NETNS_TCP_BUFFERS "4096 16384 65536" /* minimum, default and maximum of a socket, tcp(7) */

/* Brings "lo" up in the calling process's network namespace, so that code which talks to itself works. */
int hutch_netns_loopback_up(struct hutch_err *err);

/* Makes TCP buffers small in the calling process's network namespace, through the host's proc: all namespaces share the
 * host's memory for them (net.ipv4.tcp_mem), which code inside could otherwise use up. */
int hutch_netns_bound_buffers(struct hutch_err *err);

#endif
