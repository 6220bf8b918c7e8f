/* extend_builder.h - the sandbox in which a layer is made, or a step towards it: `hutch run` as a child, whose standard
 * output goes into a file. It has /mnt/in, a directory with what it is given. */
#ifndef HUTCH_CLI_EXTEND_BUILDER_H
#define HUTCH_CLI_EXTEND_BUILDER_H

#include "rootfs/store.h"
#include "runtime/cli/extend.h"
#include "runtime/cli/words.h"
#include "sandbox/err.h"

#include <stdbool.h>

/* The variables of the caller's environment that say how to get out, NULL at the end. They may have passwords, as an
 * index may, so they go by a file of /mnt/in: everybody on the host sees a command line. */
extern const char *const hutch_extend_proxies[];

struct extend_builder {
    const struct extend_job *job;
    const struct store_work *work;
    double until;      /* a moment of hutch_clock_ms() */
    char *directory;   /* owned; the path of @work */
    int in_fd;         /* owned; what is /mnt/in inside */
    int changes_fd;    /* owned; whose `upper` is counted while a sandbox runs; -1: none */
};
#define EXTEND_BUILDER_INIT { .in_fd = -1, .changes_fd = -1 }
#define auto_extend_builder __attribute__((cleanup(hutch_extend_builder_close))) struct extend_builder

int hutch_extend_builder_open(const struct extend_job *job, const struct store_work *work, double until,
                              struct extend_builder *ret, struct hutch_err *err);
void hutch_extend_builder_close(struct extend_builder *builder);

/* A file of /mnt/in. */
int hutch_extend_builder_give(const struct extend_builder *builder, const char *name, const char *text,
                              struct hutch_err *err);
/* Has what a sandbox writes to its root go into a directory of the work, from the next one on: spec.h. */
int hutch_extend_builder_keep_changes(struct extend_builder *builder, struct hutch_err *err);

/* The first words: hutch run, with the builder's policy and /mnt/in. @image_hex: NULL for the host's programs. */
void hutch_extend_builder_begin(const struct extend_builder *builder, const char *image_hex, bool has_network,
                                struct words *words);
/* Shows @source as @directory and @name, which may be "". */
void hutch_extend_builder_show(struct words *words, const char *source, const char *directory, const char *name);

/* Runs it until it ends. @output is a new file of the work.
 * Errors: 0 (what the sandbox says), ECANCELED, ETIMEDOUT, EFBIG. */
int hutch_extend_builder_run(const struct extend_builder *builder, const struct words *words, const char *output,
                             struct hutch_err *err);
/* The same for another program, which runs in no sandbox. */
int hutch_extend_builder_run_program(const struct extend_builder *builder, const char *path, char *const *argv,
                                     const char *output, struct hutch_err *err);

#endif
