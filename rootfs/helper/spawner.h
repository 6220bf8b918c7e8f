/* spawner.h - what makes the processes of a session besides its interpreter: sandbox/process_wire.h. */
#ifndef HUTCH_SPAWNER_H
#define HUTCH_SPAWNER_H

#include <stddef.h>

/* Makes one that serves @sock, a child of process 1. It has the caller's confinement, as every fork has, and its
 * directory; @env of @env_len bytes, NAME=VALUE each ended by a NUL, is what its processes get. Where it cannot be made
 * the socket's other end sees that it closes. */
void hutch_spawner_fork(int sock, const char *env, size_t env_len);

/* Serves @sock here, until its other end closes. Descriptor 3 stays open, and is for none of the processes. */
_Noreturn void hutch_spawner_serve(int sock, const char *env, size_t env_len);

#endif
