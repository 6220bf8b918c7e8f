/* completion.h - the command `hutch completion`: scripts with which shells complete hutch's command line. */
#ifndef HUTCH_CLI_COMPLETION_H
#define HUTCH_CLI_COMPLETION_H

#include "sandbox/err.h"

/* argv[0] is "completion". 0, or -1 with *err. */
int hutch_cmd_completion(int argc, char **argv, struct hutch_err *err);

#endif
