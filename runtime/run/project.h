/* project.h - a directory of the caller's that a run has a copy of, instead of the directory itself.
 *
 * A bind mount shows all that there is, and a cover over each path that is to be hidden would show that there is
 * something, and miss what comes later. So what holds something back is copied without it; and what may be written is
 * copied anyway. The copy is a file system in memory of its own: the kernel bounds it, and nothing of it is left when
 * the run is over or hutch is killed. */
#ifndef HUTCH_RUN_PROJECT_H
#define HUTCH_RUN_PROJECT_H

#include "runtime/run/cold_data.h"
#include "runtime/text/ignore.h"
#include "sandbox/err.h"
#include "sandbox/spec.h"

#include <stdbool.h>

/* The copy with what is written in it: no more than this, nor than data_size and data_files where it is writable. */
#define PROJECT_MAX_BYTES (256u << 20)
#define PROJECT_MAX_FILES 20000

struct project_copy {
    const char *dir;    /* on the host, its real path */
    const char *target; /* inside */
    const char *entry;  /* a file of it that has to be in the copy; NULL: none */
    const struct ignore_list *ignore;
    bool is_writable;
};

/* Makes the copy of @project and adds it to @spec as a mount. @data is that of the run. *ret_dirfd is the caller's, for
 * looking at the copy. Errors: a sentence that says what cannot be copied, or that it is too large. */
int hutch_project_copy(const struct project_copy *project, struct sandbox_spec *spec, struct cold_data *data,
                       int *ret_dirfd, struct hutch_err *err);

#endif
