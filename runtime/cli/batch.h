/* batch.h - `hutch batch`: many programs, each in a sandbox of its own, judged. */
#ifndef HUTCH_CLI_BATCH_H
#define HUTCH_CLI_BATCH_H

/* @argv[0] is "batch". Returns the exit status. */
int hutch_cmd_batch(int argc, char **argv);

#endif
