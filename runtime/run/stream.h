/* stream.h - carries bytes between a sandbox's pipe and the outside, bounded, without ever blocking on either. */
#ifndef HUTCH_RUN_STREAM_H
#define HUTCH_RUN_STREAM_H

#include "runtime/run/result.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STREAM_BUF  65536
#define STREAM_TAIL 8192

/* One end for a stream here, which does not block, and one for the sandbox; the caller owns both. */
int hutch_stream_make_pipe(int *ret_mine, int *ret_theirs, bool i_read, struct hutch_err *err);
/* write(2) that raises no SIGPIPE. */
ssize_t hutch_stream_write(int fd, const void *data, size_t len);

/* What a sink gets instead of the bytes that came: at most STREAM_SHAPED(len) of them. */
struct stream_shaper {
    size_t (*shape)(struct stream_shaper *shaper, const char *data, size_t len, char *to);
    size_t (*end)(struct stream_shaper *shaper, char *to); /* at the end: what has been held back, as of 0 bytes */
};
#define STREAM_SHAPED(len) (4 * (len) + 256)

/* Out of the sandbox: from @pipe_fd to @sink_fd; when that is -1, to @on_data; without that into @capture. */
struct out_stream {
    int pipe_fd;               /* owned; -1 when it has ended */
    int sink_fd;               /* not owned; -1: none */
    void (*on_data)(void *user, const struct out_stream *s, const char *data, size_t len);
    bool (*on_close)(void *user, int fd); /* instead of closing pipe_fd, for an owner that does not watch it by poll(2):
                                           * true when the owner closes it. NULL: none */
    void *user;
    bool is_sink_broken;       /* it has no reader any more, or it is full for good */
    int sink_errno;            /* why, 0 when its reader just went away */
    struct stream_shaper *shaper; /* not owned; with a sink. NULL: none */
    struct run_output *capture;
    uint64_t limit, seen;      /* bytes; limit 0: none */
    bool is_over_limit;
    bool is_finishing;         /* only @left more bytes are wanted */
    bool has_more;             /* the last read filled what room there was */
    size_t left;
    size_t start, end;
    size_t n_tail;             /* of tail, whose last STREAM_TAIL bytes are the last that came */
    char tail[2 * STREAM_TAIL];
    char buf[STREAM_BUF];
};
/* A stream of nothing to nowhere. The buffer stays as it is: most programs need little of it. */
void hutch_out_stream_init(struct out_stream *s);

/* Sets .events for the two descriptors; fd -1 where there is nothing to wait for. */
void hutch_out_stream_poll(const struct out_stream *s, struct pollfd *pipe, struct pollfd *sink);
/* Moves what can be moved. -1 on ENOMEM while capturing. */
int hutch_out_stream_run(struct out_stream *s, const struct pollfd *pipe, const struct pollfd *sink);
/* Ends it with what the pipe holds at this moment, although a process may still have its write end. */
void hutch_out_stream_finish(struct out_stream *s);
/* No more will come and all is delivered. */
bool hutch_out_stream_is_done(const struct out_stream *s);
/* No more of it is wanted. */
void hutch_out_stream_close(struct out_stream *s);
/* The last bytes of it wherever they went, STREAM_TAIL at most: *@ret is the stream's. */
size_t hutch_out_stream_tail(const struct out_stream *s, const char **ret);

/* Into the sandbox: from @source_fd, or all of @text, to @pipe_fd. */
struct in_stream {
    int source_fd; /* not owned; -1 when it has ended */
    const char *text; /* not owned; then start and end are places in it, and there is no source */
    int source_errno; /* why it cannot be read; what came so far is not all, so the program must not take it for that */
    int pipe_errno;   /* likewise: why it cannot be written */
    int pipe_fd;   /* owned; -1 when closed */
    bool (*on_close)(void *user, int fd); /* as above */
    void *user;
    size_t start, end;
    char buf[STREAM_BUF];
};
void hutch_in_stream_init(struct in_stream *s);
/* Ends what the program can read. */
void hutch_in_stream_close(struct in_stream *s);
void hutch_in_stream_poll(const struct in_stream *s, struct pollfd *source, struct pollfd *pipe);
void hutch_in_stream_run(struct in_stream *s, const struct pollfd *source, const struct pollfd *pipe);

#endif
