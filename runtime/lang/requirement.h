/* requirement.h - which packages a Python program wants: requirements as pip takes them, from a list on the command
 * line, a requirements file, or the comment in a script that PEP 723 describes. Sources: PEP 508, PEP 723, pip's
 * "Requirements File Format". */
#ifndef HUTCH_LANG_REQUIREMENT_H
#define HUTCH_LANG_REQUIREMENT_H

#include "sandbox/err.h"

#include <stddef.h>

#define REQUIREMENT_MAX 1024          /* in a list */
#define REQUIREMENT_MAX_TEXT 2000     /* bytes of one */
#define REQUIREMENT_MAX_FILE (1u << 20)

struct requirement_list {
    char **texts; /* owned, each; without two that are the same, sorted */
    size_t n;
};
#define REQUIREMENT_LIST_INIT { .texts = NULL }

void hutch_requirement_list_done(struct requirement_list *list);

/* Adds one: "rich", "polars>=1,<2", "uvicorn[standard]; python_version>'3'", "x @ https://.../x-1-py3-none-any.whl",
 * with " --hash=sha256:..." behind it. Spaces around and between its parts do not make another one of it.
 * Errors: 0 (it is an option or has one, a path, a URL of anything but a wheel, or nothing that has a name; it has '$',
 * by which pip would take in the environment). */
int hutch_requirement_add(struct requirement_list *list, const char *text, size_t len, struct hutch_err *err);

/* Several with commas between them. A comma before an operator is a part of the one before. */
int hutch_requirement_add_words(struct requirement_list *list, const char *text, struct hutch_err *err);

/* The lines of a requirements file. Errors: also a line that is an option, such as -r or --index-url. */
int hutch_requirement_add_file(struct requirement_list *list, const char *text, size_t len, struct hutch_err *err);

/* The "dependencies" of a script that has a block "# /// script". One without has none. Errors: the block does not end,
 * there are two of them, or its dependencies are no list of texts. The script is nobody's word: URLs are refused. */
int hutch_requirement_add_script(struct requirement_list *list, const char *text, size_t len, struct hutch_err *err);

#endif
