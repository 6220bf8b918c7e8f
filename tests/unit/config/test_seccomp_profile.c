/* Reading seccomp profiles: the OCI form, the form of docker's and podman's defaults, and every refusal with
 * its place. */
#include "runtime/config/seccomp_profile.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#if defined(__x86_64__)
#define NATIVE "SCMP_ARCH_X86_64"
#define NATIVE_GO "amd64"
#elif defined(__aarch64__)
#define NATIVE "SCMP_ARCH_AARCH64"
#define NATIVE_GO "arm64"
#else
#define NATIVE "SCMP_ARCH_RISCV64"
#define NATIVE_GO "riscv64"
#endif

/* ' stands for ". */
static int read_profile(const char *text, struct seccomp_rules *ret, struct hutch_err *err)
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

/* Which rule, in the order of the profile, names the call first; -1: none. */
static int rule_about(const struct seccomp_rules *rules, const char *call)
{
    for (size_t i = 0; i < rules->n_rules; i++)
        for (char **name = rules->rules[i].names; *name; name++)
            if (strcmp(*name, call) == 0)
                return (int)i;
    return -1;
}

static const struct seccomp_rule *need_rule(const struct seccomp_rules *rules, const char *call)
{
    int i = rule_about(rules, call);

    if (i < 0)
        fail_msg("no rule about '%s'", call);
    return &rules->rules[i < 0 ? 0 : i];
}

/* The layout of docker's default profile, with one rule of each kind that it has. */
static void test_docker_layout_without_capabilities(void **state)
{
    static const char text[] =
        "{'defaultAction':'SCMP_ACT_ERRNO','defaultErrnoRet':1,"
        "'archMap':["
        " {'architecture':'SCMP_ARCH_X86_64','subArchitectures':['SCMP_ARCH_X86','SCMP_ARCH_X32']},"
        " {'architecture':'SCMP_ARCH_AARCH64','subArchitectures':['SCMP_ARCH_ARM']},"
        " {'architecture':'SCMP_ARCH_RISCV64','subArchitectures':null}],"
        "'syscalls':["
        " {'names':['read','write','a_call_of_the_future'],'action':'SCMP_ACT_ALLOW'},"
        " {'names':['process_vm_readv','ptrace'],'action':'SCMP_ACT_ALLOW','includes':{'minKernel':'4.8'}},"
        " {'names':['io_uring_setup'],'action':'SCMP_ACT_ALLOW','includes':{'minKernel':'999.0'}},"
        " {'names':['socket'],'action':'SCMP_ACT_ALLOW','args':[{'index':0,'value':40,'op':'SCMP_CMP_NE'}]},"
        " {'names':['personality'],'action':'SCMP_ACT_ALLOW','args':[{'index':0,'value':0,'op':'SCMP_CMP_EQ'}]},"
        " {'names':['personality'],'action':'SCMP_ACT_ALLOW','args':[{'index':0,'value':4294967295,'op':'SCMP_CMP_EQ'}]"
        "},"
        " {'names':['arch_prctl'],'action':'SCMP_ACT_ALLOW','includes':{'arches':['" NATIVE_GO "','x32']}},"
        " {'names':['s390_pci_mmio_read'],'action':'SCMP_ACT_ALLOW','includes':{'arches':['s390','s390x']}},"
        " {'names':['open_by_handle_at'],'action':'SCMP_ACT_ALLOW','includes':{'caps':['CAP_DAC_READ_SEARCH']}},"
        " {'names':['mount','clone','clone3'],'action':'SCMP_ACT_ALLOW','includes':{'caps':['CAP_SYS_ADMIN']}},"
        " {'names':['clone'],'action':'SCMP_ACT_ALLOW',"
        "  'args':[{'index':0,'value':2114060288,'valueTwo':0,'op':'SCMP_CMP_MASKED_EQ'}],"
        "  'excludes':{'caps':['CAP_SYS_ADMIN'],'arches':['s390','s390x']}},"
        " {'names':['clone'],'action':'SCMP_ACT_ALLOW',"
        "  'args':[{'index':1,'value':2114060288,'valueTwo':0,'op':'SCMP_CMP_MASKED_EQ'}],"
        "  'comment':'s390 parameter ordering for clone is different',"
        "  'includes':{'arches':['s390','s390x']},'excludes':{'caps':['CAP_SYS_ADMIN']}},"
        " {'names':['clone3'],'action':'SCMP_ACT_ERRNO','errnoRet':38,'excludes':{'caps':['CAP_SYS_ADMIN']}}"
        "]}";
    struct seccomp_rules rules;
    struct seccomp_program program;
    const struct seccomp_rule *rule;
    struct hutch_err err;

    (void)state;
    if (read_profile(text, &rules, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(rules.default_verdict, SECCOMP_ERRNO);
    assert_int_equal(rules.default_errnum, 1);
    assert_int_equal(rules.n_rules, 8);
    assert_int_equal(need_rule(&rules, "ptrace")->verdict, SECCOMP_ALLOW);
    assert_int_equal(rule_about(&rules, "io_uring_setup"), -1);      /* this kernel is older */
    assert_int_equal(rule_about(&rules, "open_by_handle_at"), -1);   /* needs a capability */
    assert_int_equal(rule_about(&rules, "mount"), -1);
    assert_int_equal(rule_about(&rules, "s390_pci_mmio_read"), -1);
    assert_int_equal(need_rule(&rules, "arch_prctl")->n_args, 0);
    assert_int_equal(need_rule(&rules, "socket")->args[0].op, SECCOMP_OP_NE);
    rule = need_rule(&rules, "clone");
    assert_int_equal(rule->n_args, 1);
    assert_int_equal(rule->args[0].index, 0);
    assert_int_equal(rule->args[0].op, SECCOMP_OP_MASKED_EQ);
    assert_int_equal(rule->args[0].mask, 0x7e020000);
    assert_int_equal(rule->args[0].value, 0);
    rule = need_rule(&rules, "clone3");
    assert_int_equal(rule->verdict, SECCOMP_ERRNO);
    assert_int_equal(rule->errnum, 38);
    if (hutch_seccomp_compile(&rules, &program, &err) < 0)
        fail_msg("%s", err.msg);
    hutch_seccomp_program_done(&program);
    hutch_seccomp_rules_done(&rules);
}

/* linux.seccomp as engines write it into config.json. */
static void test_oci_form(void **state)
{
    static const char text[] =
        "{'defaultAction':'SCMP_ACT_KILL_PROCESS','architectures':['SCMP_ARCH_X86','" NATIVE "'],"
        "'flags':['SECCOMP_FILTER_FLAG_LOG'],"
        "'syscalls':[{'names':['read'],'action':'SCMP_ACT_ALLOW','args':[]},"
        " {'names':['getpid'],'action':'SCMP_ACT_LOG'},"
        " {'names':['reboot'],'action':'SCMP_ACT_ERRNO'},"
        " {'names':['mount'],'action':'SCMP_ACT_ERRNO','errnoRet':13},"
        " {'names':['bpf'],'action':'SCMP_ACT_KILL'},"
        " {'names':['lseek'],'action':'SCMP_ACT_ALLOW','args':[{'index':2,'value':3,'valueTwo':0,'op':'SCMP_CMP_LT'}]}]"
        "}";
    struct seccomp_rules rules;
    struct hutch_err err;

    (void)state;
    if (read_profile(text, &rules, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(rules.default_verdict, SECCOMP_KILL_PROCESS);
    assert_int_equal(rules.n_rules, 6);
    assert_int_equal(rules.rules[1].verdict, SECCOMP_LOG);
    assert_int_equal(rules.rules[2].errnum, 1); /* EPERM unless said otherwise */
    assert_int_equal(rules.rules[3].errnum, 13);
    assert_int_equal(rules.rules[4].verdict, SECCOMP_KILL_PROCESS);
    assert_int_equal(rules.rules[5].args[0].op, SECCOMP_OP_LT);
    assert_int_equal(rules.rules[5].args[0].value, 3);
    hutch_seccomp_rules_done(&rules);
}

/* podman names errors, and says both. */
static void test_podman_form(void **state)
{
    static const char text[] =
        "{'defaultAction':'SCMP_ACT_ERRNO','defaultErrnoRet':38,'defaultErrno':'ENOSYS',"
        "'syscalls':[{'names':['bdflush'],'action':'SCMP_ACT_ERRNO','args':[],'comment':'','includes':{},'excludes':{},"
        "'errnoRet':1,'errno':'EPERM'},"
        " {'name':'read','action':'SCMP_ACT_ALLOW','args':null,'includes':null}]}";
    struct seccomp_rules rules;
    struct hutch_err err;

    (void)state;
    if (read_profile(text, &rules, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(rules.default_errnum, 38);
    assert_int_equal(rules.rules[0].errnum, 1);
    assert_string_equal(rules.rules[1].names[0], "read");
    hutch_seccomp_rules_done(&rules);
}

#define WITH(text) "{'defaultAction':'SCMP_ACT_ERRNO'," text "}"
#define RULE(text) WITH("'syscalls':[{'names':['read'],'action':'SCMP_ACT_ALLOW'},{" text "}]")
#define ARG(text) RULE("'names':['write'],'action':'SCMP_ACT_ALLOW','args':[{" text "}]")

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "[]", "profile: at $: expected an object, got an array of 0" },
        { "{}", "profile: at $: the key \"defaultAction\" is missing" },
        { "{'defaultAction':'ALLOW'}", "profile: at $.defaultAction: expected SCMP_ACT_ALLOW, _ERRNO, _LOG, _KILL, "
                                       "_KILL_THREAD or _KILL_PROCESS, got \"ALLOW\"" },
        { "{'defaultAction':'SCMP_ACT_TRACE'}",
          "profile: at $.defaultAction: SCMP_ACT_TRACE is not supported: nobody would answer it" },
        { "{'defaultAction':'SCMP_ACT_ALLOW','defaultErrnoRet':1}",
          "profile: at $: a default error has a meaning with SCMP_ACT_ERRNO only" },
        { WITH("'defaultErrnoRet':0"), "profile: at $.defaultErrnoRet: expected a whole number 1..4095, got 0" },
        { WITH("'defaultErrnoRet':4096"), "profile: at $.defaultErrnoRet: expected a whole number 1..4095, got 4096" },
        { WITH("'defaultErrno':'NOPE'"),
          "profile: at $.defaultErrno: expected the name of an error such as \"EPERM\", got \"NOPE\"" },
        { WITH("'defaultErrnoRet':1,'defaultErrno':'ENOSYS'"), "profile: at $: error 1 and error ENOSYS differ" },
        { WITH("'syscals':[]"),
          "profile: at $.syscals: unknown key; known here: comment, defaultAction, defaultErrnoRet, "
          "defaultErrno, architectures, archMap, flags, listenerPath, listenerMetadata, syscalls" },
        { WITH("'architectures':['SCMP_ARCH_S390X']"), "profile: at $: the profile is not for this machine, " NATIVE },
        { WITH("'architectures':['x86']"),
          "profile: at $.architectures[0]: expected an architecture such as \"" NATIVE "\", got \"x86\"" },
        { WITH("'archMap':[{'architecture':'SCMP_ARCH_S390X','subArchitectures':['" NATIVE "']}]"),
          "profile: at $: the profile is not for this machine, " NATIVE },
        { WITH("'architectures':['" NATIVE "'],'archMap':[]"),
          "profile: at $.archMap: \"architectures\" is there as well; one of the two" },
        { WITH("'flags':['SECCOMP_FILTER_FLAG_BOGUS']"),
          "profile: at $.flags[0]: expected a filter flag such as "
          "\"SECCOMP_FILTER_FLAG_LOG\", got \"SECCOMP_FILTER_FLAG_BOGUS\"" },
        { WITH("'listenerPath':'/run/x'"), "profile: at $.listenerPath: notifications are not supported" },
        { RULE("'names':['write']"), "profile: at $.syscalls[1]: the key \"action\" is missing" },
        { RULE("'action':'SCMP_ACT_ALLOW'"), "profile: at $.syscalls[1]: the rule names no system call" },
        { RULE("'names':[],'action':'SCMP_ACT_ALLOW'"), "profile: at $.syscalls[1]: the rule names no system call" },
        { RULE("'names':['WRITE'],'action':'SCMP_ACT_ALLOW'"),
          "profile: at $.syscalls[1].names[0]: expected the name of a system call, got \"WRITE\"" },
        { RULE("'names':'write','action':'SCMP_ACT_ALLOW'"),
          "profile: at $.syscalls[1].names: expected an array, got \"write\"" },
        { RULE("'names':['write'],'action':'SCMP_ACT_NOTIFY'"),
          "profile: at $.syscalls[1].action: SCMP_ACT_NOTIFY is not supported: nobody would answer it" },
        { RULE("'names':['write'],'action':'SCMP_ACT_ALLOW','errnoRet':1"),
          "profile: at $.syscalls[1]: an error number has a meaning with SCMP_ACT_ERRNO only" },
        { RULE("'names':['write'],'action':'SCMP_ACT_ERRNO','errnoRet':1,'errno':'EACCES'"),
          "profile: at $.syscalls[1]: error 1 and error EACCES differ" },
        { RULE("'names':['write'],'action':'SCMP_ACT_ALLOW','include':{}"),
          "profile: at $.syscalls[1].include: unknown key; known here: names, name, action, errnoRet, errno, args, "
          "comment, "
          "includes, excludes" },
        { RULE("'names':['write'],'action':'SCMP_ACT_ALLOW','includes':{'cap':[]}"),
          "profile: at $.syscalls[1].includes.cap: unknown key; known here: caps, arches, minKernel" },
        { RULE("'names':['write'],'action':'SCMP_ACT_ALLOW','includes':{'caps':['SYS_ADMIN']}"),
          "profile: at $.syscalls[1].includes.caps[0]: expected the name of a capability such as \"CAP_SYS_ADMIN\", "
          "got \"SYS_ADMIN\"" },
        { RULE("'names':['write'],'action':'SCMP_ACT_ALLOW','includes':{'minKernel':'new'}"),
          "profile: at $.syscalls[1].includes.minKernel: expected a kernel version such as \"4.8\", got \"new\"" },
        { ARG("'value':0,'op':'SCMP_CMP_EQ'"), "profile: at $.syscalls[1].args[0]: the key \"index\" is missing" },
        { ARG("'index':0,'op':'SCMP_CMP_EQ'"), "profile: at $.syscalls[1].args[0]: the key \"value\" is missing" },
        { ARG("'index':6,'value':0,'op':'SCMP_CMP_EQ'"),
          "profile: at $.syscalls[1].args[0].index: expected a whole number 0..5, got 6" },
        { ARG("'index':0,'value':-1,'op':'SCMP_CMP_EQ'"),
          "profile: at $.syscalls[1].args[0].value: expected a whole number 0..9007199254740992, got -1" },
        /* a double cannot hold it, and a rounded mask would be another mask */
        { ARG("'index':0,'value':18446744073709551615,'op':'SCMP_CMP_EQ'"),
          "profile: at $.syscalls[1].args[0].value: expected a whole number 0..9007199254740992, got "
          "1.8446744073709552e+19" },
        { ARG("'index':0,'value':0,'op':'EQ'"),
          "profile: at $.syscalls[1].args[0].op: expected SCMP_CMP_NE, _LT, _LE, _EQ, _GE, "
          "_GT or _MASKED_EQ, got \"EQ\"" },
        { ARG("'index':0,'value':1,'valueTwo':1,'op':'SCMP_CMP_EQ'"),
          "profile: at $.syscalls[1].args[0]: valueTwo has a meaning with SCMP_CMP_MASKED_EQ only" },
        { ARG("'index':0,'value':1,'valueTwo':2,'op':'SCMP_CMP_MASKED_EQ'"),
          "profile: seccomp rule 1: value 0x2 has bits outside of its mask 0x1, so it never holds" },
        { RULE("'names':['read'],'action':'SCMP_ACT_ALLOW','args':[{'index':0,'value':1,'op':'SCMP_CMP_EQ'}]"),
          "profile: seccomp rules 0 and 1: call 'read' is named with and without a condition, so the condition has no "
          "effect" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct seccomp_rules rules = { 0 };
        struct hutch_err err = { .msg = "" };
        int rc = read_profile(cases[i].text, &rules, &err);

        if (rc != -1 || strcmp(err.msg, cases[i].want) != 0)
            fail_msg("%s:\n  got %d '%s'\n  wanted '%s'", cases[i].text, rc, err.msg, cases[i].want);
        assert_null(rules.rules);
    }
}

/* The shipped profiles explain themselves. */
static void test_every_group_of_a_shipped_profile_has_a_reason(void **state)
{
    static const char *const names[] = { "seccomp-default.json", "seccomp-strict.json" };
    const char *dir = getenv("HUTCH_POLICY_DIR");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct seccomp_rules rules;
        struct hutch_err err;
        auto_free char *text = NULL;
        char path[512];
        size_t len, reasons = 0, actions = 0;

        snprintf(path, sizeof(path), "%s/%s", dir && *dir ? dir : "policies", names[i]);
        if (hutch_seccomp_profile_load(path, &rules, &err) < 0 ||
            hutch_fd_slurp_path(path, 1 << 20, &text, &len, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(rules.default_verdict, SECCOMP_ERRNO);
        assert_int_equal(rules.default_errnum, 38);
        for (const char *at = text; (at = strstr(at, "\"comment\": \"")); at++)
            reasons++;
        for (const char *at = text; (at = strstr(at, "\"action\": \"")); at++)
            actions++;
        assert_int_equal(reasons, actions + 1); /* one for the whole */
        hutch_seccomp_rules_done(&rules);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_docker_layout_without_capabilities),
        cmocka_unit_test(test_oci_form),
        cmocka_unit_test(test_podman_form),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_group_of_a_shipped_profile_has_a_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
