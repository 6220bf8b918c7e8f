/* local_peer.h - requests of `hutch run` itself, by the same user on the same machine, who may ask for what no other
 * client may: that its standard input is read, its files are kept, or lie in a directory of its own.
 *
 * A header alone gives none of that, as a proxy hands on the headers of anybody: the other end of the unix socket has
 * to be a process of this user that executes the program `hutch` beside this one. What it asks for is granted only
 * where this server makes its sandboxes as the command would: else it is told so, and goes its own way. */
#ifndef HUTCH_GATEWAY_LOCAL_PEER_H
#define HUTCH_GATEWAY_LOCAL_PEER_H

#include <stdbool.h>

struct exchange;
struct hutch_request;

#define LOCAL_SETTINGS "X-Hutch-Settings" /* what its sandbox is to be like: runtime/cli/settings.h */
#define LOCAL_DATA     "X-Hutch-Data"     /* the directory that is to be /mnt/data, percent-encoded */
#define LOCAL_INPUT    "X-Hutch-Stdin"    /* descriptor 0 of the peer; the value is where in a file it stands */

/* Whether the request claims to be one of these. */
bool hutch_local_peer_is_claimed(const struct exchange *x);
/* Adds to @request what only they have. False: the exchange is refused. *@ret_input: a descriptor for the caller to
 * close, or -1; *@ret_data: its text, to be freed, or NULL. */
bool hutch_local_peer_grant(struct exchange *x, struct hutch_request *request, int *ret_input, char **ret_data);

#endif
