#include "runtime/cli/with_packages.h"

#include "rootfs/stores.h"
#include "runtime/cli/ask.h"
#include "runtime/cli/beside.h"
#include "runtime/cli/extend_request.h"
#include "runtime/cli/script_wants.h"
#include "runtime/cli/words.h"
#include "runtime/config/profile.h"
#include "runtime/lang/program.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add_all(const struct script_wants *wants, struct extend_request *request, struct hutch_err *err)
{
    for (size_t i = 0; i < wants->pip.n; i++)
        if (hutch_requirement_add(&request->pip, wants->pip.texts[i], strlen(wants->pip.texts[i]), err) < 0)
            return -1;
    if (wants->npm.n == 0)
        return 0;
    if (!hutch_extend_request_is_empty(request))
        return hutch_err_set(err, 0, "option '--with' is for Python, and the program's package.json wants packages of "
                                     "Node: hutch rootfs extend IMAGE --npm DIR --as NAME makes an image of those, and "
                                     "--image NAME takes it");
    return hutch_extend_request_add_npm(request, &wants->npm, err);
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

/* By hutch rootfs extend, which has what it takes. It reads the same variables. A requirement is given as the one that
 * was checked here: what it may hold depends on who has asked for it. */
static int make(const struct run_opts *opts, const struct extend_request *request, const char *image,
                struct hutch_err *err)
{
    auto_free char *npm = request->npm.n ? hutch_npm_packages_print(&request->npm, err) : NULL;
    auto_words words = WORDS_INIT;

    if (request->npm.n && !npm)
        return -1;
    ADD_WORD(&words, "hutch-rootfs");
    ADD_WORD(&words, "extend");
    ADD_WORD(&words, image);
    if (opts->quiet)
        ADD_WORD(&words, "--quiet");
    for (size_t i = 0; i < request->pip.n; i++) {
        ADD_WORD(&words, "--pip");
        ADD_WORD(&words, "=", request->pip.texts[i]);
    }
    for (size_t i = 0; i < request->wheel_files.n; i++) {
        ADD_WORD(&words, "--pip");
        ADD_WORD(&words, request->wheel_files.texts[i]);
    }
    if (npm) {
        ADD_WORD(&words, "--npm");
        ADD_WORD(&words, npm);
    }
    if (opts->index) {
        ADD_WORD(&words, "--index");
        ADD_WORD(&words, opts->index);
    }
    if (opts->wheels) {
        ADD_WORD(&words, "--wheels");
        ADD_WORD(&words, opts->wheels);
    }
    if (words.is_broken)
        return hutch_err_set(err, ENOMEM, "extend the image '%s'", image);
    return hutch_beside_run_rootfs((const char *const *)words.argv, err) < 0
               ? hutch_err_wrap(err, "extend the image '%s'", image) : 0;
}

/* The script is code that nobody has read, and what it names is fetched by the host's network: only its caller can
 * want that. From a directory of the caller's no network is needed. */
static int check_wanted(const struct run_opts *opts, const char *script, const struct script_wants *wants,
                        bool needs_network, struct hutch_err *err)
{
    auto_free char *wanted = NULL, *question = NULL;

    if (opts->yes || !needs_network)
        return 0;
    wanted = hutch_script_wants_print(wants, !opts->quiet && hutch_ask_can());
    if (!wanted || asprintf(&question, "the script '%s' wants packages: %s. Have them fetched, and laid over the "
                                       "image?", script, wanted) < 0) {
        question = NULL;
        return hutch_err_set(err, ENOMEM, "ask for the script's packages");
    }
    if (opts->quiet || !hutch_ask_can())
        return hutch_err_set(err, 0, "the script '%s' wants packages that are not here: %s (--yes has them fetched, "
                                     "and laid over the image)", script, wanted);
    return hutch_ask(question, false) ? 0 : hutch_err_set(err, 0, "the script '%s' is not run without its packages",
                                                          script);
}

static bool has_modules(const char *tree)
{
    auto_fd fd = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && faccessat(fd, "node_modules", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether Node's packages are to be laid over @image: without Node the program cannot run at all, which is the run's to
 * say, and an image that has such packages was made for the program. */
static bool lacks_modules(const char *home, const char *image)
{
    auto_image_root root = IMAGE_ROOT_INIT;
    struct hutch_err ignored;
    bool has_any, has_node;

    if (hutch_stores_find(home, image, &root, &ignored) < 0)
        return false;
    has_any = has_modules(root.path);
    has_node = hutch_program_is_installed(root.path, "js");
    for (size_t i = 0; i < root.n_layers; i++) {
        has_any = has_any || has_modules(root.layers[i]);
        has_node = has_node || hutch_program_is_installed(root.layers[i], "js");
    }
    return has_node && !has_any;
}

static int add_script(const struct run_opts *opts, const char *home, const char *script, const char *project,
                      struct script_wants *wants, struct extend_request *request, struct hutch_err *err)
{
    const char *image = opts->image ? opts->image : PROFILE_IMAGE;
    const bool is_for_node = script && hutch_script_is_for_node(opts, script);

    if (!script || (is_for_node && (opts->rootfs || !lacks_modules(home, image))))
        return 0;
    return hutch_script_wants_read(opts, script, project, wants, err) < 0 ? -1 : add_all(wants, request, err);
}

int hutch_with_packages(struct run_opts *opts, const char *home, const char *script, const char *project,
                        struct with_packages *ret, struct hutch_err *err)
{
    struct extend_sources sources = { .index = opts->index, .wheels = opts->wheels };
    const char *image = opts->image ? opts->image : PROFILE_IMAGE;
    auto_extend_request request = EXTEND_REQUEST_INIT;
    auto_script_wants wants = SCRIPT_WANTS_INIT;
    bool is_found;

    for (size_t i = 0; i < opts->with.n; i++)
        if (hutch_extend_request_add_pip(&request, opts->with.values[i], err) < 0)
            return hutch_err_wrap(err, "option '--with'");
    if (add_script(opts, home, script, project, &wants, &request, err) < 0)
        return -1;
    sources.is_npm = wants.npm.n > 0;
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
    if (!is_found && wants.pip.n + wants.npm.n > 0 &&
        check_wanted(opts, script, &wants, hutch_extend_request_needs_network(&request), err) < 0)
        return -1;
    if (!is_found && (make(opts, &request, image, err) < 0 || find(&request, home, image, ret, &is_found, err) < 0))
        return -1;
    if (!is_found)
        return hutch_err_set(err, 0, "the packages, or the image '%s', have changed since they were laid over it: run "
                                     "it again", image);
    opts->image = ret->image;
    return 0;
}
