/* extend_apt.h - a layer of Debian's packages. The image's own dpkg installs them, without a network, in a sandbox
 * whose root can be written; the host's apt chooses, fetches and checks them before, in a sandbox that has the network
 * and not the image. */
#ifndef HUTCH_CLI_EXTEND_APT_H
#define HUTCH_CLI_EXTEND_APT_H

#include "runtime/cli/extend_builder.h"
#include "sandbox/err.h"

/* Makes the archive @output, a new file of the builder's work, of what builder->job->request wants over the image
 * @image_hex. Errors: as of hutch_extend_builder_run(); 0 also where the image has none of Debian's packages. */
int hutch_extend_apt(struct extend_builder *builder, const char *image_hex, const char *output, struct hutch_err *err);

#endif
