/* changes_wire.h - lists of files as the bytes of a memory file, for a process that goes through a data directory in
 * place of the engine. Both ends come from one build. */
#ifndef HUTCH_DATA_CHANGES_WIRE_H
#define HUTCH_DATA_CHANGES_WIRE_H

#include "runtime/data/changes.h"

/* Each makes a memory file, which the caller owns, and leaves the list as it is. Errors: ENOMEM, EMFILE and the
 * like. */
int hutch_file_list_store(const struct file_list *list, int *ret_fd, struct hutch_err *err);
int hutch_file_changes_store(const struct file_changes *changes, int *ret_fd, struct hutch_err *err);

/* @ret is untouched on failure, else released by hutch_file_list_done() or hutch_file_changes_done(). @fd stays the
 * caller's. Errors: EPROTO when it does not hold such a list; ENOMEM. */
int hutch_file_list_load(int fd, struct file_list *ret, struct hutch_err *err);
int hutch_file_changes_load(int fd, struct file_changes *ret, struct hutch_err *err);

#endif
