#include "rootfs/digest.h"

#include "sandbox/fd.h"

#include <openssl/evp.h>

int hutch_digest_start(struct digest *d, struct hutch_err *err)
{
    if (!d->ctx)
        d->ctx = EVP_MD_CTX_new();
    if (!d->ctx || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1)
        return hutch_err_set(err, ENOMEM, "start a SHA-256 digest");
    return 0;
}

int hutch_digest_update(struct digest *d, const void *data, size_t len, struct hutch_err *err)
{
    if (EVP_DigestUpdate(d->ctx, data, len) != 1)
        return hutch_err_set(err, EIO, "compute a SHA-256 digest");
    return 0;
}

int hutch_digest_finish(struct digest *d, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned int len = 0;

    if (EVP_DigestFinal_ex(d->ctx, raw, &len) != 1 || len * 2 != DIGEST_HEX)
        return hutch_err_set(err, EIO, "finish a SHA-256 digest");
    for (unsigned int i = 0; i < len; i++) {
        ret_hex[2 * i] = digits[raw[i] >> 4];
        ret_hex[2 * i + 1] = digits[raw[i] & 15];
    }
    ret_hex[DIGEST_HEX] = '\0';
    return 0;
}

void hutch_digest_done(struct digest *d)
{
    EVP_MD_CTX_free(d->ctx);
    d->ctx = NULL;
}

int hutch_digest_of(const void *data, size_t len, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err)
{
    __attribute__((cleanup(hutch_digest_done))) struct digest d = DIGEST_INIT;

    if (hutch_digest_start(&d, err) < 0 || hutch_digest_update(&d, data, len, err) < 0)
        return -1;
    return hutch_digest_finish(&d, ret_hex, err);
}
