/* repl.h - hutch repl: an interactive prompt on a session. */
#ifndef HUTCH_CLI_REPL_H
#define HUTCH_CLI_REPL_H

/* argv[0] is "repl". Returns the exit status. */
int hutch_cmd_repl(int argc, char **argv);

#endif
