#include "runtime/text/quantity.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* How much of a refused text an error message repeats. */
#define SHOWN 48

#define FRACTION_DIGITS 9
#define FRACTION_ONE 1000000000u /* ten to the FRACTION_DIGITS */

struct decimal {
    uint64_t whole;
    uint32_t fraction; /* billionths */
    bool has_fraction;
};

struct unit {
    const char *suffix;
    uint64_t scale;
    bool takes_fraction;
};

static const struct unit byte_units[] = {
    { "", 1, false },           { "b", 1, false },           { "k", 1ull << 10, true },  { "kb", 1ull << 10, true },
    { "kib", 1ull << 10, true }, { "m", 1ull << 20, true },  { "mb", 1ull << 20, true }, { "mib", 1ull << 20, true },
    { "g", 1ull << 30, true },  { "gb", 1ull << 30, true },  { "gib", 1ull << 30, true }, { "t", 1ull << 40, true },
    { "tb", 1ull << 40, true }, { "tib", 1ull << 40, true },
};
static const struct unit time_units[] = {
    { "", 1000, true },   { "ms", 1, true },       { "s", 1000, true },
    { "m", 60000, true }, { "h", 3600000, true },  { "d", 86400000, true },
};
static const struct unit cpu_units[] = { { "", 1000, true } };
static const struct unit plain_units[] = { { "", 1, false } };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9'; /* isdigit(3) asks the locale */
}

/* Reads digits, and a point with 1-9 digits after it. 0, or EINVAL, or ERANGE; @rest is what follows. */
static int read_decimal(const char *text, struct decimal *ret, const char **rest)
{
    struct decimal d = { 0 };
    uint32_t place = FRACTION_ONE;

    if (!is_digit(*text))
        return EINVAL;
    for (; is_digit(*text); text++)
        if (__builtin_mul_overflow(d.whole, 10, &d.whole) ||
            __builtin_add_overflow(d.whole, (uint64_t)(*text - '0'), &d.whole))
            return ERANGE;
    if (*text == '.') {
        text++;
        d.has_fraction = true;
        if (!is_digit(*text))
            return EINVAL;
        for (; is_digit(*text); text++) {
            if (place == 1)
                return EINVAL; /* more digits than anyone means */
            place /= 10;
            d.fraction += (uint32_t)(*text - '0') * place;
        }
    }
    *ret = d;
    *rest = text;
    return 0;
}

/* whole * scale + fraction * scale, rounded up. 0 or ERANGE. */
static int scale_up(const struct decimal *d, uint64_t scale, uint64_t *ret)
{
    uint64_t value, more;

    /* The fraction is below 2^30 and the largest scale is 2^40, so the product needs more than 64 bits. */
    more = (uint64_t)(((unsigned __int128)d->fraction * scale + FRACTION_ONE - 1) / FRACTION_ONE);
    if (__builtin_mul_overflow(d->whole, scale, &value) || __builtin_add_overflow(value, more, &value))
        return ERANGE;
    *ret = value;
    return 0;
}

static int parse(const char *text, const struct unit *units, size_t n_units, const char *noun, const char *accepted,
                 uint64_t *ret, struct hutch_err *err)
{
    struct decimal d;
    const char *rest;
    int why = read_decimal(text, &d, &rest);

    if (why == 0) {
        why = EINVAL;
        for (size_t i = 0; i < n_units; i++)
            if (strcasecmp(rest, units[i].suffix) == 0 && (units[i].takes_fraction || !d.has_fraction)) {
                why = scale_up(&d, units[i].scale, ret);
                break;
            }
    }
    if (why == 0)
        return 0;
    if (why == ERANGE)
        hutch_err_set(err, 0, "'%.*s' is too large for %s", SHOWN, text, noun);
    else
        hutch_err_set(err, 0, "'%.*s' is not %s: %s", SHOWN, text, noun, accepted);
    err->errnum = why;
    return -1;
}

int hutch_parse_bytes(const char *text, uint64_t *ret, struct hutch_err *err)
{
    return parse(text, byte_units, ARRAY_SIZE(byte_units), "a size",
                 "write a number of bytes, or one with K, M, G or T as in 512m", ret, err);
}

int hutch_parse_duration_ms(const char *text, uint64_t *ret, struct hutch_err *err)
{
    return parse(text, time_units, ARRAY_SIZE(time_units), "a duration",
                 "write a number of seconds, or one with ms, s, m, h or d as in 500ms", ret, err);
}

int hutch_parse_cpus(const char *text, uint64_t *ret, struct hutch_err *err)
{
    return parse(text, cpu_units, ARRAY_SIZE(cpu_units), "a number of CPUs", "write it as in 1 or 0.5", ret, err);
}

int hutch_parse_u64(const char *text, uint64_t *ret, struct hutch_err *err)
{
    return parse(text, plain_units, ARRAY_SIZE(plain_units), "a whole number", "write digits only, as in 64", ret, err);
}
