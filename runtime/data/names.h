/* names.h - the text of many paths, in blocks that never move. */
#ifndef HUTCH_DATA_NAMES_H
#define HUTCH_DATA_NAMES_H

#include <stddef.h>

struct collect_names;

/* A copy of the @len bytes of @path, which ends with a NUL and is COLLECT_MAX_PATH long at most. It belongs to *@names,
 * NULL for none yet. NULL on ENOMEM. */
const char *hutch_names_keep(struct collect_names **names, const char *path, size_t len);

/* How many bytes it holds, the NUL of each path included. */
size_t hutch_names_bytes(const struct collect_names *names);

void hutch_names_free(struct collect_names *names); /* NULL is fine */

#endif
