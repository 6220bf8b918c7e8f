#include "runtime/gateway/inner_answer.h"

#include "runtime/gateway/exchange.h"
#include "runtime/text/http_reader.h"
#include "sandbox/fd.h"

#include <string.h>
#include <strings.h>

/* What MHD says by itself. */
static bool is_of_connection(const char *name, size_t len)
{
    static const char *const names[] = { "Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding", "Date" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strlen(names[i]) == len && strncasecmp(name, names[i], len) == 0)
            return true;
    return false;
}

void hutch_inner_answer_add_headers(struct exchange *x, const struct http_reader *r)
{
    const char *name, *value;
    size_t at = 0, name_len, value_len;

    while (hutch_http_reader_next_header(r, &at, &name, &name_len, &value, &value_len)) {
        auto_free char *name_text = strndup(name, name_len), *value_text = strndup(value, value_len);

        if (!name_text || !value_text)
            x->is_aborted = true; /* memory was short: an answer without its headers could be taken for another one */
        else if (!is_of_connection(name, name_len))
            hutch_exchange_add_header(x, name_text, value_text);
    }
}

void hutch_inner_answer_begin(struct exchange *x, const struct http_reader *r)
{
    hutch_exchange_begin_answer(x, r->status, r->length);
    hutch_inner_answer_add_headers(x, r);
}
