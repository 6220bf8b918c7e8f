#include "runtime/batch/load.h"

#include "sandbox/fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Per cent of the last minute in which processes waited for a CPU. A batch that uses every CPU waits a little too. */
#define PRESSURE_LIMIT 40.0
/* Processes that want to run, for each CPU. */
#define LOAD_LIMIT 1.5
#define PROC_FILE_MAX 4096

/* The key in /proc/pressure/cpu: per cent of the last 60 seconds. */
static const char last_minute[] = "avg60=";

static char *read_file(const char *proc, const char *name)
{
    auto_free char *path = NULL;
    char *text = NULL;
    struct hutch_err ignored;
    size_t len;

    if (asprintf(&path, "%s/%s", proc, name) < 0) {
        path = NULL;
        return NULL;
    }
    return hutch_fd_slurp_path(path, PROC_FILE_MAX, &text, &len, &ignored) == 0 ? text : NULL;
}

bool hutch_batch_load_is_high(const char *proc)
{
    auto_free char *pressure = read_file(proc, "pressure/cpu"); /* Linux 4.20, and not with psi=0 */
    auto_free char *load = read_file(proc, "loadavg");
    const char *some = pressure ? strstr(pressure, last_minute) : NULL;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    if (some && strtod(some + strlen(last_minute), NULL) >= PRESSURE_LIMIT)
        return true;
    return load && strtod(load, NULL) > LOAD_LIMIT * (double)(cpus > 0 ? cpus : 1);
}
