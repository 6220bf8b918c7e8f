/* main.c - the program that an engine starts: its helper processes. Not for people. */
#include "runtime/launcher/opener.h"
#include "runtime/launcher/wire.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct stat st;

    if (argc != 3 || fstat(WARM_SOCKET_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        fprintf(stderr, "hutch-launcher: this program is started by an engine (see hutch.h), not by hand\n");
        return 125;
    }
    syscall(SYS_close_range, WARM_SOCKET_FD + 1, ~0u, 0);
    return hutch_opener_main(WARM_SOCKET_FD, argv[1], argv[2]);
}
