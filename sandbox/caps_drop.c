/* caps_drop.c - the half of caps.h that a worker needs, by the system calls: a worker that a zygote forks has the
 * image's libraries, and libcap may not be among them. */
#include "sandbox/caps.h"

#include "sandbox/fd.h"

#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define SETS 2 /* _LINUX_CAPABILITY_U32S_3 */

/* Only permitted, effective, inheritable and ambient. */
static int drop_own(struct hutch_err *err)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    const struct __user_cap_data_struct none[SETS] = { { 0 } };

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL) /* not before Linux 4.3 */
        return hutch_err_set(err, errno, "empty the ambient capability set");
    if (syscall(SYS_capset, &header, none) < 0)
        return hutch_err_set(err, errno, "empty the permitted, effective and inheritable capability sets");
    return 0;
}

static bool may_change_bounds(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct own[SETS] = { { 0 } };

    return syscall(SYS_capget, &header, own) == 0 &&
           (own[CAP_TO_INDEX(CAP_SETPCAP)].effective & CAP_TO_MASK(CAP_SETPCAP));
}

int hutch_caps_drop_all(struct hutch_err *err)
{
    /* The bounding set and the secure bits first: changing them needs CAP_SETPCAP, which goes with the rest. A worker
     * that was forked from a process without capabilities can do neither, and has nothing left to lose. */
    if (may_change_bounds()) {
        int cap = 0;

        while (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
            cap++;
        if (errno != EINVAL) /* the first that this kernel does not know */
            return hutch_err_set(err, errno, "drop capability %d from the bounding set", cap);
        /* SECBIT_KEEP_CAPS is off and not locked: setpriv(1) and Go's tests set it by PR_SET_KEEPCAPS, and fail where
         * they cannot. It keeps what a process has when it changes its uid, which is nothing; execve(2) clears it. */
        if (prctl(PR_SET_SECUREBITS,
                  SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                      SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
                  0, 0, 0) < 0)
            return hutch_err_set(err, errno, "lock the secure bits");
    }
    if (prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0)
        return hutch_err_set(err, 0, "the capability bounding set is not empty and cannot be emptied");
    return drop_own(err);
}
