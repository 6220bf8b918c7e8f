#include "runtime/lang/python_imports.h"

#include "runtime/lang/program.h"

#include <stdbool.h>
#include <string.h>

struct text {
    const char *p, *end;
};

static bool is_name_byte(char c)
{
    unsigned char u = (unsigned char)c;

    return (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') || (u >= '0' && u <= '9') || u == '_' || u >= 0x80;
}

/* Blanks, and line ends behind a backslash. */
static void skip_blanks(struct text *t)
{
    while (t->p < t->end) {
        if (*t->p == ' ' || *t->p == '\t' || *t->p == '\f')
            t->p++;
        else if (*t->p == '\\' && t->end - t->p >= 2 && t->p[1] == '\n')
            t->p += 2;
        else if (*t->p == '\\' && t->end - t->p >= 3 && t->p[1] == '\r' && t->p[2] == '\n')
            t->p += 3;
        else
            break;
    }
}

static bool take_word(struct text *t, const char *word)
{
    size_t len = strlen(word), left = (size_t)(t->end - t->p);

    if (left < len || memcmp(t->p, word, len) != 0 || (left > len && is_name_byte(t->p[len])))
        return false;
    t->p += len;
    skip_blanks(t);
    return true;
}

/* "a.b.c": its first part is in @ret_name. False when there is no name. */
static bool take_dotted(struct text *t, const char **ret_name, size_t *ret_len)
{
    const char *start = t->p;

    while (t->p < t->end && is_name_byte(*t->p))
        t->p++;
    if (t->p == start)
        return false;
    *ret_name = start;
    *ret_len = (size_t)(t->p - start);
    while (t->p < t->end && (is_name_byte(*t->p) || *t->p == '.'))
        t->p++;
    skip_blanks(t);
    return true;
}

static void take_statement(struct text *t, void (*found)(void *, const char *, size_t), void *context)
{
    const char *name;
    size_t len;

    if (take_word(t, "from")) { /* a relative one begins with a dot and is no module of an image */
        if (take_dotted(t, &name, &len) && take_word(t, "import"))
            found(context, name, len);
    } else if (take_word(t, "import")) {
        while (take_dotted(t, &name, &len)) {
            const char *alias;

            found(context, name, len);
            if (take_word(t, "as"))
                take_dotted(t, &alias, &len);
            if (t->p == t->end || *t->p != ',')
                break;
            t->p++;
            skip_blanks(t);
        }
    }
}

/* To where the next statement could begin: after a line end, ';' or ':'. A string of three quotes is passed over. */
static bool next_statement(struct text *t)
{
    while (t->p < t->end) {
        char c = *t->p++;

        if (c == '\n' || c == ';' || c == ':') {
            skip_blanks(t);
            return true;
        }
        if ((c == '"' || c == '\'') && t->end - t->p >= 2 && t->p[0] == c && t->p[1] == c) {
            const char quotes[] = { c, c, c };
            const char *close = memmem(t->p + 2, (size_t)(t->end - t->p) - 2, quotes, sizeof(quotes));

            t->p = close ? close + sizeof(quotes) : t->end;
        } else if (c == '#') {
            const char *eol = memchr(t->p, '\n', (size_t)(t->end - t->p));

            t->p = eol ? eol : t->end;
        }
    }
    return false;
}

void hutch_imports_scan(const char *code, size_t len, void (*found)(void *context, const char *name, size_t name_len),
                        void *context)
{
    const char *begin = hutch_program_skip_mark(code, &len);
    struct text t = { begin, begin + (len < IMPORTS_MAX_SCAN ? len : IMPORTS_MAX_SCAN) };

    skip_blanks(&t);
    do
        take_statement(&t, found, context);
    while (next_statement(&t));
}
