/* paths.h - what is done with a path inside the sandbox on the engine's order: sandbox/path_wire.h. */
#ifndef HUTCH_PATHS_H
#define HUTCH_PATHS_H

#include <stddef.h>

/* Does what the @len bytes at @order say, in a process of its own, answers on @control, and ends. */
_Noreturn void hutch_paths_serve(int control, const char *order, size_t len);

/* For a process that could not be made. */
void hutch_paths_refuse(int control, int errnum);

#endif
