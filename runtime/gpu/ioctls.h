/* ioctls.h - the numbers of NVIDIA's drivers in the system call filter. */
#ifndef HUTCH_GPU_IOCTLS_H
#define HUTCH_GPU_IOCTLS_H

#include "sandbox/err.h"

struct sandbox_spec;

/* Adds to the spec's filter what programs ask nvidia.ko, nvidia-uvm.ko and, with GPU_MODESET, nvidia-modeset.ko for. A
 * filter knows numbers and no files: which files they reach is Landlock's, from Linux 6.10 on. Nothing is added where
 * the filter lets every ioctl(2) through. Errors: ENOMEM; 0 where it forbids every one. */
int hutch_gpu_allow_ioctls(struct sandbox_spec *spec, struct hutch_err *err);

#endif
