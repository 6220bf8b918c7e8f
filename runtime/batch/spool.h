/* spool.h - makes of a pipe or a gzipped file what can be read twice: a file without a name, below $TMPDIR or /tmp. */
#ifndef HUTCH_BATCH_SPOOL_H
#define HUTCH_BATCH_SPOOL_H

#include "sandbox/err.h"

/* Replaces *fd where it is no regular file, and again where it is gzipped; @name is for messages. A shell may hand in a
 * regular file that stands somewhere in its middle; all of it is meant, as by name. Errors: more than 64 GiB; gzip(1)
 * is not there, or says that the file is damaged. *fd is the caller's in any case. */
int hutch_batch_spool(int *fd, const char *name, struct hutch_err *err);

#endif
