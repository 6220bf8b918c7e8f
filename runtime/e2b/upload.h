/* upload.h - POST /files: one file as the body, or several as its parts. They go to their places as they come. */
#ifndef HUTCH_E2B_UPLOAD_H
#define HUTCH_E2B_UPLOAD_H

#include <stddef.h>

struct exchange;

void hutch_e2b_upload_begin(struct exchange *x);
void hutch_e2b_upload_take(struct exchange *x, const char *data, size_t len);
void hutch_e2b_upload_end(struct exchange *x);

#endif
