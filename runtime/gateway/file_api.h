/* file_api.h - the files of a session, below /mnt/data: listed, streamed in and out, deleted. */
#ifndef HUTCH_GATEWAY_FILE_API_H
#define HUTCH_GATEWAY_FILE_API_H

#include <stddef.h>

struct exchange;
struct upload;

void hutch_file_api_list(struct exchange *x);
void hutch_file_api_download(struct exchange *x); /* with a range, where one is asked for */
void hutch_file_api_delete(struct exchange *x);

/* An upload goes to its place as it comes, and is never gathered. */
void hutch_file_api_begin(struct exchange *x);
void hutch_file_api_take(struct exchange *x, const char *data, size_t len);
void hutch_file_api_uploaded(struct exchange *x);
/* The work of @x from here on, not begun. NULL: the exchange is refused. */
struct upload *hutch_file_api_create_upload(struct exchange *x);

#endif
