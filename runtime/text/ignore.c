#include "runtime/text/ignore.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define QUOTE(x) #x
#define QUOTED(x) QUOTE(x)

/* One step back at most, to the last star: no star reaches over a '/', so an earlier one has no other choice. */
static bool fits(const char *pattern, const char *text)
{
    const char *star = NULL, *taken = NULL;

    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            taken = text;
        } else if (*pattern && (*pattern == '?' ? *text != '/' : *pattern == *text)) {
            pattern++;
            text++;
        } else if (star && *taken != '/') {
            pattern = star;
            text = ++taken;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static const char *find_fault(const char *line, size_t len)
{
    if (line[0] == '!')
        return "'!' brings nothing back here: name what is to be held back";
    if (memchr(line, '\0', len))
        return "there is a NUL in it";
    if (line[0] == ' ' || line[0] == '\t')
        return "it begins with a blank, which would be a part of the name";
    if (strstr(line, " #"))
        return "a remark is a line of its own";
    if (strpbrk(line, "[{\\"))
        return "'[', '{' and '\\' are not known: of patterns there are '*' and '?'";
    if (strstr(line, "**"))
        return "'**' is not known: a name without '/' is meant wherever it is, and 'a/' is all of a";
    if (len > IGNORE_MAX_PATTERN)
        return "a line has " QUOTED(IGNORE_MAX_PATTERN) " bytes at most";
    return NULL;
}

/* Of a path without '/' at either end. */
static bool has_idle_part(const char *path)
{
    for (const char *part = path;; part++) {
        const size_t len = strcspn(part, "/");

        if (len == 0 || (len == 1 && part[0] == '.') || (len == 2 && part[0] == '.' && part[1] == '.'))
            return true;
        part += len;
        if (!*part)
            return false;
    }
}

/* @line is NUL-terminated at @len. 1: it says something. */
static int read_line(char *line, size_t len, unsigned number, struct ignore_pattern *ret, struct hutch_err *err)
{
    const char *fault;
    bool is_for_dirs;

    while (len > 0 && strchr(" \t\r", line[len - 1]) && line[len - 1])
        line[--len] = '\0';
    if (len == 0 || line[0] == '#')
        return 0;
    fault = find_fault(line, len);
    if (fault)
        return hutch_err_set(err, 0, "line %u of " IGNORE_FILE ", '%.64s': %s", number, line, fault);
    is_for_dirs = line[len - 1] == '/';
    if (is_for_dirs)
        line[--len] = '\0';
    *ret = (struct ignore_pattern){
        .text = line + (line[0] == '/'), .is_path = strchr(line, '/') != NULL, .is_for_dirs = is_for_dirs
    };
    if (has_idle_part(ret->text))
        return hutch_err_set(err, 0, "line %u of " IGNORE_FILE ", '%.64s': a path has neither '.' nor '..' nor "
                                     "an empty name in it", number, line);
    return 1;
}

static int read_lines(struct ignore_list *list, size_t len, struct hutch_err *err)
{
    size_t at = len >= 3 && memcmp(list->block, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */

    for (unsigned number = 1; at < len; number++) {
        const char *newline = memchr(list->block + at, '\n', len - at);
        const size_t end = newline ? (size_t)(newline - list->block) : len;
        int rc;

        if (number > IGNORE_MAX_LINES)
            return hutch_err_say(err, E2BIG, IGNORE_FILE " has more than %d lines", IGNORE_MAX_LINES);
        list->block[end] = '\0';
        rc = read_line(list->block + at, end - at, number, &list->patterns[list->n], err);
        if (rc < 0)
            return -1;
        list->n += (size_t)rc;
        at = end + 1;
    }
    return 0;
}

int hutch_ignore_parse(const char *text, size_t len, struct ignore_list *ret, struct hutch_err *err)
{
    struct ignore_list list = IGNORE_LIST_INIT;

    if (len > IGNORE_MAX_BYTES)
        return hutch_err_say(err, E2BIG, IGNORE_FILE " has more than %u bytes", IGNORE_MAX_BYTES);
    list.block = malloc(len + 1);
    list.patterns = calloc(IGNORE_MAX_LINES, sizeof(*list.patterns));
    if (!list.block || !list.patterns) {
        hutch_ignore_done(&list);
        return hutch_err_set(err, ENOMEM, "read " IGNORE_FILE);
    }
    memcpy(list.block, text, len);
    list.block[len] = '\0';
    if (read_lines(&list, len, err) < 0) {
        hutch_ignore_done(&list);
        return -1;
    }
    *ret = list;
    return 0;
}

void hutch_ignore_done(struct ignore_list *list)
{
    free(list->patterns);
    free(list->block);
    *list = (struct ignore_list)IGNORE_LIST_INIT;
}

bool hutch_ignore_has(const struct ignore_list *list, const char *path, bool is_dir)
{
    const char *slash = strrchr(path, '/');

    if (strcmp(path, IGNORE_FILE) == 0)
        return true;
    for (size_t i = 0; i < list->n; i++) {
        const struct ignore_pattern *p = &list->patterns[i];

        if ((is_dir || !p->is_for_dirs) && fits(p->text, p->is_path || !slash ? path : slash + 1))
            return true;
    }
    return false;
}

bool hutch_ignore_holds_back(const struct ignore_list *list, const char *path)
{
    char part[PATH_MAX];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        const size_t len = (size_t)(slash - path);

        if (len >= sizeof(part))
            return true;
        memcpy(part, path, len);
        part[len] = '\0';
        if (hutch_ignore_has(list, part, true))
            return true;
    }
    return hutch_ignore_has(list, path, false);
}
