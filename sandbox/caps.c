#include "sandbox/caps.h"

#include <sys/capability.h>

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
