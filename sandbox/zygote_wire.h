/* zygote_wire.h - what the engine, a zygote and a worker say to each other.
 *
 *   engine    the caller's process: holds the other end of every socket
 *   zygote    an interpreter in an image, without capabilities; forks workers and further zygotes (sandbox/zygote.h)
 *   worker    the interpreter inside one sandbox, forked by a zygote; its sandbox's process 1 is init (sandbox/init.h)
 *
 * The zygote's socket is AF_UNIX SOCK_SEQPACKET with one message a packet; the worker's is SOCK_STREAM. The structs
 * cross as they are: all ends come from one build. Descriptors travel with the message (SCM_RIGHTS), in the order
 * given. */
#ifndef HUTCH_ZYGOTE_WIRE_H
#define HUTCH_ZYGOTE_WIRE_H

#include "sandbox/err.h"
#include "sandbox/worker.h"

#include <stdint.h>
#include <sys/types.h>

#define ZYGOTE_SOCKET_FD 3 /* the order socket in a zygote; the job socket in a worker */

/* --- engine and zygote --- */

enum zygote_order {
    ZYGOTE_WORKER, /* id; fds: init's pidfd, job, stdin, stdout, stderr [, Landlock ruleset] [, cgroup], as plan.has_...
                    * say; followed by the seccomp program, in the same packet -> ZYGOTE_FORKED */
    ZYGOTE_ZYGOTE, /* id; fd: the new one's socket; followed by what it imports, one name a line -> ZYGOTE_FORKED at
                    * once; on the new socket ZYGOTE_BORN, and ZYGOTE_READY when all is imported */
    ZYGOTE_PING,   /* -> ZYGOTE_PONG: it takes up orders */
    ZYGOTE_PROC,   /* fds: OWN_PROC_FILES of its own files in the procfs around hutch, or all but the last */
};
/* The last has physical addresses in it where it was opened with CAP_SYS_ADMIN over the host: it is not sent then. */
enum { OWN_PROC_FILES = 4 };
#define OWN_PROC_NAMES { "maps", "smaps", "status", "pagemap" }
#define ZYGOTE_TEXT_MAX (128u << 10) /* bytes; a packet's buffer by default holds half as much again */
struct zygote_request {
    uint32_t what; /* enum zygote_order */
    uint32_t id;
    uint32_t text_len; /* bytes after this struct: the seccomp program, or names */
    struct worker_plan plan;
};

enum zygote_says { ZYGOTE_READY, ZYGOTE_FORKED, ZYGOTE_FAILED, ZYGOTE_BORN, ZYGOTE_PONG };
struct zygote_reply {
    uint32_t what; /* enum zygote_says */
    uint32_t id;
    pid_t pid;          /* ZYGOTE_FORKED: as its own pid namespace has it: what init adopts */
    uint32_t wants_proc; /* ZYGOTE_BORN: it has no procfs and waits for ZYGOTE_PROC before it imports */
    uint64_t memory;    /* ZYGOTE_READY: bytes that it has taken beyond its parent's */
    char modules[4096]; /* ZYGOTE_READY: of the preload list, those that could not be imported, one a line */
    struct hutch_err err;
};

/* --- engine and worker --- */

/* From the worker, once, before it is given anything: trusted, as no foreign code has run in it. What comes on this
 * socket after the job is not trusted: the program can write to it. */
enum worker_says { WORKER_READY = 0x57524459, WORKER_FAILED };
struct worker_hello {
    uint32_t what; /* enum worker_says */
    pid_t holder_pid; /* of the memory holder, as the sandbox has it, for INIT_START; 0 for none */
    struct hutch_err err;
};

/* To the worker: a header and then fields, each an uint32_t length (little endian) with so many bytes. With the header
 * may come a descriptor, the socket of a session's spawner: sandbox/process_wire.h. */
#define WORKER_JOB_MAGIC 0x424f4a48u /* "HJOB" */
struct worker_job {
    uint32_t magic;
    uint32_t len; /* of all fields */
};
enum worker_job_field {
    JOB_MODE,    /* "file": write the code to JOB_NAME and run that as a script; "code": as python3 -c; "stdin": as
                  * python3 -; "cells": docs/cells.md; "function": a call of the zygote's function, with JOB_CODE as
                  * its event; "processes": it is a spawner and nothing else */
    JOB_NAME,    /* file: absolute path, PROGRAM_DIR/NAME */
    JOB_CODE,
    JOB_ARGS,    /* what follows in sys.argv, each ended by a NUL */
    JOB_ENV,     /* the whole environment, NAME=VALUE, each ended by a NUL */
    JOB_CWD,
    JOB_RLIMITS, /* "7 64 64\n": resource, soft, hard; to be lowered before the program starts */
    JOB_FIELDS
};
#define WORKER_CODE_MAX (512u << 10) /* bytes of JOB_CODE; a larger program has a sandbox built for it that execs */

#endif
