/* counts.h - the number that the prompt shows: each context counts its cells, and checkpoints and branches have counts
 * of their own. Only for showing: where memory is short, a count begins anew. */
#ifndef HUTCH_REPL_COUNTS_H
#define HUTCH_REPL_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#define REPL_CONTEXT_SIZE 65

struct repl_count {
    uint64_t state; /* id of a branch or checkpoint; 0: the first branch */
    char context[REPL_CONTEXT_SIZE];
    int count;
};
struct repl_counts {
    struct repl_count *items; /* owned */
    size_t n;
};
#define REPL_COUNTS_INIT { .items = NULL }

int hutch_repl_counts_get(const struct repl_counts *counts, uint64_t state, const char *context); /* 0: no cell yet */
void hutch_repl_counts_set(struct repl_counts *counts, uint64_t state, const char *context, int count);
/* State @to has the counts of @from, and no others. */
void hutch_repl_counts_copy(struct repl_counts *counts, uint64_t from, uint64_t to);
void hutch_repl_counts_drop(struct repl_counts *counts, uint64_t state);
void hutch_repl_counts_clear(struct repl_counts *counts);

#endif
