/* await_files.h - a request about a session's files, which are there from its first sandbox on. */
#ifndef HUTCH_GATEWAY_AWAIT_FILES_H
#define HUTCH_GATEWAY_AWAIT_FILES_H

struct exchange;
struct gateway_session;

/* Calls @go with the exchange, its gathered body and the session when there are files: at once, or later. Else the
 * exchange is refused. Has its work until then. */
void hutch_await_files(struct exchange *x, struct gateway_session *session,
                       void (*go)(struct exchange *x, struct gateway_session *session));

#endif
