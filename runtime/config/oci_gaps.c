#include "runtime/config/oci_gaps.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

int hutch_oci_gaps_refuse(const struct sandbox_spec *spec, struct hutch_err *err)
{
    static const enum sandbox_layer unknown[] = { LAYER_LANDLOCK, LAYER_OWN_UID, LAYER_OWN_INODES };

    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
        if (spec->layers[unknown[i]] == NEED_REQUIRE)
            return hutch_err_set(err, 0, "the policy requires '%s', and an OCI config has no word for it: take a "
                                         "policy that only tries it", hutch_layer_name(unknown[i]));
    if (spec->data_place == DATA_DISK)
        return hutch_err_set(err, 0, "the policy has \"data_place\": \"disk\", and a bundle's data directory is in "
                                     "memory, where its size is bounded: take a policy with \"auto\" or \"memory\"");
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (m->kind == MOUNT_BIND && m->tree_fd >= 0)
            return hutch_err_set(err, 0, "an OCI config cannot name what is mounted on '%s'", m->target);
        if (m->kind == MOUNT_BIND && !(m->flags & MOUNT_RDONLY))
            return hutch_err_set(err, 0, "the policy's mount '%s' can be written, and an OCI config cannot say that "
                                         "what is written belongs to the owner of '%s': make it \"readonly\": true",
                                 m->target, m->source);
        if (m->kind == MOUNT_SYMLINK)
            return hutch_err_set(err, 0, "an OCI config cannot say that '%s' is a link", m->target);
    }
    return 0;
}

/* --- what is lost ----------------------------------------------------------------------------------------------- */

static const struct { enum sandbox_limit limit; const char *what; } limits[] = {
    { LIMIT_MEMORY, "counted by the runtime's cgroup alone, which not every user has; without one each process has "
                    "RLIMIT_DATA, and nothing counts them together" },
    { LIMIT_PIDS, "counted by the runtime's cgroup, and for the program's user by RLIMIT_NPROC" },
    { LIMIT_CPUS, "by the runtime's cgroup alone; without one the program has all CPUs" },
    { LIMIT_CPU_TIME, "RLIMIT_CPU of each process; nothing counts them together" },
    { LIMIT_WALL, "nothing ends the program when its time is over" },
    { LIMIT_OUTPUT, "nothing bounds what the program prints" },
};

static const struct { enum sandbox_layer layer; const char *what; } layers[] = {
    { LAYER_LANDLOCK, "no second opinion on file access: the mounts alone decide" },
    { LAYER_CGROUP, "a runtime that is told not to use cgroups applies none of their limits" },
    { LAYER_OWN_UID, "all containers of the bundle have the same id of the host" },
    { LAYER_OWN_INODES, "locks on the image's files are those of other containers, too" },
};

static const struct { const char *name, *what; } always[] = {
    { "data", "/mnt/data is in memory, counts as such, and goes with the container" },
    { "dev", "the runtime makes /dev, with a tty, and its devices' mounts can be written" },
    { "meminfo", "/proc/meminfo is the host's" },
    { "init", "the program is process 1: it reaps its own orphans, and signals without a handler do not end it" },
    { "result", "no verdict, no usage: the exit status is all that there is" },
};

void hutch_oci_gaps_each(const struct sandbox_spec *spec, oci_gap_fn *each, void *ctx)
{
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (spec->limits[limits[i].limit])
            each(ctx, hutch_limit_name(limits[i].limit), limits[i].what);
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        if (spec->layers[layers[i].layer] != NEED_OFF)
            each(ctx, hutch_layer_name(layers[i].layer), layers[i].what);
    if (spec->layers[LAYER_SECCOMP] != NEED_OFF)
        each(ctx, "seccomp", "a call of another architecture may end the thread that makes it, where hutch ends the "
                             "process; an argument that no rule is about is answered by the profile's default error");
    for (size_t i = 0; i < ARRAY_SIZE(always); i++)
        each(ctx, always[i].name, always[i].what);
}
