/* targuard.h - looks at a tar stream as it passes, for what is lost once a library has turned names into C strings: a
 * NUL inside a name of an extended header; and for maps of sparse files so long that keeping them would fill the
 * memory. It reads no further into the format than needed to find those headers. When a stream is made so that it loses
 * its way, nothing is at risk but this message: every name that arrives is checked again where it is used. Sources:
 * POSIX.1-2017 pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format". */
#ifndef HUTCH_TARGUARD_H
#define HUTCH_TARGUARD_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TARGUARD_MAX_HOLES 65536u /* pieces of one sparse file; libarchive keeps 48 bytes for each */
#define TARGUARD_MAX_HEADER (1u << 20) /* bytes of one extended header; libarchive has the same bound */

struct targuard {
    unsigned char header[512];
    size_t header_len;       /* bytes of header[] that have come */
    uint64_t skip;           /* bytes of content and padding that still pass */
    char *ext;               /* owned; content of an extended header */
    size_t ext_len, ext_size, ext_padding;
    char ext_type;           /* 'x', 'g', 'L', 'K'; 0 when none is being read */
    bool has_size;           /* an extended header gave the size of the next entry: */
    uint64_t size;
    bool has_map;            /* an extended header said that the next entry begins with a map, "COUNT\n…" (GNU sparse
                              * 1.0) */
    bool in_map_count;       /* that number is passing */
    bool in_map_blocks;      /* old GNU: blocks of the map follow the header, 21 pieces in each */
    uint64_t map_count;
    uint64_t entry_size;     /* of the content after such blocks */
};

int hutch_targuard_open(struct targuard *ret, struct hutch_err *err);
void hutch_targuard_done(struct targuard *guard);
/* Errors: 0 (a name with a NUL; an extended header, or the map of a sparse file, that is too long). */
int hutch_targuard_feed(struct targuard *guard, const void *data, size_t len, struct hutch_err *err);

#endif
