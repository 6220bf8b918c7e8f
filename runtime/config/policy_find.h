/* policy_find.h - where the file of a policy lies. */
#ifndef HUTCH_CONFIG_POLICY_FIND_H
#define HUTCH_CONFIG_POLICY_FIND_H

#include "sandbox/err.h"

/* Where policies are looked for by name: $HUTCH_POLICY_DIR, else ../share/hutch-data/policies beside the program's
 * own directory, else ../policies there, if it came with the program (sandbox/installed.h). The caller frees @ret.
 * Errors: ENOENT with what was tried. */
int hutch_policy_dir(char **ret, struct hutch_err *err);

/* The path of a policy, the caller's to free: @policy_dir/NAME.json for a @name_or_path without a '/', else the file
 * itself. A relative path starts at @base_dir; NULL: where the process stands. Errors: ENOENT, with the names
 * that there are. */
int hutch_policy_find(const char *name_or_path, const char *policy_dir, const char *base_dir, char **ret,
                      struct hutch_err *err);

/* Everything before the last '/'; the caller frees it. NULL on ENOMEM. */
char *hutch_policy_directory_of(const char *path);

#endif
