/* spec_wire.h - a struct sandbox_spec as bytes, from the engine to its launcher: both are of one build, and neither is
 * hostile to the other; what is checked is that nothing is read beyond its end. */
#ifndef HUTCH_LAUNCHER_SPEC_WIRE_H
#define HUTCH_LAUNCHER_SPEC_WIRE_H

#include "sandbox/err.h"

struct sandbox_spec;

#define SPEC_WIRE_MAX (96u << 20) /* bytes: a program file of 64 MiB among them */

/* Into a fresh sealed memfd, which the caller owns. Descriptors in the spec (tree_fd) do not cross. */
int hutch_spec_encode(const struct sandbox_spec *spec, int *ret_memfd, struct hutch_err *err);

/* @ret is initialised by this; released by hutch_spec_done(). */
int hutch_spec_decode(int memfd, struct sandbox_spec *ret, struct hutch_err *err);

#endif
