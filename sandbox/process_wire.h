/* process_wire.h - what the engine says to a session's spawner, and to each process that this makes for it.
 *
 *   spawner   a fork of a session's worker, made before any foreign code ran there; or that worker itself, where the
 *             session has no interpreter. It has the worker's confinement, as every fork has (sandbox/worker.c), is a
 *             child of init, and only forks
 *   process   what it forks, a child of init too: executes the program of one order, or does one with a path
 *
 * All sockets are AF_UNIX SOCK_SEQPACKET, one message a packet. The structs cross as they are: all ends come from one
 * build. What comes from inside is not trusted: code of the session can reach the spawner and what it forks. */
#ifndef HUTCH_PROCESS_WIRE_H
#define HUTCH_PROCESS_WIRE_H

#include <stdint.h>
#include <sys/types.h>

/* What an order to the spawner begins with. */
enum spawner_order { SPAWNER_PROCESS, SPAWNER_PATH /* sandbox/path_wire.h */ };

/* To the spawner; fds: the process's control socket, and without a terminal its stdin, stdout and stderr. Behind the
 * struct: the directory ("": the session's), then the arguments, then variables on top of the session's, each ended by
 * a NUL. */
struct process_order {
    uint32_t what;    /* SPAWNER_PROCESS */
    uint32_t n_args;  /* 1 at least */
    uint32_t n_env;
    uint32_t cpu_s;   /* soft RLIMIT_CPU, one second less than the hard one; 0: as it is */
    uint32_t is_terminal; /* it makes itself a pseudo-terminal, whose master comes with PROCESS_HERE */
};
#define PROCESS_TEXT_MAX (128u << 10) /* bytes behind the struct */
#define PROCESS_LIST_MAX 4096         /* arguments, or variables */

/* From the spawner, once, on its socket: PROCESS_HERE. From the process on its control socket: PROCESS_HERE; then it
 * waits for one byte, whatever it is, and executes its program, which closes the socket; or PROCESS_FAILED. */
enum process_says { PROCESS_HERE = 0x45524548, PROCESS_FAILED };
enum process_step { /* what failed */
    PROCESS_STEP_FORK, PROCESS_STEP_TERMINAL, PROCESS_STEP_STREAMS, PROCESS_STEP_DIRECTORY, PROCESS_STEP_LIMIT,
    PROCESS_STEP_EXECUTE, PROCESS_STEPS
};
struct process_said {
    uint32_t what;  /* enum process_says */
    pid_t pid;      /* PROCESS_HERE: as the sandbox has it */
    uint32_t step;  /* PROCESS_FAILED: enum process_step */
    int32_t errnum;
};

#endif
