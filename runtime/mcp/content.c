#include "runtime/mcp/content.h"

#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <stdlib.h>
#include <string.h>

void hutch_mcp_result_done(struct mcp_result *r)
{
    hutch_text_done(&r->content);
    hutch_text_done(&r->structured);
}

/* --- items ------------------------------------------------------------------------------------------------------ */

static void begin_item(struct mcp_result *r)
{
    if (r->content.len > 0)
        hutch_text_add(&r->content, ",", 1);
}

void hutch_mcp_add_text(struct mcp_result *r, const char *text, size_t len)
{
    if (len == 0)
        return;
    begin_item(r);
    hutch_text_add_string(&r->content, "{\"type\":\"text\",\"text\":");
    hutch_json_quote(&r->content, text, len);
    hutch_text_add(&r->content, "}", 1);
}

void hutch_mcp_add_quoted(struct mcp_result *r, const struct text_buffer *quoted)
{
    begin_item(r);
    hutch_text_add_string(&r->content, "{\"type\":\"text\",\"text\":");
    hutch_text_add(&r->content, quoted->data, quoted->len);
    hutch_text_add(&r->content, "}", 1);
    r->content.is_broken |= quoted->is_broken;
}

void hutch_mcp_add_string(struct mcp_result *r, const char *text)
{
    hutch_mcp_add_text(r, text, strlen(text));
}

const char *hutch_mcp_image_type(const unsigned char *data, size_t len)
{
    static const struct { const char *type, *begin; size_t len; } types[] = {
        { "image/png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16 },
        { "image/jpeg", "\xff\xd8\xff", 3 },
        { "image/gif", "GIF87a", 6 },
        { "image/gif", "GIF89a", 6 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (len > types[i].len && memcmp(data, types[i].begin, types[i].len) == 0)
            return types[i].type;
    return len > 16 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0 ? "image/webp" : NULL;
}

static void leave_out(struct mcp_result *r, const char *name, const char *why)
{
    struct text_buffer text = TEXT_BUFFER_INIT;

    hutch_text_addf(&text, "[%.200s is left out: %s]", name, why);
    hutch_mcp_add_text(r, text.data, text.len);
    hutch_text_done(&text);
}

static void add_base64(struct text_buffer *t, const unsigned char *data, size_t len)
{
    size_t text_len;
    auto_free char *text = hutch_base64_encode(data, len, &text_len);

    if (!text)
        t->is_broken = true;
    else
        hutch_text_add(t, text, text_len);
}

void hutch_mcp_add_image(struct mcp_result *r, const char *name, const unsigned char *data, size_t len)
{
    const char *type = hutch_mcp_image_type(data, len);

    if (!type) {
        leave_out(r, name, "it is no PNG, JPEG, GIF or WebP image");
    } else if (r->n_images >= MCP_MAX_IMAGES) {
        leave_out(r, name, "there are more than 16 images");
    } else if (len > MCP_MAX_IMAGE_BYTES - r->image_bytes) {
        leave_out(r, name, "the images of a result have 4 MiB together at most");
    } else {
        begin_item(r);
        hutch_text_add_string(&r->content, "{\"type\":\"image\",\"data\":\"");
        add_base64(&r->content, data, len);
        hutch_text_addf(&r->content, "\",\"mimeType\":\"%s\"}", type);
        r->n_images++;
        r->image_bytes += len;
    }
}

/* As RFC 3986 has it, section 2. */
static void add_uri_path(struct text_buffer *t, const char *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";

    for (; *path; path++)
        hutch_text_addf(t, strchr(plain, *path) ? "%c" : "%%%02X", (unsigned char)*path);
}

void hutch_mcp_add_blob(struct mcp_result *r, const char *name, const unsigned char *data, size_t len)
{
    begin_item(r);
    hutch_text_add_string(&r->content, "{\"type\":\"resource\",\"resource\":{\"uri\":\"file://" INSIDE_DATA_DIR "/");
    add_uri_path(&r->content, name);
    hutch_text_add_string(&r->content, "\",\"mimeType\":\"application/octet-stream\",\"blob\":\"");
    add_base64(&r->content, data, len);
    hutch_text_add_string(&r->content, "\"}}");
}

/* --- the object ------------------------------------------------------------------------------------------------- */

struct text_buffer *hutch_mcp_add_key(struct mcp_result *r, const char *key)
{
    hutch_text_addf(&r->structured, "%s\"%s\":", r->structured.len > 0 ? "," : "", key);
    return &r->structured;
}

void hutch_mcp_add_member(struct mcp_result *r, const char *key, const char *text)
{
    struct text_buffer *t = hutch_mcp_add_key(r, key);

    if (text)
        hutch_json_quote(t, text, strlen(text));
    else
        hutch_text_add_string(t, "null");
}

void hutch_mcp_add_flag(struct mcp_result *r, const char *key, bool value)
{
    hutch_text_add_string(hutch_mcp_add_key(r, key), value ? "true" : "false");
}

/* The first byte of a character at or behind @at; text that is no UTF-8 has none nearby, and is cut anywhere. */
static size_t next_character(const char *text, size_t len, size_t at)
{
    for (size_t i = at; i < len && i < at + 4; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return i;
    return at;
}

bool hutch_mcp_quote_excerpt(struct text_buffer *t, const char *text, size_t len, size_t max)
{
    struct text_buffer cut = TEXT_BUFFER_INIT;
    size_t head, tail;

    if (len <= max) {
        hutch_json_quote(t, text, len);
        return false;
    }
    head = next_character(text, len, max / 2);
    tail = next_character(text, len, len - max / 2);
    hutch_text_add(&cut, text, head);
    hutch_text_addf(&cut, "\n[... %zu bytes are left out ...]\n", tail - head);
    hutch_text_add(&cut, text + tail, len - tail);
    if (cut.is_broken)
        t->is_broken = true;
    else
        hutch_json_quote(t, cut.data, cut.len);
    hutch_text_done(&cut);
    return true;
}

/* --- all of it -------------------------------------------------------------------------------------------------- */

void hutch_mcp_result_write(const struct mcp_result *r, struct text_buffer *t)
{
    hutch_text_add_string(t, "\"content\":[");
    hutch_text_add(t, r->content.data, r->content.len);
    hutch_text_add_string(t, "]");
    if (r->structured.len > 0) {
        hutch_text_add_string(t, ",\"structuredContent\":{");
        hutch_text_add(t, r->structured.data, r->structured.len);
        hutch_text_add_string(t, "}");
    }
    hutch_text_add_string(t, r->is_error ? ",\"isError\":true" : ",\"isError\":false");
    if (r->content.is_broken || r->structured.is_broken)
        t->is_broken = true;
}
