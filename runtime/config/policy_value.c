#include "runtime/config/policy_value.h"

#include <stdio.h>
#include <string.h>

#define MAX_WORD_LEN     32768
#define MAX_QUANTITY_LEN 64

/* A path inside the sandbox: absolute, and without components that mean something else than a name. */
static bool is_inside_path(const char *path)
{
    if (path[0] != '/' || strlen(path) > POLICY_MAX_PATH_LEN)
        return false;
    for (const char *p = path; *p;) {
        size_t len;

        p += strspn(p, "/");
        len = strcspn(p, "/");
        if ((len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += len;
    }
    return true;
}

int hutch_policy_read_path(const struct json_node *node, const char **ret, struct hutch_err *err)
{
    if (!hutch_json_is_string(node))
        return hutch_json_expected(node, err, "a string");
    if (hutch_json_string(node, POLICY_MAX_PATH_LEN, ret, err) < 0)
        return -1;
    return is_inside_path(*ret) ? 0 : hutch_json_expected(node, err, "an absolute path without '.' or '..'");
}

int hutch_policy_read_word(const struct json_node *node, const char *const *words, size_t n_words,
                           struct hutch_err *err)
{
    char expected[160] = "";
    size_t used = 0;
    const char *text;

    if (hutch_json_is_string(node)) {
        if (hutch_json_string(node, MAX_WORD_LEN, &text, err) < 0)
            return -1;
        for (size_t i = 0; i < n_words; i++)
            if (strcmp(words[i], text) == 0)
                return (int)i;
    }
    for (size_t i = 0; i < n_words && used < sizeof(expected); i++)
        used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"",
                                 i == 0 ? "" : i + 1 < n_words ? ", " : " or ", words[i]);
    return hutch_json_expected(node, err, "%s", expected);
}

bool hutch_policy_read_quantity(const struct json_node *node, enum limit_unit unit, uint64_t *ret)
{
    struct hutch_err ignored; /* the caller's sentence says what is accepted here, with its range */
    double number = hutch_json_number(node), scale = unit == UNIT_CPUS || unit == UNIT_TIME ? 1000 : 1;
    const char *text;

    if (hutch_json_is_string(node))
        return unit != UNIT_COUNT && hutch_json_string(node, MAX_QUANTITY_LEN, &text, &ignored) == 0 &&
               hutch_limit_parse(unit, text, ret, &ignored) == 0;
    if (!hutch_json_is_number(node) || !(number >= 0 && number * scale <= (double)JSON_U64_MAX))
        return false;
    *ret = (uint64_t)(number * scale + (scale > 1 ? 0.5 : 0));
    return scale > 1 || (double)*ret == number;
}
