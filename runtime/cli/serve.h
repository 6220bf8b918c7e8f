/* serve.h - the command `hutch serve`. */
#ifndef HUTCH_CLI_SERVE_H
#define HUTCH_CLI_SERVE_H

#include "sandbox/err.h"

/* argv[0] is "serve". Serves until it is told to end; exit status 0 then, -1 with *err when it could not begin or go
 * on. */
int hutch_cmd_serve(int argc, char **argv, struct hutch_err *err);

#endif
