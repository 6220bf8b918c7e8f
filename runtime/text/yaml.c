#include "runtime/text/yaml.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Where the reading is: what is left of one line, without the blanks before it. The text ends with at < end false. */
struct reader {
    const char *what, *next, *end; /* next: the line after this one */
    const char *at, *eol;          /* eol: without comment and blanks */
    size_t indent, line;
    bool is_over;
    struct text_buffer json;
    struct hutch_err *err;
};

static int read_node(struct reader *r, size_t indent, unsigned depth);

static int refuse(const struct reader *r, const char *why)
{
    return hutch_err_set(r->err, 0, "%s: line %zu: %s", r->what, r->line, why);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The end of what counts in a line from @p on: a '#' behind a blank, outside of quotes, begins a comment. */
static const char *find_end(const char *p, const char *eol)
{
    char quote = 0;

    for (const char *q = p; q < eol; q++) {
        if (quote == '"' && *q == '\\' && q + 1 < eol)
            q++;
        else if (quote)
            quote = *q == quote ? 0 : quote;
        else if ((*q == '"' || *q == '\'') && (q == p || is_blank(q[-1])))
            quote = *q;
        else if (*q == '#' && (q == p || is_blank(q[-1])))
            eol = q;
    }
    while (eol > p && (is_blank(eol[-1]) || eol[-1] == '\r'))
        eol--;
    return eol;
}

/* To the next line that has something. */
static int next_line(struct reader *r)
{
    for (;;) {
        const char *eol;

        if (r->next >= r->end) {
            r->is_over = true;
            return 0;
        }
        r->at = r->next;
        eol = memchr(r->at, '\n', (size_t)(r->end - r->at));
        if (!eol)
            eol = r->end;
        r->next = eol < r->end ? eol + 1 : r->end;
        r->line++;
        for (r->indent = 0; r->at < eol && *r->at == ' '; r->at++)
            r->indent++;
        r->eol = find_end(r->at, eol);
        if (r->at < r->eol && *r->at == '\t')
            return refuse(r, "a tab in the indentation");
        if (r->at < r->eol)
            return 0;
    }
}

static bool is_item(const struct reader *r)
{
    return *r->at == '-' && (r->at + 1 == r->eol || r->at[1] == ' ');
}

/* --- scalars ---------------------------------------------------------------------------------------------------- */

static bool is_word(const char *p, const char *end, const char *word)
{
    return (size_t)(end - p) == strlen(word) && memcmp(p, word, strlen(word)) == 0;
}

/* What JSON has as a number too, without fractions and exponents, which nothing here needs: those stay texts. */
static bool is_number(const char *p, const char *end)
{
    p += p < end && *p == '-';
    if (p == end || end - p > 15 || (*p == '0' && end - p > 1))
        return false;
    for (; p < end; p++)
        if (*p < '0' || *p > '9')
            return false;
    return true;
}

static int add_single_quoted(struct reader *r, const char *p, const char *end)
{
    struct text_buffer text = TEXT_BUFFER_INIT;

    for (p++, end--; p < end; p++) {
        if (*p == '\'' && (p + 1 == end || *++p != '\'')) {
            hutch_text_done(&text);
            return refuse(r, "a text goes on behind its closing quote");
        }
        hutch_text_add(&text, p, 1);
    }
    hutch_json_quote(&r->json, text.data ? text.data : "", text.len);
    r->json.is_broken |= text.is_broken;
    hutch_text_done(&text);
    return 0;
}

/* The escapes that JSON has, too; the reader of the JSON looks at what follows a \u. */
static int add_double_quoted(struct reader *r, const char *p, const char *end)
{
    for (const char *q = p + 1; q < end - 1; q++) {
        if (*q == '"')
            return refuse(r, "a text goes on behind its closing quote");
        if (*q == '\\' && (++q == end - 1 || !strchr("\"\\/bfnrtu", *q)))
            return refuse(r, "an escape that JSON has not got");
    }
    hutch_text_add(&r->json, p, (size_t)(end - p));
    return 0;
}

static int add_plain(struct reader *r, const char *p, const char *end)
{
    if (strchr("&*!|>{}[]%@`,?:", *p) || is_item(r))
        return refuse(r, "something other than mappings, sequences and texts of one line");
    for (const char *q = p; q + 1 < end; q++)
        if (*q == ':' && is_blank(q[1]))
            return refuse(r, "a mapping where a text is expected");
    if (is_word(p, end, "~"))
        hutch_text_add_string(&r->json, "null");
    else if (is_word(p, end, "null") || is_word(p, end, "true") || is_word(p, end, "false") || is_number(p, end))
        hutch_text_add(&r->json, p, (size_t)(end - p));
    else
        hutch_json_quote(&r->json, p, (size_t)(end - p));
    return 0;
}

static int add_scalar(struct reader *r, const char *p, const char *end)
{
    if (is_word(p, end, "{}") || is_word(p, end, "[]")) {
        hutch_text_add(&r->json, p, 2);
        return 0;
    }
    if (*p != '"' && *p != '\'')
        return add_plain(r, p, end);
    if (end - p < 2 || end[-1] != *p)
        return refuse(r, "a text without its closing quote on the same line");
    return *p == '"' ? add_double_quoted(r, p, end) : add_single_quoted(r, p, end);
}

/* --- collections ------------------------------------------------------------------------------------------------ */

static int read_sequence(struct reader *r, size_t indent, unsigned depth)
{
    const char *before = "[";

    while (!r->is_over && r->indent == indent && is_item(r)) {
        hutch_text_add_string(&r->json, before);
        before = ",";
        for (r->at++, r->indent++; r->at < r->eol && *r->at == ' '; r->at++)
            r->indent++;
        if (r->at == r->eol) {
            if (next_line(r) < 0)
                return -1;
            if (r->is_over || r->indent <= indent) {
                hutch_text_add_string(&r->json, "null");
                continue;
            }
        }
        if (read_node(r, r->indent, depth + 1) < 0)
            return -1;
    }
    hutch_text_add_string(&r->json, "]");
    return 0;
}

/* The ':' behind the key at @p; NULL: there is no key. */
static const char *find_colon(const char *p, const char *end)
{
    const char *q = p;

    if (*p == '"' || *p == '\'') {
        for (q++; q < end && *q != *p; q++)
            q += *q == '\\' && *p == '"' && q + 1 < end;
        q++;
    } else {
        while (q < end && !(*q == ':' && (q + 1 == end || is_blank(q[1]))))
            q++;
    }
    return q < end && *q == ':' && (q + 1 == end || is_blank(q[1])) ? q : NULL;
}

static int read_value(struct reader *r, size_t indent, unsigned depth)
{
    bool is_below;

    if (r->at < r->eol) {
        if (add_scalar(r, r->at, r->eol) < 0)
            return -1;
        return next_line(r);
    }
    if (next_line(r) < 0)
        return -1;
    /* A sequence may stand as far left as the key that it belongs to. */
    is_below = !r->is_over && (r->indent > indent || (r->indent == indent && is_item(r)));
    if (is_below)
        return read_node(r, r->indent, depth + 1);
    hutch_text_add_string(&r->json, "null");
    return 0;
}

static int read_mapping(struct reader *r, size_t indent, unsigned depth)
{
    const char *before = "{";

    while (!r->is_over && r->indent == indent && !is_item(r)) {
        const char *colon = find_colon(r->at, r->eol);

        if (!colon || colon == r->at)
            return refuse(r, "a key and ':' are expected");
        hutch_text_add_string(&r->json, before);
        before = ",";
        if (*r->at == '"' || *r->at == '\'') {
            if (add_scalar(r, r->at, colon) < 0)
                return -1;
        } else {
            if (strchr("&*!|>{}[]%@`,?#", *r->at))
                return refuse(r, "a key of another kind than a text");
            hutch_json_quote(&r->json, r->at, (size_t)(colon - r->at));
        }
        hutch_text_add_string(&r->json, ":");
        for (r->at = colon + 1; r->at < r->eol && is_blank(*r->at);)
            r->at++;
        if (read_value(r, indent, depth) < 0)
            return -1;
    }
    hutch_text_add_string(&r->json, "}");
    return 0;
}

static int read_node(struct reader *r, size_t indent, unsigned depth)
{
    if (depth > YAML_MAX_DEPTH)
        return refuse(r, "too many levels");
    if (is_item(r))
        return read_sequence(r, indent, depth);
    if (find_colon(r->at, r->eol))
        return read_mapping(r, indent, depth);
    if (add_scalar(r, r->at, r->eol) < 0)
        return -1;
    return next_line(r);
}

static int read_document(struct reader *r)
{
    if (next_line(r) < 0)
        return -1;
    if (!r->is_over && r->indent == 0 && is_word(r->at, r->eol, "---") && next_line(r) < 0)
        return -1;
    if (r->is_over)
        return refuse(r, "there is nothing in it");
    if (read_node(r, r->indent, 1) < 0)
        return -1;
    return r->is_over ? 0 : refuse(r, "a line that belongs to nothing above it");
}

int hutch_yaml_to_json(const char *what, const char *text, size_t len, char **ret, size_t *ret_len,
                       struct hutch_err *err)
{
    struct reader r = { .what = what, .next = text, .end = text + len, .json = TEXT_BUFFER_INIT, .err = err };
    char *json;

    if (memchr(text, '\0', len))
        return hutch_err_set(err, 0, "%s: there is a NUL byte in it", what);
    if (read_document(&r) < 0) {
        hutch_text_done(&r.json);
        return -1;
    }
    json = hutch_text_take(&r.json, ret_len);
    if (!json)
        return hutch_err_set(err, ENOMEM, "read %s", what);
    *ret = json;
    return 0;
}
