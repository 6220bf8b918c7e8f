/* repl.h - what the files of hutch repl share: this room and runtime/cli/repl.c.
 *
 *   runtime/cli/repl.c     the command: options, the prompt, a cell at a time
 *   runtime/repl/loop.c    the session, and the loop that waits for it, for signals and for keys
 *   runtime/repl/host.h    where the session lives: host_engine.c; host_server.c with talk.c and server_cell.c
 *   runtime/repl/complete.c  Tab
 *   runtime/repl/page.c, runtime/repl/pager.c  long texts, and the program of the user's that shows them
 *   runtime/repl/copy.c    files in and out, piece by piece
 *   runtime/repl/magic.c   %upload and the like */
#ifndef HUTCH_REPL_REPL_H
#define HUTCH_REPL_REPL_H

#include "runtime/term/show.h"
#include "runtime/text/nbimage.h"
#include "sandbox/err.h"
#include "runtime/hutch.h"
#include "runtime/repl/counts.h"
#include "runtime/repl/host.h"
#include "runtime/repl/pager.h"
#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

struct prompt;

struct repl {
    struct host *host;
    bool has_session; /* else the next cell opens one */
    bool is_prepared; /* its interpreter */
    unsigned n_copies; /* checkpoints, and branches that it is not in */
    bool has_files;   /* a cell has run in it: before, its directory is not there */
    const char *data; /* --data, its real path; NULL: a fresh directory for each session */
    char context[REPL_CONTEXT_SIZE];
    struct cell_show show;
    struct prompt *prompt; /* NULL: standard input is no terminal */
    bool is_in_magic; /* the lines before the one that is being typed begin a line of ours, which goes on */
    bool is_interactive, is_quiet;
    int signal_fd;
    int fatal_signal;   /* that ends us; 0: none */
    bool is_broken;     /* the host can run nothing, which was said */
    bool is_closing;    /* the session's end is no news */

    bool is_busy;       /* a cell or an order is under way */
    bool is_hidden;     /* … which is not the user's: it prepares the interpreter */
    bool is_asking;     /* a question to the interpreter has no answer yet */
    char *answer;       /* owned; its JSON; NULL: there is none, */
    char why_none[256]; /* because of this */
    unsigned n_interrupts; /* that it got */
    enum hutch_verdict verdict; /* of the last cell */
    bool was_death_told; /* of its interpreter: that the next one has no variables is no news */
    struct text_buffer page; /* what the cell wants to be shown in a pager: as a terminal takes it */
    struct pager *pager;     /* that shows it now, while nothing else is written; NULL: none */
    struct repl_counts counts;
    uint64_t branch;    /* that has its turn */

    bool wants_input;   /* the cell asks, and the answer is read from the terminal */
    bool has_hidden_echo; /* … a password: the terminal shows nothing until then */
    struct termios echo;
};

/* --- runtime/repl/loop.c --- */

/* A session is there, or is opened. False: none can be had, which was said. */
bool hutch_repl_open_session(struct repl *r);
void hutch_repl_close_session(struct repl *r);
/* The next interpreter is another one: checkpoints and branches are gone. */
void hutch_repl_begin_anew(struct repl *r);
/* Runs a cell to its end. False: there was nothing to run it in, which was said. */
bool hutch_repl_execute(struct repl *r, const char *code, size_t len);
/* A cell that is not shown has run in the session's interpreter, so that the session has its directory. False: there
 * is no interpreter, which was said. */
bool hutch_repl_prepare(struct repl *r);
/* Asks what @line goes on with, as hutch_session_ask() answers it: JSON, the caller's to free. NULL: nothing, as when
 * the interpreter has died, which was said, or when it does not answer in time. */
char *hutch_repl_ask(struct repl *r, const char *line, size_t len);
/* Until nothing is under way and all is written. */
void hutch_repl_wait(struct repl *r);
/* Does what is due, without waiting. True when Ctrl-C was pressed meanwhile. */
bool hutch_repl_is_interrupted(struct repl *r);
/* Waits until a key is pressed at the prompt; false when it is called off by a signal. For prompt.h. */
bool hutch_repl_await_key(void *repl);

/* Until the pager has ended. Ctrl-C is for it; what else ends us ends it. */
void hutch_repl_await_pager(struct repl *r);

/* --- runtime/repl/page.c --- */

#define REPL_PAGE_TYPE "application/vnd.hutch.page" /* of a display that is such a text */

/* Whether the output is a text for a pager. It is shown here where it is not long, else kept until the cell is over. */
bool hutch_repl_take_page(struct repl *r, const struct hutch_output *output);
/* Shows what was kept. */
void hutch_repl_show_page(struct repl *r);

/* --- runtime/repl/magic.c --- */

/* Whether it is a line of ours: it begins with the name of one. */
bool hutch_repl_is_magic(const char *line, size_t len);
/* The same, and then it is done. */
bool hutch_repl_magic(struct repl *r, const char *line, size_t len);
bool hutch_repl_is_context(const char *name);
/* Where a line of ours may be begun: it, and after it the lines of ours, each as one line. The caller frees it; NULL:
 * nowhere. */
char *hutch_repl_magic_names(const char *line, size_t len);

#endif
