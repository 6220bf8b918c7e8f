/* sandbox.h - what a session has besides while it is a sandbox of E2B's, and which one a request is about. */
#ifndef HUTCH_E2B_SANDBOX_H
#define HUTCH_E2B_SANDBOX_H

#include "runtime/e2b/names.h"
#include "runtime/e2b/shell.h"
#include "runtime/text/ids.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct exchange;
struct placement;
struct gateway_session;
struct hutch_session_info;

#define E2B_MAX_CONTEXTS 16
#define E2B_PORT_CODE 49999
#define E2B_PORT_ENVD 49983
#define E2B_HOME "/home/user"

struct e2b_context {
    char id[ID_LEN + 1]; /* also the session's name for it */
    char *cwd;           /* owned; NULL: home */
    bool has_begun;      /* the session knows it */
    struct e2b_shell *shell; /* for code in bash; NULL: its code is Python */
};

struct e2b_process; /* runtime/e2b/process.h */
LIST_HEAD(e2b_process_list, e2b_process);

struct e2b_sandbox {
    struct gateway_session *session;
    char name[E2B_ID_LEN + 1];
    char token[ID_LEN + 1]; /* envd's access token */
    char *template;         /* owned */
    char *metadata;         /* owned; JSON of an object of texts */
    struct e2b_context contexts[E2B_MAX_CONTEXTS]; /* the first is the one without a name */
    size_t n_contexts;
    struct e2b_process_list processes;
    struct e2b_shell_list shells; /* of the contexts, and those that end after theirs was removed */
    double t_metrics;       /* of the last answer about its CPU time */
    uint64_t cpu_ms;        /* … and what that was */
};

/* Takes @template and @metadata. NULL on ENOMEM or without random numbers. */
struct e2b_sandbox *hutch_e2b_sandbox_create(struct gateway_session *session, char *template, char *metadata);
void hutch_e2b_sandbox_free(void *sandbox);

/* That of a session, NULL where it is none. */
struct e2b_sandbox *hutch_e2b_sandbox_of(struct gateway_session *session);
/* The one that the path names, of the asker's; NULL: the exchange is refused. */
struct e2b_sandbox *hutch_e2b_sandbox_in_path(struct exchange *x);
/* struct format's place(). */
void hutch_e2b_sandbox_place(const struct exchange *x, struct placement *ret);
/* The one that a header or the host of the request names, whoever has it; NULL: none does. */
struct e2b_sandbox *hutch_e2b_sandbox_in_header(const struct exchange *x);
/* The port that the request is for; 0: it does not say. */
unsigned hutch_e2b_sandbox_port(const struct exchange *x);
/* The same, one that code can run in now; NULL: the exchange is refused. */
struct e2b_sandbox *hutch_e2b_sandbox_awake(struct exchange *x);

/* What it is like. False: it is gone. */
bool hutch_e2b_sandbox_info(const struct exchange *x, const struct e2b_sandbox *sandbox,
                            struct hutch_session_info *ret);

/* struct format's admit. */
void hutch_e2b_sandbox_admit(struct exchange *x);

#endif
