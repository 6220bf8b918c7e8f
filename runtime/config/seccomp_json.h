/* seccomp_json.h - struct seccomp_rules as linux.seccomp of an OCI config: the way back of seccomp_profile.h. */
#ifndef HUTCH_CONFIG_SECCOMP_JSON_H
#define HUTCH_CONFIG_SECCOMP_JSON_H

#include "sandbox/seccomp.h"

struct cJSON;

/* The rules, those withheld and granted among them, for this machine's architecture: every other one's calls end the
 * caller. The caller frees it. NULL on ENOMEM. */
struct cJSON *hutch_seccomp_json_make(const struct seccomp_rules *rules);

#endif
