/* content.h - the result of one call of a tool: items for the model, a JSON object for programs, and whether it is an
 * error.
 *
 * What goes in comes from hostile code. An image that no decoder could read would make the next request to the model
 * fail, and with it the whole conversation: so an image is decoded from base64, looked at, and encoded anew. */
#ifndef HUTCH_MCP_CONTENT_H
#define HUTCH_MCP_CONTENT_H

#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>

#define MCP_MAX_IMAGES 16
/* Clients are known that give up a server whose message is longer than 10 MB, and base64 makes four bytes of three. */
#define MCP_MAX_IMAGE_BYTES (4u << 20) /* of all images in one result */

struct mcp_result {
    struct text_buffer content;    /* items, with commas between */
    struct text_buffer structured; /* members of the object, with commas between; empty: there is none */
    unsigned n_images;
    size_t image_bytes;
    bool is_error;
};
#define MCP_RESULT_INIT { .content = TEXT_BUFFER_INIT, .structured = TEXT_BUFFER_INIT }

void hutch_mcp_result_done(struct mcp_result *r);

/* Each of these adds an item. Text is any bytes; nothing is added for an empty one. */
void hutch_mcp_add_text(struct mcp_result *r, const char *text, size_t len);
void hutch_mcp_add_string(struct mcp_result *r, const char *text);
/* The text is a JSON string already. */
void hutch_mcp_add_quoted(struct mcp_result *r, const struct text_buffer *quoted);
/* The type that an image of PNG, JPEG, GIF or WebP is, by its first bytes; NULL: none of these. */
const char *hutch_mcp_image_type(const unsigned char *data, size_t len);
/* An image of these, or a text that says why it is left out. @name: what the text calls it. */
void hutch_mcp_add_image(struct mcp_result *r, const char *name, const unsigned char *data, size_t len);
/* A file that is not text. @name: its path below /mnt/data. */
void hutch_mcp_add_blob(struct mcp_result *r, const char *name, const unsigned char *data, size_t len);

/* Members of the structured object: a key, then its value as JSON, which the second one writes. */
struct text_buffer *hutch_mcp_add_key(struct mcp_result *r, const char *key);
void hutch_mcp_add_member(struct mcp_result *r, const char *key, const char *text); /* a string; NULL: null */
void hutch_mcp_add_flag(struct mcp_result *r, const char *key, bool value);

/* A JSON string of @len bytes of text, without its middle where that is more than @max bytes. True: it was cut. */
bool hutch_mcp_quote_excerpt(struct text_buffer *t, const char *text, size_t len, size_t max);

/* "content":[…],"structuredContent":{…},"isError":… */
void hutch_mcp_result_write(const struct mcp_result *r, struct text_buffer *t);

#endif
