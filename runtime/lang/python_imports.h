/* python_imports.h - which modules a Python program seems to import. A guess from its text, for choosing the
 * interpreter that has them: what it misses or makes up costs time only. */
#ifndef HUTCH_LANG_PYTHON_IMPORTS_H
#define HUTCH_LANG_PYTHON_IMPORTS_H

#include <stddef.h>

#define IMPORTS_MAX_SCAN (64u << 10) /* bytes that are looked at: imports stand at the top */

/* Calls @found with the first part of every name after "import" or "from" that begins a statement, at any depth; not
 * NUL-terminated, and any of them more than once. What stands in a string of three quotes is not looked at. */
void hutch_imports_scan(const char *code, size_t len, void (*found)(void *context, const char *name, size_t name_len),
                        void *context);

#endif
