#include "runtime/e2b/signature.h"

#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/text/base64.h"
#include "runtime/text/quantity.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

char *hutch_e2b_signature_make(const char *path, const char *operation, const char *user, const char *token,
                               const char *expiration)
{
    auto_free char *text = NULL, *encoded = NULL;
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char *signature;
    size_t len;
    int n = asprintf(&text, "%s:%s:%s:%s%s%s", path, operation, user, token, expiration ? ":" : "",
                     expiration ? expiration : "");

    if (n < 0) {
        text = NULL;
        return NULL;
    }
    SHA256((const unsigned char *)text, (size_t)n, hash);
    encoded = hutch_base64_encode(hash, sizeof(hash), &len);
    if (!encoded)
        return NULL;
    while (len > 0 && encoded[len - 1] == '=')
        encoded[--len] = '\0';
    return asprintf(&signature, "v1_%s", encoded) < 0 ? NULL : signature;
}

static bool is_over(const char *expiration)
{
    struct hutch_err ignored;
    uint64_t seconds;

    return expiration && (hutch_parse_u64(expiration, &seconds, &ignored) < 0 ||
                          (double)seconds < hutch_clock_unix());
}

bool hutch_e2b_signature_is_good(const struct exchange *x, const struct e2b_sandbox *sandbox)
{
    struct hutch_err err;
    auto_free char *given = hutch_exchange_query(x, "signature", &err);
    auto_free char *path = given ? hutch_exchange_query(x, "path", &err) : NULL;
    auto_free char *user = given ? hutch_exchange_query(x, "username", &err) : NULL;
    auto_free char *expiration = given ? hutch_exchange_query(x, "signature_expiration", &err) : NULL;
    const char *operation = strcmp(x->method, "POST") == 0 ? "write" : "read";
    auto_free char *expected = NULL;

    if (!given || is_over(expiration))
        return false;
    expected = hutch_e2b_signature_make(path ? path : "", operation, user ? user : "", sandbox->token, expiration);
    return expected && strlen(given) == strlen(expected) && CRYPTO_memcmp(given, expected, strlen(expected)) == 0;
}
