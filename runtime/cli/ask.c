#include "runtime/cli/ask.h"

#include "runtime/cli/say.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ANSWER_MS (5 * 60 * 1000)

bool hutch_ask_can(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool hutch_ask(const char *question, bool usual)
{
    struct pollfd terminal = { .fd = STDIN_FILENO, .events = POLLIN };
    char answer[64];
    ssize_t n;

    /* It may have names from a project or an image. */
    fputs("hutch: ", stderr);
    hutch_say_text(stderr, question, strlen(question));
    fprintf(stderr, " [%s] ", usual ? "Y/n" : "y/N");
    fflush(stderr);
    n = poll(&terminal, 1, ANSWER_MS) == 1 ? read(STDIN_FILENO, answer, sizeof(answer) - 1) : -1;
    if (n <= 0) {
        fputc('\n', stderr);
        return false;
    }
    answer[n] = '\0';
    return answer[0] == '\n' ? usual : strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0;
}
