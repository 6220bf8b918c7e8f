/* script_wants.h - the packages that a program of the caller's says it depends on: in a script of Python (PEP 723), or
 * in the package.json beside a program of Node. */
#ifndef HUTCH_CLI_SCRIPT_WANTS_H
#define HUTCH_CLI_SCRIPT_WANTS_H

#include "runtime/cli/commands.h"
#include "runtime/lang/npm_package.h"
#include "runtime/lang/requirement.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct script_wants {
    struct requirement_list pip;
    struct npm_packages npm; /* not both */
};
#define SCRIPT_WANTS_INIT { .pip = REQUIREMENT_LIST_INIT }
#define auto_script_wants __attribute__((cleanup(hutch_script_wants_done))) struct script_wants
void hutch_script_wants_done(struct script_wants *wants);

/* By its name, or the language that the caller has said. */
bool hutch_script_is_for_node(const struct run_opts *opts, const char *script);

/* @script: the program's file; @project: the directory that is shown to it, or NULL. A package.json is that of the
 * project, else the one beside the script; a project that has node_modules brings its own. What cannot be read is the
 * run's to complain about. Errors: it is written wrongly, or wants what nobody's word may have fetched. */
int hutch_script_wants_read(const struct run_opts *opts, const char *script, const char *project,
                            struct script_wants *ret, struct hutch_err *err);

/* "rich, polars>=1", all of them for a question or as many as a message has room for, and how many more there are; the
 * caller frees it; NULL: memory was short. */
char *hutch_script_wants_print(const struct script_wants *wants, bool is_question);

#endif
