/* paths.h - which file of a sandbox a path of E2B's means. */
#ifndef HUTCH_E2B_PATHS_H
#define HUTCH_E2B_PATHS_H

#include "sandbox/err.h"

#define E2B_MAX_PATH 4096

/* @path as an absolute one, for the caller to free: what is relative is below /home/user, and empty parts and "." are
 * left out. NULL on failure. Errors: it is empty, or too long; a part that is
 * ".."; ENOMEM. */
char *hutch_e2b_path_absolute(const char *path, struct hutch_err *err);

/* Its name below /mnt/data, which is also /home/user; NULL: it is somewhere else, or one of the two itself. */
const char *hutch_e2b_path_in_data(const char *absolute);

/* What stands behind the last slash. */
const char *hutch_e2b_path_name(const char *absolute);

#endif
