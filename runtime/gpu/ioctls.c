#include "runtime/gpu/ioctls.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of NVIDIA's open-gpu-kernel-modules: nv-ioctl-numbers.h, uvm_ioctl.h, uvm_linux_ioctl.h, nvkms-ioctl.h. */
static const struct { uint32_t mask, value; enum sandbox_gpu least; } numbers[] = {
    { 0xc000ff00, 0xc0004600, GPU_COMPUTE }, /* _IOWR('F', …): nvidia.ko. Those of frame buffers are no IOWR */
    { 0xffffff00, 0x00000000, GPU_COMPUTE }, /* nvidia-uvm.ko counts from 1, without a type. Of others' FIBMAP is here,
                                              * which takes a capability, and FIGETBSZ, a size */
    { 0xffffffff, 0x000007ff, GPU_COMPUTE }, /* UVM_IS_8_SUPPORTED */
    { 0xfffffffc, 0x30000000, GPU_COMPUTE }, /* UVM_INITIALIZE, UVM_DEINITIALIZE */
    { 0xc000ff00, 0xc0006d00, GPU_MODESET }, /* _IOWR('m', …): nvidia-modeset.ko */
};

static bool is_about_ioctl(const struct seccomp_rule *rule)
{
    for (char **name = rule->names; name && *name; name++)
        if (strcmp(*name, "ioctl") == 0)
            return true;
    return false;
}

static int add_rule(struct seccomp_rules *rules, uint32_t mask, uint32_t value, struct hutch_err *err)
{
    struct seccomp_rule *grown = reallocarray(rules->rules, rules->n_rules + 1, sizeof(*grown));
    const struct seccomp_arg number = { .index = 1, .op = SECCOMP_OP_MASKED_EQ, .mask = mask, .value = value };
    struct seccomp_rule rule = { .verdict = SECCOMP_ALLOW };

    if (!grown)
        return hutch_err_set(err, ENOMEM, "let a GPU's driver be asked");
    rules->rules = grown;
    if (hutch_seccomp_rule_add_arg(&rule, &number, err) < 0 ||
        hutch_spec_set_list(&rule.names, (const char *[]){ "ioctl" }, 1, err) < 0) {
        hutch_seccomp_rule_done(&rule);
        return -1;
    }
    rules->rules[rules->n_rules++] = rule;
    return 0;
}

int hutch_gpu_allow_ioctls(struct sandbox_spec *spec, struct hutch_err *err)
{
    struct seccomp_rules *rules = &spec->seccomp;
    bool has_condition = false, has_refusal = false;

    if (spec->layers[LAYER_SECCOMP] == NEED_OFF || rules->default_verdict == SECCOMP_ALLOW)
        return 0;
    for (size_t i = 0; i < rules->n_rules; i++) {
        const struct seccomp_rule *rule = &rules->rules[i];

        if (!is_about_ioctl(rule))
            continue;
        has_condition |= rule->n_args > 0;
        has_refusal |= rule->n_args == 0 && (rule->verdict == SECCOMP_ERRNO || rule->verdict == SECCOMP_KILL_PROCESS);
        if (rule->n_args == 0 && (rule->verdict == SECCOMP_ALLOW || rule->verdict == SECCOMP_LOG))
            return 0;
    }
    if (has_refusal && !has_condition)
        return hutch_err_set(err, 0, "the policy's seccomp profile forbids every ioctl, and a GPU's driver is asked by "
                                     "ioctl");
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (spec->gpu >= numbers[i].least && add_rule(rules, numbers[i].mask, numbers[i].value, err) < 0)
            return -1;
    return 0;
}
