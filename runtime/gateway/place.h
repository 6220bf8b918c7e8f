/* place.h - which of a server's workers has what a request is about: the one that the hash of its name chooses. Names
 * that a worker draws itself are drawn until they are its own, so no worker has to know what the others have. */
#ifndef HUTCH_GATEWAY_PLACE_H
#define HUTCH_GATEWAY_PLACE_H

#include "runtime/gateway/merge.h"
#include "runtime/text/ids.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

#define WORKERS_MAX 64

struct place {
    unsigned index, n; /* this worker's number, and how many there are; n 0: there are no workers */
};

/* What a format says of a request: struct format's place(). */
struct placement {
    enum {
        PLACE_ANY,   /* of nothing that is kept: whichever has it answers */
        PLACE_NAMED, /* of what has the name that hash is of */
        PLACE_NEW,   /* it makes something, whose name is drawn before: the header PLACE_NAME_HEADER has it */
        PLACE_ALL    /* of all: each says what it has, and merge makes one answer of that */
    } kind;
    uint64_t hash;
    merge_function *merge;
};

/* Among workers only: what a client says under this name is taken out. */
#define PLACE_NAME_HEADER "X-Hutch-New-Name"

/* PLACE_NAMED, by @name. */
void hutch_placement_name(struct placement *p, const char *name);

unsigned hutch_place_of(const struct place *p, uint64_t hash);
/* hutch_id_make(), of a name whose worker is this one. */
int hutch_place_make_id(const struct place *p, char ret[ID_LEN + 1], struct hutch_err *err);

#endif
