/* run_program.h - the program of a command line as a request of hutch.h has it. */
#ifndef HUTCH_CLI_RUN_PROGRAM_H
#define HUTCH_CLI_RUN_PROGRAM_H

struct hutch_request;
struct run_opts;
struct sandbox_spec;

/* Sets name, code, language and args of @to. @program: argv and file as hutch_program_set_...() have them; @args: what
 * follows it. The name is "-" where it comes on standard input. */
void hutch_run_program_describe(const struct run_opts *opts, const struct sandbox_spec *program, char *const *args,
                                struct hutch_request *to);

#endif
