/* inner_answer.h - another worker's answer, as it is given to the client. */
#ifndef HUTCH_GATEWAY_INNER_ANSWER_H
#define HUTCH_GATEWAY_INNER_ANSWER_H

struct exchange;
struct http_reader;

/* Begins the answer with the status and the headers of @r, without those of the connection; the body is to be written
 * with hutch_exchange_write_all(). */
void hutch_inner_answer_begin(struct exchange *x, const struct http_reader *r);
/* The headers alone. */
void hutch_inner_answer_add_headers(struct exchange *x, const struct http_reader *r);

#endif
