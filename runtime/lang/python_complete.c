#include "runtime/lang/python_complete.h"

#include <string.h>

#define MAX_BRACKETS 256 /* Python's own limit is 200 */

struct scan {
    const char *at, *end;
    char open[MAX_BRACKETS]; /* what closes those that are open */
    size_t n_open;
    size_t first_indent, indent; /* of the first and the last statement */
    bool has_statement;
    bool is_decorator;   /* the last statement */
    char last;           /* the last character of a statement so far, blanks and comments aside */
    bool is_broken;      /* no Python */
    bool is_open;        /* the text ended within a string or after a backslash */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f' || c == '\r';
}

static void skip_line(struct scan *s)
{
    const char *newline = memchr(s->at, '\n', (size_t)(s->end - s->at));

    s->at = newline ? newline : s->end;
}

/* A line of IPython's own: up to the first newline without a backslash before it. */
static void skip_command(struct scan *s)
{
    do {
        skip_line(s);
        if (s->at == s->end)
            return;
        s->is_open = s->at[-1] == '\\';
        s->at++;
    } while (s->is_open && s->at < s->end);
    s->at--; /* the newline, which ends the statement */
}

static void skip_string(struct scan *s)
{
    char quote = *s->at;
    bool is_long = s->end - s->at >= 3 && s->at[1] == quote && s->at[2] == quote;

    for (s->at += is_long ? 3 : 1; s->at < s->end; s->at++) {
        if (*s->at == '\\') {
            if (++s->at + 1 >= s->end) { /* nothing after it but, perhaps, the last newline */
                s->is_open = true;
                s->at = s->end;
                return;
            }
        } else if (!is_long && *s->at == '\n') {
            s->is_broken = true;
            return;
        } else if (*s->at == quote && (!is_long || (s->end - s->at >= 3 && s->at[1] == quote && s->at[2] == quote))) {
            s->at += is_long ? 3 : 1;
            return;
        }
    }
    s->is_open = true;
}

/* At the beginning of a line that is no continuation. Leaves s->at at the statement's first character, or at the end
 * of a line without one. */
static void begin_line(struct scan *s)
{
    size_t indent = 0;

    for (; s->at < s->end && is_blank(*s->at); s->at++)
        indent = *s->at == '\t' ? (indent | 7) + 1 : indent + 1;
    if (s->at == s->end || *s->at == '\n' || *s->at == '#')
        return;
    if (!s->has_statement)
        s->first_indent = indent;
    s->has_statement = true;
    s->indent = indent;
    s->is_decorator = *s->at == '@';
    s->last = '\0';
    if (*s->at == '!' || *s->at == '%' || *s->at == '?')
        skip_command(s);
}

static void take_bracket(struct scan *s, char c)
{
    const char *opens = strchr("()[]{}", c);

    if (!opens)
        return;
    if (c == '(' || c == '[' || c == '{') {
        if (s->n_open == MAX_BRACKETS)
            s->is_broken = true;
        else
            s->open[s->n_open++] = opens[1];
    } else if (s->n_open == 0 || s->open[--s->n_open] != c) {
        s->is_broken = true;
    }
}

static void scan_statements(struct scan *s)
{
    begin_line(s);
    while (s->at < s->end && !s->is_broken) {
        char c = *s->at;

        if (c == '\n') {
            s->at++;
            if (s->n_open == 0)
                begin_line(s);
        } else if (c == '#') {
            skip_line(s);
        } else if (c == '\'' || c == '"') {
            s->last = c;
            skip_string(s);
        } else if (c == '\\') {
            s->is_open = s->end - s->at <= 2; /* it and the last newline */
            s->at += s->end - s->at >= 2 ? 2 : 1;
        } else if ((c == '!' || c == '%') && s->last == '=' && s->n_open == 0) {
            skip_command(s);
        } else {
            take_bracket(s, c);
            if (!is_blank(c))
                s->last = c;
            s->at++;
        }
    }
}

static bool ends_in_blank_line(const char *text, size_t len)
{
    size_t i = len;

    if (i > 0 && text[i - 1] == '\n')
        i--;
    while (i > 0 && is_blank(text[i - 1]))
        i--;
    return i == 0 || text[i - 1] == '\n';
}

bool hutch_py_is_complete(const char *text, size_t len)
{
    struct scan s = { .at = text, .end = text + len };
    size_t blanks = 0;

    while (blanks < len && (is_blank(text[blanks]) || text[blanks] == '\n'))
        blanks++;
    if (len - blanks >= 2 && text[blanks] == '%' && text[blanks + 1] == '%')
        return ends_in_blank_line(text, len);
    scan_statements(&s);
    if (s.is_broken || !s.has_statement)
        return true;
    if (s.is_open || s.n_open > 0 || s.last == ':' || s.is_decorator)
        return false;
    return s.indent <= s.first_indent || ends_in_blank_line(text, len);
}
