#include "runtime/gateway/format.h"

#include "sandbox/fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_prefix(const char *text)
{
    size_t len = strlen(text);

    return len == 0 || (text[0] == '/' && len > 1 && len < FORMAT_PREFIX_MAX && text[len - 1] != '/' &&
                        !strstr(text, "//") && strspn(text, "/-_.~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                            "abcdefghijklmnopqrstuvwxyz") == len);
}

int hutch_formats_add(struct formats *f, const struct format *format, const char *prefix, struct hutch_err *err)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].format == format)
            return hutch_err_set(err, 0, "the format '%s' is named twice", format->name);
    if (f->n == FORMATS_MAX)
        return hutch_err_set(err, 0, "there are more than %d formats", FORMATS_MAX);
    f->list[f->n].format = format;
    snprintf(f->list[f->n++].prefix, FORMAT_PREFIX_MAX, "%s", prefix);
    return 0;
}

static int add_named(const struct format *const *known, const char *word, struct formats *f, struct hutch_err *err)
{
    size_t len = strcspn(word, "=");
    const char *prefix = word[len] ? word + len + 1 : "";

    if (!is_prefix(prefix))
        return hutch_err_set(err, 0, "format '%.100s': its prefix is not like '/name', of at most %d characters", word,
                             FORMAT_PREFIX_MAX - 1);
    for (; *known; known++)
        if (strlen((*known)->name) == len && strncmp((*known)->name, word, len) == 0)
            return hutch_formats_add(f, *known, prefix, err);
    return hutch_err_set(err, 0, "format '%.100s': there is none of this name", word);
}

int hutch_formats_choose(const struct format *const *known, const char *const *wanted, struct formats *ret,
                         struct hutch_err *err)
{
    *ret = (struct formats){ 0 };
    if (hutch_formats_add(ret, &hutch_native_format, "", err) < 0)
        return -1;
    for (; wanted && *wanted; wanted++)
        if (add_named(known, *wanted, ret, err) < 0)
            return -1;
        else if (!wanted[1])
            return 0;
    for (; known && *known; known++)
        if (!(*known)->is_rare && hutch_formats_add(ret, *known, "", err) < 0)
            return -1;
    return 0;
}

/* What is left of @path behind @prefix; NULL: it does not begin with it. */
static const char *below(const char *path, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(path, prefix, len) == 0 && (len == 0 || path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

/* With how many of its parts @path begins as one of the format's routes does, a parameter being any part. */
static size_t kinship(const struct format *format, const char *path)
{
    size_t most = 0;

    for (size_t i = 0; i < format->n_routes; i++) {
        const char *pattern = format->routes[i].path, *rest = path;
        size_t n = 0;

        while (*pattern == '/' && *rest == '/') {
            size_t of_pattern = strcspn(pattern + 1, "/"), len = strcspn(rest + 1, "/");

            if (pattern[1] != '{' && (of_pattern != len || strncmp(pattern + 1, rest + 1, len) != 0))
                break;
            n += len > 0;
            pattern += 1 + of_pattern;
            rest += 1 + len;
        }
        most = n > most ? n : most;
    }
    return most;
}

/* Whose words are used for a path that no format has, among those without a prefix. */
static const struct format *nearest(const struct formats *f, const char *path)
{
    const struct format *found = &hutch_native_format, *other = NULL;
    size_t most = 0, n_others = 0;

    for (size_t i = 0; i < f->n; i++) {
        const struct format *format = f->list[i].format;
        size_t n = f->list[i].prefix[0] ? 0 : kinship(format, path);

        if (n > most) {
            most = n;
            found = format;
        }
        if (!f->list[i].prefix[0] && (format->refusal || format->error_body)) {
            other = format;
            n_others++;
        }
    }
    return most == 0 && n_others == 1 ? other : found;
}

int hutch_formats_find(const struct formats *f, const char *method, const char *path, const struct format **ret_format,
                       const struct route **ret_route, bool *ret_other, char *params[ROUTE_MAX_PARAMS],
                       struct hutch_err *err)
{
    bool has_other = false, is_somebodys = false;

    *ret_format = &hutch_native_format;
    *ret_route = NULL;
    for (size_t i = 0; i < f->n; i++) {
        const struct format *format = f->list[i].format;
        const char *rest = below(path, f->list[i].prefix);
        bool is_other = false;
        int rc;

        if (!rest)
            continue;
        rc = hutch_route_find(format->routes, format->n_routes, method, rest, ret_route, &is_other, params, err);
        if (rc < 0 || *ret_route || is_other || f->list[i].prefix[0]) {
            *ret_format = format;
            is_somebodys = true;
        }
        has_other |= is_other;
        if (rc < 0 || *ret_route) {
            *ret_other = false;
            return rc;
        }
    }
    if (!is_somebodys)
        *ret_format = nearest(f, path);
    *ret_other = has_other;
    return 0;
}

void hutch_formats_methods(const struct formats *f, const char *path, char *to, size_t size)
{
    size_t used = 0;

    to[0] = '\0';
    for (size_t i = 0; i < f->n && used + 2 < size; i++) {
        const char *rest = below(path, f->list[i].prefix);
        size_t begin = used > 0 ? used + 2 : 0;

        if (!rest)
            continue;
        hutch_route_methods(f->list[i].format->routes, f->list[i].format->n_routes, rest, to + begin, size - begin);
        if (!to[begin]) {
            to[used] = '\0';
            continue;
        }
        if (begin > 0)
            memcpy(to + used, ", ", 2);
        used = strlen(to);
    }
}

size_t hutch_formats_number(const struct formats *f, const struct route *route)
{
    size_t before = 0;

    for (size_t i = 0; route && i < f->n; before += f->list[i++].format->n_routes)
        if (route >= f->list[i].format->routes && route < f->list[i].format->routes + f->list[i].format->n_routes)
            return before + (size_t)(route - f->list[i].format->routes);
    return ROUTE_MAX;
}

const struct route *hutch_formats_route(const struct formats *f, size_t number, const char **ret_prefix)
{
    for (size_t i = 0; i < f->n; number -= f->list[i++].format->n_routes)
        if (number < f->list[i].format->n_routes) {
            *ret_prefix = f->list[i].prefix;
            return &f->list[i].format->routes[number];
        }
    return NULL;
}

size_t hutch_formats_index(const struct formats *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->list[i].format->name, name) == 0)
            return i;
    return 0;
}

/* ---- what they keep ---- */

void *hutch_formats_state(const struct formats *f, const struct format *format)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].format == format)
            return f->list[i].state;
    return NULL;
}

int hutch_formats_open(struct formats *f, struct server *server, struct hutch_err *err)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct format *format = f->list[i].format;

        if (!format->state)
            continue;
        f->list[i].state = format->state->open(server, f->list[i].prefix, err);
        if (!f->list[i].state)
            return hutch_err_wrap(err, "begin with the format '%s'", format->name);
    }
    return 0;
}

double hutch_formats_deadline(const struct formats *f)
{
    double first = -1;

    for (size_t i = 0; i < f->n; i++) {
        double due = f->list[i].state ? f->list[i].format->state->deadline(f->list[i].state) : -1;

        if (due >= 0 && (first < 0 || due < first))
            first = due;
    }
    return first;
}

void hutch_formats_tick(struct formats *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].state)
            f->list[i].format->state->tick(f->list[i].state);
}

void hutch_formats_close(struct formats *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].state)
            f->list[i].format->state->close(f->list[i].state);
    f->n = 0;
}
