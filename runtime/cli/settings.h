/* settings.h - what a sandbox is made of, in one line: a command and a server that have the same line make the same
 * ones, so the command may have its run done by the server. */
#ifndef HUTCH_CLI_SETTINGS_H
#define HUTCH_CLI_SETTINGS_H

#include "sandbox/err.h"

#include <stdbool.h>

struct run_opts;

/* Of visible ASCII characters, for the caller to free: the version of hutch, its directory, the image and the policy
 * with the state that their files are in. NULL: they cannot be told, or @opts ask for what the line does not say (other
 * roots, mounts, networks). Limits and variables are a request's own: a server that has some has no line. */
char *hutch_settings_line(const struct run_opts *opts, const char *home, bool is_server);

#endif
