/* shell.h - a bash that is kept for the code of one context: each code finds variables, functions and the directory as
 * the one before has left them. Codes wait for each other.
 *
 *     execute -> on_begin -> [ on_text ]* -> on_end
 *
 * The shell is a process of the session's that reads commands from its input. A code is one of them, eval; behind it
 * the shell writes a mark (mark.h) to both of its outputs. Whatever code does to its shell, it does to itself: a shell
 * that has ended is followed by a new one. A code is ended by the end of its shell: an interrupt would leave the shell,
 * but bash may miss one, or lose by it what it has read ahead. */
#ifndef HUTCH_E2B_SHELL_H
#define HUTCH_E2B_SHELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct e2b_sandbox;
struct e2b_shell;
struct exchange;
struct hutch_err;
struct hutch_error;

LIST_HEAD(e2b_shell_list, e2b_shell);

/* Codes that wait in one shell, with the one at work. */
#define SHELL_MAX_CODES 64

#define SHELL_ENDED -1 /* the code did not come to its end, and its shell is gone */
#define SHELL_LATE -2  /* the same, as its time was over */

struct shell_events {
    void (*on_begin)(void *user, int count); /* how many codes this shell has begun, from 1 */
    void (*on_text)(void *user, int stream, const char *data, size_t len); /* 1 or 2 */
    /* Once, and nothing after it. @status: of the code, or one of those; then @why is one sentence. */
    void (*on_end)(void *user, int status, const char *why);
};

/* What the shell is to read for one code. */
struct shell_code;

/* @env: NAME=VALUE, for this code alone, or NULL. NULL: a name is none, or ENOMEM. */
struct shell_code *hutch_e2b_shell_code_create(const char *text, char *const *env, struct hutch_err *err);
/* Bytes of memory that it takes. */
size_t hutch_e2b_shell_code_size(const struct shell_code *code);
/* One that was not executed. */
void hutch_e2b_shell_code_free(struct shell_code *code);

/* @cwd: where it begins, copied. It is the sandbox's, and is freed with it. NULL: ENOMEM. */
struct e2b_shell *hutch_e2b_shell_create(struct exchange *x, struct e2b_sandbox *sandbox, const char *cwd);

/* Takes @code, unless it fails. @wall_ms: how long it may take, while the sandbox is not paused; 0: no limit. Errors:
 * EAGAIN (SHELL_MAX_CODES wait), and those of hutch_session_spawn(). on_begin may come before this returns. */
int hutch_e2b_shell_execute(struct e2b_shell *shell, struct shell_code *code, uint64_t wall_ms,
                            const struct shell_events *events, void *user, struct hutch_error *error);
/* Nobody wants it any more: where it runs its shell is killed, and on_end follows. False: it had not begun, and is gone
 * without on_end. */
bool hutch_e2b_shell_cancel(struct e2b_shell *shell, struct shell_code *code);
/* What the code at work says waits, or comes again. */
void hutch_e2b_shell_hold(struct e2b_shell *shell, bool is_held);

/* The code at work ends, those that wait find another shell. */
void hutch_e2b_shell_restart(struct e2b_shell *shell);
/* The same, and those that wait end, too. The caller forgets it. */
void hutch_e2b_shell_drop(struct e2b_shell *shell);

/* When the sandbox is gone, and with it all processes. */
void hutch_e2b_shells_free(struct e2b_sandbox *sandbox);

#endif
