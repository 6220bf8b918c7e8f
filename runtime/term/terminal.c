#include "runtime/term/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Asked once: the prompt sets a locale of its own later, which says nothing of the terminal. */
static bool has_utf8_locale(void)
{
    static int answer = -1;

    if (answer < 0) {
        setlocale(LC_CTYPE, "");
        answer = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    }
    return answer;
}

bool hutch_term_describe(int fd, struct term_filter *ret)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool is_terminal = isatty(fd), has_colours = !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;

    *ret = (struct term_filter){ .has_colours = is_terminal && has_colours,
                                 .has_utf8 = has_utf8_locale() || !is_terminal };
    return is_terminal;
}

bool hutch_term_has_all_colours(void)
{
    const char *value = getenv("COLORTERM");

    return value && (strcmp(value, "truecolor") == 0 || strcmp(value, "24bit") == 0);
}
