/* python_complete.h - whether what was typed at a prompt is a whole piece of Python, or goes on in the next line.
 *
 * Decided from brackets, quotes, colons and indentation, as IPython's prompt decides before it asks the parser:
 *
 *   goes on     an open bracket or string in three quotes; a backslash at the end; a statement that ends in ':'; a
 *               decorator; a last statement that is indented, until an empty line follows; a cell magic (%%), likewise
 *   is whole    everything else, also what can never become Python: that is Python's to say
 *
 * Lines of IPython's own (%magic, !command, x = !command) are not looked into. */
#ifndef HUTCH_LANG_PYTHON_COMPLETE_H
#define HUTCH_LANG_PYTHON_COMPLETE_H

#include <stdbool.h>
#include <stddef.h>

/* @text: whole lines, each with its newline. */
bool hutch_py_is_complete(const char *text, size_t len);

#endif
