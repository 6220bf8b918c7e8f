/* format.h - the wire format of SandboxFusion, which trainers speak: a program with its input and files in one request,
 * and what became of it in one answer. docs/gateway.md says what is left out. */
#ifndef HUTCH_FUSION_FORMAT_H
#define HUTCH_FUSION_FORMAT_H

#include "runtime/gateway/format.h"

extern const struct format hutch_fusion_format;

#endif
