/* rootfs_main.c - the program hutch-rootfs behind `hutch rootfs`.
 *
 * A program of its own because libarchive and libcrypto bring two dozen libraries along, whose loading would cost each
 * `hutch run` some 3 ms, a fifth of its time. */
#include "runtime/cli/rootfs.h"

#include <signal.h>

int main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_DFL); /* a caller may have left it ignored, and then no child could be waited for */
    signal(SIGXFSZ, SIG_IGN); /* a caller's limit on file sizes is an error of write(2), not our end */
    return hutch_cmd_rootfs(argc, argv);
}
