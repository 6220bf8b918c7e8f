#include "runtime/lang/npm_package.h"

#include "runtime/text/json.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LETTERS   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#define MAX_NAME  214 /* bytes, with the scope: package.json(5) */
#define MAX_RANGE 256
#define MAX_DEPTH 32 /* of a package.json */

static const char name_chars[] = LETTERS "._~-";
static const char range_chars[] = LETTERS " .+*^~<>=|-";

void hutch_npm_packages_done(struct npm_packages *packages)
{
    for (size_t i = 0; i < packages->n; i++) {
        free(packages->items[i].name);
        free(packages->items[i].range);
    }
    free(packages->items);
    *packages = (struct npm_packages)NPM_PACKAGES_INIT;
}

/* "frob" or "@scope/frob": a part begins with a letter or a digit, so none is a path or an option. */
static bool is_name(const char *name)
{
    const char *part = name[0] == '@' ? name + 1 : name;
    size_t len = strspn(part, name_chars);

    if (strlen(name) > MAX_NAME || !strchr(LETTERS, part[0]) || !part[0])
        return false;
    if (name[0] != '@')
        return part[len] == '\0';
    if (part[len] != '/')
        return false;
    part += len + 1;
    return part[0] && strchr(LETTERS, part[0]) && part[strspn(part, name_chars)] == '\0';
}

/* No ':' and no '/', and no '.' at its beginning: so neither a URL, nor a path, nor a repository, nor an alias. A name
 * of an archive is a path, too, of one that is not there. */
static bool is_range(const char *range)
{
    return range[0] && strlen(range) <= MAX_RANGE && range[strspn(range, range_chars)] == '\0' && range[0] != '-' &&
           range[0] != '.';
}

static int insert(struct npm_packages *packages, struct npm_package *item, struct hutch_err *err)
{
    struct npm_package *bigger;
    size_t at = 0;

    while (at < packages->n && strcmp(packages->items[at].name, item->name) < 0)
        at++;
    if (at < packages->n && strcmp(packages->items[at].name, item->name) == 0) {
        if (strcmp(packages->items[at].range, item->range) != 0)
            return hutch_err_set(err, 0, "the package '%.80s' is asked for twice, as '%.80s' and as '%.80s'",
                                 item->name, packages->items[at].range, item->range);
        free(item->name);
        free(item->range);
        return 0;
    }
    if (packages->n == NPM_MAX_PACKAGES)
        return hutch_err_set(err, 0, "more than %d packages", NPM_MAX_PACKAGES);
    bigger = reallocarray(packages->items, packages->n + 1, sizeof(*bigger));
    if (!bigger)
        return hutch_err_set(err, ENOMEM, "list the packages");
    memmove(bigger + at + 1, bigger + at, (packages->n - at) * sizeof(*bigger));
    bigger[at] = *item;
    packages->items = bigger;
    packages->n++;
    return 0;
}

/* A copy of @text without the blanks around it, as npm reads a range; NULL without memory. */
static char *dup_range(const char *text)
{
    const char *start = text + strspn(text, " ");
    size_t len = strlen(start);

    while (len > 0 && start[len - 1] == ' ')
        len--;
    return strndup(start, len);
}

static int add(struct npm_packages *packages, const char *name, const char *text, struct hutch_err *err)
{
    struct npm_package item = { .name = NULL };
    auto_free char *range = dup_range(text);

    if (!range)
        return hutch_err_set(err, ENOMEM, "list the packages");
    if (!is_name(name))
        return hutch_err_set(err, 0, "'%.80s' is no name of a package of npm", name);
    if (!is_range(range))
        return hutch_err_set(err, 0, "the package '%.80s' is asked for as '%.200s', which is no range of versions: a "
                                     "URL or an archive (.tgz) takes hutch rootfs extend IMAGE --npm DIR --as NAME",
                             name, range);
    item.name = strdup(name);
    item.range = strdup(range);
    if (!item.name || !item.range)
        hutch_err_set(err, ENOMEM, "list the packages");
    else if (insert(packages, &item, err) == 0)
        return 0;
    free(item.name);
    free(item.range);
    return -1;
}

bool hutch_npm_is_package(const char *what)
{
    return strchr(what, '@') != NULL && what[0] != '.' && what[0] != '/';
}

int hutch_npm_packages_add(struct npm_packages *packages, const char *words, struct hutch_err *err)
{
    for (const char *word = words;; word++) {
        size_t before = strspn(word, " "), len = strcspn(word, ","), end = len;
        auto_free char *name = NULL;
        char *at;

        while (end > before && word[end - 1] == ' ')
            end--;
        name = before < end ? strndup(word + before, end - before) : strdup("");
        at = name && name[0] ? strchr(name + 1, '@') : NULL;
        if (!name)
            return hutch_err_set(err, ENOMEM, "list the packages");
        if (at)
            *at = '\0';
        if (add(packages, name, at ? at + 1 : "*", err) < 0)
            return -1;
        word += len;
        if (!*word)
            return 0;
    }
}

static bool has(const struct npm_packages *packages, const char *name)
{
    for (size_t i = 0; i < packages->n; i++)
        if (strcmp(packages->items[i].name, name) == 0)
            return true;
    return false;
}

/* @is_peer: those that are there already are so in the versions that the program itself asks for. */
static int add_dependencies(struct npm_packages *packages, const cJSON *list, bool is_peer, struct hutch_err *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(list))
        return hutch_err_set(err, 0, "its \"%s\" is no object", list->string);
    cJSON_ArrayForEach(item, list) {
        const char *range = cJSON_GetStringValue(item);

        if (!range)
            return hutch_err_set(err, 0, "the package '%.80s' is asked for by something that is no text", item->string);
        if (!(is_peer && has(packages, item->string)) &&
            add(packages, item->string, range[strspn(range, " ")] ? range : "*", err) < 0)
            return -1;
    }
    return 0;
}

/* What npm would obey, and what is not handed on: to leave it away would install something else than was meant. */
static int take_member(struct npm_packages *packages, const cJSON *member, struct hutch_err *err)
{
    static const char *const refused[] = { "overrides", "workspaces" };

    if (strcmp(member->string, "dependencies") == 0)
        return add_dependencies(packages, member, false, err);
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (strcmp(member->string, refused[i]) == 0)
            return hutch_err_set(err, 0, "it has \"%s\", which takes hutch rootfs extend IMAGE --npm DIR --as NAME, "
                                         "and --image NAME", refused[i]);
    return 0;
}

int hutch_npm_packages_add_manifest(struct npm_packages *packages, const char *text, size_t len, struct hutch_err *err)
{
    struct json_doc doc = JSON_DOC_INIT;
    const cJSON *member;
    int rc = 0;

    if (len > NPM_MAX_MANIFEST)
        return hutch_err_set(err, 0, "it is longer than %u bytes", NPM_MAX_MANIFEST);
    if (hutch_json_parse("package.json", text, len, MAX_DEPTH, &doc, err) < 0)
        return -1;
    if (!cJSON_IsObject(doc.root))
        rc = hutch_err_set(err, 0, "it is no object of JSON");
    cJSON_ArrayForEach(member, doc.root)
        if (rc == 0)
            rc = take_member(packages, member, err);
    cJSON_ArrayForEach(member, doc.root)
        if (rc == 0 && strcmp(member->string, "peerDependencies") == 0)
            rc = add_dependencies(packages, member, true, err);
    hutch_json_done(&doc);
    return rc;
}

char *hutch_npm_packages_print(const struct npm_packages *packages, struct hutch_err *err)
{
    size_t room = 1;
    char *text, *at;

    for (size_t i = 0; i < packages->n; i++)
        room += strlen(packages->items[i].name) + strlen(packages->items[i].range) + 2;
    text = at = malloc(room);
    if (!text) {
        hutch_err_set(err, ENOMEM, "list the packages");
        return NULL;
    }
    *at = '\0';
    for (size_t i = 0; i < packages->n; i++)
        at += sprintf(at, "%s%s@%s", i ? "," : "", packages->items[i].name, packages->items[i].range);
    return text;
}

char *hutch_npm_packages_print_manifest(const struct npm_packages *packages, struct hutch_err *err)
{
    cJSON *json = cJSON_CreateObject(), *list = cJSON_AddObjectToObject(json, "dependencies");
    bool is_whole = list != NULL;
    char *text;

    for (size_t i = 0; i < packages->n && is_whole; i++)
        is_whole = cJSON_AddStringToObject(list, packages->items[i].name, packages->items[i].range) != NULL;
    text = is_whole ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        hutch_err_set(err, ENOMEM, "write a package.json");
    return text;
}
