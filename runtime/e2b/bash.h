/* bash.h - code in bash, on its way from a request to the shell of a context, and its events on their way back. */
#ifndef HUTCH_E2B_BASH_H
#define HUTCH_E2B_BASH_H

struct e2b_sandbox;
struct e2b_shell;
struct exchange;

/* Answers, or refuses. */
void hutch_e2b_bash_execute(struct exchange *x, const struct e2b_sandbox *sandbox, struct e2b_shell *shell,
                            const char *code, char *const *env);

#endif
