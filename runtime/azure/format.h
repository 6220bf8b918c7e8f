/* format.h - the wire format of Azure's dynamic sessions: a session is made by whoever first names it. docs/gateway.md
 * says what is left out. */
#ifndef HUTCH_AZURE_FORMAT_H
#define HUTCH_AZURE_FORMAT_H

#include "runtime/gateway/format.h"

extern const struct format hutch_azure_format;

#endif
