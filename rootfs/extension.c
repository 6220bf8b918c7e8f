#include "rootfs/extension.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define HEAD "hutch-extended 1"

static int broken(struct hutch_err *err)
{
    return hutch_err_set(err, 0, "the file '" EXTENSION_FILE "' of the image is broken");
}

static int take_line(struct extension *extension, size_t n, const char *line)
{
    if (n == 0)
        return strcmp(line, HEAD) == 0 ? 0 : -1;
    if (n == 1)
        return strncmp(line, "base ", 5) == 0 && hutch_digest_parse(line + 5, extension->base) ? 0 : -1;
    if (extension->n_layers == SPEC_MAX_LAYERS || strncmp(line, "layer ", 6) != 0)
        return -1;
    return hutch_digest_parse(line + 6, extension->layers[extension->n_layers++]) ? 0 : -1;
}

int hutch_extension_read(int tree_fd, struct extension *ret, struct hutch_err *err)
{
    auto_fd fd = openat(tree_fd, EXTENSION_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct extension extension = { .n_layers = 0 };
    char text[EXTENSION_MAX_TEXT], *rest = text, *line;
    size_t n_lines = 0;
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "open '" EXTENSION_FILE "' of the image");
    n = hutch_fd_read_full(fd, text, sizeof(text) - 1);
    if (n < 0)
        return hutch_err_set(err, errno, "read '" EXTENSION_FILE "' of the image");
    text[n] = '\0';
    if (n == 0 || strlen(text) != (size_t)n || text[n - 1] != '\n')
        return broken(err);
    text[n - 1] = '\0';
    while ((line = strsep(&rest, "\n")))
        if (take_line(&extension, n_lines++, line) < 0)
            return broken(err);
    if (extension.n_layers == 0)
        return broken(err);
    *ret = extension;
    return 1;
}

size_t hutch_extension_print(const struct extension *extension, char ret[EXTENSION_MAX_TEXT])
{
    size_t len = (size_t)snprintf(ret, EXTENSION_MAX_TEXT, HEAD "\nbase sha256:%s\n", extension->base);

    for (size_t i = 0; i < extension->n_layers; i++)
        len += (size_t)snprintf(ret + len, EXTENSION_MAX_TEXT - len, "layer sha256:%s\n", extension->layers[i]);
    return len;
}
