#include "sandbox/seccomp_shrink.h"

#include "sandbox/fd.h"
#include "sandbox/seccomp.h"

#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How it works. As far as only the call's number decides, a filter is a function that is constant between the numbers
 * it compares with: so it is evaluated once for each such stretch. Where an argument decides, evaluation follows both
 * ways, and the answer is a node of a graph: a test with two ways on. Equal nodes are one node. The graph is then
 * written down again: a binary search over the stretches, and the tests behind it.
 *
 * Nothing here knows what a rule means, and an instruction that is not expected ends the attempt. */

#define NR_OFFSET   offsetof(struct seccomp_data, nr)
#define ARCH_OFFSET offsetof(struct seccomp_data, arch)
#define MAX_NODES   2048
#define MAX_ANSWERS 64
#define MAX_MEMOS   1024
#define BUCKETS     256
#define MAX_DEPTH   2048
#define MAX_STEPS   (1u << 21) /* instructions that are followed, all evaluations together: tens of milliseconds */
#define FAR         255 /* the longest conditional jump */

enum { NONE = -1 };

struct node {
    bool is_answer;
    uint16_t test;      /* BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET */
    uint32_t value;     /* compared with; or the answer */
    uint32_t off, mask; /* what is compared: a word of the arguments, and its bits */
    int yes, no;        /* nodes of smaller numbers */
};

/* What is in the accumulator. */
struct word {
    enum { WORD_NR, WORD_ARCH, WORD_CONST, WORD_ARGUMENT } kind;
    uint32_t value;     /* WORD_CONST */
    uint32_t off, mask; /* WORD_ARGUMENT */
};

struct memo {
    size_t pc;
    struct word word;
    int node;
    uint16_t next; /* of its bucket, as in struct memos */
};

struct memos {
    struct memo list[MAX_MEMOS];
    size_t n;
    uint16_t first[BUCKETS]; /* by pc: 1 + an index of the list; 0: none */
};

struct stretch {
    uint32_t start; /* up to the next one's */
    int node;
};

struct shrinker {
    const struct sock_filter *insns;
    size_t n_insns;
    uint32_t native; /* architecture that the program knows */
    bool has_native;
    uint32_t nr;     /* that is evaluated now */
    bool is_foreign; /* for another architecture */
    struct node nodes[MAX_NODES];
    int n_nodes;
    int answers[MAX_ANSWERS]; /* nodes */
    size_t n_answers;
    struct memos general; /* hold for every number and architecture */
    struct memos current; /* hold for those that are evaluated now */
    unsigned n_looks; /* at number or architecture: what an evaluation without one has found is general */
    unsigned n_steps;
    struct stretch *stretches; /* owned */
    size_t n_stretches;
    int foreign; /* the answer to all calls of another architecture */

    struct sock_filter out[BPF_MAXINSNS]; /* filled from the end */
    size_t len;
    size_t with_load[MAX_NODES], without_load[MAX_NODES]; /* where a node begins, counted from the end */
    bool needs_load[MAX_NODES];
};

/* --- the graph --- */

static int add_node(struct shrinker *s, struct node node)
{
    if (s->n_nodes == MAX_NODES)
        return NONE;
    s->nodes[s->n_nodes] = node;
    return s->n_nodes++;
}

static int add_answer(struct shrinker *s, uint32_t value)
{
    for (size_t i = 0; i < s->n_answers; i++)
        if (s->nodes[s->answers[i]].value == value)
            return s->answers[i];
    if (s->n_answers == MAX_ANSWERS)
        return NONE;
    s->answers[s->n_answers] = add_node(s, (struct node){ .is_answer = true, .value = value });
    return s->answers[s->n_answers] == NONE ? NONE : s->answers[s->n_answers++];
}

static int add_test(struct shrinker *s, struct node node)
{
    if (node.yes == node.no)
        return node.yes;
    for (int i = s->n_nodes - 1; i >= 0; i--) {
        const struct node *old = &s->nodes[i];

        if (!old->is_answer && old->test == node.test && old->value == node.value && old->off == node.off &&
            old->mask == node.mask && old->yes == node.yes && old->no == node.no)
            return i;
    }
    return add_node(s, node);
}

static int compare(uint16_t test, uint32_t word, uint32_t value)
{
    switch (test) {
    case BPF_JEQ:
        return word == value;
    case BPF_JGT:
        return word > value;
    case BPF_JGE:
        return word >= value;
    case BPF_JSET:
        return (word & value) != 0;
    default:
        return NONE;
    }
}

/* 1 or 0 when the outcome is certain, else NONE. */
static int foresee(uint16_t test, const struct word *word, uint32_t value)
{
    if (word->mask == 0)
        return compare(test, 0, value);
    if ((test == BPF_JEQ && (value & ~word->mask)) || (test == BPF_JGT && value >= word->mask) ||
        (test == BPF_JGE && value > word->mask) || (test == BPF_JSET && !(value & word->mask)))
        return 0;
    return test == BPF_JGE && value == 0 ? 1 : NONE;
}

enum outcome { GOES_NO, GOES_YES, GOES_EITHER_WAY, IS_UNEXPECTED };

static enum outcome decide(struct shrinker *s, const struct sock_filter *insn, const struct word *word)
{
    uint16_t test = BPF_OP(insn->code);
    int outcome = NONE;

    switch (word->kind) {
    case WORD_CONST:
        outcome = compare(test, word->value, insn->k);
        break;
    case WORD_NR: /* the stretches were cut at the numbers of the other three tests */
        if (test != BPF_JSET)
            outcome = compare(test, s->nr, insn->k);
        break;
    case WORD_ARCH: /* one architecture, and all others alike */
        if (test == BPF_JEQ && (!s->has_native || insn->k == s->native)) {
            s->native = insn->k;
            s->has_native = true;
            outcome = !s->is_foreign;
        }
        break;
    case WORD_ARGUMENT:
        if (compare(test, 0, 0) == NONE)
            break;
        outcome = foresee(test, word, insn->k);
        if (outcome == NONE)
            return GOES_EITHER_WAY;
    }
    return outcome == NONE ? IS_UNEXPECTED : outcome ? GOES_YES : GOES_NO;
}

static int find_memo(const struct memos *memos, size_t pc, const struct word *word)
{
    for (unsigned i = memos->first[pc % BUCKETS]; i; i = memos->list[i - 1].next) {
        const struct memo *m = &memos->list[i - 1];

        if (m->pc == pc && m->word.off == word->off && m->word.mask == word->mask)
            return m->node;
    }
    return NONE;
}

static int recall(struct shrinker *s, size_t pc, const struct word *word)
{
    int node = find_memo(&s->general, pc, word);

    if (node == NONE) {
        node = find_memo(&s->current, pc, word);
        s->n_looks += node != NONE; /* what follows from it is no more general than it is */
    }
    return node;
}

static void remember(struct memos *memos, size_t pc, struct word word, int node)
{
    uint16_t *first = &memos->first[pc % BUCKETS];

    if (memos->n == MAX_MEMOS)
        return;
    memos->list[memos->n++] = (struct memo){ pc, word, node, *first };
    *first = (uint16_t)memos->n;
}

static void forget(struct memos *memos)
{
    memos->n = 0;
    memset(memos->first, 0, sizeof(memos->first));
}

/* The node that stands for what the program does from @pc on, or NONE. */
static int evaluate(struct shrinker *s, size_t pc, struct word word, int depth)
{
    size_t began = pc;
    unsigned looks_before = s->n_looks;
    struct word with = word;
    int node = with.kind == WORD_ARGUMENT ? recall(s, pc, &with) : NONE;

    while (node == NONE) {
        const struct sock_filter *insn;
        int yes, no;

        if (pc >= s->n_insns || depth > MAX_DEPTH || ++s->n_steps > MAX_STEPS)
            return NONE;
        insn = &s->insns[pc++];
        if (insn->code == (BPF_LD | BPF_W | BPF_ABS)) {
            s->n_looks += insn->k == NR_OFFSET || insn->k == ARCH_OFFSET;
            word = (struct word){ .kind = WORD_ARGUMENT, .off = insn->k, .mask = UINT32_MAX };
            if (insn->k == NR_OFFSET)
                word = (struct word){ .kind = WORD_NR };
            else if (insn->k == ARCH_OFFSET)
                word = (struct word){ .kind = WORD_ARCH };
        } else if (insn->code == (BPF_ALU | BPF_AND | BPF_K)) {
            if (word.kind == WORD_NR || word.kind == WORD_ARCH)
                return NONE;
            word.value &= insn->k;
            word.mask &= insn->k;
        } else if (insn->code == (BPF_JMP | BPF_JA)) {
            pc += insn->k;
        } else if (insn->code == (BPF_RET | BPF_K)) {
            node = add_answer(s, insn->k);
            if (node == NONE)
                return NONE;
        } else if (BPF_CLASS(insn->code) == BPF_JMP && BPF_SRC(insn->code) == BPF_K) {
            switch (decide(s, insn, &word)) {
            case GOES_YES:
                pc += insn->jt;
                continue;
            case GOES_NO:
                pc += insn->jf;
                continue;
            case IS_UNEXPECTED:
                return NONE;
            case GOES_EITHER_WAY:
                break;
            }
            yes = evaluate(s, pc + insn->jt, word, depth + 1);
            no = yes == NONE ? NONE : evaluate(s, pc + insn->jf, word, depth + 1);
            node = no == NONE ? NONE
                              : add_test(s, (struct node){ .test = BPF_OP(insn->code),
                                                           .value = insn->k,
                                                           .off = word.off,
                                                           .mask = word.mask,
                                                           .yes = yes,
                                                           .no = no });
            if (node == NONE)
                return NONE;
        } else {
            return NONE;
        }
    }
    if (with.kind == WORD_ARGUMENT)
        remember(s->n_looks == looks_before ? &s->general : &s->current, began, with, node);
    return node;
}

/* --- the stretches --- */

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Every number at which the outcome of some comparison may change, whatever it is that is compared. */
static uint32_t *find_cuts(const struct shrinker *s, size_t *ret_n)
{
    uint32_t *cuts = calloc(2 * s->n_insns + 1, sizeof(*cuts));
    size_t n = 0, kept = 0;

    if (!cuts)
        return NULL;
    cuts[n++] = 0;
    for (size_t i = 0; i < s->n_insns; i++) {
        if (BPF_CLASS(s->insns[i].code) != BPF_JMP || BPF_OP(s->insns[i].code) == BPF_JA)
            continue;
        cuts[n++] = s->insns[i].k;
        if (s->insns[i].k < UINT32_MAX)
            cuts[n++] = s->insns[i].k + 1;
    }
    qsort(cuts, n, sizeof(*cuts), compare_numbers);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || cuts[i] != cuts[kept - 1])
            cuts[kept++] = cuts[i];
    *ret_n = kept;
    return cuts;
}

static int answer_to(struct shrinker *s, uint32_t nr, bool is_foreign)
{
    s->nr = nr;
    s->is_foreign = is_foreign;
    forget(&s->current);
    return evaluate(s, 0, (struct word){ .kind = WORD_CONST }, 0);
}

static bool find_stretches(struct shrinker *s)
{
    size_t n_cuts;
    auto_free uint32_t *cuts = find_cuts(s, &n_cuts);

    s->stretches = cuts ? calloc(n_cuts, sizeof(*s->stretches)) : NULL;
    if (!s->stretches)
        return false;
    s->foreign = answer_to(s, 0, true);
    for (size_t i = 0; i < n_cuts; i++) {
        int node = answer_to(s, cuts[i], false);

        if (node == NONE || s->foreign == NONE || !s->nodes[s->foreign].is_answer ||
            answer_to(s, cuts[i], true) != s->foreign)
            return false;
        if (s->n_stretches == 0 || s->stretches[s->n_stretches - 1].node != node)
            s->stretches[s->n_stretches++] = (struct stretch){ cuts[i], node };
    }
    return s->has_native;
}

/* --- writing it down, from the end to the beginning --- */

/* A place to go on at: behind a load when the accumulator holds what the node looks at already. */
struct target {
    bool is_node; /* a node, else an instruction */
    int node;
    bool is_loaded;
    size_t at; /* counted from the end */
};

static bool append_insn(struct shrinker *s, uint16_t code, unsigned jt, unsigned jf, uint32_t k)
{
    if (s->len == BPF_MAXINSNS)
        return false;
    s->out[BPF_MAXINSNS - ++s->len] = (struct sock_filter){ code, (uint8_t)jt, (uint8_t)jf, k };
    return true;
}

static size_t place_of(const struct shrinker *s, const struct target *t)
{
    return !t->is_node ? t->at : t->is_loaded ? s->without_load[t->node] : s->with_load[t->node];
}

/* How many instructions lie between @t and one that is put next. SIZE_MAX: an answer that is nowhere yet. */
static size_t distance(const struct shrinker *s, const struct target *t)
{
    size_t at = place_of(s, t);

    return at == SIZE_MAX ? SIZE_MAX : s->len - 1 - at;
}

/* Brings @t within reach of a conditional jump that is put next, or @further instructions later. */
static bool bring_near(struct shrinker *s, struct target *t, size_t further)
{
    size_t d = distance(s, t);

    if (d != SIZE_MAX && d + further <= FAR)
        return true;
    if (t->is_node && s->nodes[t->node].is_answer) { /* a copy of the answer is no longer than a jump to it */
        if (!append_insn(s, BPF_RET | BPF_K, 0, 0, s->nodes[t->node].value))
            return false;
        s->with_load[t->node] = s->without_load[t->node] = s->len - 1;
        return true;
    }
    if (!append_insn(s, BPF_JMP | BPF_JA, 0, 0, (uint32_t)d))
        return false;
    *t = (struct target){ .at = s->len - 1 };
    return true;
}

static bool put_test(struct shrinker *s, uint16_t test, uint32_t value, struct target yes, struct target no)
{
    /* What is put for the second moves the first one further away, by one at most. */
    return bring_near(s, &yes, 1) && bring_near(s, &no, 0) &&
           append_insn(s, BPF_JMP | test | BPF_K, (unsigned)distance(s, &yes), (unsigned)distance(s, &no), value);
}

static bool looks_at_the_same(const struct node *a, const struct node *b)
{
    return !b->is_answer && a->off == b->off && a->mask == b->mask;
}

static bool put_node(struct shrinker *s, int i)
{
    const struct node *node = &s->nodes[i];
    struct target yes = { .is_node = true,
                          .node = node->yes,
                          .is_loaded = looks_at_the_same(node, &s->nodes[node->yes]) };
    struct target no = { .is_node = true, .node = node->no, .is_loaded = looks_at_the_same(node, &s->nodes[node->no]) };

    if (!put_test(s, node->test, node->value, yes, no))
        return false;
    s->without_load[i] = s->len - 1;
    if (!s->needs_load[i])
        return true;
    if (node->mask != UINT32_MAX && !append_insn(s, BPF_ALU | BPF_AND | BPF_K, 0, 0, node->mask))
        return false;
    if (!append_insn(s, BPF_LD | BPF_W | BPF_ABS, 0, 0, node->off))
        return false;
    s->with_load[i] = s->len - 1;
    return true;
}

/* The search for a number among the stretches from @first to @last. */
static bool put_search(struct shrinker *s, size_t first, size_t last, struct target *ret)
{
    size_t middle = first + (last - first + 1) / 2;
    struct target low, high;

    if (first == last) {
        *ret = (struct target){ .is_node = true, .node = s->stretches[first].node };
        return true;
    }
    if (!put_search(s, middle, last, &high) || !put_search(s, first, middle - 1, &low) ||
        !put_test(s, BPF_JGE, s->stretches[middle].start, high, low))
        return false;
    *ret = (struct target){ .at = s->len - 1 };
    return true;
}

static bool write_down(struct shrinker *s)
{
    struct target search, foreign = { .is_node = true, .node = s->foreign };

    for (int i = 0; i < s->n_nodes; i++)
        s->with_load[i] = s->without_load[i] = SIZE_MAX;
    for (size_t i = 0; i < s->n_stretches; i++)
        s->needs_load[s->stretches[i].node] = true;
    for (int i = 0; i < s->n_nodes; i++) {
        const struct node *node = &s->nodes[i];

        if (node->is_answer)
            continue;
        s->needs_load[node->yes] |= !looks_at_the_same(node, &s->nodes[node->yes]);
        s->needs_load[node->no] |= !looks_at_the_same(node, &s->nodes[node->no]);
    }
    for (int i = 0; i < s->n_nodes; i++) /* what a node leads to has a smaller number, so it lies behind it */
        if (!s->nodes[i].is_answer && !put_node(s, i))
            return false;
    if (!put_search(s, 0, s->n_stretches - 1, &search))
        return false;
    /* With one stretch only there was no search, and no instruction to fall through to. */
    if (search.is_node || !append_insn(s, BPF_LD | BPF_W | BPF_ABS, 0, 0, NR_OFFSET))
        return false;
    search = (struct target){ .at = s->len - 1 };
    return put_test(s, BPF_JEQ, s->native, search, foreign) &&
           append_insn(s, BPF_LD | BPF_W | BPF_ABS, 0, 0, ARCH_OFFSET);
}

void hutch_seccomp_shrink(struct seccomp_program *program)
{
    struct shrinker *s = calloc(1, sizeof(*s));
    struct sock_filter *insns = NULL;

    if (!s)
        return;
    s->insns = program->insns;
    s->n_insns = program->n_insns;
    if (find_stretches(s) && write_down(s) && s->len < program->n_insns)
        insns = malloc(s->len * sizeof(*insns));
    if (insns) {
        memcpy(insns, s->out + BPF_MAXINSNS - s->len, s->len * sizeof(*insns));
        free(program->insns);
        program->insns = insns;
        program->n_insns = s->len;
    }
    free(s->stretches);
    free(s);
}
