#!/bin/sh
# Init of the user-mode Linux machine of this lane. Its root is the host's own file tree, so it writes below
# HUTCH_UML_DIR only; everything else it needs is a tmpfs of its own. The arguments come as environment
# variables, which is what the kernel makes of NAME=VALUE on its command line.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export PATH

off() {
    # Not poweroff(8): it would write the machine's wtmp, which is the host's. The number is LINUX_REBOOT_CMD_POWER_OFF.
    /usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
    sleep 60
}
fail() {
    echo "UML setup failed: $*"
    off
}

mount -t proc proc /proc || fail "mount proc"
mount -t sysfs sysfs /sys || fail "mount sysfs"
mount -t tmpfs -o mode=755 tmpfs /run || fail "mount tmpfs"
mkdir -p /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /dev/shm || fail "mount tmpfs"
mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail "mount cgroup2"
: "${hutch_dir:?not on the command line}" "${hutch_uid:?not on the command line}" "${hutch_bin:?not on the command line}"
: "${hutch_many:?not on the command line}" "${hutch_launcher:?not on the command line}" "${hutch_policies:?not on the command line}"

# overlayfs is a module in Debian's kernels.
overlay=${hutch_modules-}/$(uname -r)/kernel/fs/overlayfs/overlay.ko
if [ -e "$overlay" ] && command -v insmod >/dev/null; then insmod "$overlay"; fi

ip link set lo up 2>/dev/null
hostname uml

# A subtree for the test user, as systemd delegates it: directory and three files are his, the controllers
# are enabled above him, and his processes start in a leaf of it.
echo "+memory +pids +cpu" >/sys/fs/cgroup/cgroup.subtree_control || fail "enable the controllers"
echo "+io" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
mkdir -p /sys/fs/cgroup/hutch/shell
for name in . cgroup.procs cgroup.threads cgroup.subtree_control shell shell/cgroup.procs shell/cgroup.threads; do
    chown "$hutch_uid:$hutch_uid" /sys/fs/cgroup/hutch/$name || fail "delegate $name"
done

# His home, on a tmpfs of the machine: hostfs cannot give files to another user when an ordinary user runs this.
mkdir -p /run/home/store /run/home/tmp
chown -R "$hutch_uid:$hutch_uid" /run/home

set -- /usr/bin/python3 "$hutch_dir/inside.py"
if [ -n "${hutch_main-}" ]; then set -- /bin/sh "$hutch_main"; fi

echo "UML ready"
sh -c 'echo $$ >/sys/fs/cgroup/hutch/shell/cgroup.procs && exec "$@"' sh \
    setpriv --reuid="$hutch_uid" --regid="$hutch_uid" --clear-groups -- \
    env -i PATH="$PATH" HOME=/run/home HUTCH_HOME=/run/home/store TMPDIR=/run/home/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 \
    HUTCH_BIN="$hutch_bin" HUTCH_MANY="$hutch_many" HUTCH_LAUNCHER="$hutch_launcher" HUTCH_POLICY_DIR="$hutch_policies" \
    "$@"
echo "UML done: $?"
off
