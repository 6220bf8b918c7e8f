#include "runtime/text/python_float.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double hutch_pyfloat_parse(const char *token)
{
    static locale_t c_locale;

    if (c_locale == (locale_t)0)
        /* glibc hands out a static object, so two threads do no harm */
        c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return strtod_l(token, NULL, c_locale);
}

static bool reads_back(const char *digits, int point, double value)
{
    char text[40];

    snprintf(text, sizeof(text), "%se%d", digits, point - (int)strlen(digits));
    return hutch_pyfloat_parse(text) == value;
}

/* The next larger number of so many digits. */
static void round_up(char *digits, int *point)
{
    size_t i = strlen(digits);

    while (i > 0 && digits[i - 1] == '9')
        digits[--i] = '0';
    if (i > 0) {
        digits[i - 1]++;
        return;
    }
    digits[0] = '1';
    (*point)++;
}

/* @value rounded to @n digits, without their point; value = 0.DIGITS * 10^point. */
static void round_to(double value, int n, char *digits, int *ret_point)
{
    char text[40];
    const char *p = text;

    snprintf(text, sizeof(text), "%.*e", n - 1, value);
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') /* anything else is the locale's point */
            *digits++ = *p;
    *digits = '\0';
    *ret_point = atoi(p + 1) + 1;
}

/* The fewest digits that read back as @value, a positive one. */
static void shortest_digits(double value, char digits[24], int *ret_point)
{
    int exponent;
    bool is_power_of_two = frexp(value, &exponent) == 0.5;

    /* Two numbers of 15 digits are never the same normal double, so with that many the search can begin: fewer are
     * these without the zeros at their end. */
    for (int n = value < 0x1p-1022 ? 1 : 15; n <= 17; n++) {
        round_to(value, n, digits, ret_point);
        if (n == 17 || reads_back(digits, *ret_point, value))
            break;
        if (is_power_of_two) { /* twice as far away from the double above as from that below */
            round_up(digits, ret_point);
            if (reads_back(digits, *ret_point, value))
                break;
        }
    }
    for (size_t len = strlen(digits); len > 1 && digits[len - 1] == '0'; len--)
        digits[len - 1] = '\0';
}

void hutch_pyfloat_repr(double value, char buf[PYFLOAT_SIZE])
{
    char digits[24];
    int point, len;

    if (!isfinite(value)) {
        strcpy(buf, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
        return;
    }
    if (signbit(value))
        *buf++ = '-';
    if (value == 0) {
        strcpy(buf, "0.0");
        return;
    }
    shortest_digits(fabs(value), digits, &point);
    len = (int)strlen(digits);
    /* where Python's repr() has an exponent */
    if (point > 16 || point <= -4) {
        *buf++ = digits[0];
        if (len > 1)
            *buf++ = '.';
        buf = stpcpy(buf, digits + 1);
        sprintf(buf, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
    } else if (point <= 0) {
        buf = mempcpy(buf, "0.000", (size_t)(2 - point));
        strcpy(buf, digits);
    } else if (point >= len) {
        buf = stpcpy(buf, digits);
        memset(buf, '0', (size_t)(point - len));
        strcpy(buf + point - len, ".0");
    } else {
        buf = mempcpy(buf, digits, (size_t)point);
        *buf++ = '.';
        strcpy(buf, digits + point);
    }
}
