/* access.h - what is asked of a request before its body is read: where it comes from, who asks, what for, how large it
 * is. */
#ifndef HUTCH_GATEWAY_ACCESS_H
#define HUTCH_GATEWAY_ACCESS_H

#include <stdbool.h>

struct exchange;

/* Finds route and token, or refuses the exchange. In the first call of MHD's access handler, with what it is given. */
void hutch_access_check(struct exchange *x, const char *path, const char *method, const char *version);

/* To an answer: what a page of an allowed origin may see of it. */
void hutch_access_add_headers(struct exchange *x);

/* Whether @host, a Host header, can only have been meant for this server: an address, localhost, or one of @allowed,
 * which ends with NULL; "*.NAME" is any label before NAME. A page whose name was made to lead here says its own
 * name: DNS rebinding. */
bool hutch_access_is_host(const char *host, const char *const *allowed);

#endif
