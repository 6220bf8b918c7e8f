/* orders.c - what a session is to do, one after the other, and what is answered without being done. */
#include "runtime/session/session_priv.h"

#include "runtime/cell/result_json.h"
#include "sandbox/clock.h"

#include <stdlib.h>

void hutch_order_free(struct order *order)
{
    free(order->code);
    free(order->context);
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
    };
}

/* Answers it without having done it. */
void hutch_order_refuse(struct session *s, struct order *order, enum hutch_verdict verdict, const char *why)
{
    struct hutch_cell_result result = hutch_order_empty_result(order, hutch_clock_ms());
    struct hutch_cell_details details = { .code = order->code };
    struct hutch_reply reply = { .size = sizeof(reply), .message = why, .lost = "[]" };

    result.verdict = verdict;
    result.message = why;
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

void hutch_session_answer_doomed(struct session *s)
{
    while (!TAILQ_EMPTY(&s->doomed)) {
        struct order *order = TAILQ_FIRST(&s->doomed);

        hutch_order_take_out(s, &s->doomed, order);
        hutch_order_refuse(s, order, order->verdict, order->why);
    }
}
