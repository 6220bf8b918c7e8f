#include "runtime/batch/compare.h"

#include "sandbox/fd.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

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

struct span {
    const char *p, *end;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); /* what str.strip() takes away, in ASCII */
}

static struct span strip(struct span s)
{
    while (s.p < s.end && is_space(*s.p))
        s.p++;
    while (s.end > s.p && is_space(s.end[-1]))
        s.end--;
    return s;
}

static bool is_same(struct span a, struct span b)
{
    return a.end - a.p == b.end - b.p && memcmp(a.p, b.p, (size_t)(a.end - a.p)) == 0;
}

/* Takes the first line, stripped. */
static struct span take_line(struct span *s)
{
    const char *newline = memchr(s->p, '\n', (size_t)(s->end - s->p));
    struct span line = { s->p, newline ? newline : s->end };

    s->p = newline ? newline + 1 : s->end;
    return strip(line);
}

/* Takes the first word; empty when there is none. */
static struct span take_word(struct span *s)
{
    struct span word;

    while (s->p < s->end && is_space(*s->p))
        s->p++;
    word.p = s->p;
    while (s->p < s->end && !is_space(*s->p))
        s->p++;
    word.end = s->p;
    return word;
}

/* ---- numbers, of any length and without rounding ---- */

struct decimal {
    bool is_negative, is_infinite, is_nan;
    struct span digits; /* without leading zeros and the zeros at the end; may have a point and '_' in it */
    size_t n_digits;    /* of those; 0: zero */
    int64_t exponent;   /* of the last one */
};

#define EXPONENT_MAX 1000000000000ll

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(struct span s, const char *word)
{
    return (size_t)(s.end - s.p) == strlen(word) && strncasecmp(s.p, word, strlen(word)) == 0;
}

static bool read_exponent(struct span s, int64_t *ret)
{
    bool is_negative = s.p < s.end && *s.p == '-';
    int64_t value = 0;

    if (s.p < s.end && (*s.p == '-' || *s.p == '+'))
        s.p++;
    if (s.p == s.end)
        return false;
    for (; s.p < s.end; s.p++) {
        if (!is_digit(*s.p))
            return false;
        if (value < EXPONENT_MAX)
            value = value * 10 + (*s.p - '0');
    }
    *ret = is_negative ? -value : value;
    return true;
}

/* What Python's Decimal() takes, but for digits of other scripts. */
static bool read_decimal(struct span s, struct decimal *ret)
{
    struct decimal d = { .digits = { NULL, NULL } };
    const char *e = NULL, *point = NULL, *last = NULL;
    size_t n = 0, zeros = 0, behind_point = 0;

    if (s.p < s.end && (*s.p == '-' || *s.p == '+'))
        d.is_negative = *s.p++ == '-';
    d.is_infinite = is_word(s, "inf") || is_word(s, "infinity");
    d.is_nan = is_word(s, "nan");
    if (d.is_infinite || d.is_nan) {
        *ret = d;
        return true;
    }
    for (const char *p = s.p; p < s.end && !e; p++) {
        if (is_digit(*p)) {
            n++;
            behind_point += point != NULL;
            if (*p != '0' || d.digits.p) {
                if (!d.digits.p)
                    d.digits.p = p;
                d.n_digits++;
                zeros = *p == '0' ? zeros + 1 : 0;
                if (*p != '0')
                    last = p;
            }
        } else if (*p == '.' && !point) {
            point = p;
        } else if (*p == 'e' || *p == 'E') {
            e = p;
        } else if (*p != '_') {
            return false;
        }
    }
    if (n == 0 || (e && !read_exponent((struct span){ e + 1, s.end }, &d.exponent)))
        return false;
    d.n_digits -= zeros;
    d.digits.end = last ? last + 1 : d.digits.p;
    d.exponent += (int64_t)zeros - (int64_t)behind_point;
    *ret = d;
    return true;
}

static char take_digit(struct span *s)
{
    while (s->p < s->end && !is_digit(*s->p))
        s->p++;
    return s->p < s->end ? *s->p++ : '\0';
}

static bool is_same_number(struct span a, struct span b)
{
    struct decimal x, y;

    if (!read_decimal(a, &x) || !read_decimal(b, &y) || x.is_nan || y.is_nan)
        return false;
    if (x.is_infinite || y.is_infinite)
        return x.is_infinite == y.is_infinite && x.is_negative == y.is_negative;
    if (x.n_digits == 0 || y.n_digits == 0)
        return x.n_digits == y.n_digits;
    if (x.is_negative != y.is_negative || x.n_digits != y.n_digits || x.exponent != y.exponent)
        return false;
    for (size_t i = 0; i < x.n_digits; i++)
        if (take_digit(&x.digits) != take_digit(&y.digits))
            return false;
    return true;
}

static bool is_same_line_of_numbers(struct span a, struct span b)
{
    for (;;) {
        struct span x = take_word(&a), y = take_word(&b);

        if (x.p == x.end || y.p == y.end)
            return x.p == x.end && y.p == y.end;
        if (!is_same_number(x, y))
            return false;
    }
}

/* ---- the modes ---- */

static struct span strip_newlines(struct span s)
{
    while (s.end > s.p && s.end[-1] == '\n')
        s.end--;
    return s;
}

static bool is_same_words(struct span a, struct span b)
{
    for (;;) {
        struct span x = take_word(&a), y = take_word(&b);

        if (!is_same(x, y))
            return false;
        if (x.p == x.end)
            return true;
    }
}

static bool is_same_lines(struct span a, struct span b, bool with_numbers)
{
    a = strip(a);
    b = strip(b);
    while (a.p < a.end && b.p < b.end) {
        struct span x = take_line(&a), y = take_line(&b);

        if (!is_same(x, y) && !(with_numbers && is_same_line_of_numbers(x, y)))
            return false;
    }
    return a.p == a.end && b.p == b.end;
}

bool hutch_batch_compare(enum batch_compare mode, const char *got, size_t got_len, const char *want, size_t want_len)
{
    struct span a = { got, got + got_len }, b = { want, want + want_len };

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
