/* session.h - the sessions of one owner: interpreters that calls find by a handle, and the turns that calls take.
 *
 * The first call without a handle opens the main session; a handle is 126 random bits, so that it cannot be guessed
 * where one server has many clients. Calls that run code take turns here and not in the engine, so that one that waits
 * can be cancelled. */
#ifndef HUTCH_MCP_SESSION_H
#define HUTCH_MCP_SESSION_H

#include "runtime/text/ids.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct hutch_cell_result;
struct hutch_engine;
struct hutch_limits;
struct mcp_call;

#define MCP_MAX_SESSIONS 8
#define MCP_TOKENS 4000 /* of a result, unless the settings say so */
#define MCP_MAX_TOKENS 100000

/* What the operator chooses. Nothing is owned; all of it outlives the sessions. */
struct mcp_settings {
    const char *data_dir; /* of all sessions; NULL: each has a fresh one, which ends with it */
    size_t budget;        /* tokens that the text of a result has at most; 0: MCP_TOKENS */
    uint64_t idle_ms, lifetime_ms; /* of a session; 0: libhutch's */
    unsigned max_sessions; /* 0: MCP_MAX_SESSIONS */
    bool has_no_main;      /* there is no conversation: a call without a handle makes a session, whose handle the model
                            * is told, and one that is not used makes room for others */
};

/* Whoever counts the sessions of several owners. */
struct mcp_account {
    int (*enter)(void *owner, struct hutch_err *err); /* one more is to be opened; -1: it may not */
    void (*leave)(void *owner);                       /* one has ended, or could not be opened */
    /* Of the sessions, and what their cells may ask for at most, whose size is set, or NULL. NULL: the engine's. */
    const char *(*policy)(void *owner, struct hutch_limits *limits);
    /* A cell has ended; NULL: nobody counts them. */
    void (*count_cell)(void *owner, const struct hutch_cell_result *result);
    /* As hutch_id_make(), of handles. NULL: that one. */
    int (*make_handle)(void *owner, char ret[ID_LEN + 1], struct hutch_err *err);
};

/* What the next call does not find any more. */
enum mcp_loss { MCP_LOST_NOTHING, MCP_LOST_VARIABLES, MCP_LOST_SESSION };

struct mcp_session {
    LIST_ENTRY(mcp_session) in_list;
    struct mcp_sessions *sessions;
    char handle[ID_LEN + 1];
    uint64_t id;               /* libhutch's; 0: it is not open */
    bool is_main;
    bool is_ready;             /* a cell has run in it: its files can be reached */
    bool is_told;              /* its handle, to the model */
    bool is_closing;           /* nobody finds it any more */
    uint64_t used;             /* the number of its last call among those of all sessions */
    enum mcp_loss loss;        /* that no answer has told yet */
    char why_lost[200];
    struct mcp_call *running;  /* whose turn it is */
    TAILQ_HEAD(mcp_queue, mcp_call) queue;
    bool is_turning;           /* hutch_mcp_session_turn() is at work */
};

struct mcp_sessions {
    const struct mcp_settings *settings;
    const struct mcp_account *account; /* NULL: nobody counts */
    void *owner;                       /* of the account */
    LIST_HEAD(, mcp_session) list;
    unsigned n;
    uint64_t n_calls;                  /* so far */
};

void hutch_mcp_sessions_init(struct mcp_sessions *all, const struct mcp_settings *settings);
/* The engine was freed before, and no call is left. */
void hutch_mcp_sessions_done(struct mcp_sessions *all);

/* The one that @handle names: NULL means the main one, "new" another one, which is made. NULL with *err. */
struct mcp_session *hutch_mcp_sessions_find(struct mcp_sessions *all, const char *handle, struct hutch_err *err);

/* Whether another session, of which @handle is known by then, finds no place unless one is given up. */
bool hutch_mcp_sessions_needs_room(const struct mcp_sessions *all, const char *handle);
/* Ends the one that was not used for longest, if there is one that nobody uses. */
void hutch_mcp_sessions_make_room(struct mcp_sessions *all, struct hutch_engine *engine);
/* Ends all of them: their ends come by a later dispatch. No call waits. */
void hutch_mcp_sessions_close(struct mcp_sessions *all, struct hutch_engine *engine);
/* Whether none is open. */
bool hutch_mcp_sessions_are_closed(const struct mcp_sessions *all);

/* The call begins when it is its turn, which may be at once. */
void hutch_mcp_session_enter(struct mcp_session *s, struct mcp_call *call);
/* It has ended, or does not wait any more. */
void hutch_mcp_session_leave(struct mcp_session *s, struct mcp_call *call);
/* Begins what can begin, in this session or in all. A session that nobody knows and that is not open is gone then. */
void hutch_mcp_session_turn(struct mcp_session *s);
void hutch_mcp_sessions_turn(struct mcp_sessions *all);

/* Its interpreter is ended, because of code that does not stop: the next call finds another, and the same files. */
void hutch_mcp_session_restart(struct mcp_session *s, struct hutch_engine *engine);
/* What was lost, as a sentence for the model; it is told once. False: nothing. */
bool hutch_mcp_session_tell_loss(struct mcp_session *s, char *to, size_t size);
/* Likewise the handle of one that no conversation has. */
bool hutch_mcp_session_tell_handle(struct mcp_session *s, char *to, size_t size);
/* All sessions are gone with the engine, or are about to be. */
void hutch_mcp_sessions_lose(struct mcp_sessions *all, const char *why);

#endif
