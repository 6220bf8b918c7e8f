#include "runtime/gateway/inner_request.h"

#include "runtime/gateway/connection.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/place.h"
#include "runtime/gateway/ws_handshake.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <strings.h>

struct writer {
    struct text_buffer *t;
    bool is_upgrade;
};

/* RFC 9110, 7.6.1; and what is said anew. */
static bool is_of_connection(const char *name, bool is_upgrade)
{
    static const char *const names[] = { "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Expect",
                                         "Content-Length", "Transfer-Encoding", PLACE_NAME_HEADER };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return !is_upgrade && strcasecmp(name, "Upgrade") == 0;
}

/* MHD_KeyValueIterator. Names and values were checked: access.c. */
static enum MHD_Result write_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct writer *w = cls;

    (void)kind;
    if (is_of_connection(name, w->is_upgrade))
        return MHD_YES;
    hutch_text_add_string(w->t, name);
    hutch_text_add_string(w->t, ": ");
    hutch_text_add_string(w->t, value ? value : "");
    hutch_text_add_string(w->t, "\r\n");
    return MHD_YES;
}

void hutch_inner_request_write(struct text_buffer *t, const struct exchange *x, const char *name)
{
    const struct ws_handshake handshake = { .upgrade = hutch_exchange_header(x, "Upgrade"),
                                            .connection = hutch_exchange_header(x, "Connection") };
    struct writer w = { t, hutch_ws_handshake_asks(&handshake) };

    if (!x->connection->uri) { /* memory was short when it came */
        t->is_broken = true;
        return;
    }
    hutch_text_add_string(t, x->method);
    hutch_text_add_string(t, " ");
    hutch_text_add_string(t, x->connection->uri);
    hutch_text_add_string(t, " HTTP/1.1\r\n");
    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, write_header, &w);
    if (!hutch_exchange_header(x, "Host")) /* HTTP/1.0 may have none; where one is needed it was refused before */
        hutch_text_add_string(t, "Host:\r\n");
    if (x->body_len == EXCHANGE_UNKNOWN_LENGTH)
        hutch_text_add_string(t, "Transfer-Encoding: chunked\r\n");
    else if (hutch_exchange_header(x, "Content-Length"))
        hutch_text_addf(t, "Content-Length: %" PRIu64 "\r\n", x->body_len);
    if (name)
        hutch_text_addf(t, PLACE_NAME_HEADER ": %s\r\n", name);
    hutch_text_add_string(t, w.is_upgrade ? "Connection: Upgrade\r\n\r\n" : "Connection: close\r\n\r\n");
}

void hutch_inner_request_write_body(struct text_buffer *t, const struct exchange *x, const char *data, size_t len)
{
    bool is_chunked = x->body_len == EXCHANGE_UNKNOWN_LENGTH;

    if (is_chunked)
        hutch_text_addf(t, "%zx\r\n", len);
    hutch_text_add(t, data, len);
    if (is_chunked)
        hutch_text_add_string(t, "\r\n");
}
