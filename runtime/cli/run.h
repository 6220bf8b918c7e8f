/* run.h - the command `hutch run`. */
#ifndef HUTCH_CLI_RUN_H
#define HUTCH_CLI_RUN_H

/* argv[0] is "run". Prints what there is to print and returns the exit status of hutch. */
int hutch_cmd_run(int argc, char **argv);

#endif
