#include "runtime/lang/requirement.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 120 /* bytes of a requirement in messages */

static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void hutch_requirement_list_done(struct requirement_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->texts[i]);
    free(list->texts);
    *list = (struct requirement_list)REQUIREMENT_LIST_INIT;
}

/* --- one -------------------------------------------------------------------------------------------------------- */

static int refuse(const char *text, size_t len, const char *why, struct hutch_err *err)
{
    return hutch_err_set(err, 0, "the requirement '%.*s' %s", (int)(len < SHOWN ? len : SHOWN), text, why);
}

/* Name in small letters with '-', and then the rest with single spaces and none around operators. */
static char *normalise(const char *text, size_t len)
{
    size_t name = 0, n = 0;
    char *to = malloc(len + 1);
    bool is_quoted = false;

    while (to && name < len && strchr(name_chars, text[name]))
        name++;
    for (size_t i = 0; to && i < name; i++) {
        char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];

        if ((c == '_' || c == '.' || c == '-') && n > 0 && to[n - 1] == '-')
            continue;
        to[n++] = c == '_' || c == '.' ? '-' : c;
    }
    for (size_t i = name; to && i < len; i++) {
        if (text[i] == '\'' || text[i] == '"')
            is_quoted = !is_quoted;
        if (!is_space(text[i]) || is_quoted) {
            to[n++] = text[i];
            continue;
        }
        while (i + 1 < len && is_space(text[i + 1]))
            i++;
        if (i + 1 < len && !strchr("<>=!~,;[]()@", text[i + 1]) && n > 0 && !strchr("<>=!~,;[](@", to[n - 1]))
            to[n++] = ' ';
    }
    if (to)
        to[n] = '\0';
    return to;
}

static int insert(struct requirement_list *list, char *text, struct hutch_err *err)
{
    char **bigger;
    size_t at = 0;

    while (at < list->n && strcmp(list->texts[at], text) < 0)
        at++;
    if (at < list->n && strcmp(list->texts[at], text) == 0) {
        free(text);
        return 0;
    }
    bigger = list->n < REQUIREMENT_MAX ? reallocarray(list->texts, list->n + 1, sizeof(*bigger)) : NULL;
    if (!bigger) {
        free(text);
        return list->n < REQUIREMENT_MAX ? hutch_err_set(err, ENOMEM, "list the requirements")
                                         : hutch_err_set(err, 0, "more than %d requirements", REQUIREMENT_MAX);
    }
    memmove(bigger + at + 1, bigger + at, (list->n - at) * sizeof(*bigger));
    bigger[at] = text;
    list->texts = bigger;
    list->n++;
    return 0;
}

/* pip takes what follows a space and begins with '-' for an option, also within quotes, and one such option can allow
 * what hutch has forbidden. */
static bool has_option(const char *text)
{
    static const char hash[] = "--hash=sha256:";

    for (const char *p = text; *p; p++) {
        if (!is_space(*p) || p[1] != '-')
            continue;
        if (strncmp(p + 1, hash, strlen(hash)) != 0)
            return true;
        p += strlen(hash);
        p += strspn(p + 1, "0123456789abcdefABCDEF");
        if (p[1] && p[1] != ' ')
            return true;
    }
    return false;
}

/* Of what is behind "@": a wheel, by TLS. pip would build anything else, which is to run its code. */
static bool is_wheel_url(const char *url)
{
    static const char begin[] = "https://", end[] = ".whl";
    const size_t len = strcspn(url, "#?; ");

    return strncmp(url, begin, strlen(begin)) == 0 && len > strlen(begin) + strlen(end) &&
           strncmp(url + len - strlen(end), end, strlen(end)) == 0;
}

static const char *find_url(const char *text)
{
    const char *at = text + strspn(text, name_chars);

    if (*at == '[')
        at += strcspn(at, "]") + (strchr(at, ']') != NULL);
    return *at == '@' ? at + 1 : NULL;
}

static int check_rest(const char *text, bool is_foreign, struct hutch_err *err)
{
    const char *url = find_url(text);

    if (has_option(text))
        return refuse(text, strlen(text), "has an option of pip's behind it: --hash=sha256:… is the one that it may "
                      "have", err);
    if (strpbrk(text, "$\\"))
        return refuse(text, strlen(text), "has a '$' or a '\\', which no requirement needs", err);
    if (!url && memchr(text, '/', strcspn(text, ";"))) /* pip takes that for a path, whatever stands in front */
        return refuse(text, strlen(text), "has a '/' in it, so pip would take it for a path: write NAME or "
                      "NAME>=VERSION", err);
    if (url && is_foreign)
        return refuse(text, strlen(text), "is a URL, which a script may not have asked for: --with takes it", err);
    if (url && !is_wheel_url(url))
        return refuse(text, strlen(text), "is neither a package of the index nor a wheel at https://….whl", err);
    return 0;
}

static int add(struct requirement_list *list, const char *text, size_t len, bool is_foreign, struct hutch_err *err)
{
    static const char *const places[] = { "git+", "hg+", "svn+", "file:", "http:", "https:", ".", "/" };
    size_t name = 0, behind;
    char *copy;

    while (len > 0 && is_space(*text)) {
        text++;
        len--;
    }
    while (len > 0 && is_space(text[len - 1]))
        len--;
    if (len == 0)
        return hutch_err_set(err, 0, "a requirement is empty");
    if (len > REQUIREMENT_MAX_TEXT)
        return refuse(text, len, "is too long", err);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' ? text[i] != '\t' : (unsigned char)text[i] >= 127)
            return refuse(text, len, "has a character that no requirement has", err);
    if (text[0] == '-')
        return refuse(text, len, "is an option of pip's: hutch has --index, --wheels and --allow-build for what it "
                      "takes", err);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (strncmp(text, places[i], strlen(places[i])) == 0)
            return refuse(text, len, "has no name: NAME, NAME>=VERSION or NAME @ URL (a wheel that is here is given as "
                                     "FILE.whl)", err);
    if (!is_alnum(text[0]))
        return refuse(text, len, "does not begin with a name", err);
    while (name < len && strchr(name_chars, text[name]))
        name++;
    behind = name;
    while (behind < len && is_space(text[behind]))
        behind++;
    if (behind < len && !strchr("<>=!~;[(@", text[behind]) && (behind == name || text[behind] != '-'))
        return refuse(text, len, "is none: NAME, NAME>=VERSION, NAME[EXTRA] or NAME @ URL", err);
    copy = normalise(text, len);
    if (!copy)
        return hutch_err_set(err, ENOMEM, "list the requirements");
    if (check_rest(copy, is_foreign, err) < 0) {
        free(copy);
        return -1;
    }
    return insert(list, copy, err);
}

int hutch_requirement_add(struct requirement_list *list, const char *text, size_t len, struct hutch_err *err)
{
    return add(list, text, len, false, err);
}

/* --- several ---------------------------------------------------------------------------------------------------- */

int hutch_requirement_add_words(struct requirement_list *list, const char *text, struct hutch_err *err)
{
    const char *begin = text;
    char quote = '\0'; /* of a marker's text */
    int depth = 0;

    for (const char *p = text;; p++) {
        const char *next = p + 1;

        if (*p == '\'' || *p == '"')
            quote = quote == *p ? '\0' : quote ? quote : *p;
        depth += *p == '[' || *p == '(' ? 1 : *p == ']' || *p == ')' ? -1 : 0;
        while (*p == ',' && is_space(*next))
            next++;
        if (*p && (*p != ',' || depth > 0 || quote || !is_alnum(*next)))
            continue;
        if (hutch_requirement_add(list, begin, (size_t)(p - begin), err) < 0)
            return -1;
        if (!*p)
            return 0;
        begin = next;
    }
}

/* Joins lines that end in a backslash, into @line. Returns where the next one begins. */
static size_t read_line(const char *text, size_t len, size_t at, char *line, size_t *ret_len)
{
    size_t n = 0;

    while (at < len && text[at] != '\n') {
        if (text[at] == '\\' && (at + 1 == len || text[at + 1] == '\n' ||
                                 (text[at + 1] == '\r' && at + 2 < len && text[at + 2] == '\n'))) {
            at += at + 1 < len && text[at + 1] == '\r' ? 3 : 2;
            line[n++] = ' ';
            continue;
        }
        line[n++] = text[at++];
    }
    *ret_len = n;
    return at < len ? at + 1 : len;
}

/* Without a comment, which begins the line or comes behind a space. */
static size_t strip(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] == '#' && (i == 0 || is_space(line[i - 1])))
            len = i;
    while (len > 0 && is_space(line[len - 1]))
        len--;
    return len;
}

int hutch_requirement_add_file(struct requirement_list *list, const char *text, size_t len, struct hutch_err *err)
{
    auto_free char *line = malloc(len + 1);
    unsigned number = 0;
    size_t n, at = 0;

    if (!line)
        return hutch_err_set(err, ENOMEM, "read the requirements");
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        at = 3;
    while (at < len) {
        number++;
        at = read_line(text, len, at, line, &n);
        n = strip(line, n);
        if (n > 0 && hutch_requirement_add(list, line, n, err) < 0)
            return hutch_err_wrap(err, "requirement %u of the file", number);
    }
    return 0;
}

/* --- PEP 723 ---------------------------------------------------------------------------------------------------- */

static bool is_line(const char *line, size_t len, const char *text)
{
    while (len > 0 && is_space(line[len - 1]))
        len--;
    return len == strlen(text) && memcmp(line, text, len) == 0;
}

/* The content of the block, the caller's; NULL with rc 0: there is none. */
static int find_block(const char *text, size_t len, char **ret, struct hutch_err *err)
{
    size_t at = 0, n = 0, end = 0;
    bool is_inside = false;
    char *block = NULL;

    *ret = NULL;
    while (at < len) {
        const char *line = text + at, *eol = memchr(line, '\n', len - at);
        size_t line_len = eol ? (size_t)(eol - line) : len - at;

        at += line_len + (eol != NULL);
        if (is_inside && line_len > 0 && line[0] == '#') {
            size_t skip = line_len > 1 && line[1] == ' ' ? 2 : 1;

            if (is_line(line, line_len, "# ///"))
                end = n + 1; /* the last of them ends it */
            memcpy(block + n, line + skip, line_len - skip);
            n += line_len - skip;
            block[n++] = '\n';
            continue;
        }
        if (is_inside && end > 0)
            is_inside = false;
        if (is_inside)
            break;
        if (!is_line(line, line_len, "# /// script"))
            continue;
        if (block) {
            free(block);
            return hutch_err_set(err, 0, "the script has two blocks '# /// script'");
        }
        block = malloc(len + 2);
        if (!block)
            return hutch_err_set(err, ENOMEM, "read the script's dependencies");
        is_inside = true;
    }
    if (!block)
        return 0;
    if (end == 0) {
        free(block);
        return hutch_err_set(err, 0, "the script's block '# /// script' has no end: a line '# ///', with comments "
                                     "alone between the two");
    }
    block[end - 1] = '\0';
    *ret = block;
    return 0;
}

static const char *skip_blank(const char *p)
{
    while (is_space(*p) || *p == '\n' || *p == '#') {
        if (*p == '#')
            p += strcspn(p, "\n");
        else
            p++;
    }
    return p;
}

/* Of TOML what PEP 723 needs: the key "dependencies" at the top, with an array of strings. */
static const char *find_dependencies(const char *block)
{
    static const char key[] = "dependencies";

    for (const char *p = block; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        const char *at = p + strspn(p, " \t");

        if (*at == '[')
            return NULL; /* a table: what follows is not at the top any more */
        if (strncmp(at, key, strlen(key)) != 0)
            continue;
        at += strlen(key);
        at += strspn(at, " \t");
        if (*at == '=')
            return at + 1;
    }
    return NULL;
}

static int no_list(struct hutch_err *err)
{
    return hutch_err_set(err, 0, "the script's \"dependencies\" are not a list of texts such as [\"rich\", "
                                 "\"polars>=1\"]");
}

int hutch_requirement_add_script(struct requirement_list *list, const char *text, size_t len, struct hutch_err *err)
{
    auto_free char *block = NULL;
    const char *p;

    if (memchr(text, '\0', len) || find_block(text, len, &block, err) < 0)
        return memchr(text, '\0', len) ? 0 : -1;
    p = block ? find_dependencies(block) : NULL;
    if (!p)
        return 0;
    p = skip_blank(p);
    if (*p++ != '[')
        return no_list(err);
    while (true) {
        const char *begin;
        char quote;

        p = skip_blank(p);
        if (*p == ']')
            return 0;
        quote = *p;
        if (quote != '"' && quote != '\'')
            return no_list(err);
        begin = ++p;
        p += strcspn(p, quote == '"' ? "\"\n\\" : "'\n");
        if (*p != quote) {
            /* Of TOML's escapes, requirements need the quote alone, and have the other kind for that. */
            return no_list(err);
        }
        if (add(list, begin, (size_t)(p - begin), true, err) < 0)
            return hutch_err_wrap(err, "the script's dependencies");
        p = skip_blank(p + 1);
        if (*p == ',')
            p++;
        else if (*p != ']')
            return no_list(err);
    }
}
