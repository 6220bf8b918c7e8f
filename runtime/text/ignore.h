/* ignore.h - .hutchignore: what of a project is held back, one pattern a line.
 *
 * '*' is any text and '?' any byte, but '/'. A pattern without a '/' is a name, wherever it is; any other is a path
 * from the top of the project. One that ends in '/' is for directories alone. A directory is held back with all that is
 * in it. Lines that are empty or begin with '#' say nothing; blanks at a line's end are no part of it. What other files
 * of the kind know beyond that is refused: a pattern that did less than it says would show what is to be hidden.
 */
#ifndef HUTCH_TEXT_IGNORE_H
#define HUTCH_TEXT_IGNORE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define IGNORE_FILE        ".hutchignore"
#define IGNORE_MAX_BYTES   (64u << 10)
#define IGNORE_MAX_LINES   1000
#define IGNORE_MAX_PATTERN 255 /* bytes */

struct ignore_pattern {
    const char *text; /* in the list's block; without '/' at either end */
    bool is_path;     /* from the top; else a name */
    bool is_for_dirs;
};

struct ignore_list {
    struct ignore_pattern *patterns; /* owned */
    size_t n;
    char *block; /* owned */
};
#define IGNORE_LIST_INIT { .patterns = NULL }

/* @text may be anything. Errors: a sentence that names the line; E2BIG; ENOMEM. @ret is untouched then. */
int hutch_ignore_parse(const char *text, size_t len, struct ignore_list *ret, struct hutch_err *err);
void hutch_ignore_done(struct ignore_list *list);

/* Whether @path, which is relative to the top, is held back by itself: not with a directory that it is in. The file
 * IGNORE_FILE at the top always is, as it has the names of what is held back. */
bool hutch_ignore_has(const struct ignore_list *list, const char *path, bool is_dir);
/* Whether the file @path is held back, by itself or with a directory on its way. */
bool hutch_ignore_holds_back(const struct ignore_list *list, const char *path);

#endif
