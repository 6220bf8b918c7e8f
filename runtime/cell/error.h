/* error.h - the error that ended a cell: as nbformat's output, and as texts. */
#ifndef HUTCH_CELL_ERROR_H
#define HUTCH_CELL_ERROR_H

#include <stddef.h>

struct cJSON;
struct text_buffer;

/* All NUL-terminated and owned, U+0000 within is U+FFFD; all NULL: there was none. */
struct cell_error {
    char *name, *value;
    char *traceback;      /* without colours */
    char *traceback_ansi; /* its parts, a newline between them */
};
#define CELL_ERROR_INIT { .name = NULL }
void hutch_cell_error_done(struct cell_error *error);

/* Adds an output of nbformat: two strings and an array of strings. */
void hutch_cell_error_print(struct text_buffer *to, const struct cJSON *ename, const struct cJSON *evalue,
                            const struct cJSON *traceback);
/* The same without the traceback, and the beginnings of the two, for where there is little room. */
void hutch_cell_error_print_short(struct text_buffer *to, const struct cJSON *ename, const struct cJSON *evalue);

/* Reads what was printed. -1: ENOMEM, @ret untouched. */
int hutch_cell_error_parse(const char *json, size_t len, struct cell_error *ret);

#endif
