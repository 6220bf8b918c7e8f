#include "runtime/e2b/ascii.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"

static void add_escaped(struct text_buffer *t, unsigned code)
{
    if (code < 0x10000)
        hutch_text_addf(t, "\\u%04x", code);
    else
        hutch_text_addf(t, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
}

void hutch_e2b_ascii_add(struct text_buffer *t, const char *json, size_t len)
{
    enum utf8_kind kind;
    size_t at = 0, n;

    while (at < len) {
        n = 0;
        while (at + n < len && (unsigned char)json[at + n] < 0x80 && json[at + n] != '\n' && json[at + n] != '\r')
            n++;
        hutch_text_add(t, json + at, n);
        at += n;
        if (at == len)
            return;
        if ((unsigned char)json[at] < 0x80) { /* between values: the line goes on */
            at++;
            continue;
        }
        n = hutch_utf8_next(json + at, len - at, &kind);
        add_escaped(t, kind == UTF8_CHAR ? hutch_utf8_decode(json + at, n) : 0xfffd);
        at += n;
    }
}

void hutch_e2b_ascii_quote(struct text_buffer *t, const char *data, size_t len)
{
    struct text_buffer quoted = TEXT_BUFFER_INIT;

    hutch_json_quote(&quoted, data, len);
    if (quoted.is_broken)
        t->is_broken = true;
    else
        hutch_e2b_ascii_add(t, quoted.data, quoted.len);
    hutch_text_done(&quoted);
}
