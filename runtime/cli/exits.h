/* exits.h - exit statuses that all commands share, as docker run and timeout(1) have them. */
#ifndef HUTCH_CLI_EXITS_H
#define HUTCH_CLI_EXITS_H

enum {
    EXIT_TIMEOUT = 124,       /* the time was over, by the clock or of the processor */
    EXIT_HUTCH = 125,         /* hutch itself failed, and said why */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,     /* the program */
    EXIT_SIGNAL_BASE = 128,   /* and the number of the signal */
};

#endif
