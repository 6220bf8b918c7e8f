/* python_float.h - a double as Python writes it: by the fewest digits that read back as the same number, with a
 * point in every locale. */
#ifndef HUTCH_TEXT_PYTHON_FLOAT_H
#define HUTCH_TEXT_PYTHON_FLOAT_H

/* As Python's repr(), at most 24 characters and the NUL; what that calls inf and nan are Infinity, -Infinity and
 * NaN, as json.dumps() has them. */
#define PYFLOAT_SIZE 32
void hutch_pyfloat_repr(double value, char buf[PYFLOAT_SIZE]);

/* strtod(3) of the whole token, in the C locale: the program that the library is part of may have set one with a
 * comma. */
double hutch_pyfloat_parse(const char *token);

#endif
