/* dents.h - the names in a directory, by getdents64(2): opendir(3) allocates, and asks the kernel what init's filter
 * refuses. */
#ifndef HUTCH_DENTS_H
#define HUTCH_DENTS_H

#include <stddef.h>

struct dents {
    int  fd; /* the caller's; -1: there is no name */
    long n, at;
    char buf[4096] __attribute__((aligned(8)));
};

/* From the first name on. */
void hutch_dents_begin(struct dents *dents, int fd);

/* The next name, which stays until the next call; NULL: there is no more. Names that begin with a dot are left out. */
const char *hutch_dents_next(struct dents *dents);

#endif
