/* batch.h - `hutch batch`: many programs, each in a sandbox of its own, judged. */
#ifndef HUTCH_CLI_BATCH_H
#define HUTCH_CLI_BATCH_H

#include "sandbox/err.h"

/* @argv[0] is "batch". Returns the exit status, -1 with *err. */
int hutch_cmd_batch(int argc, char **argv, struct hutch_err *err);

#endif
