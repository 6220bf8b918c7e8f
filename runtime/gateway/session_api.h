/* session_api.h - sessions: open, list, look at, close, and what concerns the whole of one. */
#ifndef HUTCH_GATEWAY_SESSION_API_H
#define HUTCH_GATEWAY_SESSION_API_H

struct exchange;
struct gateway_session;
struct hutch_cell_result;
struct hutch_session_options;

void hutch_session_api_open(struct exchange *x);
void hutch_session_api_list(struct exchange *x);
void hutch_session_api_get(struct exchange *x);
void hutch_session_api_close(struct exchange *x);
void hutch_session_api_interrupt(struct exchange *x);
void hutch_session_api_restart(struct exchange *x);
void hutch_session_api_pause(struct exchange *x);
void hutch_session_api_resume(struct exchange *x);
void hutch_session_api_lifetime(struct exchange *x);

/* Opens a session of the asker's, with its own on_end and user. NULL: the exchange is refused. */
struct gateway_session *hutch_session_api_begin(struct exchange *x, struct hutch_session_options *options);

/* In on_result of a cell: for the metrics, and what was uploaded before it is counted by now. */
void hutch_session_api_count_cell(struct exchange *x, struct gateway_session *session,
                                  const struct hutch_cell_result *result);

/* The session that the path names, if it is the asker's; else the exchange is refused, and NULL. */
struct gateway_session *hutch_session_api_find(struct exchange *x);

#endif
