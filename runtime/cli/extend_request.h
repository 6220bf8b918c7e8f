/* extend_request.h - what is to be laid over an image: packages of Python by pip, of Node by npm or of Debian by
 * apt, and where they come from. hutch rootfs extend and hutch run --with ask for it in the same way, so that one finds
 * what the other has made. */
#ifndef HUTCH_CLI_EXTEND_REQUEST_H
#define HUTCH_CLI_EXTEND_REQUEST_H

#include "rootfs/digest.h"
#include "runtime/cli/option.h"
#include "runtime/lang/debian_package.h"
#include "runtime/lang/npm_package.h"
#include "runtime/lang/requirement.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

/* What the command line says. */
struct extend_sources {
    const char *index;   /* URL; NULL: the tool's own, pip's by PIP_INDEX_URL, too */
    const char *wheels;  /* directory; NULL: none. Without an index nothing else is asked */
    bool is_npm;         /* what is asked for is Node's */
    bool is_apt;         /* what is asked for is Debian's */
    bool allow_build;    /* from source */
};

struct extend_request {
    struct requirement_list pip;
    struct requirement_list wheel_files; /* real paths; the list's rules are those of texts */
    struct npm_packages npm;
    struct debian_packages apt;
    char *index;       /* owned; NULL: the tool's own, "": none */
    char *trusted;     /* owned; a host without TLS, or NULL */
    char *wheel_dir;   /* owned; real path, or NULL */
    char *npm_dir;     /* owned; real path of the directory of a package.json, or NULL */
    char *apt_sources; /* owned; real path of a file with apt's sources, or NULL: what the host's apt has */
    bool allow_build;
};
#define EXTEND_REQUEST_INIT { .index = NULL }
void hutch_extend_request_done(struct extend_request *request);
#define auto_extend_request __attribute__((cleanup(hutch_extend_request_done))) struct extend_request

/* Where the packages come from. */
int hutch_extend_request_set_sources(struct extend_request *request, const struct extend_sources *sources,
                                     struct hutch_err *err);
/* A wheel (its name ends in .whl), a requirements file (in .txt), or requirements with commas between them; behind a
 * '=' one requirement, whatever it looks like. */
int hutch_extend_request_add_pip(struct extend_request *request, const char *what, struct hutch_err *err);

/* Packages of Node with commas between them, or a package.json, or the directory that has it: one of these two. */
int hutch_extend_request_add_npm_words(struct extend_request *request, const char *what, struct hutch_err *err);
int hutch_extend_request_add_npm(struct extend_request *request, const struct npm_packages *packages,
                                 struct hutch_err *err);

/* Packages of Debian, with commas between them. */
int hutch_extend_request_add_apt(struct extend_request *request, const char *what, struct hutch_err *err);

enum extend_kind { EXTEND_PIP, EXTEND_NPM, EXTEND_APT };
/* Which tool installs it. One request is of one kind. */
enum extend_kind hutch_extend_request_kind(const struct extend_request *request);
/* Whether there is anything to install. */
bool hutch_extend_request_is_empty(const struct extend_request *request);
/* Whether an index or a registry is asked. */
bool hutch_extend_request_needs_network(const struct extend_request *request);

/* One text for all of it and the image @base, the same for the same request: store_layers.h. Of files and directories
 * here it has names, sizes and times. The caller frees it; NULL with @err. */
char *hutch_extend_request_print(const struct extend_request *request, const char *base, struct hutch_err *err);

#endif
