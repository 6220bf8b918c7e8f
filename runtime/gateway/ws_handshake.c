#include "runtime/gateway/ws_handshake.h"

#include "runtime/text/base64.h"
#include "sandbox/fd.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KEY_BYTES 16
#define MAGIC "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" /* section 1.3 */

/* The next element of a list of tokens, and its length; NULL at the end. */
static const char *next_element(const char **list, size_t *ret_len)
{
    const char *start = *list + strspn(*list, ", \t");
    size_t len = strcspn(start, ",");

    *list = start + len;
    while (len > 0 && strchr(" \t", start[len - 1]))
        len--;
    *ret_len = len;
    return *start ? start : NULL;
}

static bool has_element(const char *list, const char *wanted)
{
    size_t len;

    for (const char *element; list && (element = next_element(&list, &len));)
        if (len == strlen(wanted) && strncasecmp(element, wanted, len) == 0)
            return true;
    return false;
}

bool hutch_ws_handshake_asks(const struct ws_handshake *h)
{
    return has_element(h->upgrade, "websocket") && has_element(h->connection, "upgrade");
}

bool hutch_ws_handshake_offers(const struct ws_handshake *h)
{
    return has_element(h->protocols, WS_PROTOCOL);
}

bool hutch_ws_handshake_token(const struct ws_handshake *h, char *to, size_t size)
{
    const char *list = h->protocols;
    size_t len, n_prefix = strlen(WS_TOKEN_PREFIX);

    for (const char *element; list && (element = next_element(&list, &len));)
        if (len > n_prefix && strncmp(element, WS_TOKEN_PREFIX, n_prefix) == 0) {
            int n = snprintf(to, size, "Bearer %.*s", (int)(len - n_prefix), element + n_prefix);

            return n > 0 && (size_t)n < size;
        }
    return false;
}

int hutch_ws_handshake_answer(const struct ws_handshake *h, char ret[WS_ACCEPT_LEN + 1], struct hutch_err *err)
{
    unsigned char digest[SHA_DIGEST_LENGTH];
    auto_free unsigned char *key = NULL;
    auto_free char *text = NULL, *encoded = NULL;
    size_t n_key = 0, len = 0;

    if (!h->version || strcmp(h->version, "13") != 0)
        return hutch_err_set(err, 0, "this server speaks version 13 of WebSocket");
    key = h->key ? hutch_base64_decode(h->key, strlen(h->key), &n_key) : NULL;
    if (!key || n_key != KEY_BYTES)
        return hutch_err_set(err, 0, "Sec-WebSocket-Key is not %d bytes in base64", KEY_BYTES);
    if (asprintf(&text, "%s%s", h->key, MAGIC) < 0) {
        text = NULL;
        return hutch_err_set(err, ENOMEM, "answer the handshake");
    }
    SHA1((const unsigned char *)text, strlen(text), digest);
    encoded = hutch_base64_encode(digest, sizeof(digest), &len);
    if (!encoded)
        return hutch_err_set(err, ENOMEM, "answer the handshake");
    snprintf(ret, WS_ACCEPT_LEN + 1, "%s", encoded);
    return 0;
}
