/* path_api.h - files anywhere in a session's sandbox, by path inside: looked at, listed, made, moved, removed, streamed
 * in and out. The sandbox does it, and says what it may. */
#ifndef HUTCH_GATEWAY_PATH_API_H
#define HUTCH_GATEWAY_PATH_API_H

#include <stddef.h>

struct exchange;

void hutch_path_api_stat(struct exchange *x);
void hutch_path_api_list(struct exchange *x);
void hutch_path_api_make_directory(struct exchange *x);
void hutch_path_api_rename(struct exchange *x);
void hutch_path_api_remove(struct exchange *x);
void hutch_path_api_download(struct exchange *x); /* with a range, where one is asked for */

/* The path that the query has as @name, for the caller to free; NULL: the exchange is refused. */
char *hutch_path_api_read_path(struct exchange *x, const char *name);

/* An upload. hutch_file_api_take() and hutch_file_api_uploaded() go on with it. */
void hutch_path_api_begin(struct exchange *x);

#endif
