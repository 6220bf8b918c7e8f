/* format.h - E2B's wire format: sandboxes, code, files and processes, as the clients of e2b.dev ask for them.
 *
 * A sandbox is a session of hutch. Requests about sandboxes have a token of the server's. Those to what runs in one
 * have the sandbox's id and the access token that its creation was answered with, or a signature made with that. */
#ifndef HUTCH_E2B_FORMAT_H
#define HUTCH_E2B_FORMAT_H

#include "runtime/gateway/format.h"

extern const struct format hutch_e2b_format;

/* Further names that its clients have for /mnt/data, ends with NULL. */
extern const char *const hutch_e2b_data_targets[];

#endif
