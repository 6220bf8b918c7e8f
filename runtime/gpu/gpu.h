/* gpu.h - NVIDIA's GPUs of this host for a sandbox: device nodes, and the files of the driver that goes with them.
 *
 * They are found as NVIDIA's container toolkit finds them. A specification of the Container Device Interface in
 * /var/run/cdi or /etc/cdi whose kind is nvidia.com/gpu says all. Without one the nodes are those in /dev, and the
 * libraries those of the driver's version in ld.so.cache, else in the directories where distributions put them. The
 * node for the modes of displays (nvidia-modeset) is taken only where that is asked for.
 *
 * Inside, the nodes are in /dev, and the files in GPU_DIR, which LD_LIBRARY_PATH and PATH then name: the image is as it
 * was, and no ldconfig is run in it. */
#ifndef HUTCH_GPU_GPU_H
#define HUTCH_GPU_GPU_H

#include "sandbox/err.h"
#include "sandbox/inside.h"

#define GPU_DIR INSIDE_OWN_DIR "/gpu"

struct sandbox_spec;

/* Finds what spec->gpu asks for, adds it to the mounts, the filter and the environment, and sets spec->gpu_found. With
 * GPU_NONE nothing is done. @root: where the driver is, as with nvidia-ctk's --driver-root; NULL or "": "/". With
 * another root, nodes may be files, which stand in for them. Errors: 0 where there is no GPU, no driver, or one that
 * everybody may not use; what is wrong with the files that say what there is. */
int hutch_gpu_add(struct sandbox_spec *spec, const char *root, struct hutch_err *err);

/* Puts GPU_DIR before what LD_LIBRARY_PATH has and behind what PATH has: once more, when the environment was changed
 * since. With GPU_NONE nothing is done. */
int hutch_gpu_set_environment(struct sandbox_spec *spec, struct hutch_err *err);

#endif
