/* source.h - a file of JSON records: one object a line, or one array of objects; plain or gzipped.
 *
 * Read as a stream the first time; any record can be had again by its place, so that nothing but places has to stay in
 * memory. */
#ifndef HUTCH_BATCH_SOURCE_H
#define HUTCH_BATCH_SOURCE_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATCH_RECORD_MAX (256u << 20) /* bytes of one record */
#define BATCH_WHERE_MAX 400           /* bytes of what messages say of the place of a record: "'FILE': line 7" */

/* Where a record stands. */
struct batch_place {
    uint64_t offset;
    uint32_t len;
    uint32_t line, column; /* from 1 */
};

struct batch_source {
    char *name;  /* owned; how messages call it */
    int fd;      /* owned */
    bool is_array, is_over;
    char *buf;             /* owned: the bytes from @buf_offset on */
    size_t buf_len, buf_room, pos;
    uint64_t buf_offset;
    uint32_t line, column; /* of buf[pos] */
    size_t n_records;
};
#define BATCH_SOURCE_INIT { .name = NULL, .fd = -1, .buf = NULL }

/* @path "-" is standard input. Errors: what open(2) says; gzip(1) is not there, or says that the file is damaged. */
int hutch_batch_source_open(const char *path, struct batch_source *ret, struct hutch_err *err);

/* The next record, whose text stands in @source until the next call; 1, or 0 when there is none. Errors name file and
 * line: not JSON, not an object, too large. */
int hutch_batch_source_next(struct batch_source *source, struct json_view *ret, struct batch_place *ret_place,
                            struct hutch_err *err);

/* A record once more; the caller frees *ret_text. Errors: the file has changed. */
int hutch_batch_source_load(const struct batch_source *source, const struct batch_place *place, char **ret_text,
                            struct json_view *ret, struct hutch_err *err);

void hutch_batch_source_done(struct batch_source *source);

#endif
