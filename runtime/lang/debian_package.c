#include "runtime/lang/debian_package.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"
#define MAX_LABEL 64
#define SHOWN 80

void hutch_debian_packages_done(struct debian_packages *packages)
{
    for (size_t i = 0; i < packages->n; i++)
        free(packages->texts[i]);
    free(packages->texts);
    *packages = (struct debian_packages)DEBIAN_PACKAGES_INIT;
}

/* A name that ends in '-' has apt remove a package. One that ends in '+' may be a name, "g++". */
static bool is_name(const char *text, size_t len)
{
    return len >= 2 && len <= DEBIAN_PACKAGE_MAX_TEXT && strspn(text, LETTERS DIGITS "+-.") >= len &&
           strchr(LETTERS DIGITS, text[0]) && text[len - 1] != '-';
}

static bool is_version(const char *text, size_t len)
{
    return len >= 1 && len <= DEBIAN_PACKAGE_MAX_TEXT &&
           strspn(text, LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "+-.~:") >= len && strchr(DIGITS, text[0]);
}

/* Like memcmp(), of the names alone. */
static int compare_names(const char *a, const char *b)
{
    size_t a_len = strcspn(a, "="), b_len = strcspn(b, "=");
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int insert(struct debian_packages *packages, const char *text, size_t len, struct hutch_err *err)
{
    auto_free char *copy = strndup(text, len);
    size_t at = 0;
    char **bigger;

    if (!copy)
        return hutch_err_set(err, ENOMEM, "list the packages");
    while (at < packages->n && compare_names(packages->texts[at], copy) < 0)
        at++;
    if (at < packages->n && compare_names(packages->texts[at], copy) == 0)
        return strcmp(packages->texts[at], copy) == 0
                   ? 0 : hutch_err_set(err, 0, "the package is asked for twice, as '%.*s' and as '%.*s'", SHOWN,
                                       packages->texts[at], SHOWN, copy);
    if (packages->n == DEBIAN_PACKAGES_MAX)
        return hutch_err_set(err, 0, "more than %d packages", DEBIAN_PACKAGES_MAX);
    bigger = reallocarray(packages->texts, packages->n + 1, sizeof(*bigger));
    if (!bigger)
        return hutch_err_set(err, ENOMEM, "list the packages");
    packages->texts = bigger;
    memmove(bigger + at + 1, bigger + at, (packages->n - at) * sizeof(*bigger));
    bigger[at] = copy;
    copy = NULL;
    packages->n++;
    return 0;
}

static int add_one(struct debian_packages *packages, const char *text, size_t len, struct hutch_err *err)
{
    const char *equals = memchr(text, '=', len);
    size_t name = equals ? (size_t)(equals - text) : len;
    const int shown = (int)(len < SHOWN ? len : SHOWN);

    if (!is_name(text, name))
        return hutch_err_set(err, 0, "'%.*s' is no name of a package of Debian", shown, text);
    if (equals && !is_version(equals + 1, len - name - 1))
        return hutch_err_set(err, 0, "'%.*s': what follows '=' is no version", shown, text);
    return insert(packages, text, len, err);
}

int hutch_debian_packages_add(struct debian_packages *packages, const char *words, struct hutch_err *err)
{
    for (;;) {
        size_t len = strcspn(words, ","), before = strspn(words, " "), end = len;

        while (end > before && words[end - 1] == ' ')
            end--;
        if (before > end)
            before = end;
        if (add_one(packages, words + before, end - before, err) < 0)
            return -1;
        if (!words[len])
            return 0;
        words += len + 1;
    }
}

bool hutch_debian_is_label(const char *text)
{
    size_t len = strlen(text);

    return len >= 1 && len <= MAX_LABEL && strspn(text, LETTERS DIGITS "-.") == len && strchr(LETTERS DIGITS, text[0]);
}
