/* main_rootfs.c - the program hutch-rootfs behind `hutch rootfs`.
 *
 * A program of its own because libarchive and libcrypto bring two dozen libraries along, whose loading would cost each
 * `hutch run` some 3 ms, a fifth of its time. */
#include "cmd_rootfs.h"

int main(int argc, char **argv)
{
    return hutch_cmd_rootfs(argc, argv);
}
