/* files.h - the files of a session, which lie in /mnt/data. */
#ifndef HUTCH_AZURE_FILES_H
#define HUTCH_AZURE_FILES_H

struct exchange;

void hutch_azure_upload(struct exchange *x);
void hutch_azure_list(struct exchange *x);
/* files/{path*}: what is known of a file; or with /content behind it the file. */
void hutch_azure_get_file(struct exchange *x);
/* files/content/{path*} */
void hutch_azure_download(struct exchange *x);
void hutch_azure_delete_file(struct exchange *x);

#endif
