/* caps.h - capabilities, which a sandbox ends up having none of. Source: capabilities(7), cap_get_proc(3). */
#ifndef HUTCH_CAPS_H
#define HUTCH_CAPS_H

#include "sandbox/err.h"

#include <linux/capability.h>
#include <stdbool.h>

/* Whether the calling process may use @cap now, in its own user namespace. */
bool hutch_caps_has_effective(int cap);

/* Empties all five sets (bounding, ambient, inheritable, permitted, effective) and locks the secure bits, so that
 * no later exec or uid change can bring anything back. */
int hutch_caps_drop_all(struct hutch_err *err);

#endif
