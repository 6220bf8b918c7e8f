#include "runtime/data/names.h"

#include "runtime/data/changes.h"

#include <stdlib.h>
#include <string.h>

struct collect_names {
    struct collect_names *next;
    size_t used;
    size_t before; /* bytes in the blocks after this one in the chain, which were filled earlier */
    char text[(64 << 10) - 3 * sizeof(void *)];
};
_Static_assert(COLLECT_MAX_PATH < sizeof(((struct collect_names *)0)->text), "any path fits one block");

size_t hutch_names_bytes(const struct collect_names *names)
{
    return names ? names->before + names->used : 0;
}

const char *hutch_names_keep(struct collect_names **names, const char *path, size_t len)
{
    struct collect_names *block = *names;
    char *kept;

    if (block == NULL || sizeof(block->text) - block->used < len + 1) {
        block = malloc(sizeof(*block));
        if (block == NULL)
            return NULL;
        block->next = *names;
        block->used = 0;
        block->before = hutch_names_bytes(*names);
        *names = block;
    }
    kept = block->text + block->used;
    memcpy(kept, path, len + 1);
    block->used += len + 1;
    return kept;
}

void hutch_names_free(struct collect_names *names)
{
    while (names != NULL) {
        struct collect_names *next = names->next;

        free(names);
        names = next;
    }
}
