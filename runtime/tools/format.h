/* format.h - tools of models over HTTP: a call goes in as the model has made it, and what it is to be given back comes
 * out. A call that cannot be done has an answer, too; errors of HTTP are for what the caller has done wrong. */
#ifndef HUTCH_TOOLS_FORMAT_H
#define HUTCH_TOOLS_FORMAT_H

#include "runtime/gateway/format.h"

extern const struct format hutch_tools_format;

#endif
