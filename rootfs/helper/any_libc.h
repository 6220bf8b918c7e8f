/* any_libc.h - included before everything else in the helper, which runs with the libc of whatever image it is in.
 *
 * Since glibc 2.38 its headers call strtol() and the like by names that older ones and musl do not have, such as
 * __isoc23_strtol: they take "0b1" for a number. The helper reads decimal numbers only. */
#include <features.h>
#undef __GLIBC_USE_C2X_STRTOL
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#define __GLIBC_USE_C23_STRTOL 0
