#include "caps.h"

#include "fd.h"

#include <linux/securebits.h>
#include <sys/capability.h>
#include <sys/prctl.h>

bool hutch_caps_has_effective(int cap)
{
    cap_t caps = cap_get_proc();
    cap_flag_value_t value = CAP_CLEAR;

    if (caps) {
        cap_get_flag(caps, cap, CAP_EFFECTIVE, &value);
        cap_free(caps);
    }
    return value == CAP_SET;
}

/* Only permitted, effective, inheritable and ambient. */
static int drop_own(struct hutch_err *err)
{
    cap_t none;
    int rc;

    if (cap_reset_ambient() < 0 && errno != EINVAL) /* EINVAL: a kernel before 4.3 has no ambient set */
        return hutch_err_set(err, errno, "empty the ambient capability set");
    none = cap_init();
    if (!none)
        return hutch_err_set(err, errno, "prepare an empty capability set");
    rc = cap_set_proc(none);
    cap_free(none);
    if (rc < 0)
        return hutch_err_set(err, errno, "empty the permitted, effective and inheritable capability sets");
    return 0;
}

int hutch_caps_drop_all(struct hutch_err *err)
{
    /* The bounding set and the secure bits first: changing them needs CAP_SETPCAP, which goes with the rest. A worker
     * that was forked from a process without capabilities can do neither, and has nothing left to lose. */
    if (hutch_caps_has_effective(CAP_SETPCAP)) {
        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
            if (cap_drop_bound(cap) < 0)
                return hutch_err_set(err, errno, "drop capability %d from the bounding set", cap);
        if (prctl(PR_SET_SECUREBITS,
                  SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                      SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
                  0, 0, 0) < 0)
            return hutch_err_set(err, errno, "lock the secure bits");
    }
    if (prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0)
        return hutch_err_set(err, 0, "the capability bounding set is not empty and cannot be emptied");
    return drop_own(err);
}
