#include "runtime/gateway/multipart.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* ---- parameters of a header ---- */

/* The value of @name among "; name=value" and "; name="quoted"" of @text, into @to. False: there is none, or it does
 * not fit. */
static bool find_parameter(const char *text, const char *name, char *to, size_t size)
{
    size_t len = strlen(name), n = 0;
    const char *p = text + strcspn(text, ";");

    while (*p == ';') {
        bool is_it;

        p += 1 + strspn(p + 1, " \t");
        is_it = strncasecmp(p, name, len) == 0 && p[len] == '=';
        p += strcspn(p, "=;\"");
        if (*p == '=' && p[1] == '"') {
            for (p += 2, n = 0; *p && *p != '"'; p++) {
                if (*p == '\\' && (p[1] == '"' || p[1] == '\\'))
                    p++;
                if (n + 1 < size)
                    to[n] = *p;
                n++;
            }
            if (*p != '"')
                return false;
            p += 1 + strcspn(p + 1, ";");
        } else if (*p == '=') {
            n = strcspn(++p, "; \t");
            memcpy(to, p, n < size ? n : size - 1);
            p += strcspn(p, ";");
        } else {
            p += strcspn(p, ";");
            continue;
        }
        if (!is_it)
            continue;
        if (n >= size)
            return false;
        to[n] = '\0';
        return true;
    }
    return false;
}

/* Browsers, and what follows them, write a quote and the two of a line end so; no other character. */
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

int hutch_multipart_begin(struct multipart *m, const char *type, const struct multipart_events *events, void *owner,
                          struct hutch_err *err)
{
    *m = (struct multipart){ .events = events, .owner = owner, .delimiter = "\r\n--", .n_matched = 2 };
    if (!type || strncasecmp(type, "multipart/form-data", 19) != 0)
        return hutch_err_set(err, 0, "the body is to be multipart/form-data");
    if (!find_parameter(type, "boundary", m->delimiter + 4, sizeof(m->delimiter) - 4) || !m->delimiter[4] ||
        strpbrk(m->delimiter + 4, "\r\n"))
        return hutch_err_set(err, 0, "the Content-Type has no boundary of 1 to %d characters", MULTIPART_MAX_BOUNDARY);
    m->delimiter_len = strlen(m->delimiter);
    return 0;
}

/* ---- the head of a part ---- */

static int begin_part(struct multipart *m, struct hutch_err *err)
{
    char name[MULTIPART_MAX_HEAD], filename[MULTIPART_MAX_HEAD];
    bool has_name = false, has_filename = false;

    if (memchr(m->head, '\0', m->n_head))
        return hutch_err_set(err, 0, "the head of a part has a NUL in it");
    m->head[m->n_head] = '\0';
    for (char *line = m->head, *next; *line; line = next) {
        char *end = strstr(line, "\r\n");

        next = end ? end + 2 : line + strlen(line);
        if (end)
            *end = '\0';
        if (strncasecmp(line, "Content-Disposition:", 20) != 0)
            continue;
        has_name = find_parameter(line, "name", name, sizeof(name));
        has_filename = find_parameter(line, "filename", filename, sizeof(filename));
    }
    if (has_filename)
        decode_name(filename);
    if (++m->n_parts > MULTIPART_MAX_PARTS)
        return hutch_err_set(err, 0, "there are more than %d parts", MULTIPART_MAX_PARTS);
    m->state = MULTIPART_DATA;
    m->n_head = m->n_matched = 0;
    if (m->events->on_begin(m->owner, has_name ? name : NULL, has_filename ? filename : NULL) < 0)
        return hutch_err_set(err, ECANCELED, "a part was refused");
    return 0;
}

/* One byte of the line behind a delimiter, or of a head. */
static int take_head(struct multipart *m, char c, struct hutch_err *err)
{
    if (m->n_head == MULTIPART_MAX_HEAD)
        return hutch_err_set(err, 0, "the head of a part is longer than %d bytes", MULTIPART_MAX_HEAD);
    m->head[m->n_head++] = c;
    if (m->state == MULTIPART_DELIMITER) {
        if (m->n_head == 2 && memcmp(m->head, "--", 2) == 0) {
            m->state = MULTIPART_END;
        } else if (m->n_head >= 2 && memcmp(m->head + m->n_head - 2, "\r\n", 2) == 0) {
            m->state = MULTIPART_HEAD;
            m->n_head = 0;
        } else if (!strchr(" \t\r-", c)) {
            return hutch_err_set(err, 0, "there is something behind the boundary");
        }
        return 0;
    }
    if ((m->n_head == 2 && memcmp(m->head, "\r\n", 2) == 0) ||
        (m->n_head >= 4 && memcmp(m->head + m->n_head - 4, "\r\n\r\n", 4) == 0))
        return begin_part(m, err);
    return 0;
}

/* ---- data ---- */

static int give_data(struct multipart *m, const char *data, size_t len, struct hutch_err *err)
{
    if (len == 0 || m->state == MULTIPART_PREAMBLE || m->events->on_data(m->owner, data, len) == 0)
        return 0;
    return hutch_err_set(err, ECANCELED, "a part was refused");
}

static int end_part(struct multipart *m, struct hutch_err *err)
{
    bool is_part = m->state == MULTIPART_DATA;

    m->state = MULTIPART_DELIMITER;
    m->n_head = m->n_matched = 0;
    return is_part && m->events->on_end(m->owner) < 0 ? hutch_err_set(err, ECANCELED, "a part was refused") : 0;
}

/* How many of the bytes were taken; -1: an error. The delimiter begins with the one '\r' that is in it, so what had
 * matched before a mismatch cannot have another beginning of it. */
static ssize_t take_data(struct multipart *m, const char *data, size_t len, struct hutch_err *err)
{
    size_t n = 0;

    if (m->n_matched == 0) {
        const char *begin = memchr(data, '\r', len);

        n = begin ? (size_t)(begin - data) : len;
        if (give_data(m, data, n, err) < 0)
            return -1;
        if (n == len)
            return (ssize_t)n;
    }
    while (n < len && m->n_matched < m->delimiter_len && data[n] == m->delimiter[m->n_matched]) {
        n++;
        m->n_matched++;
    }
    if (m->n_matched == m->delimiter_len)
        return end_part(m, err) < 0 ? -1 : (ssize_t)n;
    if (n == len)
        return (ssize_t)n;
    if (give_data(m, m->delimiter, m->n_matched, err) < 0)
        return -1;
    m->n_matched = 0;
    return (ssize_t)n;
}

int hutch_multipart_take(struct multipart *m, const char *data, size_t len, struct hutch_err *err)
{
    while (len > 0 && m->state != MULTIPART_END) { /* what follows the end is nobody's */
        ssize_t n = 1;

        if (m->state == MULTIPART_PREAMBLE || m->state == MULTIPART_DATA)
            n = take_data(m, data, len, err);
        else if (take_head(m, *data, err) < 0)
            n = -1;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int hutch_multipart_finish(const struct multipart *m, struct hutch_err *err)
{
    return m->state == MULTIPART_END ? 0 : hutch_err_set(err, 0, "the body ends within a part");
}
