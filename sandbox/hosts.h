/* hosts.h - the text of a sandbox's /etc/hosts: what the image's file says, and the names of the sandbox itself.
 *
 * Programs ask for the address of their own host name (Java's getLocalHost(), Erlang, MPI, Sun's RPC), and no image can
 * have a line for a name that the policy gives. The address is Debian's for this, 127.0.1.1: hosts(5). */
#ifndef HUTCH_HOSTS_H
#define HUTCH_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#define HOSTS_MAX_GIVEN 16384u /* of the image's file; what is beyond is left out */
#define HOSTS_MAX (HOSTS_MAX_GIVEN + 512u)

/* Whether no line of @given has ::1 for "localhost". */
bool hutch_hosts_lack_ipv6(const char *given, size_t len);

/* Writes the text to @buf, of HOSTS_MAX bytes, and returns its length. First come 127.0.0.1 and, with @has_ipv6, ::1
 * for "localhost" where the image lacks them; then 127.0.1.1 for @name; then the image's lines, @given, without those
 * that name @name: a line of a build machine would send programs there. A @name that is no host name, as a container
 * may have, has no line. */
size_t hutch_hosts_format(const char *given, size_t len, const char *name, bool has_ipv6, char *buf);

#endif
