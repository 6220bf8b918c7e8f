#include "runtime/cli/with_packages.h"

#include "rootfs/stores.h"
#include "runtime/cli/ask.h"
#include "runtime/cli/beside.h"
#include "runtime/cli/extend_request.h"
#include "runtime/config/profile.h"
#include "runtime/lang/program.h"
#include "runtime/lang/requirement.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file that is Python by its name, or by having none that says otherwise. */
static bool may_be_python(const struct run_opts *opts, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');

    if (opts->language)
        return strcmp(opts->language, "python") == 0;
    return !dot || dot == path || dot[-1] == '/' || strcmp(dot, ".py") == 0;
}

/* What cannot be read is the run's to complain about. Standard input or a FIFO could be read once only. */
static int read_script(const struct run_opts *opts, const char *path, struct requirement_list *ret,
                       struct hutch_err *err)
{
    auto_free char *text = NULL;
    struct hutch_err ignored;
    auto_fd fd = -1;
    struct stat st;
    size_t len;

    if (!path || !may_be_python(opts, path) || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || hutch_fd_slurp(fd, PROGRAM_MAX_BYTES, path, &text, &len, &ignored) < 0 ||
        !memmem(text, len, "# /// script", strlen("# /// script")))
        return 0;
    return hutch_requirement_add_script(ret, text, len, err) < 0 ? hutch_err_wrap(err, "'%s'", path) : 0;
}

static int add_all(const struct requirement_list *list, struct extend_request *request, struct hutch_err *err)
{
    for (size_t i = 0; i < list->n; i++)
        if (hutch_requirement_add(&request->pip, list->texts[i], strlen(list->texts[i]), err) < 0)
            return -1;
    return 0;
}

/* In the store of @home, where extended images are made. False: it is not there. */
static int find(const struct extend_request *request, const char *home, const char *image, struct with_packages *ret,
                bool *ret_found, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_store_done))) struct store store = STORE_INIT;
    char base[DIGEST_HEX + 1], hex[DIGEST_HEX + 1];
    auto_free char *text = NULL;
    struct extension ignored;

    if (hutch_stores_read_extension(home, image, base, &ignored, err) < 0)
        return -1;
    text = hutch_extend_request_print(request, base, err);
    if (!text || hutch_store_open(home, &store, err) < 0)
        return -1;
    *ret_found = hutch_store_find_request(&store, text, hex);
    if (*ret_found)
        snprintf(ret->image, sizeof(ret->image), "sha256:%s", hex);
    return 0;
}

/* By hutch rootfs extend, which has what it takes. It reads the same variables. */
static int make(const struct run_opts *opts, const struct extend_request *request, const char *image,
                struct hutch_err *err)
{
    const size_t n = request->pip.n + request->files.n;
    auto_free const char **argv = calloc(2 * n + 16, sizeof(*argv));
    size_t at = 0;

    if (!argv)
        return hutch_err_set(err, ENOMEM, "extend the image '%s'", image);
    argv[at++] = "hutch-rootfs";
    argv[at++] = "extend";
    argv[at++] = image;
    if (opts->quiet)
        argv[at++] = "--quiet";
    for (size_t i = 0; i < n; i++) {
        argv[at++] = "--pip";
        argv[at++] = i < request->pip.n ? request->pip.texts[i] : request->files.texts[i - request->pip.n];
    }
    if (opts->index) {
        argv[at++] = "--index";
        argv[at++] = opts->index;
    }
    if (opts->wheels) {
        argv[at++] = "--wheels";
        argv[at++] = opts->wheels;
    }
    return hutch_beside_run_rootfs(argv, err) < 0
               ? hutch_err_wrap(err, "extend the image '%s'", image) : 0;
}

/* The script is code that nobody has read, and what it names is fetched by the host's network: only its caller can want
 * that. From a directory of the caller's no network is needed. */
static int check_wanted(const struct run_opts *opts, const char *script, const struct requirement_list *list,
                        bool needs_network, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *wanted = NULL, *question = NULL;

    if (opts->yes || !needs_network)
        return 0;
    for (size_t i = 0; i < list->n; i++) {
        hutch_text_add_string(&t, i ? ", " : "");
        hutch_text_add_string(&t, list->texts[i]);
    }
    wanted = hutch_text_take(&t, NULL);
    if (!wanted || asprintf(&question, "the script '%s' wants packages: %.300s%s. Have them fetched, and laid over the "
                                       "image?", script, wanted, strlen(wanted) > 300 ? "…" : "") < 0) {
        question = NULL;
        return hutch_err_set(err, ENOMEM, "ask for the script's packages");
    }
    if (opts->quiet || !hutch_ask_can())
        return hutch_err_set(err, 0, "the script '%s' wants packages that are not here: %.200s%s (--yes has them "
                                     "fetched, and laid over the image)", script, wanted,
                             strlen(wanted) > 200 ? "…" : "");
    return hutch_ask(question, false) ? 0 : hutch_err_set(err, 0, "the script '%s' is not run without its packages",
                                                          script);
}

int hutch_with_packages(struct run_opts *opts, const char *home, const char *script, struct with_packages *ret,
                   struct hutch_err *err)
{
    const struct extend_sources sources = { .index = opts->index, .wheels = opts->wheels };
    const char *image = opts->image ? opts->image : PROFILE_IMAGE;
    auto_extend_request request = EXTEND_REQUEST_INIT;
    __attribute__((cleanup(hutch_requirement_list_done))) struct requirement_list wanted = REQUIREMENT_LIST_INIT;
    bool is_found;

    for (size_t i = 0; i < opts->with.n; i++)
        if (hutch_extend_request_add_pip(&request, opts->with.values[i], err) < 0)
            return hutch_err_wrap(err, "option '--with'");
    if (read_script(opts, script, &wanted, err) < 0 || add_all(&wanted, &request, err) < 0)
        return -1;
    if (hutch_extend_request_is_empty(&request))
        return !opts->index && !opts->wheels ? 0
               : hutch_err_set(err, 0, "option '%s' says where packages come from, and none is asked for (--with, or "
                               "the script's dependencies)", opts->index ? "--index" : "--wheels");
    if (opts->rootfs)
        return hutch_err_set(err, 0, "%s packages to be laid over an image, and with '--rootfs' there is none",
                             opts->with.n ? "option '--with' wants" : "the script's dependencies are");
    if (hutch_extend_request_set_sources(&request, &sources, err) < 0 ||
        find(&request, home, image, ret, &is_found, err) < 0)
        return -1;
    if (!is_found && wanted.n > 0 &&
        check_wanted(opts, script, &wanted, hutch_extend_request_needs_network(&request), err) < 0)
        return -1;
    if (!is_found && (make(opts, &request, image, err) < 0 || find(&request, home, image, ret, &is_found, err) < 0))
        return -1;
    if (!is_found)
        return hutch_err_set(err, 0, "the packages, or the image '%s', have changed since they were laid over it: run "
                                     "it again", image);
    opts->image = ret->image;
    return 0;
}
