#include "runtime/batch/compare.h"

#include "runtime/batch/decimal.h"

#include <string.h>

static const char *const names[COMPARE_COUNT] = {
    [COMPARE_EXACT] = "exact", [COMPARE_RSTRIP_NEWLINES] = "rstrip-newlines", [COMPARE_LINES] = "lines",
    [COMPARE_WORDS] = "words", [COMPARE_DECIMAL] = "decimal",                 [COMPARE_EXIT0] = "exit0",
};

const char *hutch_batch_compare_name(enum batch_compare mode)
{
    return names[mode];
}

int hutch_batch_compare_parse(const char *name, enum batch_compare *ret, struct hutch_err *err)
{
    for (size_t i = 0; i < COMPARE_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum batch_compare)i;
            return 0;
        }
    return hutch_err_set(err, 0,
                         "'%.40s' is not a way to compare: exact, rstrip-newlines, lines, words, decimal or exit0",
                         name);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); /* what str.strip() takes away, in ASCII */
}

static struct batch_span strip(struct batch_span s)
{
    while (s.p < s.end && is_space(*s.p))
        s.p++;
    while (s.end > s.p && is_space(s.end[-1]))
        s.end--;
    return s;
}

static bool is_same(struct batch_span a, struct batch_span b)
{
    return a.end - a.p == b.end - b.p && memcmp(a.p, b.p, (size_t)(a.end - a.p)) == 0;
}

/* Takes the first line, stripped. */
static struct batch_span take_line(struct batch_span *s)
{
    const char *newline = memchr(s->p, '\n', (size_t)(s->end - s->p));
    struct batch_span line = { s->p, newline ? newline : s->end };

    s->p = newline ? newline + 1 : s->end;
    return strip(line);
}

/* Takes the first word; empty when there is none. */
static struct batch_span take_word(struct batch_span *s)
{
    struct batch_span word;

    while (s->p < s->end && is_space(*s->p))
        s->p++;
    word.p = s->p;
    while (s->p < s->end && !is_space(*s->p))
        s->p++;
    word.end = s->p;
    return word;
}

static bool is_same_line_of_numbers(struct batch_span a, struct batch_span b)
{
    for (;;) {
        struct batch_span x = take_word(&a), y = take_word(&b);

        if (x.p == x.end || y.p == y.end)
            return x.p == x.end && y.p == y.end;
        if (!hutch_batch_decimal_is_same(x, y))
            return false;
    }
}

static struct batch_span strip_newlines(struct batch_span s)
{
    while (s.end > s.p && s.end[-1] == '\n')
        s.end--;
    return s;
}

static bool is_same_words(struct batch_span a, struct batch_span b)
{
    for (;;) {
        struct batch_span x = take_word(&a), y = take_word(&b);

        if (!is_same(x, y))
            return false;
        if (x.p == x.end)
            return true;
    }
}

static bool is_same_lines(struct batch_span a, struct batch_span b, bool with_numbers)
{
    a = strip(a);
    b = strip(b);
    while (a.p < a.end && b.p < b.end) {
        struct batch_span x = take_line(&a), y = take_line(&b);

        if (!is_same(x, y) && !(with_numbers && is_same_line_of_numbers(x, y)))
            return false;
    }
    return a.p == a.end && b.p == b.end;
}

bool hutch_batch_compare(enum batch_compare mode, const char *got, size_t got_len, const char *want, size_t want_len)
{
    struct batch_span a = { got, got + got_len }, b = { want, want + want_len };

    switch (mode) {
    case COMPARE_EXACT:
        return is_same(a, b);
    case COMPARE_RSTRIP_NEWLINES:
        return is_same(strip_newlines(a), strip_newlines(b));
    case COMPARE_LINES:
        return is_same_lines(a, b, false);
    case COMPARE_WORDS:
        return is_same_words(a, b);
    case COMPARE_DECIMAL:
        return is_same_lines(a, b, true);
    default:
        return true;
    }
}
