/* log.h - debug lines on stderr when -v was given. Errors never come this way: see err.h. */
#ifndef HUTCH_LOG_H
#define HUTCH_LOG_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The process-wide settings that hutch has. */
void hutch_log_set_verbose(bool is_verbose);

/* Where debug lines go, instead of standard error as they are: each with its newline. */
void hutch_log_set_writer(void (*writer)(const char *line, size_t len));

/* "hutch: debug: …" when verbose, else nothing. No allocation: fine after clone(2). */
void hutch_log_debug(const char *fmt, ...) HUTCH_PRINTF(1, 2);

#endif
