#include "runtime/gateway/uri.h"

#include "runtime/text/hex.h"
#include "sandbox/fd.h"

char *hutch_uri_decode(const char *text, size_t len, struct hutch_err *err)
{
    char *decoded = malloc(len + 1), *to = decoded;

    if (!decoded) {
        hutch_err_set(err, ENOMEM, "decode a path of %zu bytes", len);
        return NULL;
    }
    for (size_t i = 0; i < len; i++) {
        int high, low;

        if (text[i] != '%') {
            *to++ = text[i];
            continue;
        }
        high = len - i > 2 ? hutch_hex_digit(text[i + 1]) : -1;
        low = high >= 0 ? hutch_hex_digit(text[i + 2]) : -1;
        if (low < 0 || high + low == 0) {
            hutch_err_say(err, EINVAL, low < 0 ? "the path has a '%%' without two hexadecimal digits behind it"
                                               : "the path has a NUL byte");
            free(decoded);
            return NULL;
        }
        *to++ = (char)(high * 16 + low);
        i += 2;
    }
    *to = '\0';
    return decoded;
}
