/* image_root.h - an image that is in use: its root tree, the layers over it, and what it wants in the environment. */
#ifndef HUTCH_IMAGE_ROOT_H
#define HUTCH_IMAGE_ROOT_H

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <stddef.h>
#include <stdlib.h>

struct image_root {
    char *path;                       /* owned; absolute */
    char *layers[SPEC_MAX_LAYERS];    /* owned; absolute, the lowest first */
    size_t n_layers;
    int lockfds[SPEC_MAX_LAYERS + 2]; /* owned; nothing of it is removed from a store of ours while they are open */
    size_t n_lockfds;
    char **env;                       /* owned; as in struct image_config; NULL: not read, or none */
};
#define IMAGE_ROOT_INIT { .path = NULL }

/* Frees; fine on IMAGE_ROOT_INIT, and twice. */
static inline void hutch_image_root_done(struct image_root *root)
{
    free(root->path);
    while (root->n_layers > 0)
        free(root->layers[--root->n_layers]);
    while (root->n_lockfds > 0)
        hutch_fd_closep(&root->lockfds[--root->n_lockfds]);
    for (char **e = root->env; e && *e; e++)
        free(*e);
    free(root->env);
    root->path = NULL;
    root->env = NULL;
}
#define auto_image_root __attribute__((cleanup(hutch_image_root_done))) struct image_root

#endif
