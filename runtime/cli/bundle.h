/* bundle.h - the command `hutch bundle`: an image and a policy as a directory that OCI runtimes run. */
#ifndef HUTCH_CLI_BUNDLE_H
#define HUTCH_CLI_BUNDLE_H

#include "sandbox/err.h"

/* argv[0] is "bundle". Makes the directory and says on standard error what its config.json cannot say. Returns the exit
 * status; -1 with @err, and then nothing of the bundle is left. Ended by SIGINT, SIGTERM or SIGHUP it removes what it
 * has made and dies of that signal. */
int hutch_cmd_bundle(int argc, char **argv, struct hutch_err *err);

#endif
