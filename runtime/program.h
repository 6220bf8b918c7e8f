/* program.h - what a sandbox is to execute: from a file, a text or standard input to argv. */
#ifndef HUTCH_PROGRAM_H
#define HUTCH_PROGRAM_H

#include "err.h"

#define PROGRAM_MAX_BYTES (64u << 20)     /* of a program file */
#define PROGRAM_DIR       "/run/hutch/code" /* where it lies inside */

struct sandbox_spec;

/* Reads the host file @path, puts it into the spec as PROGRAM_DIR/NAME, read-only, and sets argv to its interpreter, it,
 * and @args (NULL-terminated). The name's ending chooses the interpreter (.py python3, .sh sh, .js node, …); without a
 * known one a "#!" line or an ELF header makes it its own program, and anything else is Python. */
int hutch_program_set_file(struct sandbox_spec *spec, const char *path, char *const *args, struct hutch_err *err);

/* The Python text @code, as python3 -c has it. */
int hutch_program_set_code(struct sandbox_spec *spec, const char *code, char *const *args, struct hutch_err *err);

/* Python from standard input, as python3 - has it. */
int hutch_program_set_stdin(struct sandbox_spec *spec, char *const *args, struct hutch_err *err);

#endif
