#include "runtime/session/question.h"

#include "runtime/session/session_priv.h"
#include "runtime/text/nbjson.h"
#include "sandbox/clock.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 5000 /* from the interrupt until the answer is not waited for any more */

void hutch_question_clear(struct session *s)
{
    free(s->question.answer);
    s->question = (struct session_question){ .id = s->question.id };
}

static void answer(struct session *s, const char *why, bool is_stuck)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    struct session_question *q = &s->question;
    char *json = q->answer;
    struct hutch_reply reply = {
        .size = sizeof(reply),
        .ok = !why,
        .message = why ? why : "",
        .lost = "[]",
        .ms = hutch_clock_ms() - q->t_begun,
        .json = why || order->context ? NULL : json,
    };

    q->answer = NULL;
    hutch_question_clear(s);
    q->is_stuck = is_stuck;
    hutch_interpreter_set_in_cell(s->interpreter, false); /* what it says from here on is bounded anew */
    if (!why && order->on_answered)
        order->on_answered(s, order);
    hutch_session_answer_order(s, &reply);
    free(json);
}

static void refuse(struct session *s, const char *why, const char *what)
{
    snprintf(s->question.refusal, sizeof(s->question.refusal), "%s%.*s", why, CONTEXTS_MAX_NAME, what);
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, 0);
}

void hutch_question_begin(struct session *s, struct order *order)
{
    struct session_question *q = &s->question;
    double now = hutch_clock_ms();
    bool is_stuck = q->is_stuck;
    struct hutch_err err;

    hutch_question_clear(s);
    q->is_stuck = is_stuck;
    q->t_begun = now;
    q->stop_at = now + (double)order->timeout_ms;
    q->give_up_at = q->stop_at + PATIENCE_MS;
    if (is_stuck) {
        refuse(s, "the interpreter is still at an earlier question, which an interrupt did not end", "");
        return;
    }
    if (order->context && !hutch_contexts_has(&s->contexts, order->context)) {
        refuse(s, "there is no context ", order->context);
        return;
    }
    q->id++;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, q->stop_at);
    hutch_interpreter_set_in_cell(s->interpreter, false);
    if (!cJSON_AddNumberToObject(order->question, "id", (double)q->id) ||
        hutch_interpreter_send(s->interpreter, order->question, -1, &err) < 0)
        refuse(s, "there is no memory to ask the interpreter", "");
}

/* {"is":"answer", "id", "ok", "reply": {…}}, or with "why" instead. */
void hutch_question_hear(struct session *s, const struct cell_event *event)
{
    struct session_question *q = &s->question;
    const struct cJSON *reply;

    if (event->id != q->id || q->is_answered)
        return;
    if (q->is_stuck) {
        q->is_stuck = false;
        return;
    }
    q->is_answered = true;
    reply = cJSON_GetObjectItemCaseSensitive(event->frame, "reply");
    q->is_ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(event->frame, "ok")) && cJSON_IsObject(reply);
    if (q->is_ok) {
        q->answer = hutch_nbjson_print(reply, NBJSON_COMPACT, NULL);
        q->is_ok = q->answer;
        return;
    }
    reply = cJSON_GetObjectItemCaseSensitive(event->frame, "why");
    q->answer = cJSON_IsString(reply) ? hutch_nbjson_c_text(reply) : NULL;
}

void hutch_question_turn(struct session *s)
{
    const struct session_question *q = &s->question;
    char why[512];

    if (!q->is_answered)
        return;
    snprintf(why, sizeof(why), "%s", q->answer && !q->is_ok ? q->answer : "the interpreter had no answer");
    why[strcspn(why, "\n")] = '\0';
    if (!q->is_ok && q->was_interrupted)
        snprintf(why, sizeof(why), "the interpreter was interrupted before it had an answer");
    answer(s, q->is_ok ? NULL : why, false);
}

void hutch_question_interrupt(struct session *s)
{
    s->question.was_interrupted = true;
    s->question.stop_at = 0;
    if (s->run->slot)
        hutch_sandbox_signal(&s->run->slot->sb, SIGINT);
}

/* An interpreter that hangs in a question is not killed for it: a cell with a time limit finds out. */
double hutch_question_check(struct session *s, double now)
{
    const struct session_question *q = &s->question;

    if (q->refusal[0]) {
        char why[sizeof(q->refusal)];

        memcpy(why, q->refusal, sizeof(why));
        answer(s, why, q->is_stuck);
        return LOOP_NEVER;
    }
    if (q->stop_at > 0 && now >= q->stop_at)
        hutch_question_interrupt(s);
    if (now < q->give_up_at)
        return q->stop_at > 0 ? q->stop_at : q->give_up_at;
    answer(s, "the interpreter does not answer, also not after it was interrupted", true);
    return LOOP_NEVER;
}
