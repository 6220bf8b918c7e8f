/* session_api.h - sessions: open, list, look at, close, and what concerns the whole of one. */
#ifndef HUTCH_GATEWAY_SESSION_API_H
#define HUTCH_GATEWAY_SESSION_API_H

#include "runtime/gateway/error.h"

struct exchange;
struct gateway_session;
struct hutch_cell_result;
struct hutch_session_options;
struct placement;

void hutch_session_api_open(struct exchange *x);
void hutch_session_api_list(struct exchange *x);
void hutch_session_api_get(struct exchange *x);
void hutch_session_api_close(struct exchange *x);
void hutch_session_api_interrupt(struct exchange *x);
void hutch_session_api_restart(struct exchange *x);
void hutch_session_api_pause(struct exchange *x);
void hutch_session_api_resume(struct exchange *x);
void hutch_session_api_lifetime(struct exchange *x);

/* The session that the path names, if it is the asker's; else the exchange is refused, and NULL. */
struct gateway_session *hutch_session_api_find(struct exchange *x);

/* ---- for the formats ---- */

/* Where a session is opened: struct format's place(). */
void hutch_session_api_place(const struct exchange *x, struct placement *ret);

/* Opens one for the asker, within its share. NULL: the exchange was refused. */
struct gateway_session *hutch_session_api_begin(struct exchange *x, struct hutch_session_options *options);
/* The asker's of this name; NULL: there is none, and nothing was answered. */
struct gateway_session *hutch_session_api_find_name(struct exchange *x, const char *name);
/* The asker's own that have names, one after the other; @after is NULL at first. */
struct gateway_session *hutch_session_api_next_named(struct exchange *x, struct gateway_session *after);
/* Nobody finds it from here on; it is gone after the results of its cells. */
void hutch_session_api_end(struct exchange *x, struct gateway_session *session);
/* In on_result of a cell: for the metrics, and what was uploaded before it is counted by now. @session: NULL
 * when it was ended meanwhile. */
void hutch_session_api_count_cell(struct exchange *x, struct gateway_session *session,
                                  const struct hutch_cell_result *result);
/* What it is to a client that has asked for an interpreter, where @result is not HUTCH_OK. */
enum gateway_error hutch_session_api_error(const struct hutch_cell_result *result);

#endif
