/* probes.h - the probes behind the table of checks. Each runs in a child that is thrown away, so none cleans up
 * what dies with a process: descriptors, namespaces, detached mounts. */
#ifndef HUTCH_DOCTOR_PROBES_H
#define HUTCH_DOCTOR_PROBES_H

#include "runtime/doctor/doctor.h"

/* What to type so that the kernel starts with @option: text of a literal, with what its conversions stand for. */
#define DOCTOR_BOOT_WITH(option) \
    "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&" option " /' /etc/default/grub && sudo update-grub && sudo reboot"

/* runtime/doctor/kernel.c: namespaces, filters, calls */
doctor_probe_fn hutch_probe_identity, hutch_probe_user_ns, hutch_probe_id_maps, hutch_probe_pid_ns, hutch_probe_net_ns,
    hutch_probe_ipc_ns, hutch_probe_uts_ns, hutch_probe_host_name, hutch_probe_net_buffers, hutch_probe_cgroup_ns,
    hutch_probe_capabilities, hutch_probe_no_new_privs,
    hutch_probe_seccomp, hutch_probe_landlock, hutch_probe_clone3, hutch_probe_pidfd, hutch_probe_close_range,
    hutch_probe_openat2;

/* runtime/doctor/mounts.c */
doctor_probe_fn hutch_probe_mount_ns, hutch_probe_mount_api, hutch_probe_readonly_root, hutch_probe_fresh_proc,
    hutch_probe_devices, hutch_probe_pivot_root, hutch_probe_tmpfs_limits, hutch_probe_overlayfs, hutch_probe_idmapped;

/* runtime/doctor/limits.c */
doctor_probe_fn hutch_probe_cgroup_v2, hutch_probe_delegation, hutch_probe_memory, hutch_probe_pids, hutch_probe_cpu,
    hutch_probe_memory_peak, hutch_probe_clone_into_cgroup, hutch_probe_cgroup_kill, hutch_probe_rlimit_nproc,
    hutch_probe_affinity;

/* runtime/doctor/files.c */
doctor_probe_fn hutch_probe_home, hutch_probe_space, hutch_probe_policies, hutch_probe_images, hutch_probe_host_python,
    hutch_probe_builder, hutch_probe_subids, hutch_probe_newuidmap;

#endif
