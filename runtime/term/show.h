/* show.h - the outputs of cells as a person reads them: text as it comes, values, tracebacks, and images as files.
 *
 * Everything shown comes from hostile code: a terminal gets it through runtime/term/filter.h. What goes to a file or
 * pipe stays as it is. Nothing here waits: text is added to two backlogs, which the caller's loop empties. */
#ifndef HUTCH_TERM_SHOW_H
#define HUTCH_TERM_SHOW_H

#include "runtime/term/backlog.h"
#include "sandbox/err.h"
#include "runtime/hutch.h"
#include "runtime/term/filter.h"
#include "runtime/term/image.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CELL_SHOW_MAX_IMAGES 100 /* of one cell; what is beyond is told, and not saved */

#define CELL_SHOW_MAX_PIXELS (32u << 20) /* of one cell's images; those after that are saved, and not shown */

struct cJSON;

struct cell_show_stream {
    struct backlog backlog;
    struct term_filter filter;
    bool is_terminal;
    bool is_in_line; /* what went out last does not end in a newline */
};

struct cell_show {
    struct cell_show_stream streams[2]; /* stdout, stderr */
    bool is_one;          /* both are one file: all goes by way of stdout's backlog, in order */
    bool only_images;     /* they are saved, and nothing but complaints is shown */
    bool has_numbers;     /* "Out[3]: " before values */
    bool is_out_of_memory; /* something is missing */
    enum term_images images;
    /* Makes a new file of an image, which is to be called @name; -1 with errnum EEXIST when the name is taken, which
     * asks for another. NULL: images are not saved. */
    int (*save_image)(void *user, const char *name, const void *data, size_t len, struct hutch_err *err);
    void *user;
    unsigned n_images;      /* numbers that were given */
    unsigned n_cell_images; /* since the cell began */
    uint64_t n_cell_pixels; /* … of those that the terminal shows */
    unsigned n_saved;
};

/* @out_fd and @err_fd stay the caller's. The environment and locale say what a terminal can show. */
void hutch_cell_show_init(struct cell_show *show, int out_fd, int err_fd);
void hutch_cell_show_done(struct cell_show *show);

/* Bytes of stream 1 or 2. */
void hutch_cell_show_bytes(struct cell_show *show, int stream, const char *text, size_t len);
/* One output as nbformat has it. Streams too. */
void hutch_cell_show_json(struct cell_show *show, const struct cJSON *output);
/* As it comes to on_output. */
void hutch_cell_show_output(struct cell_show *show, const struct hutch_output *output);
/* "hutch: …" on a line of its own, on stderr. */
void hutch_cell_show_say(struct cell_show *show, const char *fmt, ...) HUTCH_PRINTF(2, 3);
/* Text of our own for stdout, past the filter. */
void hutch_cell_show_raw(struct cell_show *show, const char *text, size_t len);
/* The cell is over: the cursor is at the beginning of a line, in the terminal's own colours. */
void hutch_cell_show_end(struct cell_show *show);

bool hutch_cell_show_is_written(const struct cell_show *show);
bool hutch_cell_show_is_behind(const struct cell_show *show); /* hutch_backlog_is_long() */

#endif
