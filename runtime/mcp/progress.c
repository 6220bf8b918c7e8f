#include "runtime/mcp/progress.h"

#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void hutch_mcp_progress_done(struct mcp_progress *p)
{
    free(p->token);
    p->token = NULL;
    hutch_text_done(&p->pending);
}

static void append(struct mcp_progress *p, const char *data, size_t len)
{
    if (p->pending.len + len > MCP_PROGRESS_MAX)
        p->n_dropped += len;
    else
        hutch_text_add(&p->pending, data, len);
}

void hutch_mcp_progress_add(struct mcp_progress *p, int stream, const char *data, size_t len, double now_ms)
{
    char *cut = p->cut[stream - 1];
    size_t *n_cut = &p->n_cut[stream - 1], n;

    if (!p->token)
        return;
    if (p->pending.len == 0)
        p->since_ms = now_ms;
    while (*n_cut > 0 && len > 0) { /* the rest of a character, byte by byte */
        enum utf8_kind kind;

        cut[(*n_cut)++] = *data++;
        len--;
        hutch_utf8_next(cut, *n_cut, &kind);
        if (kind != UTF8_CUT) {
            append(p, cut, *n_cut);
            *n_cut = 0;
        }
    }
    n = hutch_utf8_unfinished(data, len); /* a piece may end within a character */
    if (len - n > MCP_PROGRESS_MAX) { /* only its end has room */
        size_t step = len - n - MCP_PROGRESS_MAX;

        p->n_dropped += step;
        data += step;
        len -= step;
    }
    if (len > n)
        append(p, data, len - n);
    for (size_t i = 0; i < n; i++)
        cut[i] = data[len - n + i];
    *n_cut = len > 0 ? n : *n_cut;
}

void hutch_mcp_progress_drop(struct mcp_progress *p, double now_ms)
{
    p->n_dropped += p->pending.len;
    p->pending.len = 0;
    p->sent_ms = now_ms;
}

double hutch_mcp_progress_deadline(const struct mcp_progress *p)
{
    double due;

    if (!p->token)
        return -1;
    if (p->pending.len == 0)
        return p->sent_ms + MCP_SILENCE_MS;
    due = p->sent_ms + MCP_PROGRESS_MS;
    return due > p->since_ms + MCP_GATHER_MS ? due : p->since_ms + MCP_GATHER_MS;
}

void hutch_mcp_progress_write(struct mcp_progress *p, struct text_buffer *t, double now_ms)
{
    hutch_text_add_string(
        t, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":");
    hutch_text_add_string(t, p->token);
    hutch_text_addf(t, ",\"progress\":%" PRIu64, ++p->n);
    if (p->n_dropped > 0 && !p->pending.is_broken)
        hutch_text_addf(&p->pending, "[... %zu bytes are left out here, the result has more ...]", p->n_dropped);
    if (p->pending.len > 0) {
        hutch_text_add_string(t, ",\"message\":");
        hutch_json_quote(t, p->pending.data, p->pending.len);
    }
    hutch_text_add_string(t, "}}");
    p->pending.len = 0;
    p->n_dropped = 0;
    p->sent_ms = now_ms;
}
