#include "runtime/text/http_reader.h"

#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define MAX_SIZE_LINE 32 /* of a chunk */

static int refuse(struct hutch_err *err, const char *what)
{
    return hutch_err_set(err, 0, "read the answer of the server: %s", what);
}

/* ---- the head ---- */

/* The value of a header that is there once, in its line; NULL: there is none. */
static const char *find_header(const char *head, const char *name)
{
    const size_t len = strlen(name);

    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, len) == 0 && line[2 + len] == ':')
            return line + 3 + len + strspn(line + 3 + len, " \t");
    return NULL;
}

static int read_number(const char *text, unsigned base, uint64_t *ret)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t n = 0;
    size_t i = 0;

    for (; text[i] && text[i] != '\r'; i++) {
        const char *digit = memchr(digits, text[i] | 0x20, base);

        if (!digit || i == 15)
            return -1;
        n = n * base + (uint64_t)(digit - digits);
    }
    *ret = n;
    return i > 0 ? 0 : -1;
}

static int read_head(struct http_reader *r, struct hutch_err *err)
{
    const char *head = r->line.data, *length, *encoding;

    if (strncmp(head, "HTTP/1.1 ", 9) != 0 || strspn(head + 9, "0123456789") != 3 || head[12] != ' ')
        return refuse(err, "it is no HTTP");
    r->status = (unsigned)(head[9] - '0') * 100 + (unsigned)(head[10] - '0') * 10 + (unsigned)(head[11] - '0');
    length = find_header(head, "Content-Length");
    encoding = find_header(head, "Transfer-Encoding");
    r->length = HTTP_READER_ENDLESS;
    if (length && read_number(length, 10, &r->length) < 0)
        return refuse(err, "its length is none");
    if (r->status == 101 || r->status == 204 || r->has_no_body) {
        r->state = r->status == 101 ? HTTP_OTHER : HTTP_OVER;
        return 0;
    }
    if (!length == !encoding)
        return refuse(err, "it does not say how long it is");
    if (encoding) {
        if (strncasecmp(encoding, "chunked\r\n", 9) != 0)
            return refuse(err, "its body is encoded");
        r->state = HTTP_CHUNK_SIZE;
        return 0;
    }
    r->left = r->length;
    r->state = r->left ? HTTP_LENGTH : HTTP_OVER;
    return 0;
}

/* ---- what comes ---- */

/* One byte more of what ends with @end; 1: it is whole, with a NUL behind it. */
static int take_line(struct http_reader *r, char c, const char *end, size_t max, struct hutch_err *err)
{
    const size_t len = strlen(end);

    hutch_text_add(&r->line, &c, 1);
    if (r->line.is_broken)
        return hutch_err_set(err, ENOMEM, "read the answer of the server");
    if (c == '\0' || r->line.len > max)
        return refuse(err, "a line of it is too long, or no text");
    if (r->line.len < len || memcmp(r->line.data + r->line.len - len, end, len) != 0)
        return 0;
    hutch_text_add(&r->line, "", 1);
    return r->line.is_broken ? hutch_err_set(err, ENOMEM, "read the answer of the server") : 1;
}

static int take_body(struct http_reader *r, const char *data, size_t len, struct hutch_err *err)
{
    if (r->body.len + len > HTTP_READER_MAX_BODY)
        return refuse(err, "it is too large");
    hutch_text_add(&r->body, data, len);
    r->left -= r->state == HTTP_OTHER ? 0 : len;
    return r->body.is_broken ? hutch_err_set(err, ENOMEM, "keep the answer of the server") : 0;
}

static int end_line(struct http_reader *r, struct hutch_err *err)
{
    int rc = 0;

    switch (r->state) {
    case HTTP_HEAD:
        rc = read_head(r, err);
        if (rc == 0 && r->keeps_head) {
            r->head = r->line;
            r->line = (struct text_buffer)TEXT_BUFFER_INIT;
        }
        break;
    case HTTP_CHUNK_SIZE:
        rc = read_number(r->line.data, 16, &r->left) < 0 ? refuse(err, "a chunk of it has no length") : 0;
        r->state = r->left ? HTTP_CHUNK : HTTP_TRAILER;
        break;
    case HTTP_CHUNK_END:
        rc = strcmp(r->line.data, "\r\n") != 0 ? refuse(err, "a chunk of it is too long") : 0;
        r->state = HTTP_CHUNK_SIZE;
        break;
    default: /* HTTP_TRAILER: no server of ours has headers there */
        rc = strcmp(r->line.data, "\r\n") != 0 ? refuse(err, "it goes on behind its end") : 0;
        r->state = HTTP_OVER;
        break;
    }
    hutch_text_done(&r->line);
    return rc;
}

int hutch_http_reader_feed(struct http_reader *r, const char *data, size_t len, struct hutch_err *err)
{
    while (len > 0) {
        const bool is_body = r->state == HTTP_LENGTH || r->state == HTTP_CHUNK || r->state == HTTP_OTHER;
        size_t n = 1;
        int rc;

        if (r->state == HTTP_OVER)
            return refuse(err, "it goes on behind its end");
        if (is_body) {
            n = r->state == HTTP_OTHER || len < r->left ? len : (size_t)r->left;
            rc = take_body(r, data, n, err);
            if (rc == 0 && r->left == 0 && r->state != HTTP_OTHER)
                r->state = r->state == HTTP_CHUNK ? HTTP_CHUNK_END : HTTP_OVER;
        } else {
            rc = r->state == HTTP_HEAD ? take_line(r, *data, "\r\n\r\n", HTTP_READER_MAX_HEAD, err)
                                       : take_line(r, *data, "\r\n", MAX_SIZE_LINE, err);
            if (rc > 0)
                rc = end_line(r, err);
        }
        if (rc < 0)
            return -1;
        data += n;
        len -= n;
    }
    return 0;
}

bool hutch_http_reader_is_over(const struct http_reader *r)
{
    return r->state == HTTP_OVER;
}

size_t hutch_http_reader_line(const struct http_reader *r, size_t from)
{
    const char *end = r->body.len > from ? memchr(r->body.data + from, '\n', r->body.len - from) : NULL;

    return end ? (size_t)(end - r->body.data) + 1 - from : 0;
}

bool hutch_http_reader_next_header(const struct http_reader *r, size_t *at, const char **ret_name, size_t *ret_name_len,
                                   const char **ret_value, size_t *ret_value_len)
{
    const char *line = r->head.data + *at, *end, *colon;

    if (!r->head.data)
        return false;
    if (*at == 0) /* behind the status */
        line = strstr(line, "\r\n") + 2;
    end = strstr(line, "\r\n");
    colon = end ? memchr(line, ':', (size_t)(end - line)) : NULL;
    if (!colon || colon == line)
        return false;
    *ret_name = line;
    *ret_name_len = (size_t)(colon - line);
    colon += 1 + strspn(colon + 1, " \t");
    *ret_value = colon;
    *ret_value_len = (size_t)(end - colon);
    *at = (size_t)(end + 2 - r->head.data);
    return true;
}

void hutch_http_reader_done(struct http_reader *r)
{
    hutch_text_done(&r->head);
    hutch_text_done(&r->line);
    hutch_text_done(&r->body);
}
