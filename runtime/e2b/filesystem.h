/* filesystem.h - the files of a sandbox: by Connect what is told of them, made, moved and removed; by /files what is in
 * them. */
#ifndef HUTCH_E2B_FILESYSTEM_H
#define HUTCH_E2B_FILESYSTEM_H

struct exchange;

void hutch_e2b_filesystem_list(struct exchange *x);
void hutch_e2b_filesystem_stat(struct exchange *x);
void hutch_e2b_filesystem_make(struct exchange *x);
void hutch_e2b_filesystem_move(struct exchange *x);
void hutch_e2b_filesystem_remove(struct exchange *x);
/* Changes of a directory are not told. */
void hutch_e2b_filesystem_watch(struct exchange *x);
void hutch_e2b_filesystem_download(struct exchange *x);

#endif
