#include "runtime/batch/decimal.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct decimal {
    bool is_negative, is_infinite, is_nan;
    struct batch_span digits; /* without leading zeros and the zeros at the end; may have a point and '_' in it */
    size_t n_digits;    /* of those; 0: zero */
    int64_t exponent;   /* of the last one */
};

#define EXPONENT_MAX 1000000000000ll

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(struct batch_span s, const char *word)
{
    return (size_t)(s.end - s.p) == strlen(word) && strncasecmp(s.p, word, strlen(word)) == 0;
}

static bool read_exponent(struct batch_span s, int64_t *ret)
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
static bool read_decimal(struct batch_span s, struct decimal *ret)
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
    if (n == 0 || (e && !read_exponent((struct batch_span){ e + 1, s.end }, &d.exponent)))
        return false;
    d.n_digits -= zeros;
    d.digits.end = last ? last + 1 : d.digits.p;
    d.exponent += (int64_t)zeros - (int64_t)behind_point;
    *ret = d;
    return true;
}

static char take_digit(struct batch_span *s)
{
    while (s->p < s->end && !is_digit(*s->p))
        s->p++;
    return s->p < s->end ? *s->p++ : '\0';
}

bool hutch_batch_decimal_is_same(struct batch_span a, struct batch_span b)
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
