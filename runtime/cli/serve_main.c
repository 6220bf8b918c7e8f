/* serve_main.c - the program hutch-serve behind `hutch serve`.
 *
 * A program of its own because libmicrohttpd brings GnuTLS and a dozen libraries along, whose loading would cost each
 * `hutch run` some milliseconds. */
#include "runtime/cli/serve.h"

#include "runtime/cli/exits.h"
#include "runtime/cli/say.h"

#include <signal.h>

int main(int argc, char **argv)
{
    struct hutch_err err = { 0 };
    int status;

    signal(SIGCHLD, SIG_DFL); /* a caller may have left it ignored, and then no child could be waited for */
    signal(SIGXFSZ, SIG_IGN); /* a caller's limit on file sizes is an error of write(2), not our end */
    status = hutch_cmd_serve(argc, argv, &err);
    if (status >= 0)
        return status;
    hutch_say("%s", err.msg);
    return EXIT_HUTCH;
}
