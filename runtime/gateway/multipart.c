#include "runtime/gateway/multipart.h"

#include "runtime/gateway/uri.h"
#include "sandbox/fd.h"

#include <string.h>
#include <strings.h>

/* Browsers, and what follows them, write a quote and the two characters of a line end so, and no other: HTML,
 * "multipart/form-data encoding". */
static void decode_name(char *name)
{
    static const struct { const char *code; char is; } rows[] = { { "%22", '"' }, { "%0D", '\r' }, { "%0A", '\n' } };
    char *to = name;

    while (*name) {
        size_t i = 0;

        while (i < ARRAY_SIZE(rows) && strncasecmp(name, rows[i].code, 3) != 0)
            i++;
        *to++ = i < ARRAY_SIZE(rows) ? rows[i].is : *name;
        name += i < ARRAY_SIZE(rows) ? 3 : 1;
    }
    *to = '\0';
}

/* ---- the boundary ---- */

/* Copies the value of a parameter, in quotes or not, to @to; how long it is in the header, 0 when it is none. */
static size_t read_value(const char *text, char *to, size_t room)
{
    size_t n = 0, len = 0;

    if (text[0] != '"') {
        len = strcspn(text, "; \t\r\n\"");
        if (len >= room)
            return 0;
        memcpy(to, text, len);
        to[len] = '\0';
        return len;
    }
    for (n = 1; text[n] && text[n] != '"'; n++) {
        if (text[n] == '\\' && (text[n + 1] == '"' || text[n + 1] == '\\'))
            n++; /* other backslashes are a part of the text: browsers send paths of Windows */
        if (len + 1 >= room)
            return 0;
        to[len++] = text[n];
    }
    to[len] = '\0';
    return text[n] == '"' ? n + 1 : 0;
}

/* The next of "; name=value"; its length, 0 at the end, or when it is none. */
static size_t next_parameter(const char *text, char *name, size_t name_room, char *value, size_t value_room)
{
    size_t at = strspn(text, " \t"), len;

    if (text[at] != ';')
        return 0;
    at++;
    at += strspn(text + at, " \t");
    len = strcspn(text + at, "=; \t\"");
    if (len == 0 || len >= name_room || text[at + len] != '=')
        return 0;
    memcpy(name, text + at, len);
    name[len] = '\0';
    at += len + 1;
    len = read_value(text + at, value, value_room);
    return len ? at + len : 0;
}

static bool is_boundary(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && text[len - 1] != ' ' &&
           strspn(text, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'()+_,-./:=? ") == len;
}

int hutch_multipart_open(struct multipart *m, const char *type, const struct multipart_events *events, void *user,
                         struct hutch_err *err)
{
    char name[32], value[MULTIPART_MAX_BOUNDARY + 1], boundary[MULTIPART_MAX_BOUNDARY + 1] = "";
    size_t at = strcspn(type, "; \t"), len;

    for (; (len = next_parameter(type + at, name, sizeof(name), value, sizeof(value))); at += len)
        if (strcasecmp(name, "boundary") == 0 && !boundary[0])
            memcpy(boundary, value, sizeof(boundary));
    if (!is_boundary(boundary))
        return hutch_err_set(err, 0, "the Content-Type has no boundary of 1 to %d characters", MULTIPART_MAX_BOUNDARY);
    m->events = events;
    m->user = user;
    m->state = MULTIPART_PREAMBLE;
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, strlen(boundary) + 1);
    m->delimiter_len = strlen(m->delimiter);
    m->n_matched = 2; /* at the very beginning no line has to end before it */
    m->head_len = m->n_parts = m->n_taken = 0;
    m->stops = false;
    return 0;
}

/* ---- headers of a part ---- */

struct disposition {
    bool is_there, has_filename, has_extended;
    char name[256], filename[4096]; /* @has_extended alone: the latter is encoded */
};

static int read_disposition(const char *value, struct disposition *to, struct hutch_err *err)
{
    size_t at = strcspn(value, "; \t"), len;
    char name[32], text[sizeof(to->filename)];
    bool has_name = false;

    if (to->is_there)
        return hutch_err_set(err, 0, "a part has two headers Content-Disposition");
    if (at != 9 || strncasecmp(value, "form-data", 9) != 0)
        return hutch_err_set(err, 0, "a part's Content-Disposition is not 'form-data'");
    to->is_there = true;
    for (; (len = next_parameter(value + at, name, sizeof(name), text, sizeof(text))); at += len) {
        if (strcasecmp(name, "name") == 0 && !has_name && strlen(text) < sizeof(to->name)) {
            has_name = true;
            memcpy(to->name, text, strlen(text) + 1);
        } else if (strcasecmp(name, "filename") == 0 && !to->has_filename) {
            to->has_filename = true;
            memcpy(to->filename, text, strlen(text) + 1);
        } else if (strcasecmp(name, "filename*") == 0) { /* RFC 7578, 4.2: it is not to be sent, and some do */
            if (!to->has_filename && !to->has_extended)
                memcpy(to->filename, text, strlen(text) + 1);
            to->has_extended = true;
        } else {
            return hutch_err_set(err, 0, "a part's Content-Disposition has '%s' twice, too long or for nothing", name);
        }
    }
    if (value[at + strspn(value + at, " \t")])
        return hutch_err_set(err, 0, "a part's Content-Disposition cannot be read, or is too long");
    return has_name ? 0 : hutch_err_set(err, 0, "a part has no name");
}

/* UTF-8'language'name, with %XX: RFC 8187. Of another character set there is no name. */
static int decode_extended(struct disposition *d, struct hutch_err *err)
{
    const char *name = strncasecmp(d->filename, "utf-8'", 6) == 0 ? strchr(d->filename + 6, '\'') : NULL;
    auto_free char *decoded = name ? hutch_uri_decode(name + 1, strlen(name + 1), err) : NULL;

    if (!name)
        return 0;
    if (!decoded)
        return hutch_err_wrap(err, "a part's 'filename*'");
    d->has_filename = true;
    memcpy(d->filename, decoded, strlen(decoded) + 1); /* which is shorter */
    return 0;
}

static int decode_disposition(struct disposition *d, struct hutch_err *err)
{
    decode_name(d->name);
    if (!d->has_filename && d->has_extended)
        return decode_extended(d, err);
    decode_name(d->filename);
    return 0;
}

/* @head: lines, the last without its end, which are cut here. */
static int begin_part(struct multipart *m, char *head, struct hutch_err *err)
{
    struct disposition d = { .is_there = false };
    static const char wanted[] = "content-disposition:";

    for (char *line = head, *next; line; line = next) {
        char *end = strstr(line, "\r\n");

        next = end ? end + 2 : NULL;
        if (end)
            *end = '\0';
        if (strchr(line, '\r') || strchr(line, '\n') || line[strcspn(line, ": \t")] != ':' || line[0] == ':')
            return hutch_err_set(err, 0, "a part has a header that is none");
        if (strncasecmp(line, wanted, sizeof(wanted) - 1) == 0 &&
            read_disposition(line + sizeof(wanted) - 1 + strspn(line + sizeof(wanted) - 1, " \t"), &d, err) < 0)
            return -1;
    }
    if (!d.is_there)
        return hutch_err_set(err, 0, "a part has no Content-Disposition");
    if (m->n_parts++ == MULTIPART_MAX_PARTS)
        return hutch_err_set(err, 0, "there are more than %d parts", MULTIPART_MAX_PARTS);
    if (decode_disposition(&d, err) < 0)
        return -1;
    return m->events->on_part(m->user, d.name, d.has_filename ? d.filename : NULL, err);
}

/* One byte more; they are over with an empty line. */
static int take_header(struct multipart *m, char c, struct hutch_err *err)
{
    if (c == '\0')
        return hutch_err_set(err, 0, "a part has a NUL byte among its headers");
    if (m->head_len + 1 == sizeof(m->head))
        return hutch_err_set(err, 0, "the headers of a part have more than %d bytes", MULTIPART_MAX_HEADERS - 1);
    m->head[m->head_len++] = c;
    if (m->head_len == 2 && memcmp(m->head, "\r\n", 2) == 0)
        return hutch_err_set(err, 0, "a part has no headers");
    if (m->head_len < 4 || memcmp(m->head + m->head_len - 4, "\r\n\r\n", 4) != 0)
        return 0;
    m->head[m->head_len - 4] = '\0';
    m->head_len = 0;
    m->state = MULTIPART_DATA;
    return begin_part(m, m->head, err);
}

/* ---- between parts ---- */

static int take_behind_boundary(struct multipart *m, char c, struct hutch_err *err)
{
    m->head[m->head_len++] = c;
    if (m->head_len < 2)
        return 0;
    m->head_len = 0;
    if (memcmp(m->head, "--", 2) == 0)
        m->state = MULTIPART_OVER;
    else if (memcmp(m->head, "\r\n", 2) == 0)
        m->state = MULTIPART_HEADERS;
    else
        return hutch_err_set(err, 0, "a boundary is not followed by the end of its line");
    return 0;
}

/* ---- data ---- */

static int give(struct multipart *m, const char *data, size_t len, struct hutch_err *err)
{
    return m->state == MULTIPART_DATA && len ? m->events->on_data(m->user, data, len, err) : 0;
}

static int end_data(struct multipart *m, struct hutch_err *err)
{
    bool is_part = m->state == MULTIPART_DATA;

    m->n_matched = 0;
    m->state = MULTIPART_BOUNDARY;
    return is_part ? m->events->on_end(m->user, err) : 0;
}

/* How many bytes at the end of @data may begin a delimiter. It has a CR at its beginning and nowhere else, so only the
 * last CR can. */
static size_t count_begun(const struct multipart *m, const char *data, size_t len)
{
    size_t tail = len < m->delimiter_len ? len : m->delimiter_len - 1;
    const char *cr = memrchr(data + len - tail, '\r', tail);
    size_t n = cr ? (size_t)(data + len - cr) : 0;

    return n && memcmp(cr, m->delimiter, n) == 0 ? n : 0;
}

/* Goes on with a delimiter that the end of an earlier piece has begun. What does not go on as it does can only begin
 * anew. */
static ssize_t take_begun(struct multipart *m, char c, struct hutch_err *err)
{
    size_t n = m->n_matched;

    if (c != m->delimiter[n]) {
        m->n_matched = 0;
        return give(m, m->delimiter, n, err) < 0 ? -1 : 0; /* the byte is looked at again */
    }
    if (++m->n_matched == m->delimiter_len && end_data(m, err) < 0)
        return -1;
    return 1;
}

/* Takes one byte at least, but for what take_begun() looks at again; returns how many, -1 on failure. What has come in
 * one piece is given in one: a file may be full of what looks like a delimiter, and each call writes to it. */
static ssize_t take_data(struct multipart *m, const char *data, size_t len, struct hutch_err *err)
{
    const char *found;
    size_t n;

    if (m->n_matched > 0)
        return take_begun(m, data[0], err);
    found = memmem(data, len, m->delimiter, m->delimiter_len);
    if (found) {
        n = (size_t)(found - data);
        return give(m, data, n, err) < 0 || end_data(m, err) < 0 ? -1 : (ssize_t)(n + m->delimiter_len);
    }
    n = count_begun(m, data, len);
    if (give(m, data, len - n, err) < 0)
        return -1;
    m->n_matched = n;
    return (ssize_t)len;
}

ssize_t hutch_multipart_feed(struct multipart *m, const char *data, size_t len, struct hutch_err *err)
{
    size_t at = 0;

    m->stops = false;
    while (at < len && m->state != MULTIPART_OVER && !m->stops) {
        bool is_head = m->state == MULTIPART_BOUNDARY || m->state == MULTIPART_HEADERS;
        ssize_t n = 1;

        m->n_taken += is_head;
        if (m->state == MULTIPART_BOUNDARY)
            n = take_behind_boundary(m, data[at], err) < 0 ? -1 : 1;
        else if (m->state == MULTIPART_HEADERS)
            n = take_header(m, data[at], err) < 0 ? -1 : 1;
        else
            n = take_data(m, data + at, len - at, err);
        if (n < 0)
            return -1;
        m->n_taken += is_head ? 0 : (size_t)n;
        at += (size_t)n;
    }
    return (ssize_t)(m->stops ? at : len);
}

int hutch_multipart_finish(const struct multipart *m, struct hutch_err *err)
{
    return m->state == MULTIPART_OVER ? 0 : hutch_err_set(err, 0, "the body ends before its last boundary");
}
