/* seccomp_load.c - the half of seccomp.h that a worker needs, without libseccomp, which an image may not have. */
#include "sandbox/seccomp.h"

#include "sandbox/fd.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

int hutch_seccomp_load(const struct seccomp_program *program, struct hutch_err *err)
{
    struct sock_fprog prog = { .len = (unsigned short)program->n_insns, .filter = program->insns };

    /* seccomp(2) itself and not seccomp_load(3): the library allocates, and we may be after clone(2). */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0)
        return 0;
    if (errno == EACCES)
        return hutch_err_set(err, EACCES, "load the seccomp filter (no_new_privs is not set)");
    if (errno == EINVAL || errno == ENOSYS)
        return hutch_err_set(err, errno, "load the seccomp filter (is the kernel built with CONFIG_SECCOMP_FILTER?)");
    return hutch_err_set(err, errno, "load the seccomp filter of %zu instructions", program->n_insns);
}
