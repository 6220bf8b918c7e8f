/* question.h - an order that the shell of a session answers with one message, and no cell: what a line goes on with,
 * what is known of a name. The answer is the interpreter's word, and decides nothing. */
#ifndef HUTCH_SESSION_QUESTION_H
#define HUTCH_SESSION_QUESTION_H

#include "runtime/cell/feed.h"

#include <stdbool.h>
#include <stdint.h>

struct order;
struct session;

/* The one that is at work. */
struct session_question {
    int64_t id;
    bool is_stuck;         /* an earlier one, of this id, was given up and has not ended: the next is not asked */
    char refusal[160];     /* why it is not asked, which is told by the next turn: no answer comes within the call that
                            * asks; "": it is */
    bool is_answered, is_ok;
    bool was_interrupted;  /* it took too long, or its caller asked for that */
    double t_begun;
    double stop_at;        /* it is interrupted; 0: it was */
    double give_up_at;     /* it is not waited for any more */
    char *answer;          /* owned; JSON; is_ok: the reply, else why there is none; NULL: neither */
};

/* Orders of the kind ORDER_ASK. The answer comes by hutch_session_answer_order(). */
void hutch_question_begin(struct session *session, struct order *order);
void hutch_question_hear(struct session *session, const struct cell_event *event); /* CELL_OTHER */
/* Something came that may have been the answer. */
void hutch_question_turn(struct session *session);
void hutch_question_interrupt(struct session *session);
/* Does what is due, and says when something is due next. */
double hutch_question_check(struct session *session, double now);
/* It is answered, or its interpreter is not the session's any more. */
void hutch_question_clear(struct session *session);

#endif
