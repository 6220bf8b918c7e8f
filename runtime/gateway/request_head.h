/* request_head.h - whether libmicrohttpd has read the head of a request to the end of each line.
 *
 * Before its version 1.0 it takes a NUL byte for the end of what it reads: what stands behind it in a line is dropped,
 * and the request is served. A proxy in front may have read the whole line, and decided on something else. */
#ifndef HUTCH_GATEWAY_REQUEST_HEAD_H
#define HUTCH_GATEWAY_REQUEST_HEAD_H

#include <stdbool.h>

struct MHD_Connection;

/* Only in the first call of MHD's access handler for a request, with what it is given. @target: the path with its
 * query, as the URI log callback got it; NULL: it is not known, and the answer is false.
 *
 * False: there is a NUL byte, a line that does not end in CR LF, or one that goes on in the next. Not seen is a NUL
 * byte before a bare LF: the two are taken for CR LF. */
bool hutch_request_head_is_whole(struct MHD_Connection *mhd, const char *method, const char *target, const char *path,
                                 const char *version);

#endif
