/* program.h - what a sandbox is to execute: from a file, a text or standard input to argv. */
#ifndef HUTCH_LANG_PROGRAM_H
#define HUTCH_LANG_PROGRAM_H

#include "sandbox/err.h"
#include "sandbox/inside.h"

#include <stdbool.h>
#include <stddef.h>

#define PROGRAM_MAX_BYTES (64u << 20)     /* of a program file */
#define PROGRAM_DIR       INSIDE_OWN_DIR "/code" /* where it lies inside */

struct sandbox_spec;

/* Reads the host file @path, puts it into the spec as PROGRAM_DIR/NAME, read-only, and sets argv to its interpreter,
 * it, and @args (NULL-terminated). @language ("python", "sh", …) chooses the interpreter. When it is NULL, the name's
 * ending does (.py python3, .sh sh, .js node, …); without a known one a "#!" line or an ELF header makes it its own
 * program, and a name without any ending is Python. Errors: those of open(2), EISDIR, EINVAL (no such language, or
 * another ending). */
int hutch_program_set_file(struct sandbox_spec *spec, const char *language, const char *path, char *const *args,
                           struct hutch_err *err);

/* The Python text @code, as python3 -c has it. */
int hutch_program_set_code(struct sandbox_spec *spec, const char *code, char *const *args, struct hutch_err *err);

/* @text as PROGRAM_DIR/@name, in @language ("python", "sh", …), or as hutch_program_set_file() guesses it when that
 * is NULL. */
int hutch_program_set_text(struct sandbox_spec *spec, const char *language, const char *name, const char *text,
                           size_t len, char *const *args, struct hutch_err *err);

/* A file that is at @path inside, whose first bytes are @data; as hutch_program_set_file(). */
int hutch_program_set_inside(struct sandbox_spec *spec, const char *language, const char *path, const char *data,
                             size_t len, char *const *args, struct hutch_err *err);

/* A Python module, as python3 -m has it. */
int hutch_program_set_module(struct sandbox_spec *spec, const char *module, char *const *args, struct hutch_err *err);

/* What the names of its files end in (".py"); NULL for a language that is not known. */
const char *hutch_program_ending(const char *language);

/* Of all that programs' names may end in, the one with the number @n, from 0 on; NULL behind the last. */
const char *hutch_program_nth_ending(size_t n);

/* The languages whose interpreter is in the image's tree @tree: "python, sh, perl". Empty when there is none. Without
 * TypeScript: whether the image's node can execute it is known when it does. */
void hutch_program_list_installed(const char *tree, char *to, size_t room);
/* Whether @language is among them. */
bool hutch_program_is_installed(const char *tree, const char *language);

/* The text @data of a program without the byte order mark at its beginning, which is no part of the program; *len is
 * that of the rest. */
const char *hutch_program_skip_mark(const char *data, size_t *len);

/* Whether it can be the name of a file in PROGRAM_DIR. */
bool hutch_program_is_name(const char *name);

/* Python from standard input, as python3 - has it. */
int hutch_program_set_stdin(struct sandbox_spec *spec, char *const *args, struct hutch_err *err);

#endif
