/* cdi.h - a specification of the Container Device Interface: which nodes and files a device takes.
 * Source: https://github.com/cncf-tags/container-device-interface, SPEC.md. Read from JSON, or from YAML as nvidia-ctk
 * writes it. */
#ifndef HUTCH_GPU_CDI_H
#define HUTCH_GPU_CDI_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CDI_MAX_BYTES (4u << 20)
#define CDI_MAX_EDITS 4096 /* nodes and mounts of all devices together */
#define CDI_MAX_PATH 1024

/* What is in it is not checked but for its form: a caller takes what it knows. */
struct cdi_edit {
    char *path;   /* owned; the host's, absolute */
    bool is_node; /* a device node; else a file or directory that is mounted */
};

struct cdi_spec {
    char *kind; /* owned; "nvidia.com/gpu" */
    struct cdi_edit *edits; /* owned; of the whole, and of the device "all", or of all where none has that name */
    size_t n;
    size_t n_others; /* variables, hooks and the like, of which nothing is done */
};
#define CDI_SPEC_INIT { .kind = NULL }

/* Messages call the text @what. YAML unless it begins with a '{'. Errors: 0, ENOMEM. */
int hutch_cdi_parse(const char *what, const char *text, size_t len, struct cdi_spec *ret, struct hutch_err *err);
void hutch_cdi_done(struct cdi_spec *spec);

#endif
