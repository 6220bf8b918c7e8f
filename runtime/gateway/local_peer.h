/* local_peer.h - requests of hutch's own commands, by the same user on the same machine, who may ask for what no other
 * client may: that standard input is read, files are kept, or lie in a directory of the user's own, and that cells take
 * as long as they like.
 *
 * A header alone gives none of that, as a proxy hands on the headers of anybody: the other end of the unix socket has
 * to be a process of this user that executes the program `hutch` beside this one. What it asks for is granted only
 * where this server makes its sandboxes as the command would: else it is told so, and goes its own way. */
#ifndef HUTCH_GATEWAY_LOCAL_PEER_H
#define HUTCH_GATEWAY_LOCAL_PEER_H

#include <stdbool.h>
#include <stdint.h>

struct exchange;

#define LOCAL_SETTINGS "X-Hutch-Settings" /* what its sandbox is to be like: runtime/cli/settings.h */
#define LOCAL_DATA     "X-Hutch-Data"     /* the directory that is to be /mnt/data, percent-encoded */
#define LOCAL_INPUT    "X-Hutch-Stdin"    /* descriptor 0 of the peer; the value is where in a file it stands */
#define LOCAL_WALL     "X-Hutch-Wall"     /* a session's wall_ms, which may be HUTCH_NO_LIMIT */

struct local_grant {
    int input_fd;     /* owned; -1: none was asked for */
    char *data;       /* owned; path of the directory; NULL: a fresh one, which is kept */
    uint64_t wall_ms; /* 0: not said */
};
#define LOCAL_GRANT_INIT { .input_fd = -1 }

/* Whether the request claims to be one of these. */
bool hutch_local_peer_is_claimed(const struct exchange *x);
/* What one that claims it has asked for. False: the exchange is refused. hutch_local_grant_done() in any case. */
bool hutch_local_peer_grant(struct exchange *x, struct local_grant *ret);
void hutch_local_grant_done(struct local_grant *grant);

#endif
