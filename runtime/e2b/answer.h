/* answer.h - answers of E2B's format, and its errors. */
#ifndef HUTCH_E2B_ANSWER_H
#define HUTCH_E2B_ANSWER_H

#include "runtime/gateway/error.h"

#include <stdbool.h>
#include <stddef.h>

struct exchange;
struct text_buffer;

void hutch_e2b_answer_empty(struct exchange *x, unsigned status);
/* {"code", "message"} with a status that no gateway_error has. */
void hutch_e2b_answer_error(struct exchange *x, unsigned status, const char *message);

/* One message of a stream that has begun. False: the client is too far behind, or memory was short. */
bool hutch_e2b_answer_message(struct exchange *x, unsigned flags, const struct text_buffer *json);

/* The Connect stream of @x that has begun: where it is silent it has @sign, static, whole with its head, after as many
 * seconds as the client's Keepalive-Ping-Interval says, or 90 as with envd. */
void hutch_e2b_answer_break_silence(struct exchange *x, const char *sign, size_t len);

/* struct format's refusal: {"code": 404, "message"}; a word as code for what speaks Connect, and for its streams that
 * as their last message. */
char *hutch_e2b_answer_refusal(const struct exchange *x, enum gateway_error error, const char *message,
                               unsigned *status, const char **type, size_t *ret_len);

#endif
