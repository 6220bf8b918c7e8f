/* fdpass.h - a message with descriptors over a Unix socket: SCM_RIGHTS, unix(7). */
#ifndef HUTCH_FDPASS_H
#define HUTCH_FDPASS_H

#include <stddef.h>
#include <sys/types.h>

#define FDPASS_MAX 253 /* SCM_MAX_FD */

/* Sends @len bytes and copies of @n_fds descriptors. The count of bytes, or -1 with errno: EPIPE when the other end is
 * closed (no SIGPIPE), EAGAIN, EMSGSIZE, ETOOMANYREFS (more descriptors of this user's processes are on their way than
 * the hard limit RLIMIT_NOFILE: with MSG_DONTWAIT at once, else after a second). @flags: MSG_DONTWAIT or 0. */
ssize_t hutch_fdpass_send(int sock, const void *buf, size_t len, const int *fds, size_t n_fds, int flags);

/* Sends two pieces as one message. */
ssize_t hutch_fdpass_send2(int sock, const void *head, size_t head_len, const void *tail, size_t tail_len,
                           const int *fds, size_t n_fds, int flags);

/* Takes one message. The count of bytes, 0 when the other side is gone, or -1 with errno. @fds receives up to @max_fds
 * descriptors (close-on-exec), which the caller owns; unwanted ones are closed. A message that was cut is EMSGSIZE, and
 * its descriptors are closed. */
ssize_t hutch_fdpass_receive(int sock, void *buf, size_t len, int *fds, size_t max_fds, size_t *ret_n, int flags);

/* From now on a process that sends descriptors to @sock gets EPERM. It is not enough to read without room for them: the
 * kernel then closes them in the reader, which may have the last reference, and closing a socket waits as long as its
 * sender has chosen (SO_LINGER). 0, or -1 with errno: ENOPROTOOPT before Linux 6.16. */
int hutch_fdpass_forbid(int sock);

#endif
