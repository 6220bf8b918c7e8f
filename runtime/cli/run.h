/* run.h - the command `hutch run`. */
#ifndef HUTCH_CLI_RUN_H
#define HUTCH_CLI_RUN_H

#include "sandbox/err.h"

/* argv[0] is "run". Prints what there is to print and returns the exit status of hutch, -1 with *err. */
int hutch_cmd_run(int argc, char **argv, struct hutch_err *err);

#endif
