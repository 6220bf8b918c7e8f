#include "sandbox/cpu_ledger.h"

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The entry with this number, or where it would be. */
static size_t find_place(const struct cpu_entry *entries, size_t n, pid_t pid)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (entries[middle].seen.pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct cpu_entry *find(struct cpu_ledger *ledger, int which, pid_t pid)
{
    struct cpu_entry *entries = ledger->looks[which];
    size_t i = find_place(entries, ledger->n[which], pid);

    return i < ledger->n[which] && entries[i].seen.pid == pid ? &entries[i] : NULL;
}

/* The same process at the other look. */
static struct cpu_entry *find_again(struct cpu_ledger *ledger, int which, const struct cpu_entry *entry)
{
    struct cpu_entry *again = find(ledger, which, entry->seen.pid);

    return again && again->seen.started == entry->seen.started ? again : NULL;
}

void hutch_cpu_ledger_begin(struct cpu_ledger *ledger)
{
    ledger->n[ledger->now] = 0;
}

void hutch_cpu_ledger_see(struct cpu_ledger *ledger, const struct cpu_seen *seen)
{
    struct cpu_entry *entries = ledger->looks[ledger->now];
    size_t *n = &ledger->n[ledger->now], at;

    if (*n == CPU_LEDGER_MAX) {
        ledger->is_lower_bound = true;
        return;
    }
    for (at = *n; at > 0 && entries[at - 1].seen.pid > seen->pid; at--) /* /proc is in order: no turn as a rule */
        entries[at] = entries[at - 1];
    if (at > 0 && entries[at - 1].seen.pid == seen->pid) { /* two in one look: the number was given anew meanwhile */
        for (; at < *n; at++)
            entries[at] = entries[at + 1];
        ledger->is_lower_bound = true;
        return;
    }
    entries[at] = (struct cpu_entry){ .seen = *seen };
    ++*n;
}

/* Charges what is gone to its parent, where that lives on. Returns the rest, which init may have reaped. */
static uint64_t charge_gone(struct cpu_ledger *ledger)
{
    int now = ledger->now, before = !now;
    uint64_t orphaned = 0;

    for (size_t i = 0; i < ledger->n[before]; i++) {
        struct cpu_entry *gone = &ledger->looks[before][i], *parent;
        /* What it had reaped goes with it: its rounding, too. */
        uint64_t left = gone->seen.own_ns + gone->seen.reaped_ns + gone->borrowed_ns;

        if (find_again(ledger, now, gone))
            continue;
        parent = find(ledger, before, gone->seen.parent);
        parent = parent ? find_again(ledger, now, parent) : NULL;
        if (parent)
            parent->need_ns += left;
        else
            orphaned += left;
    }
    return orphaned;
}

/* What a process has reaped since the last look covers what it was charged. Adds what is not covered to *@short_ns,
 * and what covers nothing to *@spare_ns: it may have reaped for another, as a subreaper. */
static void settle(struct cpu_ledger *ledger, struct cpu_entry *entry, uint64_t *short_ns, uint64_t *spare_ns)
{
    const struct cpu_entry *before = find_again(ledger, !ledger->now, entry);
    uint64_t had = before ? before->seen.reaped_ns : 0, borrowed = before ? before->borrowed_ns : 0;
    uint64_t grown = entry->seen.reaped_ns > had ? entry->seen.reaped_ns - had : 0, need = entry->need_ns, part;

    part = lesser(grown, borrowed);
    grown -= part;
    borrowed -= part;
    part = lesser(grown, need);
    grown -= part;
    need -= part;
    part = lesser(CPU_TICK_MAX_NS - borrowed, need);
    borrowed += part;
    need -= part;
    entry->borrowed_ns = borrowed;
    *short_ns += need;
    *spare_ns += grown;
}

uint64_t hutch_cpu_ledger_end(struct cpu_ledger *ledger, uint64_t reaped_ns)
{
    uint64_t short_ns = charge_gone(ledger), spare_ns, part, total;

    spare_ns = reaped_ns > ledger->reaped_ns ? reaped_ns - ledger->reaped_ns : 0;
    total = ledger->reaped_ns = reaped_ns;
    for (size_t i = 0; i < ledger->n[ledger->now]; i++) {
        struct cpu_entry *entry = &ledger->looks[ledger->now][i];

        settle(ledger, entry, &short_ns, &spare_ns);
        total += entry->seen.own_ns + entry->seen.reaped_ns;
    }
    part = lesser(spare_ns, ledger->doubtful_ns);
    spare_ns -= part;
    ledger->lost_ns += ledger->doubtful_ns - part;
    ledger->doubtful_ns = short_ns - lesser(short_ns, spare_ns);
    total += ledger->lost_ns + ledger->doubtful_ns;
    if (ledger->lost_ns > 0)
        ledger->is_lower_bound = true;
    if (total > ledger->total_ns)
        ledger->total_ns = total;
    ledger->now = !ledger->now;
    return ledger->total_ns;
}

void hutch_cpu_ledger_drop(struct cpu_ledger *ledger)
{
    ledger->n[ledger->now] = 0;
}
