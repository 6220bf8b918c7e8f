/* session_priv.h - what the files of a session share: session.c its life, orders.c its queue, cell.c the cell that it
 * executes, idle.c how often it is checked between cells. */
#ifndef HUTCH_SESSION_SESSION_PRIV_H
#define HUTCH_SESSION_SESSION_PRIV_H

#include "runtime/session/session.h"

#define SESSION_IDLE_AFTER_MS 200 /* without a cell, its sandbox is checked less often */

/* --- session.c --- */

void hutch_session_set_state(struct session *session, enum session_state state);
/* hutch_sessions_work() is to be called. */
void hutch_session_ask_for_work(struct session *session);
/* NULL without a sandbox. */
struct supervisor *hutch_session_supervisor(struct session *session);

/* --- landing.c --- */

/* Whether its files are on the disk, or need not be: none are there. Else it asks for work when that has changed. */
bool hutch_session_land(struct session *session);

/* --- orders.c --- */

void hutch_order_take_out(struct session *session, struct order_list *list, struct order *order);
/* A result of a cell that did not run, or whose interpreter died. */
struct hutch_cell_result hutch_order_empty_result(const struct order *order, double now);
/* Answers it without having done it, and frees it. */
void hutch_order_refuse(struct session *session, struct order *order, enum hutch_verdict verdict, const char *why);
void hutch_session_answer_doomed(struct session *session);
/* The cells that wait are not going to be executed. */
void hutch_session_cancel_waiting(struct session *session, const char *why);
void hutch_session_answer_cancelled(struct session *session);

/* --- cell.c --- */

void hutch_session_start_cell(struct session *session, struct order *order);
/* @cell NULL: what is at work is no cell, or is over. */
void hutch_session_hear_cell(struct session *session, const struct hutch_cell *cell, const struct cell_event *event);
/* Stops the cell when it has said too much. */
void hutch_session_bound_output(struct session *session);
/* Does what is due of its limits, and says when something is due next. */
double hutch_session_check_cell(struct session *session, double now);
/* It is done: the result has all but its files. */
void hutch_session_conclude_cell(struct session *session);
/* Looks for them, or has the disk worker's list; tells the result. */
void hutch_session_deliver_cell(struct session *session);
/* The interpreter is dead: what was at work is answered, or waits for the next one; or it was a cell, which is
 * concluded. */
void hutch_session_lose_order(struct session *session);
/* Whether it would be given to the next interpreter then. */
bool hutch_session_repeats_cell(const struct session *session);
/* Writes to session->why how an interpreter ended that was not asked to. */
void hutch_session_describe_death(struct session *session);

/* --- idle.c --- */

/* Init and the supervisor check a sandbox closely while a cell runs, and now and then between cells. */
void hutch_session_set_idle(struct session *session, bool is_idle);
/* The same as it is, for a sandbox that was paused. */
void hutch_session_renew_pace(struct session *session);

#endif
