/* npm_package.h - which packages a Node program wants, from a list on the command line or a package.json: names with
 * ranges of versions, and nothing that leads to another place than npm's registry. Sources: npm's package.json(5) and
 * package-spec(7). */
#ifndef HUTCH_LANG_NPM_PACKAGE_H
#define HUTCH_LANG_NPM_PACKAGE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define NPM_MAX_PACKAGES 1024
#define NPM_MAX_MANIFEST (1u << 20) /* bytes of a package.json */

struct npm_package {
    char *name;  /* owned: "frob", "@scope/frob" */
    char *range; /* owned: "^1.2", "1.x || >=2.5", "latest" */
};

struct npm_packages {
    struct npm_package *items; /* owned; sorted by name, each name once */
    size_t n;
};
#define NPM_PACKAGES_INIT { .items = NULL }
#define auto_npm_packages __attribute__((cleanup(hutch_npm_packages_done))) struct npm_packages

void hutch_npm_packages_done(struct npm_packages *packages);

/* Whether @what can be nothing but packages: a name with '@' and a range, or with a scope. */
bool hutch_npm_is_package(const char *what);

/* "frob", "frob@^1.2", "@scope/frob", with commas between several. Errors: 0 (no name, no range, another range for a
 * name that is there), ENOMEM. */
int hutch_npm_packages_add(struct npm_packages *packages, const char *words, struct hutch_err *err);

/* What a package.json depends on when it is installed without what its developers need. It is nobody's word: a
 * dependency with a URL, a path or a repository is refused, and so is a list of "overrides" or "workspaces".
 * Errors: 0, also where it is no object; ENOMEM. */
int hutch_npm_packages_add_manifest(struct npm_packages *packages, const char *text, size_t len, struct hutch_err *err);

/* As the words that hutch_npm_packages_add() takes; the caller frees it; NULL with @err. */
char *hutch_npm_packages_print(const struct npm_packages *packages, struct hutch_err *err);
/* As a package.json that has them and nothing else, likewise. */
char *hutch_npm_packages_print_manifest(const struct npm_packages *packages, struct hutch_err *err);

#endif
