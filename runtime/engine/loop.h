/* loop.h - what an engine waits for: descriptors, deadlines, and the end of its own turn. It knows nothing of what
 * wakes by it.
 *
 * All of it is behind one descriptor, which is readable when a turn has something to do. Nothing here
 * blocks. */
#ifndef HUTCH_ENGINE_LOOP_H
#define HUTCH_ENGINE_LOOP_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOOP_SCRATCH_BYTES (256u << 10)
#define LOOP_NEVER 1e300 /* ms, on the clock of hutch_clock_ms() */

struct loop;

/* One descriptor in the epoll set. Part of the object that it wakes. */
struct watch {
    struct loop *loop;
    int fd; /* not owned; -1: not in the set */
    void (*on_ready)(struct watch *w, uint32_t events); /* EPOLLIN, … */
    void *owner;
};
#define WATCH_INIT { .fd = -1 }

/* The moment at which an object is called. Part of that object: setting one never fails. */
struct deadline {
    double at; /* ms; LOOP_NEVER: none. Read only */
    void (*on_due)(void *owner, double now); /* by then the deadline is not set any more */
    void *owner;
    /* the heap's: the first child, the next of the same parent, and what points here */
    struct deadline *child, *next, **from;
};
#define DEADLINE_INIT(due, object) { .at = LOOP_NEVER, .on_due = (due), .owner = (object) }

/* An object that is to be freed when no handler can be at work with it any more. Part of that object. */
struct doomed {
    struct doomed *next;
    void (*free)(void *object);
    void *object;
};

struct loop {
    int epoll_fd, timer_fd; /* owned; -1: not open */
    struct watch timer;
    struct deadline *first; /* the root of a pairing heap: nothing is due before it */
    struct doomed *doomed;
    double armed;           /* when the timer fires */
    double due_now;         /* while deadlines are called: up to which moment; else 0 */
    double late_ms;         /* … how late the one that is called is */
    bool is_in_turn;
    _Alignas(16) char scratch[LOOP_SCRATCH_BYTES]; /* for a handler to read into; another's as soon as it returns */
};
#define LOOP_INIT { .epoll_fd = -1, .timer_fd = -1, .timer = WATCH_INIT, .armed = LOOP_NEVER }

/* Errors: EMFILE, ENFILE, ENOMEM. @loop may not move from here on. */
int hutch_loop_open(struct loop *loop, struct hutch_err *err);
/* Frees what is doomed. Watches and deadlines that are left are not called any more. Fine on LOOP_INIT. */
void hutch_loop_done(struct loop *loop);

/* One turn is these three calls. The first calls the handlers of what is ready. */
void hutch_loop_begin_turn(struct loop *loop);
/* Calls those whose deadline has come. */
void hutch_loop_run_due(struct loop *loop);
/* Frees what is doomed, and arms the descriptor: at once when there is @more to do, else for the next deadline. */
void hutch_loop_end_turn(struct loop *loop, bool more);
/* There is something to do: the descriptor is readable at once. Within a turn nothing happens: its end tells. */
void hutch_loop_wake(struct loop *loop);

/* Errors: ENOMEM, ENOSPC (fs.epoll.max_user_watches). */
int hutch_watch_add(struct watch *w, struct loop *loop, int fd, uint32_t events,
                    void (*on_ready)(struct watch *w, uint32_t events), void *owner, struct hutch_err *err);
void hutch_watch_change(struct watch *w, uint32_t events);
/* Before its descriptor is closed: a copy of the process that somebody forked keeps the set's entry alive otherwise. */
void hutch_watch_remove(struct watch *w);

/* Instead of any earlier setting; LOOP_NEVER unsets it, and 0 is now. A deadline has to be unset before its object
 * goes. One that is set while others are called comes with the next turn, at the earliest. */
void hutch_loop_set_deadline(struct loop *loop, struct deadline *d, double at);
/* Only where @at is earlier than what is set. */
void hutch_loop_advance_deadline(struct loop *loop, struct deadline *d, double at);

/* While a deadline is called: for how many ms after it the loop was not turned, as with a caller that was busy,
 * stopped, or on a machine that hardly gave it time. 0 when that is no time to speak of. What others did not say
 * meanwhile they may have had no way to say. */
double hutch_loop_stood_still(const struct loop *loop);

/* Calls @free with @object at the end of this turn, or of the next one. @d is a part of @object. */
void hutch_loop_free_later(struct loop *loop, struct doomed *d, void *object, void (*free)(void *object));
/* Now: no handler is at work. */
void hutch_loop_free_doomed(struct loop *loop);

#endif
