#include "runtime/batch/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct batch_hash hutch_batch_hash_add(struct batch_hash hash, const void *data, size_t len)
{
    const unsigned __int128 prime = (unsigned __int128)0x1000000 << 64 | 0x13b;
    const unsigned char *p = data;
    unsigned __int128 h = (unsigned __int128)hash.high << 64 | hash.low;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * prime;
    return (struct batch_hash){ (uint64_t)(h >> 64), (uint64_t)h };
}

void hutch_batch_hash_format(struct batch_hash hash, char text[BATCH_HASH_LEN + 1])
{
    snprintf(text, BATCH_HASH_LEN + 1, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

int hutch_batch_hash_parse(const char *text, size_t len, struct batch_hash *ret)
{
    char copy[BATCH_HASH_LEN + 1];

    if (len != BATCH_HASH_LEN)
        return -1;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return sscanf(copy, "%16" SCNx64 "%16" SCNx64, &ret->high, &ret->low) == 2 ? 0 : -1;
}
