/* oci_config.h - a sandbox as config.json, from which an OCI runtime (runc, crun) makes a container with the same
 * namespaces, mounts, limits and system call filter. Source: OCI runtime-spec 1.0.2, config.md and config-linux.md.
 *
 * What config.json has no word for is in oci_gaps.h. */
#ifndef HUTCH_CONFIG_OCI_CONFIG_H
#define HUTCH_CONFIG_OCI_CONFIG_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sandbox_mount;
struct sandbox_spec;

#define OCI_CONFIG_FILE "config.json"
#define OCI_FILES_DIR   "files" /* in the bundle: OCI_FILES_DIR "/run/x" is the spec's file /run/x */

/* Host ids. The runtime is the user namespace's uid 0: it builds the container, and has to reach the root tree. */
struct oci_ids {
    uid_t runtime_uid;
    gid_t runtime_gid;
    uid_t uid; /* behind uid_inside, where the program runs: another than the runtime's */
    gid_t gid;
};

/* @root_path: root.path, absolute or as of the bundle. The caller frees *ret_json. Errors: ENOMEM, and a sentence for
 * what the spec has and config.json cannot say. */
int hutch_oci_config_make(const struct sandbox_spec *spec, const struct oci_ids *ids, const char *root_path,
                          char **ret_json, struct hutch_err *err);

/* Whether mount @i of the spec is a directory below OCI_FILES_DIR, as files of the spec are in it. */
bool hutch_oci_config_has_files(const struct sandbox_spec *spec, size_t i);

#endif
