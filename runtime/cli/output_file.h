/* output_file.h - a file that is written when foreign code has run, at a place that was settled before: what that code
 * has put there meanwhile, a symbolic link or a FIFO, is neither followed nor opened. */
#ifndef HUTCH_CLI_OUTPUT_FILE_H
#define HUTCH_CLI_OUTPUT_FILE_H

#include "sandbox/err.h"

#include <stddef.h>
#include <sys/types.h>

struct output_file {
    const char *path; /* as the caller gave it */
    int dirfd;        /* owned; where it is going to be; -1: nowhere, fd takes it */
    int fd;           /* standard output, or owned: a device or FIFO, which is written as it is; -1 */
    char *name;       /* owned; in dirfd */
    mode_t mode;
};
#define OUTPUT_FILE_INIT { .dirfd = -1, .fd = -1 }

/* @path lives as long as @ret; "-" is standard output. A link is followed now, so that it is its target that is
 * replaced. Errors: it is a directory, or its directory cannot be written to. */
int hutch_output_file_open(const char *path, struct output_file *ret, struct hutch_err *err);
/* Whole or not at all. What could be written but not be brought to its place stays beside it, and the error
 * says where. */
int hutch_output_file_write(const struct output_file *file, const char *text, size_t len, struct hutch_err *err);
void hutch_output_file_done(struct output_file *file);

#endif
