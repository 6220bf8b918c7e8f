/* repl.h - hutch repl: an interactive prompt on a session. */
#ifndef HUTCH_CLI_REPL_H
#define HUTCH_CLI_REPL_H

#include "sandbox/err.h"

/* argv[0] is "repl". Returns the exit status, -1 with *err. */
int hutch_cmd_repl(int argc, char **argv, struct hutch_err *err);

#endif
