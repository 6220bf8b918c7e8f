#include "runtime/cli/say.h"

#include "runtime/term/filter.h"
#include "runtime/term/terminal.h"
#include "runtime/text/ansi.h"
#include "runtime/text/buffer.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <stdarg.h>
#include <string.h>

static void to_file(void *user, const char *text, size_t len)
{
    fwrite(text, 1, len, user);
}

void hutch_say_text(FILE *to, const char *text, size_t len)
{
    struct term_filter filter;

    hutch_term_describe(fileno(to), &filter);
    filter.has_colours = false;
    hutch_term_filter(&filter, text, len, to_file, to);
    hutch_term_filter_end(&filter, to_file, to);
}

void hutch_say(const char *fmt, ...)
{
    auto_free char *text = NULL;
    va_list args;
    int len;

    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0) {
        text = NULL;
        fputs("hutch: no memory to say what went wrong\n", stderr);
        return;
    }
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r' || *p == '\t')
            *p = '?'; /* as hutch_err_set() has it */
    fputs("hutch: ", stderr);
    hutch_say_text(stderr, text, (size_t)len);
    fputc('\n', stderr);
}

char *hutch_say_plain_json(const char *json)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    size_t len = strlen(json), plain = 0, i = 0;

    while (i < len) {
        enum utf8_kind kind;
        size_t n = hutch_utf8_next(json + i, len - i, &kind);
        unsigned code = hutch_utf8_decode(json + i, n);

        if (kind == UTF8_CHAR && code >= 0x7f && hutch_ansi_obeys(code)) {
            hutch_text_add(&t, json + plain, i - plain);
            hutch_text_addf(&t, "\\u%04x", code);
            plain = i + n;
        }
        i += n;
    }
    hutch_text_add(&t, json + plain, len - plain);
    hutch_text_add(&t, "\n", 1);
    return hutch_text_take(&t, NULL);
}

int hutch_say_json(const char *json, struct hutch_err *err)
{
    auto_free char *text = hutch_say_plain_json(json);

    if (!text)
        return hutch_err_set(err, ENOMEM, "print the result");
    if (fflush(stdout) != 0 || hutch_fd_write_all(STDOUT_FILENO, text, strlen(text)) < 0)
        return hutch_err_set(err, errno, "print the result");
    return 0;
}

/* --- debug messages --- */

struct line {
    char text[4096];
    size_t len;
};

static void to_line(void *user, const char *text, size_t len)
{
    struct line *line = user;

    if (len > sizeof(line->text) - line->len)
        len = sizeof(line->text) - line->len;
    memcpy(line->text + line->len, text, len);
    line->len += len;
}

/* In children, too: no lock is taken, and nothing allocated. */
static void write_debug(const char *text, size_t len)
{
    struct term_filter filter = { .has_utf8 = false };
    struct line line = { .len = 0 };

    hutch_term_filter(&filter, text, len, to_line, &line);
    hutch_term_filter_end(&filter, to_line, &line);
    if (write(STDERR_FILENO, line.text, line.len) < 0)
        return; /* it is closed */
}

void hutch_say_verbosely(bool is_verbose)
{
    hutch_log_set_writer(write_debug);
    hutch_log_set_verbose(is_verbose);
}
