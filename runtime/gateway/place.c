#include "runtime/gateway/place.h"

#include <string.h>

#define MAX_DRAWS (1000 * WORKERS_MAX) /* all of them fail once in e^1000 times */

/* FNV-1a. It need not resist anybody: who finds names of one worker only slows his own. */
static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash ^ hash >> 32;
}

void hutch_placement_name(struct placement *p, const char *name)
{
    p->kind = PLACE_NAMED;
    p->hash = hash_of(name);
}

unsigned hutch_place_of(const struct place *p, uint64_t hash)
{
    return p->n ? (unsigned)(hash % p->n) : 0;
}

int hutch_place_make_id(const struct place *p, char ret[ID_LEN + 1], struct hutch_err *err)
{
    for (int i = 0; i < MAX_DRAWS; i++) {
        if (hutch_id_make(ret, err) < 0)
            return -1;
        if (hutch_place_of(p, hash_of(ret)) == p->index)
            return 0;
    }
    return hutch_err_set(err, 0, "draw a name for worker %u of %u", p->index, p->n);
}
