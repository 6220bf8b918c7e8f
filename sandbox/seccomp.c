#include "sandbox/seccomp.h"

#include "sandbox/fd.h"
#include "sandbox/seccomp_shrink.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Names in all rules together, and rules about one call: the pairwise check below is quadratic in the second. */
#define MAX_NAMES 16384
#define MAX_RULES_PER_CALL 256

int hutch_seccomp_rule_add_arg(struct seccomp_rule *rule, const struct seccomp_arg *arg, struct hutch_err *err)
{
    struct seccomp_arg *bigger = reallocarray(rule->args, rule->n_args + 1, sizeof(*bigger));

    if (!bigger)
        return hutch_err_set(err, ENOMEM, "keep a condition of a seccomp rule");
    rule->args = bigger;
    bigger[rule->n_args++] = *arg;
    return 0;
}

void hutch_seccomp_rule_done(struct seccomp_rule *rule)
{
    for (char **name = rule->names; name && *name; name++)
        free(*name);
    free(rule->names);
    free(rule->args);
    *rule = (struct seccomp_rule){ 0 };
}

void hutch_seccomp_rules_done(struct seccomp_rules *rules)
{
    for (size_t i = 0; i < rules->n_rules; i++)
        hutch_seccomp_rule_done(&rules->rules[i]);
    free(rules->rules);
    *rules = (struct seccomp_rules){ 0 };
}

/* ---- do the rules say one thing only? ---- */

/* libseccomp has no order among rules: the unconditional one wins over all others about the same call, without
 * a word, and of two conditional ones that both hold, which one answers depends on how the tree came out. A
 * profile in which that matters does not say what its author thinks, so it is refused. The one exception: an
 * unconditional refusal beside conditional rules is the call's otherwise, which answers where no condition holds. A
 * runtime that lets it win over all conditions refuses more, and never less. */

struct mention {
    const char *name;
    size_t rule;
};

static int compare_mentions(const void *a, const void *b)
{
    const struct mention *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->rule > y->rule) - (x->rule < y->rule);
}

static bool holds(const struct seccomp_arg *arg, uint64_t value)
{
    switch (arg->op) {
    case SECCOMP_OP_NE:
        return value != arg->value;
    case SECCOMP_OP_LT:
        return value < arg->value;
    case SECCOMP_OP_LE:
        return value <= arg->value;
    case SECCOMP_OP_EQ:
        return value == arg->value;
    case SECCOMP_OP_GE:
        return value >= arg->value;
    case SECCOMP_OP_GT:
        return value > arg->value;
    case SECCOMP_OP_MASKED_EQ:
        return (value & arg->mask) == arg->value;
    }
    return false;
}

/* The values that satisfy a comparison, NE and MASKED_EQ apart, as min..max. False when there are none. */
static bool as_range(const struct seccomp_arg *arg, uint64_t *min, uint64_t *max)
{
    *min = 0;
    *max = UINT64_MAX;
    switch (arg->op) {
    case SECCOMP_OP_LT:
        *max = arg->value - 1;
        return arg->value > 0;
    case SECCOMP_OP_LE:
        *max = arg->value;
        return true;
    case SECCOMP_OP_GE:
        *min = arg->value;
        return true;
    case SECCOMP_OP_GT:
        *min = arg->value + 1;
        return arg->value < UINT64_MAX;
    default:
        return true;
    }
}

/* Can one value of the argument satisfy both? A "yes" may be wrong for a range against a mask or a "not equal"
 * (that only refuses more); a "no" never is. */
static bool can_both_hold(const struct seccomp_arg *a, const struct seccomp_arg *b)
{
    uint64_t a_min, a_max, b_min, b_max;

    if (a->op == SECCOMP_OP_EQ)
        return holds(b, a->value);
    if (b->op == SECCOMP_OP_EQ)
        return holds(a, b->value);
    if (a->op == SECCOMP_OP_MASKED_EQ && b->op == SECCOMP_OP_MASKED_EQ)
        return ((a->value ^ b->value) & a->mask & b->mask) == 0;
    if (a->op == SECCOMP_OP_NE || b->op == SECCOMP_OP_NE || a->op == SECCOMP_OP_MASKED_EQ ||
        b->op == SECCOMP_OP_MASKED_EQ)
        return true;
    return as_range(a, &a_min, &a_max) && as_range(b, &b_min, &b_max) && a_min <= b_max && b_min <= a_max;
}

static bool rules_overlap(const struct seccomp_rule *a, const struct seccomp_rule *b)
{
    for (size_t i = 0; i < a->n_args; i++)
        for (size_t k = 0; k < b->n_args; k++)
            if (a->args[i].index == b->args[k].index && !can_both_hold(&a->args[i], &b->args[k]))
                return false;
    return true;
}

static bool says_the_same(const struct seccomp_rule *a, const struct seccomp_rule *b)
{
    return a->verdict == b->verdict && (a->verdict != SECCOMP_ERRNO || a->errnum == b->errnum);
}

static bool is_refusal(const struct seccomp_rule *rule)
{
    return rule->verdict == SECCOMP_ERRNO || rule->verdict == SECCOMP_KILL_PROCESS;
}

static int check_pair(const struct seccomp_rules *rules, const struct mention *x, const struct mention *y,
                      struct hutch_err *err)
{
    const struct seccomp_rule *a = &rules->rules[x->rule], *b = &rules->rules[y->rule];

    if ((a->n_args > 0 && b->n_args == 0 && is_refusal(b)) || (b->n_args > 0 && a->n_args == 0 && is_refusal(a)))
        return 0;
    if (says_the_same(a, b)) {
        if ((a->n_args == 0) != (b->n_args == 0))
            return hutch_err_set(err, 0,
                                 "seccomp rules %zu and %zu: call '%s' is named with and without a condition, "
                                 "so the condition has no effect", x->rule, y->rule, x->name);
        return 0;
    }
    if (rules_overlap(a, b))
        return hutch_err_set(err, 0,
                             "seccomp rules %zu and %zu: both can apply to call '%s' and they differ in what to do",
                             x->rule, y->rule, x->name);
    return 0;
}

static int check_rule(const struct seccomp_rule *rule, size_t number, struct hutch_err *err)
{
    if (rule->verdict == SECCOMP_ERRNO && (rule->errnum < 1 || rule->errnum > 4095))
        return hutch_err_set(err, 0, "seccomp rule %zu: errno %d is not in 1..4095", number, rule->errnum);
    if (rule->n_args > SECCOMP_MAX_ARGS)
        return hutch_err_set(err, 0, "seccomp rule %zu: more than %d conditions", number, SECCOMP_MAX_ARGS);
    for (size_t i = 0; i < rule->n_args; i++) {
        const struct seccomp_arg *arg = &rule->args[i];

        if (arg->index >= SECCOMP_MAX_ARGS)
            return hutch_err_set(err, 0, "seccomp rule %zu: there is no argument %u", number, arg->index);
        if (arg->op == SECCOMP_OP_MASKED_EQ && (arg->value & ~arg->mask))
            return hutch_err_set(err, 0,
                                 "seccomp rule %zu: value %#llx has bits outside of its mask %#llx, so it never holds",
                                 number, (unsigned long long)arg->value, (unsigned long long)arg->mask);
        for (size_t k = 0; k < i; k++)
            if (rule->args[k].index == arg->index)
                return hutch_err_set(err, 0,
                                     "seccomp rule %zu: two conditions on argument %u; write two rules, or one mask",
                                     number, arg->index);
    }
    return 0;
}

static bool is_weaker(enum seccomp_verdict a, enum seccomp_verdict b)
{
    return (a == SECCOMP_ALLOW || a == SECCOMP_LOG) && (b == SECCOMP_ERRNO || b == SECCOMP_KILL_PROCESS);
}

int hutch_seccomp_check(const struct seccomp_rules *rules, struct hutch_err *err)
{
    auto_free struct mention *mentions = NULL;
    size_t n = 0, first = 0;

    if (rules->default_verdict == SECCOMP_ERRNO && (rules->default_errnum < 1 || rules->default_errnum > 4095))
        return hutch_err_set(err, 0, "seccomp default: errno %d is not in 1..4095", rules->default_errnum);
    for (size_t i = 0; i < rules->n_rules; i++) {
        if (check_rule(&rules->rules[i], i, err) < 0)
            return -1;
        for (char **name = rules->rules[i].names; name && *name; name++)
            if (++n > MAX_NAMES)
                return hutch_err_set(err, 0, "seccomp: more than %d call names", MAX_NAMES);
    }
    mentions = calloc(n + 1, sizeof(*mentions));
    if (!mentions)
        return hutch_err_set(err, ENOMEM, "check %zu seccomp rules", rules->n_rules);
    n = 0;
    for (size_t i = 0; i < rules->n_rules; i++)
        for (char **name = rules->rules[i].names; name && *name; name++) {
            /* Left out, it would fall under a default that lets it through. */
            if (is_weaker(rules->default_verdict, rules->rules[i].verdict) &&
                seccomp_syscall_resolve_name(*name) == __NR_SCMP_ERROR)
                return hutch_err_set(err, 0,
                                     "seccomp rule %zu: call '%s' is unknown here, and the default would allow it",
                                     i, *name);
            mentions[n++] = (struct mention){ *name, i };
        }
    qsort(mentions, n, sizeof(*mentions), compare_mentions);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(mentions[i].name, mentions[first].name) != 0)
            first = i;
        if (i - first >= MAX_RULES_PER_CALL)
            return hutch_err_set(err, 0, "seccomp: more than %d rules about call '%s'", MAX_RULES_PER_CALL,
                                 mentions[i].name);
        for (size_t k = first; k < i; k++)
            if (check_pair(rules, &mentions[k], &mentions[i], err) < 0)
                return -1;
    }
    return 0;
}

/* ---- from rules to a program ---- */

static uint32_t action(enum seccomp_verdict verdict, int errnum)
{
    switch (verdict) {
    case SECCOMP_ALLOW:
        return SCMP_ACT_ALLOW;
    case SECCOMP_ERRNO:
        return SCMP_ACT_ERRNO((uint32_t)errnum);
    case SECCOMP_LOG:
        return SCMP_ACT_LOG;
    case SECCOMP_KILL_PROCESS:
        break;
    }
    return SCMP_ACT_KILL_PROCESS;
}

static struct scmp_arg_cmp compare(const struct seccomp_arg *arg)
{
    static const enum scmp_compare ops[] = {
        [SECCOMP_OP_NE] = SCMP_CMP_NE, [SECCOMP_OP_LT] = SCMP_CMP_LT, [SECCOMP_OP_LE] = SCMP_CMP_LE,
        [SECCOMP_OP_EQ] = SCMP_CMP_EQ, [SECCOMP_OP_GE] = SCMP_CMP_GE, [SECCOMP_OP_GT] = SCMP_CMP_GT,
        [SECCOMP_OP_MASKED_EQ] = SCMP_CMP_MASKED_EQ,
    };

    if (arg->op == SECCOMP_OP_MASKED_EQ)
        return (struct scmp_arg_cmp){ arg->index, SCMP_CMP_MASKED_EQ, arg->mask, arg->value };
    return (struct scmp_arg_cmp){ arg->index, ops[arg->op], arg->value, 0 };
}

/* One call of this architecture in one rule. */
struct entry {
    int nr;
    const char *name;
    size_t number; /* of the rule, for messages and for a stable order */
    const struct seccomp_rule *rule;
};

enum kind { EQUALITY, OTHER_COMPARISON, UNCONDITIONAL };

static enum kind kind_of(const struct seccomp_rule *rule)
{
    for (size_t i = 0; i < rule->n_args; i++)
        if (rule->args[i].op != SECCOMP_OP_EQ && rule->args[i].op != SECCOMP_OP_MASKED_EQ)
            return OTHER_COMPARISON;
    return rule->n_args > 0 ? EQUALITY : UNCONDITIONAL;
}

/* By call, and then by kind: the rules that make one filter stand together, and the call's otherwise is the last. */
static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    enum kind x_kind = kind_of(x->rule), y_kind = kind_of(y->rule);

    if (x->nr != y->nr)
        return x->nr > y->nr ? 1 : -1;
    if (x_kind != y_kind)
        return x_kind > y_kind ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

static bool is_among(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

struct entries {
    struct entry *list; /* owned */
    size_t n;
    uint32_t default_action;
};

/* Answered with 0: success, and root's number. */
static const char *const roots[] = {
    "getuid", "geteuid", "getgid", "getegid", "chown", "fchown", "lchown", "fchownat", "setuid", "setgid", "setreuid",
    "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups", "capset", NULL,
};

/* Left out: names that are unknown here, and calls of other architectures, whose numbers are negative. */
static void add_entry(struct entries *entries, const char *name, size_t number, const struct seccomp_rule *rule)
{
    int nr = seccomp_syscall_resolve_name(name);

    if (nr >= 0)
        entries->list[entries->n++] = (struct entry){ nr, name, number, rule };
}

/* Calls that have one answer, whatever the rules say. */
struct fixed {
    const char *const *names; /* NULL, or NULL-terminated */
    const struct seccomp_rule *rule;
};
#define N_FIXED 3

static bool is_fixed(const struct fixed *fixed, const char *name)
{
    for (size_t i = 0; i < N_FIXED; i++)
        if (is_among(fixed[i].names, name))
            return true;
    return false;
}

/* All that there is to add, by number. */
static int resolve(const struct seccomp_rules *rules, struct entries *entries, struct hutch_err *err)
{
    static const struct seccomp_rule withhold = { .verdict = SECCOMP_ERRNO, .errnum = ENOSYS };
    static const struct seccomp_rule grant = { .verdict = SECCOMP_ALLOW };
    static const struct seccomp_rule pretend = { .verdict = SECCOMP_ERRNO, .errnum = 0 };
    const struct fixed fixed[N_FIXED] = { { rules->withheld, &withhold }, { rules->granted, &grant },
                                          { rules->seems_root ? roots : NULL, &pretend } };
    size_t n = 0;

    for (size_t i = 0; i < rules->n_rules; i++)
        for (char **name = rules->rules[i].names; name && *name; name++)
            n++;
    for (size_t i = 0; i < N_FIXED; i++)
        for (const char *const *name = fixed[i].names; name && *name; name++)
            n++;
    entries->default_action = action(rules->default_verdict, rules->default_errnum);
    entries->list = calloc(n + 1, sizeof(*entries->list));
    if (!entries->list)
        return hutch_err_set(err, ENOMEM, "compile %zu seccomp rules", rules->n_rules);
    for (size_t i = 0; i < rules->n_rules; i++)
        for (char **name = rules->rules[i].names; name && *name; name++)
            if (!is_fixed(fixed, *name))
                add_entry(entries, *name, i, &rules->rules[i]);
    for (size_t i = 0; i < N_FIXED; i++)
        for (const char *const *name = fixed[i].names; name && *name; name++)
            add_entry(entries, *name, rules->n_rules, fixed[i].rule);
    qsort(entries->list, entries->n, sizeof(*entries->list), compare_entries);
    return 0;
}

static int add_to_filter(scmp_filter_ctx filter, const struct entry *entry, struct hutch_err *err)
{
    const struct seccomp_rule *rule = entry->rule;
    uint32_t act = action(rule->verdict, rule->errnum);
    struct scmp_arg_cmp args[SECCOMP_MAX_ARGS];
    int rc;

    for (size_t i = 0; i < rule->n_args; i++)
        args[i] = compare(&rule->args[i]);
    rc = seccomp_rule_add_array(filter, act, entry->nr, (unsigned)rule->n_args, args);
    if (rc < 0 && rc != -EEXIST) /* EEXIST: the same rule again */
        return hutch_err_set(err, -rc, "seccomp rule %zu: call '%s'", entry->number, entry->name);
    return 0;
}

#define MAX_UNSHRUNK (4 * BPF_MAXINSNS) /* shrinking makes a chain some eight times shorter */

/* Appends what libseccomp made to @program. It writes to descriptors only. */
static int append_program(scmp_filter_ctx filter, struct seccomp_program *program, struct hutch_err *err)
{
    auto_fd fd = memfd_create("seccomp", MFD_CLOEXEC);
    struct sock_filter *bigger;
    struct stat st;
    size_t size, n;
    int rc;

    if (fd < 0)
        return hutch_err_set(err, errno, "create memory for the seccomp program");
    rc = seccomp_export_bpf(filter, fd);
    if (rc < 0)
        return hutch_err_set(err, -rc, "compile the seccomp program");
    if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "read the seccomp program");
    size = (size_t)st.st_size;
    n = size / sizeof(*bigger);
    if (n == 0 || size % sizeof(*bigger))
        return hutch_err_set(err, EPROTO, "compile the seccomp program: %zu bytes came out", size);
    if (program->n_insns + n > MAX_UNSHRUNK)
        return hutch_err_set(err, E2BIG, "seccomp program of more than %d instructions", MAX_UNSHRUNK);
    bigger = reallocarray(program->insns, program->n_insns + n, sizeof(*bigger));
    if (!bigger)
        return hutch_err_set(err, ENOMEM, "keep the seccomp program");
    program->insns = bigger;
    if (hutch_fd_read_full(fd, bigger + program->n_insns, size) != (ssize_t)size)
        return hutch_err_set(err, EIO, "read the seccomp program");
    program->n_insns += n;
    return 0;
}

/* A whole filter for some of the calls, appended to @program. A rule that says what @default_action says anyway is
 * left out, because libseccomp refuses it; the check above makes sure that it holds no other rule back. */
static int compile_part(uint32_t default_action, const struct entry *entries, size_t n,
                        struct seccomp_program *program, struct hutch_err *err)
{
    scmp_filter_ctx filter = seccomp_init(default_action);
    int rc;

    if (!filter)
        return hutch_err_set(err, EINVAL, "start a seccomp filter (is its default action known to this kernel?)");
    /* Only the native architecture is in a fresh filter. What comes through another entry (int 0x80, x32) has
     * other numbers, so the rules say nothing about it: kill the process, not only the thread as the library
     * would. */
    rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, not a chain */
    if (rc < 0)
        rc = hutch_err_set(err, -rc, "set up a seccomp filter");
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (action(entries[i].rule->verdict, entries[i].rule->errnum) != default_action)
            rc = add_to_filter(filter, &entries[i], err);
    if (rc == 0)
        rc = append_program(filter, program, err);
    seccomp_release(filter);
    return rc;
}

/* libseccomp's time grows with the square of the calls in a filter: 4 ms for 330, which would be a sixth of a
 * cold start. So the calls are cut by number into parts, each a complete filter with its own architecture
 * check, and a few instructions in front jump to the part that knows the number: 0.8 ms. Jumps are relative,
 * so parts are simply joined. A call that has an otherwise is a part of its own, with that as its default, and so is
 * one whose rules make a chain. */
#define CALLS_PER_PART 40
#define MAX_PARTS      512

struct part {
    int first_nr;      /* of the calls that it knows; it also answers the unknown ones up to the next part */
    size_t first_insn; /* in the joined program, the dispatcher not counted */
};

struct parts {
    struct part list[MAX_PARTS];
    size_t n;
};

static int put_dispatcher(const struct parts *parts, struct seccomp_program *program, struct hutch_err *err)
{
    const struct sock_filter load_nr = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    size_t n = 2 * parts->n, total = n + program->n_insns, at = 0;
    struct sock_filter *insns = calloc(total, sizeof(*insns));

    if (!insns)
        return hutch_err_set(err, ENOMEM, "keep the seccomp program");
    insns[at++] = load_nr;
    for (size_t i = 0; i < parts->n; i++) {
        /* Below the first number of the next part: to this one. A jump counts from the instruction after it. */
        if (i + 1 < parts->n) {
            uint32_t next = (uint32_t)parts->list[i + 1].first_nr;

            insns[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, next, 1, 0);
        }
        insns[at] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA,
                                                 (uint32_t)(n + parts->list[i].first_insn - (at + 1)));
        at++;
    }
    memcpy(insns + n, program->insns, program->n_insns * sizeof(*insns));
    free(program->insns);
    program->insns = insns;
    program->n_insns = total;
    return 0;
}

/* How many entries, from @from on, are about one call. */
static size_t count_of_call(const struct entries *entries, size_t from)
{
    size_t n = 1;

    while (from + n < entries->n && entries->list[from + n].nr == entries->list[from].nr)
        n++;
    return n;
}

/* The rule that answers where no condition about the call at @from holds; NULL where the call has no such rule, or no
 * condition. */
static const struct seccomp_rule *find_otherwise(const struct entries *entries, size_t from)
{
    const struct seccomp_rule *first = entries->list[from].rule;
    const struct seccomp_rule *last = entries->list[from + count_of_call(entries, from) - 1].rule;

    return kind_of(last) == UNCONDITIONAL && kind_of(first) != UNCONDITIONAL ? last : NULL;
}

/* libseccomp makes one tree of all rules about a call, and where one of several compares other than by EQ or MASKED_EQ,
 * the tree of 2.5 answers wrongly for some values. It is right about one rule, and about several that compare by EQ and
 * MASKED_EQ alone. */
static bool needs_chain(const struct entry *entries, size_t n)
{
    size_t n_conditions = 0, n_others = 0;

    for (size_t i = 0; i < n; i++) {
        n_conditions += entries[i].rule->n_args > 0;
        n_others += kind_of(entries[i].rule) == OTHER_COMPARISON;
    }
    return n_conditions > 1 && n_others > 0;
}

/* Whether the call at @from is a part of its own. *ret_otherwise: what is answered there where no condition holds. */
static bool is_own_part(const struct entries *entries, size_t from, uint32_t *ret_otherwise)
{
    const struct seccomp_rule *otherwise = find_otherwise(entries, from);

    *ret_otherwise = otherwise ? action(otherwise->verdict, otherwise->errnum) : entries->default_action;
    return otherwise || needs_chain(entries->list + from, count_of_call(entries, from));
}

/* How many entries, from @from on, make one part with the usual default: all rules about a call, or none. */
static size_t measure_part(const struct entries *entries, size_t from)
{
    uint32_t otherwise;
    size_t n = 0;

    for (size_t calls = 0; calls < CALLS_PER_PART && from + n < entries->n; calls++) {
        if (is_own_part(entries, from + n, &otherwise))
            break;
        n += count_of_call(entries, from + n);
    }
    return n;
}

/* The action of a link where none of its rules holds. compile_link() replaces it by a jump to the next link. No rule
 * has this action. */
#define NOT_THIS_LINK SCMP_ACT_TRACE(1)

/* A filter that goes on to what is compiled next where none of its rules holds. */
static int compile_link(const struct entry *entries, size_t n, struct seccomp_program *program, struct hutch_err *err)
{
    size_t at = program->n_insns;

    if (compile_part(NOT_THIS_LINK, entries, n, program, err) < 0)
        return -1;
    for (; at < program->n_insns; at++) {
        struct sock_filter *insn = &program->insns[at];

        if (insn->code == (BPF_RET | BPF_K) && insn->k == NOT_THIS_LINK)
            *insn = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)(program->n_insns - (at + 1)));
    }
    return 0;
}

/* One link for the rules about a call that compare by EQ and MASKED_EQ, and one for each of the others; a last
 * instruction says what is answered where none holds. Their order does not matter: hutch_seccomp_check() has refused
 * rules that can both hold and say different things. */
static int compile_chain(uint32_t otherwise, const struct entry *entries, size_t n, struct seccomp_program *program,
                         struct hutch_err *err)
{
    struct sock_filter *bigger;
    size_t at = 0;

    while (at < n && kind_of(entries[at].rule) == EQUALITY)
        at++;
    if (at > 0 && compile_link(entries, at, program, err) < 0)
        return -1;
    for (; at < n && kind_of(entries[at].rule) == OTHER_COMPARISON; at++)
        if (compile_link(entries + at, 1, program, err) < 0)
            return -1;
    bigger = reallocarray(program->insns, program->n_insns + 1, sizeof(*bigger));
    if (!bigger)
        return hutch_err_set(err, ENOMEM, "keep the seccomp program");
    program->insns = bigger;
    bigger[program->n_insns++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    return 0;
}

/* The rules about one call that is a part of its own. */
static int compile_own_part(uint32_t otherwise, const struct entry *entries, size_t n, struct seccomp_program *program,
                            struct hutch_err *err)
{
    return needs_chain(entries, n) ? compile_chain(otherwise, entries, n, program, err)
                                   : compile_part(otherwise, entries, n, program, err);
}

/* Notes that the code which is compiled next is the part for the calls from @first_nr on. */
static int begin_part(struct parts *parts, int first_nr, const struct seccomp_program *program, struct hutch_err *err)
{
    if (parts->n == MAX_PARTS)
        return hutch_err_set(err, E2BIG, "seccomp: too many calls have an unconditional rule beside conditions, or "
                                         "several conditional rules of which one compares by NE, LT, LE, GE or GT");
    parts->list[parts->n++] = (struct part){ first_nr, program->n_insns };
    return 0;
}

static int compile_parts(const struct entries *entries, struct seccomp_program *program, struct hutch_err *err)
{
    struct parts parts = { .n = 0 };
    uint32_t otherwise;
    int first_nr = 0;

    for (size_t at = 0, n;; at += n) {
        n = measure_part(entries, at);
        if (begin_part(&parts, first_nr, program, err) < 0 ||
            compile_part(entries->default_action, entries->list + at, n, program, err) < 0)
            return -1;
        at += n;
        if (at == entries->n)
            break;
        first_nr = entries->list[at].nr;
        n = 0;
        if (!is_own_part(entries, at, &otherwise))
            continue;
        n = count_of_call(entries, at);
        if (begin_part(&parts, first_nr, program, err) < 0 ||
            compile_own_part(otherwise, entries->list + at, n, program, err) < 0)
            return -1;
        first_nr++; /* whatever follows the call has the usual default again */
    }
    return put_dispatcher(&parts, program, err);
}

int hutch_seccomp_compile(const struct seccomp_rules *rules, struct seccomp_program *ret, struct hutch_err *err)
{
    struct seccomp_program program = { 0 };
    struct entries entries = { 0 };
    int rc = hutch_seccomp_check(rules, err);

    if (rc == 0)
        rc = resolve(rules, &entries, err);
    if (rc == 0)
        rc = compile_parts(&entries, &program, err);
    free(entries.list);
    if (rc == 0)
        hutch_seccomp_shrink(&program);
    if (rc == 0 && program.n_insns > BPF_MAXINSNS)
        rc = hutch_err_set(err, E2BIG, "seccomp program of %zu instructions; the kernel takes %d", program.n_insns,
                           BPF_MAXINSNS);
    if (rc < 0) {
        hutch_seccomp_program_done(&program);
        return rc;
    }
    *ret = program;
    return 0;
}

void hutch_seccomp_program_done(struct seccomp_program *program)
{
    free(program->insns);
    *program = (struct seccomp_program){ 0 };
}
