/* orders.c - what a session is to do, one after the other, and what is answered without being done. */
#include "runtime/session/session_priv.h"

#include "runtime/cell/result_json.h"
#include "sandbox/clock.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

void hutch_order_free(struct order *order)
{
    for (char **entry = order->env; entry && *entry; entry++)
        free(*entry);
    free(order->env);
    cJSON_Delete(order->question);
    cJSON_Delete(order->calls);
    free(order->code);
    free(order->context);
    free(order->cwd);
    free(order);
}

void hutch_order_take_out(struct session *s, struct order_list *list, struct order *order)
{
    TAILQ_REMOVE(list, order, link);
    if (list == &s->orders)
        s->n_orders--;
}

/* A result of a cell that did not run, or whose interpreter died. */
struct hutch_cell_result hutch_order_empty_result(const struct order *order, double now)
{
    return (struct hutch_cell_result){
        .size = sizeof(struct hutch_cell_result),
        .message = "",
        .outputs = "[]",
        .queued_ms = now - order->t_queued,
        .cpu_user_ms = HUTCH_UNKNOWN,
        .cpu_system_ms = HUTCH_UNKNOWN,
        .memory_peak_bytes = HUTCH_UNKNOWN,
        .id = order->id,
    };
}

/* Answers it without having done it. */
void hutch_order_refuse(struct session *s, struct order *order, enum hutch_verdict verdict, const char *why)
{
    struct hutch_cell_result result = hutch_order_empty_result(order, hutch_clock_ms());
    struct hutch_cell_details details = { .code = order->code };
    char words[sizeof(s->why)]; /* @why may be the session's own, which changes when it is closed in the callback */
    struct hutch_reply reply = { .size = sizeof(reply), .message = words, .lost = "[]" };

    snprintf(words, sizeof(words), "%s", why);
    result.verdict = verdict;
    result.message = words;
    result.internal = &details;
    if (order->kind != ORDER_CELL && order->on_reply)
        order->on_reply(order->user, s->id, &reply);
    else if (order->cell.on_result)
        order->cell.on_result(order->cell.user, s->id, &result);
    hutch_order_free(order);
}

void hutch_session_doom(struct session *s, struct order *order, enum hutch_verdict verdict, const char *why)
{
    for (struct order *next; order; order = next) {
        next = TAILQ_NEXT(order, link);
        hutch_order_take_out(s, &s->orders, order);
        TAILQ_INSERT_TAIL(&s->doomed, order, link);
        order->verdict = verdict;
        order->why = why;
    }
    hutch_session_ask_for_work(s);
}

static void answer_list(struct session *s, struct order_list *list)
{
    while (!TAILQ_EMPTY(list)) {
        struct order *order = TAILQ_FIRST(list);

        hutch_order_take_out(s, list, order);
        hutch_order_refuse(s, order, order->verdict, order->why);
    }
}

void hutch_session_answer_doomed(struct session *s)
{
    answer_list(s, &s->doomed);
}

void hutch_session_answer_cancelled(struct session *s)
{
    answer_list(s, &s->cancelled);
}

/* --- cells that are not to be executed any more ------------------------------------------------------------------ */

static void cancel(struct session *s, struct order *order, const char *why)
{
    if (order == TAILQ_FIRST(&s->orders))
        s->cell.interrupts_next = false; /* that was meant for this one */
    hutch_order_take_out(s, &s->orders, order);
    TAILQ_INSERT_TAIL(&s->cancelled, order, link);
    order->verdict = HUTCH_KILLED;
    order->why = why;
    s->t_used = hutch_clock_ms();
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, 0); /* it may be idle from here on */
    hutch_session_ask_for_work(s);
}

int hutch_session_cancel_order(struct session *s, uint64_t cell)
{
    struct order *order;

    TAILQ_FOREACH(order, &s->orders, link) {
        if (order->kind != ORDER_CELL || order->id != cell)
            continue;
        if (order == hutch_session_at_work(s))
            return hutch_session_interrupt_cell(s) ? 2 : 0;
        cancel(s, order, "the cell was cancelled before it began");
        return 1;
    }
    return 0;
}

void hutch_session_cancel_waiting(struct session *s, const char *why)
{
    struct order *order, *next;

    for (order = TAILQ_FIRST(&s->orders); order; order = next) {
        next = TAILQ_NEXT(order, link);
        if (order->kind == ORDER_CELL)
            cancel(s, order, why);
    }
}
