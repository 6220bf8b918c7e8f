#include "runtime/cli/pull_source.h"

#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

#define TAKEN "docker://, docker-archive:, oci:, oci-archive:, dir: and containers-storage:"

enum kind {
    KIND_REGISTRY, /* a reference as docker has it, behind "//" */
    KIND_STORAGE,  /* the same, behind "[…]", which says which storage */
    KIND_FILE,     /* a path, and behind ':' what is wanted of it */
    KIND_PATH,     /* all of it is a path */
    KIND_REFUSED,
};

static const struct transport {
    const char *name;
    enum kind kind;
    const char *why; /* it is refused */
} transports[] = {
    { "docker", KIND_REGISTRY, NULL },
    { "docker-archive", KIND_FILE, NULL },
    { "oci", KIND_FILE, NULL },
    { "oci-archive", KIND_FILE, NULL },
    { "dir", KIND_PATH, NULL },
    { "containers-storage", KIND_STORAGE, NULL },
    { "docker-daemon", KIND_REFUSED,
      "to ask Docker's daemon is to be as good as root; write a file with docker save, and unpack that" },
    { "ostree", KIND_REFUSED, "it is for systems that are upgraded as a whole, and hardly any skopeo can read it" },
    { "sif", KIND_REFUSED, "skopeo has other programs take the file apart; skopeo copy sif:FILE oci:DIR converts it" },
    { "tarball", KIND_REFUSED, "it is files without an image; docker import makes one of them" },
};

static const struct transport *find_transport(const char *text)
{
    for (size_t i = 0; i < ARRAY_SIZE(transports); i++) {
        size_t len = strlen(transports[i].name);

        if (strncmp(text, transports[i].name, len) == 0 && text[len] == ':')
            return &transports[i];
    }
    return NULL;
}

static void set_name(struct pull_source *source, const char *name, size_t len, const char *behind)
{
    snprintf(source->name, sizeof(source->name), "%.*s%s", (int)len, name, behind);
}

static bool is_hex(const char *text, size_t n)
{
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

/* "registry:5000/path/name:tag@sha256:…", whose last component is "name:tag". Cuts the tag out of source->text when
 * there is a digest, too: skopeo takes only one of them. */
static void name_by_reference(struct pull_source *source, const char *reference)
{
    const char *at = strrchr(reference, '@');
    size_t len = at ? (size_t)(at - reference) : strlen(reference);
    const char *slash = memrchr(reference, '/', len);
    const char *last = slash ? slash + 1 : reference;
    size_t n_last = len - (size_t)(last - reference);
    const char *tag = memchr(last, ':', n_last);

    if (n_last == 0 || (!at && is_hex(last, 64))) /* an id, which is no name */
        return;
    if (!at || !strchr(at, ':')) /* what follows '@' is an id, too */
        set_name(source, last, n_last, tag ? "" : ":latest");
    else
        set_name(source, last, tag ? n_last : strlen(last), "");
    if (at && tag && source->is_registry)
        memmove(source->text + (tag - source->text), at, strlen(at) + 1);
}

/* @path has @len bytes; @wanted is what is asked for in it. */
static void name_by_path(struct pull_source *source, const char *path, size_t len, const char *wanted)
{
    static const char *const endings[] = { ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2" };
    const char *slash;
    char behind[PULL_SOURCE_MAX + 8];

    /* "example.com/app:1", and not "1" or, by number, "@0". */
    if (wanted && wanted[0] != '@' && strpbrk(wanted, "/:")) {
        name_by_reference(source, wanted);
        return;
    }
    while (len > 0 && path[len - 1] == '/')
        len--;
    slash = memrchr(path, '/', len);
    if (slash) {
        len -= (size_t)(slash + 1 - path);
        path = slash + 1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        size_t n = strlen(endings[i]);

        if (len > n && memcmp(path + len - n, endings[i], n) == 0) {
            len -= n;
            break;
        }
    }
    if (len == 0 || path[0] == '.')
        return;
    snprintf(behind, sizeof(behind), ":%s", wanted && wanted[0] && wanted[0] != '@' ? wanted : "latest");
    set_name(source, path, len, behind);
}

static int parse_reference(struct pull_source *source, enum kind kind, const char *rest, struct hutch_err *err)
{
    const char *colon;

    switch (kind) {
    case KIND_REGISTRY:
        if (strncmp(rest, "//", 2) != 0 || rest[2] == '\0' || rest[2] == '/')
            return hutch_err_set(err, 0, "'%.200s' is not of the form docker://[REGISTRY/]NAME[:TAG|@DIGEST]",
                                 source->text);
        source->is_registry = true;
        name_by_reference(source, rest + 2);
        return 0;
    case KIND_STORAGE:
        if (rest[0] == '[') {
            rest = strchr(rest, ']');
            rest = rest ? rest + 1 : "";
        }
        if (rest[0] == '\0')
            return hutch_err_set(err, 0, "'%.200s' names no image", source->text);
        name_by_reference(source, rest);
        return 0;
    case KIND_FILE:
        colon = strchr(rest, ':');
        if (rest[0] == '\0' || colon == rest)
            return hutch_err_set(err, 0, "'%.200s' names no file", source->text);
        name_by_path(source, rest, colon ? (size_t)(colon - rest) : strlen(rest), colon ? colon + 1 : NULL);
        return 0;
    default:
        if (rest[0] == '\0')
            return hutch_err_set(err, 0, "'%.200s' names no directory", source->text);
        name_by_path(source, rest, strlen(rest), NULL);
        return 0;
    }
}

int hutch_pull_source_parse(const char *text, struct pull_source *ret, struct hutch_err *err)
{
    struct pull_source source = { .name = "" };
    const struct transport *transport;
    size_t len = strlen(text);

    if (len > PULL_SOURCE_MAX)
        return hutch_err_set(err, 0, "'%.80s...' is longer than %d bytes", text, PULL_SOURCE_MAX);
    if (!hutch_utf8_is_valid(text, len))
        return hutch_err_set(err, 0, "'%.200s' is not UTF-8", text);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return hutch_err_set(err, 0, "'%.200s' has a control character in it", text);
    memcpy(source.text, text, len + 1);
    transport = find_transport(source.text);
    if (!transport)
        return hutch_err_set(err, 0, "'%.160s' begins with none of " TAKEN "; an image of a registry is "
                                     "docker://%.160s", text, strstr(text, "://") || !text[0] ? "NAME[:TAG]" : text);
    if (transport->kind == KIND_REFUSED)
        return hutch_err_set(err, 0, "'%s:' is not taken: %s", transport->name, transport->why);
    if (parse_reference(&source, transport->kind, source.text + strlen(transport->name) + 1, err) < 0)
        return -1;
    *ret = source;
    return 0;
}
