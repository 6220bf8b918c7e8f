/* rootfs.h - the command `hutch rootfs`: images in and out of the store. */
#ifndef HUTCH_CLI_ROOTFS_H
#define HUTCH_CLI_ROOTFS_H

/* argv[0] is "rootfs". Prints what there is to print and returns the exit status of hutch: 0, 1 when verify found a
 * difference, 125 when something failed. Ended by SIGINT, SIGTERM or SIGHUP, it cleans up and dies of that signal. */
int hutch_cmd_rootfs(int argc, char **argv);

#endif
