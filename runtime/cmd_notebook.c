#include "cmd_notebook.h"

#include <errno.h>

int hutch_cmd_notebook(const struct notebook_opts *opts, struct hutch_err *err)
{
    return hutch_err_set(err, ENOSYS, "execute the notebook '%s'", opts->path);
}
