/* mime.h - what kind of file is this: by its extension, else by its first bytes. Never an error, only a hint
 * for whoever shows results; the names and the bytes may come from hostile code. */
#ifndef HUTCH_DATA_MIME_H
#define HUTCH_DATA_MIME_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes hutch_mime_by_content() looks at, at most. */
#define MIME_SNIFF_LEN 512

/* Static text, or NULL when the extension of @path says nothing. */
const char *hutch_mime_by_name(const char *path);

/* Static text, "application/octet-stream" when nothing fits. @head holds the first @len bytes of the file, and is all
 * of it when @is_whole. */
const char *hutch_mime_by_content(const void *head, size_t len, bool is_whole);

#endif
