/* test_seccomp_shrink.c - a shorter program answers as the longer one did. That real policies' programs answer as their
 * rules say is test_seccomp.c's part, which sees them shortened; here are programs of every shape, made by chance. */
#include "sandbox/seccomp.h"
#include "sandbox/seccomp_shrink.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NATIVE AUDIT_ARCH_X86_64 /* nothing here asks the kernel */
#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static uint32_t interpret(const struct seccomp_program *program, const struct seccomp_data *data)
{
    uint32_t a = 0;

    for (size_t pc = 0; pc < program->n_insns;) {
        const struct sock_filter *insn = &program->insns[pc++];
        bool is_true = false;

        switch (insn->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(insn->k % 4 == 0 && insn->k < sizeof(*data));
            memcpy(&a, (const char *)data + insn->k, sizeof(a));
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= insn->k;
            continue;
        case BPF_RET | BPF_K:
            return insn->k;
        case BPF_JMP | BPF_JA:
            pc += insn->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            is_true = a == insn->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            is_true = a > insn->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            is_true = a >= insn->k;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            is_true = a & insn->k;
            break;
        default:
            fail_msg("instruction %#x", insn->code);
        }
        pc += is_true ? insn->jt : insn->jf;
    }
    fail_msg("ran past the end of %zu instructions", program->n_insns);
    return 0;
}

/* A generator whose numbers are the same everywhere. */
static uint32_t next_random(uint32_t *state, uint32_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state % below;
}

static uint32_t some_constant(uint32_t *state)
{
    static const uint32_t odd[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x40000000 };

    return next_random(state, 4) ? next_random(state, 24) : odd[next_random(state, LENGTH(odd))];
}

static struct seccomp_program copy_of(const struct sock_filter *insns, size_t n)
{
    struct seccomp_program ret = { malloc(n * sizeof(*insns)), n };

    assert_non_null(ret.insns);
    memcpy(ret.insns, insns, n * sizeof(*insns));
    return ret;
}

/* Calls and arguments around whatever @program compares with. */
static void compare_answers(const struct seccomp_program *program, const struct seccomp_program *shorter,
                            unsigned times, uint32_t *state)
{
    for (unsigned i = 0; i < times; i++) {
        static const uint32_t archs[] = { NATIVE, NATIVE, NATIVE, AUDIT_ARCH_I386, 0 };
        struct seccomp_data data = { .arch = archs[next_random(state, LENGTH(archs))] };
        uint32_t want, got;

        data.nr = (int)(program->insns[next_random(state, (uint32_t)program->n_insns)].k + next_random(state, 3) - 1);
        for (size_t j = 0; j < LENGTH(data.args); j++) {
            uint32_t low = program->insns[next_random(state, (uint32_t)program->n_insns)].k + next_random(state, 3) - 1;

            data.args[j] = (uint64_t)(next_random(state, 3) ? 0 : some_constant(state)) << 32 | low;
        }
        want = interpret(program, &data);
        got = interpret(shorter, &data);
        if (want != got)
            fail_msg("call %#x of %#x (%#llx, %#llx, …): %#x was %#x", (unsigned)data.nr, data.arch,
                     (unsigned long long)data.args[0], (unsigned long long)data.args[1], got, want);
    }
}

/* Any instructions at all behind what every filter begins with, with jumps that stay inside and an answer at the
 * end. */
static size_t make_program(struct sock_filter *insns, size_t n, bool is_orderly, uint32_t *state)
{
    static const uint32_t answers[] = { SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | 1, SECCOMP_RET_ERRNO | 38,
                                        SECCOMP_RET_KILL_PROCESS };
    static const uint16_t tests[] = { BPF_JEQ, BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET };
    size_t i = 0;

    insns[i++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    insns[i++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0);
    insns[i++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    insns[i++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; i + 4 < n; i++) {
        uint32_t left = (uint32_t)(n - i - 4), reach = left < 30 ? left + 1 : 30, kind = next_random(state, 20);

        if (kind < 3)
            insns[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16 + 4 * next_random(state, 12));
        else if (kind < 4 && !is_orderly)
            insns[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4 * next_random(state, 2));
        else if (kind < 5)
            insns[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
        else if (kind < 7 && !is_orderly)
            insns[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, some_constant(state));
        else if (kind < 8)
            insns[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answers[next_random(state, LENGTH(answers))]);
        else if (kind < 9)
            insns[i] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, next_random(state, reach));
        else
            insns[i] = (struct sock_filter)BPF_JUMP(
                (uint16_t)(BPF_JMP | BPF_K | tests[next_random(state, is_orderly ? 4 : LENGTH(tests))]),
                some_constant(state), (uint8_t)next_random(state, reach), (uint8_t)next_random(state, reach));
    }
    for (size_t j = 0; j < LENGTH(answers); j++, i++)
        insns[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answers[j]);
    return i;
}

static void test_chance(void **state)
{
    struct sock_filter insns[600];
    unsigned shortened = 0, tried = 0;
    uint32_t chance = 1;

    (void)state;
    for (; tried < 3000; tried++) {
        size_t n = make_program(insns, 12 + next_random(&chance, tried % 10 ? 60 : 580), tried % 2, &chance);
        struct seccomp_program old = { insns, n }, new = copy_of(insns, n);

        hutch_seccomp_shrink(&new);
        shortened += new.n_insns < old.n_insns;
        compare_answers(&old, &new, 300, &chance);
        hutch_seccomp_program_done(&new);
    }
    if (shortened < tried / 4)
        fail_msg("%u of %u programs were shortened", shortened, tried);
}

/* Up to so many stretches and tests that jumps reach further than a conditional one can, and every length before
 * that. */
static void test_far_jumps(void **state)
{
    struct sock_filter insns[4000];
    uint32_t chance = 7;

    (void)state;
    for (uint32_t calls = 20; calls < 400; calls++) {
        struct seccomp_program old = { insns, 0 }, new;
        size_t n = 0;

        insns[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
        insns[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0);
        insns[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        for (uint32_t nr = 0; nr < calls; nr++) {
            insns[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
            insns[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 5);
            insns[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16 + 8 * (nr % 3));
            insns[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr * 7, 0, 1);
            insns[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, nr % 5 ? SECCOMP_RET_ALLOW : SECCOMP_RET_LOG);
            insns[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, nr * 9, 0, 1);
            insns[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (nr % 50));
        }
        insns[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 38);
        old.n_insns = n;
        new = copy_of(insns, n);
        hutch_seccomp_shrink(&new);
        assert_true(new.n_insns < n);
        compare_answers(&old, &new, 4000, &chance);
        hutch_seccomp_program_done(&new);
    }
}

/* What can be said of a comparison when some bits are known to be zero. */
static void test_foresight(void **state)
{
    static const uint32_t numbers[] = { 0, 1, 2, 3, 4, 5, 6, 7, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff };
    static const uint16_t tests[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET };

    (void)state;
    for (size_t test = 0; test < LENGTH(tests); test++)
        for (size_t mask = 0; mask < LENGTH(numbers); mask++)
            for (size_t value = 0; value < LENGTH(numbers); value++) {
                struct sock_filter insns[] = {
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 5),
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16),
                    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, numbers[mask]),
                    BPF_JUMP((uint16_t)(BPF_JMP | BPF_K | tests[test]), numbers[value], 1, 0),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                    /* Something to save, or nothing would be changed. */
                    BPF_STMT(BPF_RET | BPF_K, 1), BPF_STMT(BPF_RET | BPF_K, 2), BPF_STMT(BPF_RET | BPF_K, 3),
                    BPF_STMT(BPF_RET | BPF_K, 4), BPF_STMT(BPF_RET | BPF_K, 5), BPF_STMT(BPF_RET | BPF_K, 6),
                };
                struct seccomp_program old = { insns, LENGTH(insns) }, new = copy_of(insns, LENGTH(insns));

                hutch_seccomp_shrink(&new);
                if (new.n_insns >= LENGTH(insns))
                    fail_msg("test %#x with %#x & %#x was not shortened", tests[test], numbers[value], numbers[mask]);
                for (size_t i = 0; i < LENGTH(numbers); i++) {
                    struct seccomp_data data = { .arch = NATIVE, .nr = 1, .args = { numbers[i] } };

                    if (interpret(&old, &data) != interpret(&new, &data))
                        fail_msg("test %#x of %#x & %#x with %#x", tests[test], numbers[i], numbers[mask],
                                 numbers[value]);
                }
                hutch_seccomp_program_done(&new);
            }
}

/* What it does not know it leaves alone. */
static void test_leaves_alone(void **state)
{
    static const struct {
        const char *label;
        struct sock_filter insn;
    } cases[] = {
        { "an unknown instruction", BPF_STMT(BPF_ALU | BPF_OR | BPF_K, 1) },
        { "arithmetic with the number", BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 1) },
        { "bits of the number", BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 0) },
        { "a jump past the end", BPF_STMT(BPF_JMP | BPF_JA, 1000) },
        { "a comparison with X", BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 0) },
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct sock_filter insns[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            cases[i].insn,
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 3, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 38),
        };
        struct seccomp_program program = copy_of(insns, LENGTH(insns));

        hutch_seccomp_shrink(&program);
        if (program.n_insns != LENGTH(insns) || memcmp(program.insns, insns, sizeof(insns)) != 0)
            fail_msg("%s: the program was changed", cases[i].label);
        hutch_seccomp_program_done(&program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_far_jumps),
        cmocka_unit_test(test_foresight),
        cmocka_unit_test(test_leaves_alone),
    };

    return cmocka_run_group_tests_name("seccomp_shrink", tests, NULL, NULL);
}
