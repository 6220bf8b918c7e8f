/* engine.h - the part of hutch.h that a batch needs. The unit test brings an engine of its own. */
#ifndef HUTCH_BATCH_ENGINE_H
#define HUTCH_BATCH_ENGINE_H

#include "runtime/hutch.h"

#include <stdint.h>

struct batch_engine {
    struct hutch_engine *engine;
    int (*submit)(struct hutch_engine *, const struct hutch_request *, uint64_t *, struct hutch_error *);
    int (*cancel)(struct hutch_engine *, uint64_t);
    int (*fd)(const struct hutch_engine *);
    int (*dispatch)(struct hutch_engine *, struct hutch_error *);
};

#endif
