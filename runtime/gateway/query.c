#include "runtime/gateway/query.h"

#include "runtime/gateway/uri.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define MAX_MODE 0777
#define MODE_DIGITS 4

char *hutch_query_decode(const char *text, struct hutch_err *err)
{
    auto_free char *copy = strdup(text);

    if (!copy) {
        hutch_err_set(err, ENOMEM, "read the query of the request");
        return NULL;
    }
    for (char *p = copy; *p; p++)
        if (*p == '+')
            *p = ' ';
    return hutch_uri_decode(copy, strlen(copy), err);
}

int hutch_query_flag(const char *text, int *ret)
{
    int is_true = strcmp(text, "true") == 0;

    if (!is_true && strcmp(text, "false") != 0)
        return -1;
    *ret = is_true;
    return 0;
}

int hutch_query_number(const char *text, uint64_t max, unsigned *ret)
{
    struct hutch_err ignored;
    uint64_t n;

    if (hutch_parse_u64(text, &n, &ignored) < 0 || n < 1 || n > max || n > UINT_MAX)
        return -1;
    *ret = (unsigned)n;
    return 0;
}

int hutch_query_mode(const char *text, unsigned *ret)
{
    size_t len = strlen(text);
    unsigned mode = 0;

    if (len < 1 || len > MODE_DIGITS || strspn(text, "01234567") != len)
        return -1;
    for (size_t i = 0; i < len; i++)
        mode = 8 * mode + (unsigned)(text[i] - '0');
    if (mode < 1 || mode > MAX_MODE)
        return -1;
    *ret = mode;
    return 0;
}
