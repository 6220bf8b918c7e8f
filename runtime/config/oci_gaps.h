/* oci_gaps.h - what a policy asks for and an OCI config has no word for. What the policy requires is an error; of the
 * rest each thing has a name and a sentence, so that nothing is weaker in silence. */
#ifndef HUTCH_CONFIG_OCI_GAPS_H
#define HUTCH_CONFIG_OCI_GAPS_H

#include "sandbox/err.h"

#include <stddef.h>

struct sandbox_spec;

/* Errors: a sentence that names the layer, mount or place that the policy requires. */
int hutch_oci_gaps_refuse(const struct sandbox_spec *spec, struct hutch_err *err);

/* Calls @each with all that is lost of what @spec asks for. @name is a limit's or a layer's name as policies have it,
 * or one of docs/images.md. */
typedef void oci_gap_fn(void *ctx, const char *name, const char *what_is_lost);
void hutch_oci_gaps_each(const struct sandbox_spec *spec, oci_gap_fn *each, void *ctx);

#endif
