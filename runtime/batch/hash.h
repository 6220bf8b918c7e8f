/* hash.h - FNV-1a of 128 bits, of a task, a program and settings: tells what has changed since a result was written.
 *
 * No defence against collisions that are made on purpose: all that one does is to keep an old result. */
#ifndef HUTCH_BATCH_HASH_H
#define HUTCH_BATCH_HASH_H

#include <stddef.h>
#include <stdint.h>

#define BATCH_HASH_LEN 32 /* hexadecimal digits */

struct batch_hash {
    uint64_t high, low;
};
#define BATCH_HASH_START ((struct batch_hash){ 0x6c62272e07bb0142, 0x62b821756295c58d })

struct batch_hash hutch_batch_hash_add(struct batch_hash hash, const void *data, size_t len);
void hutch_batch_hash_format(struct batch_hash hash, char text[BATCH_HASH_LEN + 1]);
/* What hutch_batch_hash_format() wrote. Returns -1 when it is something else. */
int hutch_batch_hash_parse(const char *text, size_t len, struct batch_hash *ret);

#endif
