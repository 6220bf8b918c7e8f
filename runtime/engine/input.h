/* input.h - what a run reads on its standard input: a text, or what comes from a descriptor of the caller's. */
#ifndef HUTCH_ENGINE_INPUT_H
#define HUTCH_ENGINE_INPUT_H

#include "runtime/engine/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct supervisor;

struct run_input {
    char *text;    /* owned */
    size_t len;
    int source_fd; /* owned; instead of a text, read as the program reads; -1: none */
    bool has_read_source; /* what was taken from it cannot be had again */
    struct supervisor *supervisor;
    struct watch pipe, source;
    /* the pipe takes more of the text, or is read no more: as poll(2) says */
    void (*on_room)(void *owner, short revents);
    void *owner;
};
#define RUN_INPUT_INIT { .source_fd = -1, .pipe = WATCH_INIT, .source = WATCH_INIT }

/* What @supervisor's pipe takes at once, and the rest when there is room. */
void hutch_input_start(struct run_input *input, struct loop *loop, struct supervisor *supervisor);
/* Before the supervisor is another's. The text stays, for another start. */
void hutch_input_stop(struct run_input *input);
void hutch_input_done(struct run_input *input);

#endif
