/* debian_package.h - which packages of Debian are wanted, as apt takes them: "graphviz", "libc6-dev=2.41-12". Sources:
 * Debian Policy 5.6.1 and 5.6.12, apt-get(8). */
#ifndef HUTCH_LANG_DEBIAN_PACKAGE_H
#define HUTCH_LANG_DEBIAN_PACKAGE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define DEBIAN_PACKAGES_MAX 256
#define DEBIAN_PACKAGE_MAX_TEXT 200 /* bytes of a name, and of a version */

struct debian_packages {
    char **texts; /* owned, each; sorted, and each name once */
    size_t n;
};
#define DEBIAN_PACKAGES_INIT { .texts = NULL }
void hutch_debian_packages_done(struct debian_packages *packages);
#define auto_debian_packages __attribute__((cleanup(hutch_debian_packages_done))) struct debian_packages

/* Adds those of @words, with commas between them. What apt would read as an option, a pattern, a file, another release
 * or the wish to have a package removed is none. Errors: 0 (a word is no package, or one name has two versions). */
int hutch_debian_packages_add(struct debian_packages *packages, const char *words, struct hutch_err *err);

/* Whether @text is the name of a release of Debian, such as "trixie", or of an architecture, such as "amd64". */
bool hutch_debian_is_label(const char *text);

#endif
