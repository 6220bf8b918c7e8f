/* first_image.h - the first run: an image that hutch knows how to build and that no store has yet is built then, if the
 * user wants it. */
#ifndef HUTCH_CLI_FIRST_IMAGE_H
#define HUTCH_CLI_FIRST_IMAGE_H

#include "sandbox/err.h"

#include <stdbool.h>

/* @image is built by `hutch rootfs build` when it is a flavour of that and in no store: with @is_yes at once, else
 * after a question, which is put only where standard input and standard error are a terminal. 0: go on, it is there, or
 * the run is to say that it is not. Errors: it was wanted and could not be built. Ends the process by the signal that
 * ended the builder. */
int hutch_first_image(const char *home, const char *image, bool is_yes, struct hutch_err *err);

#endif
