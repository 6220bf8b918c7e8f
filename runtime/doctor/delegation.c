#include "runtime/doctor/delegation.h"

#include "runtime/doctor/probes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

void hutch_delegation_look(uid_t uid, bool is_in_container, const char *mount, struct delegation_facts *ret)
{
    char manager[64];

    snprintf(manager, sizeof(manager), "/run/user/%u/systemd/private", uid);
    *ret = (struct delegation_facts){
        /* sd_booted(3); OpenRC makes its directory at boot as well. */
        .init = is_there("/run/systemd/system") ? INIT_SYSTEMD : is_there("/run/openrc") ? INIT_OPENRC : INIT_OTHER,
        .uid = uid,
        .is_in_container = is_in_container,
        .has_user_manager = is_there(manager),
        .has_runtime_dir = getenv("XDG_RUNTIME_DIR") != NULL,
        .mount = mount,
    };
}

void hutch_delegation_command(const struct delegation_facts *facts, char *ret, size_t size)
{
    if (facts->is_in_container) {
        snprintf(ret, size,
                 "start the container with a cgroup tree that can be written to (podman: --security-opt "
                 "unmask=/sys/fs/cgroup; docker: --cgroupns=private and a read-write /sys/fs/cgroup)");
    } else if (facts->init != INIT_SYSTEMD) {
        /* Nobody else manages the tree. The caller's shell moves into a child of the new group, as only a process
         * from below a group may start others in it, and a group with processes can have no controllers for its
         * children. A controller that the host lacks is refused by itself. */
        snprintf(ret, size,
                 "sudo sh -c 'cd %s && mkdir -p hutch-%u/shell && for c in memory pids cpu; do "
                 "echo +$c >cgroup.subtree_control; echo +$c >hutch-%u/cgroup.subtree_control; done; cd hutch-%u && "
                 "chown %u . cgroup.procs cgroup.subtree_control shell shell/cgroup.procs && "
                 "echo $0 >shell/cgroup.procs' $$",
                 facts->mount, facts->uid, facts->uid, facts->uid, facts->uid);
    } else if (facts->uid == 0) {
        snprintf(ret, size, "systemd-run --scope -p Delegate=yes hutch ...");
    } else if (facts->has_user_manager && facts->has_runtime_dir) {
        snprintf(ret, size, "systemd-run --user --scope -p Delegate=yes hutch ...");
    } else if (facts->has_user_manager) {
        snprintf(ret, size, "XDG_RUNTIME_DIR=/run/user/%u systemd-run --user --scope -p Delegate=yes hutch ...",
                 facts->uid);
    } else {
        /* A service of the system: User= gives its group to the user. */
        snprintf(ret, size, "sudo systemd-run --pty --same-dir --collect -p User=%u -p Delegate=yes hutch ...",
                 facts->uid);
    }
}

void hutch_delegation_leave_v1(const struct delegation_facts *facts, char *ret, size_t size)
{
    const char *unified = facts->init == INIT_SYSTEMD ? "systemd.unified_cgroup_hierarchy=1 " : "";
    const char *openrc = facts->init == INIT_OPENRC
                             ? "echo 'rc_cgroup_mode=\"unified\"' | sudo tee -a /etc/rc.conf && " : "";

    snprintf(ret, size, "%s" DOCTOR_BOOT_WITH("%scgroup_no_v1=all"), openrc, unified);
}
