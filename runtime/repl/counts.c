#include "runtime/repl/counts.h"

#include <stdlib.h>
#include <string.h>

static struct repl_count *find_count(const struct repl_counts *counts, uint64_t state, const char *context)
{
    for (size_t i = 0; i < counts->n; i++)
        if (counts->items[i].state == state && strcmp(counts->items[i].context, context) == 0)
            return &counts->items[i];
    return NULL;
}

int hutch_repl_counts_get(const struct repl_counts *counts, uint64_t state, const char *context)
{
    const struct repl_count *found = find_count(counts, state, context);

    return found ? found->count : 0;
}

void hutch_repl_counts_set(struct repl_counts *counts, uint64_t state, const char *context, int count)
{
    struct repl_count *item = find_count(counts, state, context), *more;
    size_t len = strlen(context);

    if (!item && len < REPL_CONTEXT_SIZE) {
        more = realloc(counts->items, (counts->n + 1) * sizeof(*more));
        if (more) {
            counts->items = more;
            item = &more[counts->n++];
            item->state = state;
            memcpy(item->context, context, len + 1);
        }
    }
    if (item)
        item->count = count;
}

void hutch_repl_counts_copy(struct repl_counts *counts, uint64_t from, uint64_t to)
{
    size_t n;

    hutch_repl_counts_drop(counts, to);
    n = counts->n;
    for (size_t i = 0; i < n; i++) {
        struct repl_count item = counts->items[i]; /* what it is taken from moves */

        if (item.state == from)
            hutch_repl_counts_set(counts, to, item.context, item.count);
    }
}

void hutch_repl_counts_drop(struct repl_counts *counts, uint64_t state)
{
    size_t n = 0;

    for (size_t i = 0; i < counts->n; i++)
        if (counts->items[i].state != state)
            counts->items[n++] = counts->items[i];
    counts->n = n;
}

void hutch_repl_counts_clear(struct repl_counts *counts)
{
    free(counts->items);
    *counts = (struct repl_counts)REPL_COUNTS_INIT;
}
