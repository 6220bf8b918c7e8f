/* run_project.h - a directory of the caller's that hutch run shows to the program, with the program in it. */
#ifndef HUTCH_CLI_RUN_PROJECT_H
#define HUTCH_CLI_RUN_PROJECT_H

#include "runtime/cli/commands.h"
#include "runtime/run/project.h"
#include "sandbox/err.h"

#define RUN_PROJECT_DIR "/mnt/project" /* where it is inside */

struct sandbox_spec;

struct run_project {
    char *dir;    /* owned; its real path on the host; NULL: there is no project */
    char *entry;  /* owned; the program, relative to it; NULL: a module, a text or standard input */
    char **args;  /* of the program; the command line's */
    struct ignore_list ignore; /* owned */
    bool is_writable;
};
#define RUN_PROJECT_INIT { .dir = NULL }

/* What the command line asks for: --project DIR, or a directory as the first of @words. Where that names no program in
 * it, the first of main.py, __main__.py, the "main" of package.json and index.js is it. 0; or the exit status that says
 * what is wrong, negative. To be freed either way. */
int hutch_run_project_find(const struct run_opts *opts, char **words, struct run_project *ret, struct hutch_err *err);
void hutch_run_project_done(struct run_project *project);
/* Adds it to @spec, which has everything but a program: as a mount, unless *@ret_copy has a directory then, and the run
 * is to make a copy of that; as the working directory unless --workdir says
 * another one, and with its program, where it has one. */
int hutch_run_project_set(const struct run_project *project, const struct run_opts *opts, struct sandbox_spec *spec,
                          struct project_copy *ret_copy, struct hutch_err *err);

/* Opens a regular file of the project @dirfd for reading. Links in the path may lead to other files of it, and not out
 * of it. A descriptor, the caller's to close, or -1 with errno: EXDEV for a link that leads out or is absolute. */
int hutch_run_project_open(int dirfd, const char *path);

#endif
