/* session.h - the session that a request names by 'identifier': the first one that does makes it. */
#ifndef HUTCH_AZURE_SESSION_H
#define HUTCH_AZURE_SESSION_H

#include "runtime/azure/request.h"
#include "runtime/azure/result.h"
#include "runtime/text/ids.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct exchange;
struct gateway_session;

/* Kept for later questions; the oldest that is over makes room. */
#define AZURE_MAX_EXECUTIONS 64

enum azure_state { AZURE_RUNNING, AZURE_SUCCEEDED, AZURE_FAILED };

struct azure_execution {
    TAILQ_ENTRY(azure_execution) in_list;
    char id[ID_LEN + 1];
    struct gateway_session *session;
    struct exchange *x;          /* who waits for it; NULL: nobody */
    enum azure_shape shape;
    bool is_async;
    enum azure_state state;
    uint64_t cell;               /* of code */
    uint64_t process;            /* of a command; 0: it is code */
    int exit_code;               /* of a command that has ended */
    double ms;                   /* likewise */
    struct text_buffer out, err; /* of a command */
    struct text_buffer result;   /* what stands for "result", when it is over; of the oldest shape the whole answer */
};
TAILQ_HEAD(azure_executions, azure_execution);

struct azure_session {
    struct azure_executions list;
    unsigned n;
};

/* The version that the request names, or it is refused. */
bool hutch_azure_read_version(struct exchange *x, enum azure_shape *ret);
/* The session that it names, in a version that is known; made, if @makes and there is none. NULL: the exchange was
 * refused. */
struct gateway_session *hutch_azure_find(struct exchange *x, bool makes);

#endif
