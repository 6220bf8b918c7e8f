/* The table of checks, in the order in which they are tried and shown. Names of layers are those of policies. */
#include "runtime/doctor/probes.h"

#include "sandbox/fd.h"

#include <sched.h>

#define NOTHING_RUNS  "no sandbox can be made: nothing runs"
#define OTHER_KERNEL                                                                                                   \
    "sudo apt-get install linux-image-$(dpkg --print-architecture) && sudo reboot    (or any kernel from 5.15 on)"
#define FREE_CALLS    "a kernel from Linux 5.15 on, and no seccomp filter around hutch that hides the call"
#define MAX_NAMESPACE(kind)                                                                                            \
    "echo 'user.max_" kind                                                                                             \
    "_namespaces=15000' | sudo tee -a /etc/sysctl.d/60-hutch.conf && sudo sysctl -p /etc/sysctl.d/60-hutch.conf"
#define DELEGATE      "systemd-run --user --scope -p Delegate=yes hutch ..."

const struct doctor_check hutch_doctor_checks[] = {
    { "isolation", "identity", DOCTOR_HERE, 0, hutch_probe_identity, true,
      "everything else that runs as nobody shares an identity with root's sandboxes",
      "useradd --system --no-create-home --shell /usr/sbin/nologin hutch && "
      "usermod --add-subuids 524288-589823 --add-subgids 524288-589823 hutch" },
    { "isolation", "user_namespace", DOCTOR_HERE, 0, hutch_probe_user_ns, true, NOTHING_RUNS, OTHER_KERNEL },
    { "isolation", "id_maps", DOCTOR_IN_USERNS, 0, hutch_probe_id_maps, true, NOTHING_RUNS,
      "sudo mount -t proc proc /proc    (or: leave the sandbox or container that hutch is in)" },
    { "isolation", "mount_namespace", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_mount_ns, false, NOTHING_RUNS,
      MAX_NAMESPACE("mnt") },
    { "isolation", "pid_namespace", DOCTOR_IN_USERNS, CLONE_NEWPID, hutch_probe_pid_ns, false, NOTHING_RUNS,
      MAX_NAMESPACE("pid") },
    { "isolation", "net_namespace", DOCTOR_IN_USERNS, CLONE_NEWNET, hutch_probe_net_ns, false,
      "only runs with --network host are possible", MAX_NAMESPACE("net") },
    { "isolation", "ipc_namespace", DOCTOR_IN_USERNS, CLONE_NEWIPC, hutch_probe_ipc_ns, false, NOTHING_RUNS,
      MAX_NAMESPACE("ipc") },
    { "isolation", "uts_namespace", DOCTOR_IN_USERNS, CLONE_NEWUTS, hutch_probe_uts_ns, false, NOTHING_RUNS,
      MAX_NAMESPACE("uts") },
    { "isolation", "host_name", DOCTOR_IN_USERNS, CLONE_NEWUTS, hutch_probe_host_name, false,
      "programs see the host name of what is around hutch; 'strict' refuses", OTHER_KERNEL },
    { "isolation", "network_buffers", DOCTOR_IN_USERNS, CLONE_NEWNET, hutch_probe_net_buffers, false,
      "buffers of TCP sockets are as large as the kernel allows; 'strict' refuses", OTHER_KERNEL },
    { "isolation", "cgroup_namespace", DOCTOR_IN_USERNS, 0, hutch_probe_cgroup_ns, false, NOTHING_RUNS,
      MAX_NAMESPACE("cgroup") },
    { "isolation", "mount_api", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_mount_api, false, NOTHING_RUNS, FREE_CALLS },
    { "isolation", "readonly_root", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_readonly_root, false, NOTHING_RUNS,
      FREE_CALLS },
    { "isolation", "fresh_proc", DOCTOR_IN_USERNS, CLONE_NEWNS | CLONE_NEWPID, hutch_probe_fresh_proc, false,
      "runs, batches, notebooks and sessions have the level no_proc: no process is seen in /proc, and sessions have no "
      "checkpoints and branches; 'strict' refuses", OTHER_KERNEL },
    { "isolation", "devices", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_devices, false, NOTHING_RUNS,
      "sudo mount -t devtmpfs devtmpfs /dev" },
    { "isolation", "pivot_root", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_pivot_root, false, NOTHING_RUNS,
      "start hutch where the root is a file system of its own, not the initramfs" },
    { "isolation", "tmpfs_limits", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_tmpfs_limits, false,
      "/tmp of a sandbox can fill the host's memory", OTHER_KERNEL },
    { "isolation", "no_capabilities", DOCTOR_IN_USERNS, 0, hutch_probe_capabilities, false, NOTHING_RUNS,
      OTHER_KERNEL },
    { "isolation", "no_new_privs", DOCTOR_HERE, 0, hutch_probe_no_new_privs, false, NOTHING_RUNS, OTHER_KERNEL },
    { "isolation", "seccomp", DOCTOR_HERE, 0, hutch_probe_seccomp, false,
      "only the policy trusted, without a filter, would run", "a kernel with CONFIG_SECCOMP_FILTER=y; " OTHER_KERNEL },
    { "isolation", "landlock", DOCTOR_HERE, 0, hutch_probe_landlock, false,
      "writes are kept in by the mount tree alone; 'strict' refuses",
      "a kernel with CONFIG_SECURITY_LANDLOCK=y; " OTHER_KERNEL },
    { "isolation", "overlayfs", DOCTOR_IN_USERNS, CLONE_NEWNS, hutch_probe_overlayfs, false,
      "locks on an image's files reach other sandboxes; 'strict' refuses; images that lack a mount point do not run",
      "sudo modprobe overlay" },
    { "isolation", "idmapped_mounts", DOCTOR_HERE, 0, hutch_probe_idmapped, false,
      "called by root, /mnt/data must be writable for the sandbox's own host user",
      "export HUTCH_HOME=DIR    (on ext4, xfs, btrfs, or tmpfs from Linux 6.3 on)" },

    { "calls", "clone3", DOCTOR_HERE, 0, hutch_probe_clone3, false, NOTHING_RUNS, FREE_CALLS },
    { "calls", "pidfd", DOCTOR_HERE, 0, hutch_probe_pidfd, false, NOTHING_RUNS, FREE_CALLS },
    { "calls", "close_range", DOCTOR_HERE, 0, hutch_probe_close_range, false, NOTHING_RUNS, FREE_CALLS },
    { "calls", "openat2", DOCTOR_HERE, 0, hutch_probe_openat2, false, NOTHING_RUNS, FREE_CALLS },

    { "limits", "cgroup_v2", DOCTOR_HERE, 0, hutch_probe_cgroup_v2, false,
      "limits fall back to rlimits and the supervisor; 'strict' refuses",
      "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup" },
    { "limits", "cgroup_delegation", DOCTOR_HERE, 0, hutch_probe_delegation, false,
      "limits fall back to rlimits and the supervisor; 'strict' refuses", DELEGATE },
    { "limits", "cgroup_memory", DOCTOR_HERE, 0, hutch_probe_memory, false,
      "memory is watched by samples, and what the kernel holds for programs is estimated; 'strict' refuses", DELEGATE },
    { "limits", "cgroup_pids", DOCTOR_HERE, 0, hutch_probe_pids, false,
      "processes are bounded by RLIMIT_NPROC alone; 'strict' refuses", DELEGATE },
    { "limits", "cgroup_cpu", DOCTOR_HERE, 0, hutch_probe_cpu, false,
      "CPUs are bounded by pinning, in whole CPUs; 'strict' refuses", DELEGATE },
    { "limits", "cgroup_clone_into", DOCTOR_HERE, 0, hutch_probe_clone_into_cgroup, false,
      "a group cannot be used, even where it can be made: limits fall back; 'strict' refuses", DELEGATE },
    { "limits", "cgroup_kill", DOCTOR_HERE, 0, hutch_probe_cgroup_kill, false,
      "a sandbox is ended through its pid namespace alone", OTHER_KERNEL },
    { "limits", "memory_peak", DOCTOR_HERE, 0, hutch_probe_memory_peak, false,
      "memory_peak_bytes in results comes from samples, or is null", OTHER_KERNEL },
    { "limits", "rlimit_nproc", DOCTOR_IN_USERNS, CLONE_NEWPID, hutch_probe_rlimit_nproc, false,
      "without the pids controller, a run may be refused processes because of others of the same user", OTHER_KERNEL },
    { "limits", "cpu_affinity", DOCTOR_HERE, 0, hutch_probe_affinity, false,
      "without the cpu controller, nothing bounds CPUs", FREE_CALLS },

    { "files", "home", DOCTOR_HERE, 0, hutch_probe_home, false, "no run can keep its state, no image can be stored",
      "export HUTCH_HOME=DIR    (a directory of your own)" },
    { "files", "space", DOCTOR_HERE, 0, hutch_probe_space, false, "an image of 700 MB may not fit, or no results",
      "export HUTCH_HOME=DIR    (on a file system with 2 GB free), or: hutch rootfs list && hutch rootfs remove NAME" },
    { "files", "policies", DOCTOR_HERE, 0, hutch_probe_policies, false, "nothing runs without a policy",
      "make install, or: export HUTCH_POLICY_DIR=DIR" },
    { "files", "images", DOCTOR_HERE, 0, hutch_probe_images, false,
      "'hutch run' without --image or --rootfs has nothing to run in", "hutch rootfs build python" },
    { "files", "host_python", DOCTOR_HERE, 0, hutch_probe_host_python, false,
      "'hutch run --rootfs host' runs no Python", "sudo apt-get install python3" },

    { "building images", "mmdebstrap", DOCTOR_HERE, 0, hutch_probe_builder, false,
      "'hutch rootfs build' does not work; unpacking does", "sudo apt-get install mmdebstrap" },
    { "building images", "subordinate_ids", DOCTOR_HERE, 0, hutch_probe_subids, false,
      "'hutch rootfs build' does not work without root; unpacking and running do",
      "sudo usermod --add-subuids 805306368-805371903 --add-subgids 805306368-805371903 USER" },
    { "building images", "newuidmap", DOCTOR_HERE, 0, hutch_probe_newuidmap, false,
      "'hutch rootfs build' does not work without root; unpacking and running do", "sudo apt-get install uidmap" },
};
const size_t hutch_doctor_n_checks = ARRAY_SIZE(hutch_doctor_checks);
