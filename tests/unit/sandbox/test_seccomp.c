/* The filter: rules that contradict each other are refused; the compiled program answers as the rules say for every
 * call and many arguments (a BPF interpreter of our own); and the kernel answers so as well.
 *
 * Finds the profiles in $HUTCH_POLICY_DIR, else in policies/ below the working directory. */
#include "sandbox/seccomp.h"

#include "sandbox/fd.h"
#include "tests/unit/place.h"
#include "runtime/config/seccomp_profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <cmocka.h>

#if defined(__x86_64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_AARCH64
#else
#define NATIVE_AUDIT_ARCH AUDIT_ARCH_RISCV64
#endif

static void skip_because(const char *why)
{
    const char *strict = getenv("HUTCH_STRICT_TESTS");

    if (strict && strcmp(strict, "1") == 0)
        fail_msg("%s", why);
    print_message("skip: %s\n", why);
    skip();
}

static void load_profile(const char *name, struct seccomp_rules *ret)
{
    const char *dir = getenv("HUTCH_POLICY_DIR");
    struct hutch_err err;
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir && *dir ? dir : "policies", name);
    if (hutch_seccomp_profile_load(path, ret, &err) < 0)
        fail_msg("%s", err.msg);
}

static void compile_profile(const char *name, struct seccomp_program *ret)
{
    struct seccomp_rules rules;
    struct hutch_err err;

    load_profile(name, &rules);
    if (hutch_seccomp_compile(&rules, ret, &err) < 0)
        fail_msg("%s: %s", name, err.msg);
    hutch_seccomp_rules_done(&rules);
}

/* In a child: no_new_privs and the filter. */
static void confine_or_die(const struct seccomp_program *program)
{
    struct hutch_err err;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || hutch_seccomp_load(program, &err) < 0)
        _exit(99);
}

/* Rules from the text of a profile, in which ' stands for ". -1 with the error. */
static int read_rules(const char *text, struct seccomp_rules *ret, struct hutch_err *err)
{
    auto_free char *json = strdup(text);
    struct json_doc doc = JSON_DOC_INIT;
    struct json_node root;
    int rc;

    assert_non_null(json);
    for (char *c = json; *c; c++)
        if (*c == '\'')
            *c = '"';
    if (hutch_json_parse("profile", json, strlen(json), 8, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    rc = hutch_seccomp_profile_read(&root, ret, err);
    hutch_json_done(&doc);
    return rc;
}

/* ---- rules that do not say one thing ---- */

#define ENOSYS_BY_DEFAULT "{'defaultAction':'SCMP_ACT_ERRNO','defaultErrnoRet':38,'syscalls':["
#define ALLOW_BY_DEFAULT "{'defaultAction':'SCMP_ACT_ALLOW','syscalls':["
#define ALLOW(names, args) "{'names':[" names "],'action':'SCMP_ACT_ALLOW','args':[" args "]}"
#define DENY(names, errnum, args) \
    "{'names':[" names "],'action':'SCMP_ACT_ERRNO','errnoRet':" errnum ",'args':[" args "]}"
#define MASKED(index, mask, value) "{'index':" index ",'value':" mask ",'valueTwo':" value ",'op':'SCMP_CMP_MASKED_EQ'}"
#define COMPARE(index, op, value) "{'index':" index ",'value':" value ",'op':'SCMP_CMP_" op "'}"
#define BOTH_CAN_APPLY(call) \
    "profile: seccomp rules 0 and 1: both can apply to call '" call "' and they differ in what to do"

static void test_rules_that_contradict_each_other_are_refused(void **state)
{
    static const struct {
        const char *label, *rules;
        const char *want; /* NULL: fine */
    } cases[] = {
        { "the same call twice, the same answer", ENOSYS_BY_DEFAULT ALLOW("'read','write'", "") ","
            ALLOW("'write'", "") "]}",
          NULL },
        /* libseccomp would drop the condition without a word */
        { "a condition beside an unconditional rule",
          ENOSYS_BY_DEFAULT ALLOW("'chmod'", MASKED("1", "3072", "0")) "," ALLOW("'open','chmod'", "") "]}",
          "profile: seccomp rules 0 and 1: call 'chmod' is named with and without a condition, so the condition has no "
          "effect" },
        { "an exception from an unconditional rule",
          ENOSYS_BY_DEFAULT ALLOW("'chmod'", "") ","
              DENY("'chmod'", "1", MASKED("1", "2048", "2048")) "]}", BOTH_CAN_APPLY("chmod") },
        { "masks that leave both possible",
          ENOSYS_BY_DEFAULT ALLOW("'chmod'", MASKED("1", "1024", "0")) ","
              DENY("'chmod'", "1", MASKED("1", "2048", "2048")) "]}",
          BOTH_CAN_APPLY("chmod") },
        { "masks that exclude each other",
          ENOSYS_BY_DEFAULT ALLOW("'chmod'", MASKED("1", "3072", "0")) ","
              DENY("'chmod'", "1", MASKED("1", "2048", "2048")) "]}",
          NULL },
        { "ranges that touch",
          ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "LE", "10")) ","
              DENY("'socket'", "97", COMPARE("0", "GE", "10")) "]}",
          BOTH_CAN_APPLY("socket") },
        { "ranges that do not",
          ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "LT", "10")) ","
              DENY("'socket'", "97", COMPARE("0", "GE", "10")) "]}",
          NULL },
        { "ranges, the other way round",
          ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "GT", "10")) ","
              DENY("'socket'", "97", COMPARE("0", "LE", "10")) "]}",
          NULL },
        { "equal and not equal",
          ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "EQ", "1")) ","
              DENY("'socket'", "97", COMPARE("0", "NE", "1")) "]}",
          NULL },
        { "not equal to two values",
          ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "NE", "1")) ","
              DENY("'socket'", "97", COMPARE("0", "NE", "2")) "]}",
          BOTH_CAN_APPLY("socket") },
        { "conditions on different arguments",
          ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "EQ", "2")) ","
              DENY("'socket'", "1", COMPARE("1", "EQ", "3")) "]}",
          BOTH_CAN_APPLY("socket") },
        { "two numbers for one error", ENOSYS_BY_DEFAULT DENY("'read'", "1", "") "," DENY("'read'", "13", "") "]}",
          BOTH_CAN_APPLY("read") },
        { "an otherwise",
          ENOSYS_BY_DEFAULT ALLOW("'chmod'", MASKED("1", "3072", "0")) "," DENY("'chmod'", "1", "") "]}", NULL },
        { "an otherwise before the conditions",
          ENOSYS_BY_DEFAULT DENY("'chmod'", "1", "") "," ALLOW("'chmod'", MASKED("1", "3072", "0")) "]}", NULL },
        { "two of them",
          ENOSYS_BY_DEFAULT DENY("'chmod'", "1", "") "," DENY("'chmod'", "2", "") ","
              ALLOW("'chmod'", MASKED("1", "3072", "0")) "]}", BOTH_CAN_APPLY("chmod") },
        /* a runtime that lets it win would allow all */
        { "an otherwise that allows",
          ENOSYS_BY_DEFAULT DENY("'chmod'", "1", MASKED("1", "2048", "2048")) "," ALLOW("'chmod'", "") "]}",
          BOTH_CAN_APPLY("chmod") },
        { "a mask that never holds", ENOSYS_BY_DEFAULT ALLOW("'read'", MASKED("0", "6", "9")) "]}",
          "profile: seccomp rule 0: value 0x9 has bits outside of its mask 0x6, so it never holds" },
        /* some runtimes take it as "and", some as "or" */
        { "two conditions on one argument",
          ENOSYS_BY_DEFAULT ALLOW("'read'", COMPARE("0", "GE", "1") "," COMPARE("0", "LE", "9")) "]}",
          "profile: seccomp rule 0: two conditions on argument 0; write two rules, or one mask" },
        { "an unknown call in an allow-list is left out", ENOSYS_BY_DEFAULT ALLOW("'no_such_call'", "") "]}", NULL },
        { "an unknown call in a deny-list would be let through", ALLOW_BY_DEFAULT DENY("'no_such_call'", "1", "") "]}",
          "profile: seccomp rule 0: call 'no_such_call' is unknown here, and the default would allow it" },
        { "a call of another architecture in a deny-list",
          ALLOW_BY_DEFAULT DENY("'s390_pci_mmio_read'", "1", "") "]}", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { .msg = "" };
        struct seccomp_rules rules = { 0 };
        struct seccomp_program program;

        if (read_rules(cases[i].rules, &rules, &err) == 0 && hutch_seccomp_compile(&rules, &program, &err) == 0) {
            hutch_seccomp_program_done(&program);
            hutch_seccomp_rules_done(&rules);
            if (cases[i].want)
                fail_msg("%s: accepted", cases[i].label);
        } else if (!cases[i].want || strcmp(err.msg, cases[i].want) != 0) {
            fail_msg("%s: got '%s', wanted '%s'", cases[i].label, err.msg, cases[i].want ? cases[i].want : "success");
        }
    }
}

/* What JSON cannot say, other callers can. */
static void test_rules_out_of_range_are_refused(void **state)
{
    static char read_name[] = "read";
    static char *names[] = { read_name, NULL };
    struct seccomp_arg arg = { .index = 6, .op = SECCOMP_OP_EQ };
    struct seccomp_rule rule = { .names = names, .verdict = SECCOMP_ERRNO, .errnum = 4096 };
    struct seccomp_rules rules = { .default_verdict = SECCOMP_ALLOW, .rules = &rule, .n_rules = 1 };
    struct seccomp_program program;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_seccomp_compile(&rules, &program, &err), -1);
    assert_string_equal(err.msg, "seccomp rule 0: errno 4096 is not in 1..4095");
    rule.errnum = 1;
    rule.n_args = 1;
    rule.args = &arg;
    assert_int_equal(hutch_seccomp_compile(&rules, &program, &err), -1);
    assert_string_equal(err.msg, "seccomp rule 0: there is no argument 6");
    rules.default_verdict = SECCOMP_ERRNO;
    rules.n_rules = 0;
    assert_int_equal(hutch_seccomp_compile(&rules, &program, &err), -1);
    assert_string_equal(err.msg, "seccomp default: errno 0 is not in 1..4095");
}

/* ---- the program against the rules ---- */

/* What the kernel's classic BPF does, as far as seccomp programs go. */
static uint32_t interpret(const struct seccomp_program *program, const struct seccomp_data *data)
{
    uint32_t a = 0, x = 0, mem[BPF_MEMWORDS] = { 0 };

    for (size_t pc = 0; pc < program->n_insns; pc++) {
        const struct sock_filter *i = &program->insns[pc];
        uint32_t operand = BPF_SRC(i->code) == BPF_X ? x : i->k;
        bool jump;

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i->k % 4 == 0 && i->k + 4 <= sizeof(*data));
            memcpy(&a, (const char *)data + i->k, 4);
            continue;
        case BPF_LD | BPF_MEM:
            a = mem[i->k];
            continue;
        case BPF_LDX | BPF_MEM:
            x = mem[i->k];
            continue;
        case BPF_ST:
            mem[i->k] = a;
            continue;
        case BPF_MISC | BPF_TAX:
            x = a;
            continue;
        case BPF_MISC | BPF_TXA:
            a = x;
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
        case BPF_ALU | BPF_AND | BPF_X:
            a &= operand;
            continue;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JEQ | BPF_K:
        case BPF_JMP | BPF_JEQ | BPF_X:
            jump = a == operand;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
        case BPF_JMP | BPF_JGE | BPF_X:
            jump = a >= operand;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
        case BPF_JMP | BPF_JGT | BPF_X:
            jump = a > operand;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            jump = (a & operand) != 0;
            break;
        default:
            fail_msg("instruction %zu has the unknown code %#x", pc, i->code);
            return 0;
        }
        pc += jump ? i->jt : i->jf;
    }
    fail_msg("the program does not end");
    return 0;
}

static uint32_t answer_of(enum seccomp_verdict verdict, int errnum)
{
    switch (verdict) {
    case SECCOMP_ALLOW:
        return SECCOMP_RET_ALLOW;
    case SECCOMP_ERRNO:
        return SECCOMP_RET_ERRNO | (uint32_t)errnum;
    case SECCOMP_LOG:
        return SECCOMP_RET_LOG;
    case SECCOMP_KILL_PROCESS:
        break;
    }
    return SECCOMP_RET_KILL_PROCESS;
}

static bool arg_holds(const struct seccomp_arg *arg, const uint64_t *args)
{
    uint64_t v = args[arg->index];

    switch (arg->op) {
    case SECCOMP_OP_NE:
        return v != arg->value;
    case SECCOMP_OP_LT:
        return v < arg->value;
    case SECCOMP_OP_LE:
        return v <= arg->value;
    case SECCOMP_OP_EQ:
        return v == arg->value;
    case SECCOMP_OP_GE:
        return v >= arg->value;
    case SECCOMP_OP_GT:
        return v > arg->value;
    case SECCOMP_OP_MASKED_EQ:
        return (v & arg->mask) == arg->value;
    }
    return false;
}

/* The rules about one call. */
struct about {
    const struct seccomp_rule *rules[300];
    size_t n;
};

static void find_rules(const struct seccomp_rules *rules, int nr, struct about *ret)
{
    ret->n = 0;
    for (size_t i = 0; i < rules->n_rules; i++)
        for (char **name = rules->rules[i].names; *name; name++)
            if (seccomp_syscall_resolve_name(*name) == nr) {
                assert_true(ret->n < ARRAY_SIZE(ret->rules));
                ret->rules[ret->n++] = &rules->rules[i];
            }
}

static uint32_t evaluate(const struct seccomp_rules *rules, const struct about *about, const uint64_t *args)
{
    const struct seccomp_rule *otherwise = NULL;

    for (size_t i = 0; i < about->n; i++) {
        bool all = about->rules[i]->n_args > 0;

        if (!all)
            otherwise = about->rules[i];
        for (size_t k = 0; k < about->rules[i]->n_args; k++)
            all = all && arg_holds(&about->rules[i]->args[k], args);
        if (all)
            return answer_of(about->rules[i]->verdict, about->rules[i]->errnum);
    }
    if (otherwise)
        return answer_of(otherwise->verdict, otherwise->errnum);
    return answer_of(rules->default_verdict, rules->default_errnum);
}

/* xorshift64*: the same numbers in every run. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Dull;
}

/* A value near one that some rule compares with: equal, beside it, one bit off, with rubbish outside of the mask. */
static uint64_t interesting(const struct about *about, unsigned index, uint64_t *random)
{
    const struct seccomp_arg *candidates[1024];
    size_t n = 0;
    uint64_t r = next_random(random), noise = next_random(random);

    for (size_t i = 0; i < about->n; i++)
        for (size_t k = 0; k < about->rules[i]->n_args; k++)
            if (about->rules[i]->args[k].index == index && n < ARRAY_SIZE(candidates))
                candidates[n++] = &about->rules[i]->args[k];
    if (n == 0)
        return r % 4 ? r % 3 : noise;
    {
        const struct seccomp_arg *arg = candidates[r % n];
        uint64_t mask = arg->op == SECCOMP_OP_MASKED_EQ ? arg->mask : UINT64_MAX;

        switch ((r >> 32) % 8) {
        case 0:
            return arg->value + 1;
        case 1:
            return arg->value - 1;
        case 2:
            return arg->value ^ (1ull << (noise % 64));
        case 3:
            return arg->value ^ (1ull << (noise % 32));
        case 4:
            return (arg->value & mask) | (noise & ~mask);
        case 5:
            return arg->value | (noise << 32);
        case 6:
            return noise;
        default:
            return arg->value;
        }
    }
}

static void compare_with_program(const char *name, const struct seccomp_rules *rules)
{
    static const int special[] = { 1000, 4095, 0x3fffffff, 0x7fffffff };
    struct seccomp_program program;
    struct hutch_err err;
    uint64_t random = 88172645463325252ull;

    if (hutch_seccomp_compile(rules, &program, &err) < 0)
        fail_msg("%s: %s", name, err.msg);
    for (int n = 0; n < 600 + (int)ARRAY_SIZE(special); n++) {
        struct seccomp_data data = { .nr = n < 600 ? n : special[n - 600], .arch = NATIVE_AUDIT_ARCH };
        struct about about;
        int tries;

        find_rules(rules, data.nr, &about);
        tries = about.n > 1 || (about.n == 1 && about.rules[0]->n_args) ? 4000 : 4;
#if defined(__x86_64__)
        if (data.nr >= 0x40000000) /* an x32 number */
            continue;
#endif
        for (int t = 0; t < tries; t++) {
            uint64_t args[6];
            uint32_t want, got;

            for (unsigned k = 0; k < 6; k++)
                data.args[k] = args[k] = interesting(&about, k, &random);
            want = evaluate(rules, &about, args);
            got = interpret(&program, &data);
            if (want != got)
                fail_msg("%s: call %d(%#" PRIx64 ", %#" PRIx64 ", %#" PRIx64 ", %#" PRIx64
                         "): wanted %#x, got %#x",
                         name, data.nr, args[0], args[1], args[2], args[3], want, got);
        }
    }
    hutch_seccomp_program_done(&program);
}

#define DRAWN_RULES 6

/* A rule about one call: one or two conditions, on arguments 0 and 1, with small numbers and ones beyond 32 bits. */
static void draw_rule(uint64_t *random, struct seccomp_rule *rule)
{
    static const uint64_t values[] = { 0, 1, 2, 3, 7, 8, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x100000001,
                                       0x300000002, UINT64_MAX - 1, UINT64_MAX };
    size_t n = 1 + next_random(random) % 2;

    rule->verdict = next_random(random) % 2 ? SECCOMP_ALLOW : SECCOMP_ERRNO;
    rule->errnum = rule->verdict == SECCOMP_ERRNO ? 1 + (int)(next_random(random) % 2) : 0;
    rule->n_args = 0;
    for (unsigned k = 0; k < 2 && rule->n_args < n; k++) {
        struct seccomp_arg *arg = &rule->args[rule->n_args];

        if (n == 1 && k == 0 && next_random(random) % 2)
            continue;
        *arg = (struct seccomp_arg){ .index = k, .op = (enum seccomp_op)(next_random(random) % 7), .mask = UINT64_MAX,
                                     .value = values[next_random(random) % ARRAY_SIZE(values)] };
        if (arg->op == SECCOMP_OP_MASKED_EQ) {
            arg->mask = values[next_random(random) % ARRAY_SIZE(values)];
            arg->value &= arg->mask;
        }
        rule->n_args++;
    }
}

/* Rules as nobody would write them: what hutch_seccomp_check() lets pass means one thing, and the program does that. */
static void test_program_answers_as_drawn_rules_say(void **state)
{
    static char call[] = "semctl";
    static char *names[] = { call, NULL };
    uint64_t random = 2463534242123456789ull;
    size_t n_compiled = 0;

    (void)state;
    for (int round = 0; round < 6000; round++) {
        struct seccomp_arg args[DRAWN_RULES][2];
        struct seccomp_rule list[DRAWN_RULES];
        struct seccomp_rules rules = { .default_verdict = SECCOMP_ERRNO, .default_errnum = ENOSYS, .rules = list };
        struct seccomp_data data = { .nr = seccomp_syscall_resolve_name(call), .arch = NATIVE_AUDIT_ARCH };
        struct seccomp_program program;
        struct hutch_err err;
        struct about about;

        rules.n_rules = 2 + next_random(&random) % (DRAWN_RULES - 1);
        for (size_t i = 0; i < rules.n_rules; i++) {
            list[i] = (struct seccomp_rule){ .names = names, .args = args[i] };
            draw_rule(&random, &list[i]);
        }
        if (next_random(&random) % 2) { /* an otherwise */
            list[0].n_args = 0;
            list[0].verdict = SECCOMP_ERRNO;
            list[0].errnum = 3;
        }
        if (hutch_seccomp_check(&rules, &err) < 0)
            continue;
        if (hutch_seccomp_compile(&rules, &program, &err) < 0)
            fail_msg("round %d: %s", round, err.msg);
        n_compiled++;
        find_rules(&rules, data.nr, &about);
        for (int t = 0; t < 200; t++) {
            uint64_t values[6];

            for (unsigned k = 0; k < 6; k++)
                data.args[k] = values[k] = interesting(&about, k, &random);
            if (interpret(&program, &data) != evaluate(&rules, &about, values))
                fail_msg("round %d: %zu rules, arguments %#" PRIx64 ", %#" PRIx64 ": wanted %#x, got %#x", round,
                         rules.n_rules, values[0], values[1], evaluate(&rules, &about, values),
                         interpret(&program, &data));
        }
        hutch_seccomp_program_done(&program);
    }
    assert_true(n_compiled > 500);
}

/* Each link of a chain looks at the number again. The program is as right as before, and is made in no time. */
static void test_long_chains(void **state)
{
    static char call[] = "semctl";
    static char *names[] = { call, NULL };
    static const struct { size_t n_rules, n_args; } chains[] = { { 40, 1 }, { 200, 1 }, { 8, 6 }, { 60, 6 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(chains); i++) {
        struct seccomp_arg args[200][SECCOMP_MAX_ARGS];
        struct seccomp_rule list[200];
        struct seccomp_rules rules = { .default_verdict = SECCOMP_ERRNO, .default_errnum = ENOSYS, .rules = list,
                                       .n_rules = chains[i].n_rules };
        struct seccomp_data data = { .nr = seccomp_syscall_resolve_name(call), .arch = NATIVE_AUDIT_ARCH };
        struct seccomp_program program;
        struct hutch_err err;

        for (unsigned r = 0; r < chains[i].n_rules; r++) {
            list[r] = (struct seccomp_rule){ .names = names, .verdict = SECCOMP_ALLOW, .args = args[r],
                                             .n_args = chains[i].n_args };
            for (unsigned k = 0; k < chains[i].n_args; k++)
                args[r][k] = (struct seccomp_arg){ .index = k, .op = k ? SECCOMP_OP_EQ : SECCOMP_OP_GT,
                                                   .mask = UINT64_MAX, .value = 100 + r };
        }
        if (hutch_seccomp_compile(&rules, &program, &err) < 0)
            fail_msg("%zu rules: %s", chains[i].n_rules, err.msg);
        for (uint64_t value = 90; value < 310; value++) {
            for (unsigned k = 0; k < 6; k++)
                data.args[k] = value - (k > 0);
            /* Rule value - 101 is the one whose further conditions hold. */
            assert_int_equal(interpret(&program, &data), value > 100 && (chains[i].n_args == 1 ||
                             value - 101 < chains[i].n_rules) ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | ENOSYS);
        }
        hutch_seccomp_program_done(&program);
    }
}

static void test_program_answers_as_the_profiles_say(void **state)
{
    static const char *const names[] = { "seccomp-trusted.json", "seccomp-default.json", "seccomp-strict.json" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct seccomp_rules rules;

        load_profile(names[i], &rules);
        compare_with_program(names[i], &rules);
        hutch_seccomp_rules_done(&rules);
    }
}

static void test_program_answers_as_small_rule_sets_say(void **state)
{
    static const char *const cases[] = {
        ENOSYS_BY_DEFAULT "]}",
        ALLOW_BY_DEFAULT "]}",
        "{'defaultAction':'SCMP_ACT_KILL','syscalls':[" ALLOW("'read'", "") "]}",
        /* a rule that says what the default says anyway */
        ENOSYS_BY_DEFAULT DENY("'read'", "38", "") ",{'names':['write'],'action':'SCMP_ACT_LOG'}]}",
        ALLOW_BY_DEFAULT DENY("'fchmod','fchmodat'", "1", MASKED("1", "2048", "2048")) ","
            DENY("'socket'", "97", COMPARE("0", "NE", "1"))
            ",{'names':['reboot'],'action':'SCMP_ACT_KILL_PROCESS'}]}",
        /* every comparison, with both halves of 64 bits: 4294967301 is 0x100000005 */
        ENOSYS_BY_DEFAULT ALLOW("'read'", COMPARE("2", "LT", "4294967301")) ","
            ALLOW("'write'", COMPARE("2", "LE", "4294967301")) ","
            ALLOW("'lseek'", COMPARE("1", "GE", "4294967301")) ","
            ALLOW("'close'", COMPARE("0", "GT", "4294967301")) ","
            ALLOW("'mmap'", COMPARE("0", "NE", "4294967301")) "," ALLOW("'brk'", COMPARE("0", "EQ", "4294967301")) ","
            ALLOW("'dup'", MASKED("0", "1095216660735", "73014444066")) "]}", /* 0xff000000ff, 0x1100000022 */
        /* several arguments, several rules */
        ENOSYS_BY_DEFAULT ALLOW("'socket'", COMPARE("0", "EQ", "2") "," MASKED("1", "15", "1") ","
            COMPARE("2", "LE", "6")) ","
            ALLOW("'socket'", COMPARE("0", "EQ", "1")) "," DENY("'socket'", "1", COMPARE("0", "EQ", "2") ","
            MASKED("1", "15", "3")) "]}",
        /* an otherwise: of neighbours, before and after the conditions, saying what the default or a condition says */
        ENOSYS_BY_DEFAULT ALLOW("'setsockopt'", COMPARE("2", "EQ", "7")) "," DENY("'setsockopt','getsockopt'", "92", "")
            "," ALLOW("'getsockopt'", COMPARE("2", "LE", "7")) "," DENY("'socketpair'", "97", "") ","
            DENY("'socketpair'", "97", COMPARE("1", "EQ", "9")) "," ALLOW("'socketpair'", COMPARE("1", "EQ", "1")) ","
            DENY("'chmod'", "38", "") "," DENY("'chmod'", "1", MASKED("1", "3072", "1024")) "]}",
        ALLOW_BY_DEFAULT DENY("'read'", "5", COMPARE("0", "EQ", "1")) "," DENY("'read'", "9", "") "]}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct seccomp_rules rules;
        struct hutch_err err;

        if (read_rules(cases[i], &rules, &err) < 0)
            fail_msg("%s", err.msg);
        compare_with_program(cases[i], &rules);
        hutch_seccomp_rules_done(&rules);
    }
}

/* Withheld calls answer ENOSYS: one that is allowed, one that is refused otherwise, one that only the default lets
 * through. */
static void test_withheld_calls(void **state)
{
    static const char *const withheld[] = { "memfd_create", "memfd_secret", "shmget", "no_such_call", NULL };
    static const char *const profiles[] = {
        ENOSYS_BY_DEFAULT ALLOW("'memfd_create','read'", "") "," DENY("'memfd_secret'", "1", "") "]}",
        ALLOW_BY_DEFAULT DENY("'memfd_secret'", "1", COMPARE("0", "EQ", "0")) "]}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
        struct seccomp_data data = { .arch = NATIVE_AUDIT_ARCH };
        struct seccomp_program program;
        struct seccomp_rules rules;
        struct hutch_err err;

        assert_int_equal(read_rules(profiles[i], &rules, &err), 0);
        rules.withheld = withheld;
        if (hutch_seccomp_compile(&rules, &program, &err) < 0)
            fail_msg("%s", err.msg);
        for (const char *const *name = withheld; *name; name++) {
            data.nr = seccomp_syscall_resolve_name(*name);
            if (data.nr >= 0 && interpret(&program, &data) != (SECCOMP_RET_ERRNO | ENOSYS))
                fail_msg("profile %zu: '%s' answers %#x", i, *name, interpret(&program, &data));
        }
        data.nr = SYS_read;
        assert_int_equal(interpret(&program, &data), SECCOMP_RET_ALLOW);
        hutch_seccomp_program_done(&program);
        hutch_seccomp_rules_done(&rules);
    }
}

/* Granted calls are allowed: one that is refused, one that a condition would allow, one that only the default
 * refuses. */
static void test_granted_calls(void **state)
{
    static const char *const granted[] = { "setns", "prctl", "clone3", "no_such_call", NULL };
    struct seccomp_data data = { .arch = NATIVE_AUDIT_ARCH };
    struct seccomp_program program;
    struct seccomp_rules rules;
    struct hutch_err err;

    (void)state;
    assert_int_equal(read_rules(ENOSYS_BY_DEFAULT DENY("'setns'", "1", "") ","
        ALLOW("'prctl'", COMPARE("0", "EQ", "4")) "]}", &rules,
                                &err), 0);
    rules.granted = granted;
    if (hutch_seccomp_compile(&rules, &program, &err) < 0)
        fail_msg("%s", err.msg);
    for (const char *const *name = granted; *name; name++) {
        data.nr = seccomp_syscall_resolve_name(*name);
        if (data.nr >= 0 && interpret(&program, &data) != SECCOMP_RET_ALLOW)
            fail_msg("'%s' answers %#x", *name, interpret(&program, &data));
    }
    data.nr = SYS_read;
    assert_int_equal(interpret(&program, &data), SECCOMP_RET_ERRNO | ENOSYS);
    hutch_seccomp_program_done(&program);
    hutch_seccomp_rules_done(&rules);
}

static void test_other_architectures_are_killed(void **state)
{
    static const uint32_t others[] = { AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_S390X, 0 };
    struct seccomp_program program;

    (void)state;
    compile_profile("seccomp-default.json", &program);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        for (int nr = 0; nr < 600; nr++) {
            struct seccomp_data data = { .nr = nr, .arch = others[i] };

            assert_int_equal(interpret(&program, &data), SECCOMP_RET_KILL_PROCESS);
        }
#if defined(__x86_64__)
    for (int nr = 0; nr < 600; nr++) {
        struct seccomp_data data = { .nr = nr | 0x40000000, .arch = AUDIT_ARCH_X86_64 };

        assert_int_equal(interpret(&program, &data), SECCOMP_RET_KILL_PROCESS);
    }
#endif
    hutch_seccomp_program_done(&program);
}

/* strict is default with something taken away, never the other way round. */
static void test_strict_allows_nothing_that_default_does_not(void **state)
{
    struct seccomp_rules rules;
    struct seccomp_program loose, strict;
    uint64_t random = 1181783497276652981ull;
    size_t calls_less = 0;

    (void)state;
    load_profile("seccomp-default.json", &rules);
    compile_profile("seccomp-default.json", &loose);
    compile_profile("seccomp-strict.json", &strict);
    for (int nr = 0; nr < 600; nr++) {
        struct seccomp_data data = { .nr = nr, .arch = NATIVE_AUDIT_ARCH };
        bool is_less = false;
        struct about about;

        find_rules(&rules, nr, &about);
        for (int t = 0; t < 2000; t++) {
            bool in_loose, in_strict;

            for (unsigned k = 0; k < 6; k++)
                data.args[k] = interesting(&about, k, &random);
            in_loose = interpret(&loose, &data) == SECCOMP_RET_ALLOW;
            in_strict = interpret(&strict, &data) == SECCOMP_RET_ALLOW;
            if (in_strict && !in_loose)
                fail_msg("call %d is allowed by strict only", nr);
            is_less = is_less || (in_loose && !in_strict);
        }
        calls_less += is_less;
    }
    assert_true(calls_less >= 3);
    hutch_seccomp_rules_done(&rules);
    hutch_seccomp_program_done(&loose);
    hutch_seccomp_program_done(&strict);
}

/* A new system call has to be decided in the profiles and must not fall under the default unseen. */
static void test_profiles_name_every_call(void **state)
{
    static const char *const names[] = { "seccomp-trusted.json", "seccomp-default.json", "seccomp-strict.json" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct seccomp_rules rules;

        load_profile(names[i], &rules);
        for (int nr = 0; nr < 457; nr++) {
            char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
            struct about about;

            if (!name)
                continue;
            find_rules(&rules, nr, &about);
            if (about.n == 0)
                fail_msg("%s says nothing about '%s'", names[i], name);
            free(name);
        }
        hutch_seccomp_rules_done(&rules);
    }
}

/* ---- the kernel ---- */

struct call {
    const char *label;
    long nr;
    uint64_t args[6];
    int want;        /* errno; 0: it must succeed; ANY_BUT_FILTER: the kernel's own answer, whatever it is */
};
#define ANY_BUT_FILTER (-1)

/* The calls one after the other in a confined child, in a directory of its own; their errnos come through a pipe. */
static void run_calls(const struct seccomp_program *program, const struct call *calls, size_t n, int *ret_errnos)
{
    struct place place;
    int pipe_fds[2], status;
    ssize_t got;
    pid_t pid;

    place_open(&place);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (fchdir(place.data) < 0 || mkdir("d", 0700) < 0 || close(open("f", O_CREAT | O_RDWR, 0600)) < 0)
            _exit(98);
        confine_or_die(program);
        for (size_t i = 0; i < n; i++) {
            const uint64_t *a = calls[i].args;
            int result = 0;
            long rc;

            errno = 0;
            rc = syscall(calls[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);
            if (rc < 0)
                result = errno;
            if (write(pipe_fds[1], &result, sizeof(result)) != sizeof(result))
                _exit(97);
        }
        _exit(0);
    }
    close(pipe_fds[1]);
    got = hutch_fd_read_full(pipe_fds[0], ret_errnos, n * sizeof(*ret_errnos));
    close(pipe_fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    place_close(&place); /* before anything that may fail */
    assert_int_equal(got, n * sizeof(*ret_errnos));
    assert_int_equal(status, 0);
}

static void expect_calls(const char *profile, const struct call *calls, size_t n)
{
    auto_free int *errnos = calloc(n, sizeof(*errnos));
    struct seccomp_program program;

    assert_non_null(errnos);
    compile_profile(profile, &program);
    run_calls(&program, calls, n, errnos);
    hutch_seccomp_program_done(&program);
    for (size_t i = 0; i < n; i++) {
        bool is_right = calls[i].want == ANY_BUT_FILTER ? errnos[i] != ENOSYS && errnos[i] != EPERM
                                                        : errnos[i] == calls[i].want;

        if (!is_right)
            fail_msg("%s: %s: got errno %d (%s), wanted %d", profile, calls[i].label, errnos[i], strerror(errnos[i]),
                     calls[i].want);
    }
}

#define P(text) ((uint64_t)(uintptr_t)(text))
#define AT ((uint64_t)AT_FDCWD)
#define HIGH 0xdeadbeef00000000ull /* the kernel ignores this half of an int */

/* What the default profile answers otherwise than the trusted one. */
static const struct {
    const char *label;
    int errnum;
} in_default[] = {
    { "SO_ATTACH_FILTER", ENOPROTOOPT }, { "TCP_ULP", ENOPROTOOPT }, { "UDP_SEGMENT", ENOPROTOOPT },
    { "send MSG_OOB", EOPNOTSUPP }, { "recv MSG_OOB", EOPNOTSUPP }, { "recvmsg MSG_OOB", EOPNOTSUPP },
    { "sendmmsg MSG_OOB", EOPNOTSUPP }, { "TCP_ZEROCOPY_RECEIVE", ENOPROTOOPT },
    { "setuid to another", EPERM }, { "chown to another", EPERM },
    { "setxattr", EOPNOTSUPP }, { "seccomp", EINVAL }, { "PR_SET_SECCOMP", EINVAL }, { "mincore", ENOSYS },
    { "splice", EINVAL }, { "landlock_add_rule", EPERM }, { "mq_unlink", ENOSYS },
    { "membarrier", ENOSYS }, { "F_SETPIPE_SZ", EPERM }, { "O_NOTIFICATION_PIPE", ENOPKG },
    { "MAP_HUGETLB", ENOMEM }, { "MFD_HUGETLB", ENOMEM }, { "preadv2 RWF_NOWAIT", EOPNOTSUPP },
    { "POSIX_FADV_DONTNEED", EINVAL }, { "POSIX_FADV_DONTNEED, rubbish above", EINVAL },
    { "copy_file_range", EXDEV },
    { "MADV_REMOVE", EINVAL }, { "MADV_MERGEABLE", EINVAL }, { "MADV_COLD", EINVAL }, { "MADV_PAGEOUT", EINVAL },
    { "MADV_PAGEOUT, rubbish above", EINVAL },
};

static void test_kernel_trusted_default(void **state)
{
    static char buffer[4096];
    struct call calls[] = {
        { "getpid", SYS_getpid, { 0 }, 0 },
        { "unknown call", 1000, { 0 }, ENOSYS },

        { "open, no O_CREAT, rubbish as mode", SYS_openat, { AT, P("f"), O_RDWR, 0xffffffffffffffff }, 0 },
        { "create", SYS_openat, { AT, P("g"), O_CREAT | O_RDWR, 0644 }, 0 },
        { "create setuid", SYS_openat, { AT, P("h"), O_CREAT | O_RDWR, 04755 }, EPERM },
        { "create setgid", SYS_openat, { AT, P("h"), O_CREAT | O_RDWR, 02755 }, EPERM },
        { "create both, rubbish above", SYS_openat, { AT, P("h"), HIGH | O_CREAT | O_RDWR, HIGH | 06755 }, EPERM },
        { "O_TMPFILE setuid", SYS_openat, { AT, P("."), O_TMPFILE | O_RDWR, 04755 }, EPERM },
        { "nothing was made", SYS_faccessat, { AT, P("h"), 0 }, ENOENT },
        { "fchmodat", SYS_fchmodat, { AT, P("f"), 0755 }, 0 },
        { "fchmodat sticky", SYS_fchmodat, { AT, P("d"), 01755 }, 0 },
        { "fchmodat setuid", SYS_fchmodat, { AT, P("f"), 04755 }, EPERM },
        { "fchmodat setgid", SYS_fchmodat, { AT, P("f"), HIGH | 02755 }, EPERM },
        { "fchmod setuid", SYS_fchmod, { 0, 04755 }, EPERM },
        { "fchmodat2", 452, { AT, P("f"), 04755, 0 }, ENOSYS },
        { "openat2", 437, { AT, P("f"), 0, 0 }, ENOSYS },
        { "mkdirat setgid is dropped by the kernel", SYS_mkdirat, { AT, P("d"), 02755 }, EEXIST },
        { "renameat2", SYS_renameat2, { AT, P("g"), AT, P("g"), 0 }, 0 },
        { "renameat2 RENAME_NOREPLACE", SYS_renameat2, { AT, P("g"), AT, P("f"), 1 }, EEXIST },
        { "renameat2 RENAME_WHITEOUT", SYS_renameat2, { AT, P("g"), AT, P("h"), HIGH | 4 }, EPERM },
        { "mknodat FIFO", SYS_mknodat, { AT, P("fifo"), S_IFIFO | 0600, 0 }, 0 },
        { "mknodat socket", SYS_mknodat, { AT, P("sock"), S_IFSOCK | 0600, 0 }, 0 },
        { "mknodat regular", SYS_mknodat, { AT, P("reg"), S_IFREG | 0600, 0 }, 0 },
        { "mknodat setuid", SYS_mknodat, { AT, P("h"), S_IFREG | 04755, 0 }, EPERM },
        { "mknodat character device", SYS_mknodat, { AT, P("h"), S_IFCHR | 0666, makedev(1, 3) }, EPERM },
        { "mknodat whiteout", SYS_mknodat, { AT, P("h"), S_IFCHR, 0 }, EPERM },
        { "mknodat block device", SYS_mknodat, { AT, P("h"), HIGH | S_IFBLK | 0600, makedev(8, 0) }, EPERM },
#if defined(__x86_64__)
        { "open setuid", SYS_open, { P("h"), O_CREAT | O_RDWR, 04755 }, EPERM },
        { "open", SYS_open, { P("f"), O_RDONLY, 06000 }, 0 },
        { "creat setgid", SYS_creat, { P("h"), 02755 }, EPERM },
        { "chmod setuid", SYS_chmod, { P("f"), 04755 }, EPERM },
        { "mknod device", SYS_mknod, { P("h"), S_IFCHR | 0666, makedev(1, 3) }, EPERM },
#endif

        { "clone CLONE_NEWUSER", SYS_clone, { CLONE_NEWUSER | SIGCHLD }, EPERM },
        { "clone CLONE_NEWNS", SYS_clone, { CLONE_NEWNS | SIGCHLD }, EPERM },
        { "clone all of them", SYS_clone, { 0x7e020000 | SIGCHLD }, EPERM },
        { "clone CLONE_NEWNET, rubbish above", SYS_clone, { HIGH | CLONE_NEWNET | SIGCHLD }, EPERM },
        { "clone3", 435, { P(buffer), 64 }, ENOSYS },
        { "unshare nothing", SYS_unshare, { 0 }, EPERM },
        { "setns", SYS_setns, { 0, 0 }, EPERM },

        { "SO_TYPE", SYS_getsockopt, { ~0ul, SOL_SOCKET, SO_TYPE }, ANY_BUT_FILTER },
        { "SO_PEERCRED", SYS_getsockopt, { ~0ul, SOL_SOCKET, SO_PEERCRED }, ANY_BUT_FILTER },
        { "SO_BUF_LOCK", SYS_setsockopt, { ~0ul, SOL_SOCKET, 72 }, ANY_BUT_FILTER },
        { "TCP_NODELAY", SYS_setsockopt, { ~0ul, 6, 1 }, ANY_BUT_FILTER },
        { "SO_ATTACH_FILTER", SYS_setsockopt, { ~0ul, SOL_SOCKET, 26 }, ANY_BUT_FILTER },
        { "TCP_ULP", SYS_setsockopt, { ~0ul, 6, 31 }, ANY_BUT_FILTER },
        { "UDP_SEGMENT", SYS_setsockopt, { ~0ul, 17, 103 }, ANY_BUT_FILTER },
        { "IPV6_V6ONLY", SYS_setsockopt, { ~0ul, 41, 26 }, ANY_BUT_FILTER },
        { "send", SYS_sendto, { 99, P(buffer), 1, 0 }, EBADF },
        { "send MSG_OOB", SYS_sendto, { 99, P(buffer), 1, HIGH | 1 }, EBADF },
        { "recv MSG_OOB", SYS_recvfrom, { 99, P(buffer), 1, 1 }, EBADF },
        { "recvmsg MSG_OOB", SYS_recvmsg, { 99, P(buffer), 1 }, EBADF },
        { "sendmmsg", SYS_sendmmsg, { 99, P(buffer), 1, 0 }, EBADF },
        { "sendmmsg MSG_OOB", SYS_sendmmsg, { 99, P(buffer), 1, 1 }, EBADF },
        { "TCP_INFO", SYS_getsockopt, { 99, 6, 11, P(buffer), P(buffer) }, EBADF },
        { "TCP_ZEROCOPY_RECEIVE", SYS_getsockopt, { 99, 6, 35, P(buffer), P(buffer) }, EBADF },
        { "SO_PASSPIDFD", SYS_setsockopt, { ~0ul, SOL_SOCKET, 76 }, ENOPROTOOPT },
        { "SO_PEERPIDFD", SYS_getsockopt, { ~0ul, SOL_SOCKET, 77 }, ENOPROTOOPT },
        { "SO_PEERPIDFD with bits above", SYS_getsockopt, { ~0ul, 5ul << 32 | SOL_SOCKET, 9ul << 32 | 77 },
          ENOPROTOOPT },
        { "SO_OOBINLINE", SYS_setsockopt, { ~0ul, SOL_SOCKET, 10 }, ANY_BUT_FILTER },
        { "IP_PKTINFO", SYS_setsockopt, { ~0ul, 0, 8 }, ANY_BUT_FILTER },
        { "option of another level", SYS_setsockopt, { ~0ul, 263, 1 }, ENOPROTOOPT },
        { "option with bits above", SYS_setsockopt, { ~0ul, HIGH | SOL_SOCKET, HIGH | 10 }, ANY_BUT_FILTER },
        { "AF_UNIX stream", SYS_socket, { AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0 }, 0 },
        { "AF_INET stream", SYS_socket, { AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0 }, 0 },
        { "AF_INET TCP", SYS_socket, { AF_INET, SOCK_STREAM, IPPROTO_TCP }, 0 },
        { "AF_INET UDP", SYS_socket, { AF_INET, SOCK_DGRAM, IPPROTO_UDP }, 0 },
        { "AF_INET UDP-Lite", SYS_socket, { AF_INET, SOCK_DGRAM, 136 }, ANY_BUT_FILTER },
        { "AF_INET6", SYS_socket, { AF_INET6, SOCK_DGRAM, 0 }, ANY_BUT_FILTER },
        { "NETLINK_ROUTE", SYS_socket, { AF_NETLINK, SOCK_RAW, 0 }, 0 },
        { "NETLINK_AUDIT", SYS_socket, { AF_NETLINK, SOCK_RAW, 9 }, EPROTONOSUPPORT },
        { "AF_INET raw", SYS_socket, { AF_INET, SOCK_RAW, IPPROTO_ICMP }, EPERM },
        { "AF_INET6 raw", SYS_socket, { AF_INET6, SOCK_RAW, 58 }, EPERM },
        { "ping socket", SYS_socket, { AF_INET, SOCK_DGRAM, IPPROTO_ICMP }, EPROTONOSUPPORT },
        { "SCTP", SYS_socket, { AF_INET, SOCK_STREAM, 132 }, EPROTONOSUPPORT },
        { "MPTCP", SYS_socket, { AF_INET, SOCK_STREAM, 262 }, EPROTONOSUPPORT },
        { "AF_PACKET", SYS_socket, { 17, SOCK_RAW, 0 }, EAFNOSUPPORT },
        { "AF_ALG", SYS_socket, { 38, SOCK_SEQPACKET, 0 }, EAFNOSUPPORT },
        { "AF_VSOCK", SYS_socket, { 40, SOCK_STREAM, 0 }, EAFNOSUPPORT },
        { "AF_XDP", SYS_socket, { 44, SOCK_RAW, 0 }, EAFNOSUPPORT },
        { "AF_VSOCK, rubbish above", SYS_socket, { HIGH | 40, SOCK_STREAM, 0 }, EAFNOSUPPORT },
        { "AF_UNIX, rubbish above", SYS_socket, { HIGH | AF_UNIX, HIGH | SOCK_STREAM, 0 }, 0 },
        { "socketpair", SYS_socketpair, { AF_UNIX, SOCK_STREAM, 0, P(buffer) }, 0 },
        { "socketpair AF_TIPC", SYS_socketpair, { 30, SOCK_STREAM, 0, P(buffer) }, EAFNOSUPPORT },
        { "socketpair AF_INET", SYS_socketpair, { AF_INET, SOCK_STREAM, 0, P(buffer) }, EAFNOSUPPORT },

        { "ioctl TCGETS", SYS_ioctl, { 99, 0x5401, P(buffer) }, EBADF },
        { "ioctl FIONBIO", SYS_ioctl, { 99, 0x5421, P(buffer) }, EBADF },
        { "ioctl SIOCGIFCONF", SYS_ioctl, { 99, 0x8912, P(buffer) }, EBADF },
        { "ioctl FICLONE", SYS_ioctl, { 99, 0x40049409, 0 }, EBADF },
        { "ioctl TIOCSTI", SYS_ioctl, { 99, 0x5412, P(buffer) }, EPERM },
        { "ioctl TIOCSTI, rubbish above", SYS_ioctl, { 99, HIGH | 0x5412, P(buffer) }, EPERM }, /* CVE-2023-1523 */
        { "ioctl TIOCSCTTY", SYS_ioctl, { 99, 0x540e, 0 }, EBADF },
        { "ioctl TIOCSCTTY, by force", SYS_ioctl, { 99, 0x540e, 1 }, EBADF },
        { "ioctl TIOCGPTN", SYS_ioctl, { 99, 0x80045430, P(buffer) }, EBADF },
        { "ioctl TIOCSPTLCK", SYS_ioctl, { 99, 0x40045431, P(buffer) }, EBADF },
        { "ioctl TIOCLINUX", SYS_ioctl, { 99, 0x541c, P(buffer) }, EPERM },
        { "ioctl TIOCSETD", SYS_ioctl, { 99, 0x5423, P(buffer) }, EPERM },
        { "ioctl BTRFS_IOC_SUBVOL_CREATE", SYS_ioctl, { 99, 0x5000940e, P(buffer) }, ENOTTY },
        { "ioctl NS_GET_PARENT", SYS_ioctl, { 99, 0xb702, 0 }, ENOTTY },
        { "ioctl FS_IOC_FIEMAP", SYS_ioctl, { 99, 0xc020660b, P(buffer) }, ENOTTY },

        { "prctl PR_SET_NAME", SYS_prctl, { PR_SET_NAME, P("x") }, 0 },
        { "prctl PR_SET_MM", SYS_prctl, { PR_SET_MM, 1 }, EPERM },
        { "prctl PR_SET_MM, rubbish above", SYS_prctl, { HIGH | PR_SET_MM, 1 }, EPERM },
        { "prctl PR_SCHED_CORE", SYS_prctl, { 62, 0 }, EPERM },
        { "prctl unknown", SYS_prctl, { 999 }, EINVAL },
        { "fcntl unknown", SYS_fcntl, { 99, 1100 }, EINVAL },
        { "madvise unknown", SYS_madvise, { 0, 0, 999 }, EINVAL },
        { "personality query", SYS_personality, { 0xffffffff }, 0 },
        { "personality PER_LINUX", SYS_personality, { 0 }, 0 },
        { "personality ADDR_NO_RANDOMIZE", SYS_personality, { 0x40000 }, EPERM },
        { "personality READ_IMPLIES_EXEC and more", SYS_personality, { HIGH | 0x440000 }, EPERM },
        { "personality PER_BSD", SYS_personality, { 6 }, EPERM },
        { "personality UNAME26, rubbish above", SYS_personality, { HIGH | 0x20000 }, 0 },

        { "prlimit of itself", SYS_prlimit64, { 0, 7, 0, P(buffer) }, 0 },
        { "prlimit of another, reading", SYS_prlimit64, { (uint64_t)getpid(), 7, 0, P(buffer) }, 0 },
        { "prlimit of another, writing", SYS_prlimit64, { 1, 0, P(buffer), 0 }, EPERM },
        { "sched_getaffinity", SYS_sched_getaffinity, { 0, sizeof(buffer), P(buffer) }, 0 },
        { "sched_setaffinity", SYS_sched_setaffinity, { 0, sizeof(buffer), P(buffer) }, EPERM },
        { "sched_setscheduler SCHED_BATCH", SYS_sched_setscheduler, { 0, 3, P(buffer + 2048) }, 0 },
        { "SCHED_OTHER by number", SYS_sched_setscheduler, { (uint64_t)getpid(), 0, P(buffer + 2048) }, 0 },
        { "SCHED_BATCH by number", SYS_sched_setscheduler, { (uint64_t)getpid(), 3, P(buffer + 2048) }, EPERM },
        { "sched_setscheduler SCHED_FIFO", SYS_sched_setscheduler, { 0, 1, P(buffer) }, EPERM },
        { "sched_setscheduler SCHED_RR, reset on fork", SYS_sched_setscheduler, { 0, 0x40000002, P(buffer) }, EPERM },
        { "memfd_create", SYS_memfd_create, { P("x"), 0 }, 0 },
        { "landlock ABI", SYS_landlock_create_ruleset, { 0, 0, 1 }, ANY_BUT_FILTER },
        { "landlock_add_rule", SYS_landlock_add_rule, { 99, 2, P(buffer), 0 }, ANY_BUT_FILTER },
        { "setresuid to none", SYS_setresuid, { ~0ul, ~0ul, ~0ul }, 0 },
        { "setuid to another", SYS_setuid, { geteuid() + 1 }, geteuid() ? EPERM : 0 },
        { "chown to none", SYS_fchownat, { AT, P("f"), ~0ul, ~0ul, 0 }, 0 },
        { "chown to another", SYS_fchownat, { 99, P("f"), geteuid() + 1, ~0ul, 0 }, EBADF },
        { "copy_file_range", SYS_copy_file_range, { 99, 0, 98, 0, 1, 0 }, EBADF },
        { "pidfd_open", SYS_pidfd_open, { 0, 0 }, EINVAL },
        { "close_range", SYS_close_range, { 500, 600, 0 }, 0 },
        { "faccessat2", 439, { AT, P("h"), 0, 0 }, ENOENT },
        { "getrlimit", SYS_getrlimit, { 7, P(buffer) }, ANY_BUT_FILTER },
        { "capget", SYS_capget, { 0, 0 }, EFAULT },
        { "getxattr", SYS_fgetxattr, { 99, P("user.x"), P(buffer), 1 }, EBADF },
        { "setxattr", SYS_fsetxattr, { 99, P("user.x"), P(buffer), 1 }, EBADF },
        { "preadv2", SYS_preadv2, { 99, P(buffer), 0, 0, 0, 0 }, EBADF },
        { "preadv2 RWF_NOWAIT", SYS_preadv2, { 99, P(buffer), 0, 0, 0, HIGH | 8 }, EBADF },
        { "MFD_HUGETLB", SYS_memfd_create, { P("x"), 4 | 1ul << 30 }, ANY_BUT_FILTER },
        { "timer_create", SYS_timer_create, { 999, 0, P(buffer) }, EINVAL },
        { "mlock", SYS_mlock, { P(buffer), 0 }, 0 },
        { "mq_unlink", SYS_mq_unlink, { P("none") }, ENOENT },
        { "seccomp", SYS_seccomp, { 2, 0, P(buffer) }, ANY_BUT_FILTER },
        { "PR_SET_SECCOMP", SYS_prctl, { PR_SET_SECCOMP, 9 }, EINVAL },
        { "timerfd_create", SYS_timerfd_create, { 99 }, EINVAL },
        { "signalfd4", SYS_signalfd4, { 99, P(buffer), 8, 0 }, EBADF },
        { "mincore", SYS_mincore, { 1, 1, P(buffer) }, EINVAL },
        { "splice", SYS_splice, { 99, 0, 99, 0, 1 }, EBADF },
        { "execveat", SYS_execveat, { 99, P(""), 0, 0, 0 }, ANY_BUT_FILTER },
        { "pkey_alloc", SYS_pkey_alloc, { 1 }, ANY_BUT_FILTER },
        { "membarrier", SYS_membarrier, { 999 }, EINVAL },
        { "F_SETPIPE_SZ", SYS_fcntl, { 99, 1031, 1 << 20 }, EBADF },
        { "F_GETPIPE_SZ", SYS_fcntl, { 99, 1032 }, EBADF },
        { "pipe2", SYS_pipe2, { P(buffer), HIGH | O_CLOEXEC }, 0 },
        { "O_NOTIFICATION_PIPE", SYS_pipe2, { 0, 0x80 }, ANY_BUT_FILTER },
        { "mmap", SYS_mmap, { 0, 4096, 1, 0x22, ~0ul, 0 }, 0 },
        { "MAP_HUGETLB", SYS_mmap, { 0, 4096, 1, 0x40002, 99, 0 }, EBADF },
        { "POSIX_FADV_SEQUENTIAL", SYS_fadvise64, { 99, 0, 0, 2 }, EBADF },
        { "POSIX_FADV_NOREUSE", SYS_fadvise64, { 99, 0, 0, 5 }, EBADF },
        { "POSIX_FADV_DONTNEED", SYS_fadvise64, { 99, 0, 0, 4 }, EBADF },
        { "POSIX_FADV_DONTNEED, rubbish above", SYS_fadvise64, { 99, 0, 0, HIGH | 4 }, EBADF },
        /* Advice about nothing: the kernel says only whether it knows it. */
        { "MADV_DONTNEED", SYS_madvise, { 0, 0, 4 }, 0 },
        { "MADV_WIPEONFORK", SYS_madvise, { 0, 0, HIGH | 18 }, 0 },
        { "MADV_HUGEPAGE", SYS_madvise, { 0, 0, 14 }, ANY_BUT_FILTER },
        { "MADV_REMOVE", SYS_madvise, { 0, 0, 9 }, 0 },
        { "MADV_MERGEABLE", SYS_madvise, { 0, 0, 12 }, ANY_BUT_FILTER },
        { "MADV_COLD", SYS_madvise, { 0, 0, 20 }, 0 },
        { "MADV_PAGEOUT", SYS_madvise, { 0, 0, 21 }, 0 },
        { "MADV_PAGEOUT, rubbish above", SYS_madvise, { 0, 0, HIGH | 21 }, 0 },
        { "shmget", SYS_shmget, { 0, 0, 01600 }, EINVAL },
        { "SHM_HUGETLB", SYS_shmget, { 0, 0, HIGH | 05600 }, ENOMEM },
        { "semget", SYS_semget, { 0, 0, 01600 }, EINVAL },
        { "io_setup", SYS_io_setup, { 1, P(buffer) }, ENOSYS },
        { "get_mempolicy", SYS_get_mempolicy, { 0 }, ENOSYS },
    };

    (void)state;
    memset(buffer, 0, sizeof(buffer));
    expect_calls("seccomp-trusted.json", calls, ARRAY_SIZE(calls));
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        for (size_t k = 0; k < ARRAY_SIZE(in_default); k++)
            if (strcmp(calls[i].label, in_default[k].label) == 0)
                calls[i].want = in_default[k].errnum;
    expect_calls("seccomp-default.json", calls, ARRAY_SIZE(calls));
}

/* What may reach the kernel at all, with conditions or without, is a list that can be read. */
static void test_profiles_allow_few_calls(void **state)
{
    static const struct {
        const char *name;
        size_t most;
    } profiles[] = { { "seccomp-default.json", 246 }, { "seccomp-strict.json", 166 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
        bool is_allowed[1024] = { false };
        struct seccomp_rules rules;
        size_t n = 0;

        load_profile(profiles[i].name, &rules);
        for (size_t r = 0; r < rules.n_rules; r++)
            for (char **name = rules.rules[r].names; rules.rules[r].verdict == SECCOMP_ALLOW && *name; name++) {
                int nr = seccomp_syscall_resolve_name(*name);

                if (nr < 0) /* not on this architecture */
                    continue;
                assert_true(nr < (int)ARRAY_SIZE(is_allowed));
                n += !is_allowed[nr];
                is_allowed[nr] = true;
            }
        if (n < 100 || n > profiles[i].most)
            fail_msg("%s allows %zu calls, not 100 to %zu", profiles[i].name, n, profiles[i].most);
        hutch_seccomp_rules_done(&rules);
    }
}

static void test_kernel_strict(void **state)
{
    static char buffer[4096];
    const struct call calls[] = {
        { "getpid", SYS_getpid, { 0 }, 0 },
        { "create", SYS_openat, { AT, P("g"), O_CREAT | O_RDWR, 0644 }, 0 },
        { "create setuid", SYS_openat, { AT, P("h"), O_CREAT | O_RDWR, 04755 }, EPERM },
        { "AF_UNIX", SYS_socket, { AF_UNIX, SOCK_STREAM, 0 }, 0 },
        { "AF_INET", SYS_socket, { AF_INET, SOCK_STREAM, 0 }, EAFNOSUPPORT },
        { "AF_INET UDP-Lite", SYS_socket, { AF_INET, SOCK_DGRAM, 136 }, ANY_BUT_FILTER },
        { "AF_INET6", SYS_socket, { AF_INET6, SOCK_STREAM, 0 }, EAFNOSUPPORT },
        { "AF_NETLINK", SYS_socket, { AF_NETLINK, SOCK_RAW, 0 }, EAFNOSUPPORT },
        { "AF_VSOCK", SYS_socket, { 40, SOCK_STREAM, 0 }, EAFNOSUPPORT },
        { "mknodat FIFO", SYS_mknodat, { AT, P("fifo"), S_IFIFO | 0600, 0 }, EPERM },
        { "clone CLONE_NEWUSER", SYS_clone, { CLONE_NEWUSER | SIGCHLD }, EPERM },
        { "inotify", SYS_inotify_init1, { 0 }, ENOSYS },
        { "mq_open", SYS_mq_open, { P("x"), O_CREAT, 0600, 0 }, ENOSYS },
        { "memfd_create", SYS_memfd_create, { P("x"), 0 }, ENOSYS },
        { "setuid", SYS_setuid, { 0 }, ENOSYS },
        { "fsetxattr", SYS_fsetxattr, { 0, P("user.x"), P("y"), 1, 0 }, ENOSYS },
        { "personality", SYS_personality, { 0xffffffff }, ENOSYS },
        { "sched_setscheduler", SYS_sched_setscheduler, { 0, 3, P(buffer) }, EPERM },
        { "SCHED_OTHER by number", SYS_sched_setscheduler, { (uint64_t)getpid(), 0, P(buffer) }, 0 },
        { "MADV_PAGEOUT", SYS_madvise, { 0, 0, 21 }, EINVAL },
        { "seccomp", SYS_seccomp, { 0, 0, 0 }, EINVAL },
        { "ioctl TIOCSTI", SYS_ioctl, { 99, 0x5412, P(buffer) }, EPERM },
        { "ioctl SIOCGIFCONF", SYS_ioctl, { 99, 0x8912, P(buffer) }, ENOTTY },
        { "splice", SYS_splice, { 99, 0, 99, 0, 1 }, EINVAL },
        { "TCP_NODELAY", SYS_setsockopt, { ~0ul, 6, 1 }, ENOPROTOOPT },
        { "prctl PR_SET_SECCOMP", SYS_prctl, { PR_SET_SECCOMP, 0 }, EINVAL },
    };

    (void)state;
    expect_calls("seccomp-strict.json", calls, ARRAY_SIZE(calls));
}

static bool has_condition(const struct seccomp_rules *rules, int nr)
{
    struct about about;

    find_rules(rules, nr, &about);
    for (size_t i = 0; i < about.n; i++)
        if (about.rules[i]->n_args > 0)
            return true;
    return false;
}

/* Every call that a profile refuses whatever its arguments are, made for real: with null arguments, so that a hole in
 * the filter would do no harm. */
static void test_kernel_refuses_what_the_profiles_refuse(void **state)
{
    static const char *const names[] = { "seccomp-trusted.json", "seccomp-default.json", "seccomp-strict.json" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        auto_free struct call *calls = calloc(1024, sizeof(*calls));
        struct seccomp_rules rules;
        size_t n = 0;

        assert_non_null(calls);
        load_profile(names[i], &rules);
        for (size_t r = 0; r < rules.n_rules; r++)
            for (char **name = rules.rules[r].names; *name; name++) {
                int nr = seccomp_syscall_resolve_name(*name);

                if (rules.rules[r].verdict != SECCOMP_ERRNO || nr < 0 || has_condition(&rules, nr))
                    continue;
                if (strcmp(*name, "uretprobe") == 0)
                    continue; /* since Linux 6.14 no filter sees it, and a call that no trampoline makes is SIGILL */
                assert_true(n < 1024);
                calls[n++] = (struct call){ *name, nr, { 0 }, rules.rules[r].errnum };
            }
        assert_true(n > 80);
        expect_calls(names[i], calls, n);
        hutch_seccomp_rules_done(&rules);
    }
}

#if defined(__x86_64__)
static int signal_of_child(void (*body)(void), const char *profile)
{
    struct seccomp_program program;
    int status;
    pid_t pid;

    compile_profile(profile, &program);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        confine_or_die(&program);
        body();
        _exit(0);
    }
    hutch_seccomp_program_done(&program);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void call_getpid_as_i386(void)
{
    long result;

    __asm__ volatile("int $0x80" : "=a"(result) : "0"(20l) : "memory", "r8", "r9", "r10", "r11");
}

static void call_getpid_as_x32(void)
{
    syscall(0x40000000 | SYS_getpid);
}

static void test_kernel_kills_i386_calls(void **state)
{
    int sig = signal_of_child(call_getpid_as_i386, "seccomp-default.json");

    (void)state;
    if (sig == SIGSEGV)
        skip_because("this kernel has no 32-bit entry (CONFIG_IA32_EMULATION)");
    assert_int_equal(sig, SIGSYS);
}

static void test_kernel_kills_x32_calls(void **state)
{
    (void)state;
    assert_int_equal(signal_of_child(call_getpid_as_x32, "seccomp-default.json"), SIGSYS);
}
#endif

static void test_load_without_no_new_privs_says_why(void **state)
{
    struct seccomp_program program;
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() == 0)
        return; /* root may load a filter without it */
    compile_profile("seccomp-default.json", &program);
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hutch_err err;

        _exit(hutch_seccomp_load(&program, &err) < 0 && err.errnum == EACCES &&
              strstr(err.msg, "no_new_privs is not set") ? 0 : 1);
    }
    hutch_seccomp_program_done(&program);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_load_reports_what_the_kernel_refuses(void **state)
{
    struct sock_filter nothing[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0) }; /* does not return */
    struct seccomp_program program = { nothing, 1 };
    struct hutch_err err;
    int status;
    pid_t pid;

    (void)state;
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        _exit(hutch_seccomp_load(&program, &err) < 0 && err.errnum == EINVAL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_that_contradict_each_other_are_refused),
        cmocka_unit_test(test_rules_out_of_range_are_refused),
        cmocka_unit_test(test_program_answers_as_the_profiles_say),
        cmocka_unit_test(test_program_answers_as_small_rule_sets_say),
        cmocka_unit_test(test_program_answers_as_drawn_rules_say),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_withheld_calls),
        cmocka_unit_test(test_granted_calls),
        cmocka_unit_test(test_other_architectures_are_killed),
        cmocka_unit_test(test_strict_allows_nothing_that_default_does_not),
        cmocka_unit_test(test_profiles_name_every_call),
        cmocka_unit_test(test_kernel_trusted_default),
        cmocka_unit_test(test_profiles_allow_few_calls),
        cmocka_unit_test(test_kernel_strict),
        cmocka_unit_test(test_kernel_refuses_what_the_profiles_refuse),
#if defined(__x86_64__)
        cmocka_unit_test(test_kernel_kills_i386_calls),
        cmocka_unit_test(test_kernel_kills_x32_calls),
#endif
        cmocka_unit_test(test_load_without_no_new_privs_says_why),
        cmocka_unit_test(test_load_reports_what_the_kernel_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
