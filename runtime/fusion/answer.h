/* answer.h - what became of a run or of cells, in SandboxFusion's words.
 *
 * Its clients take three words for the whole and three for a step, and no others. */
#ifndef HUTCH_FUSION_ANSWER_H
#define HUTCH_FUSION_ANSWER_H

#include "runtime/hutch.h"
#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* Of all files that one answer has. */
#define FUSION_MAX_FETCHED (32u << 20)
#define FUSION_TOO_MUCH "the files that were to be fetched are too large together"

enum fusion_step {
    FUSION_FINISHED,
    FUSION_TIMED_OUT,
    FUSION_FAILED /* hutch, and not the program */
};

/* What a verdict of a run is here. */
enum fusion_step hutch_fusion_step_of(const struct hutch_result *result);

/* The answer to a request for a run that ended. @paths: as they were asked for, in the order of result->fetched. */
char *hutch_fusion_answer_run(const struct hutch_result *result, char *const *paths, size_t *ret_len);
/* The answer to one that there was none for. */
char *hutch_fusion_answer_trouble(const char *message, size_t *ret_len);

/* {"path": "base64", …}, one after the other. */
struct fusion_files {
    struct text_buffer text;
    size_t n_bytes;
    bool is_over; /* there was one for which there was no room */
};
#define FUSION_FILES_INIT { TEXT_BUFFER_INIT, 0, false }
/* @fd stays open. */
void hutch_fusion_files_add(struct fusion_files *files, const char *path, int fd, uint64_t size);

/* A step: status, execution_time, return_code, stdout, stderr. @out, @err: any bytes. */
void hutch_fusion_add_step(struct text_buffer *t, enum fusion_step step, double seconds, int code, const char *out,
                           size_t out_len, const char *err, size_t err_len);

#endif
