/* workers.h - `hutch serve --workers`: several processes, each with an engine and a share of the connections, and this
 * one, which accepts for them, starts them and has the signals.
 *
 * Processes and not threads: one that breaks takes its own sandboxes along and no more, and nothing has to be
 * locked. */
#ifndef HUTCH_GATEWAY_WORKERS_H
#define HUTCH_GATEWAY_WORKERS_H

#include "sandbox/err.h"

struct server_options;

#define WORKER_TURN_MS 1000 /* a worker's loop has a turn at least so often */

/* As hutch_server_run(), which calls it. A worker that ends by itself is started again, and what it had is gone; -1
 * when one cannot begin at all, or ends again and again. */
int hutch_workers_run(const struct server_options *options, struct hutch_err *err);

#endif
