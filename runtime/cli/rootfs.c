#include "runtime/cli/rootfs.h"

#include "runtime/cli/commands.h"
#include "runtime/cli/exits.h"
#include "runtime/cli/extend.h"
#include "runtime/cli/flavour.h"
#include "runtime/cli/pull_source.h"
#include "runtime/cli/rootfs_script.h"
#include "runtime/cli/say.h"
#include "runtime/cli/skopeo.h"
#include "runtime/text/buffer.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "rootfs/home.h"
#include "runtime/text/quantity.h"
#include "rootfs/machine.h"
#include "rootfs/oci_image.h"
#include "rootfs/progress.h"
#include "rootfs/store_layers.h"
#include "rootfs/store_share.h"
#include "rootfs/stores.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { EXIT_DIFFERENT = 1 };

#define MAX_SHOWN 20 /* differences of one image */
#define MAX_PACKAGES_SHOWN 6
#define PULL_MS (30 * 60 * 1000ull)
#define EXTEND_MS (30 * 60 * 1000ull)

/* --- interruption ----------------------------------------------------------------------------------------- */

static volatile sig_atomic_t signal_caught;

static void on_signal(int number)
{
    signal_caught = number;
}

static const int caught_signals[] = { SIGINT, SIGTERM, SIGHUP };

/* Instead of dying at once, finish the current block, clean up, and die then. */
static void catch_signals(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(caught_signals); i++) {
        struct sigaction old, action = { .sa_handler = on_signal };

        if (sigaction(caught_signals[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN) /* nohup */
            continue;
        sigaction(caught_signals[i], &action, NULL);
    }
}

static void die_of_signal(void)
{
    struct sigaction action = { .sa_handler = SIG_DFL };

    sigaction(signal_caught, &action, NULL);
    raise(signal_caught);
}

/* --- progress --------------------------------------------------------------------------------------------- */

struct ui {
    struct progress bar;
    char what[64];
    char doing[16];
    bool is_quiet;
};

static int on_progress(void *ctx, const char *doing, uint64_t done, uint64_t total)
{
    struct ui *ui = ctx;

    if (signal_caught)
        return 1;
    if (ui->is_quiet)
        return 0;
    if (strcmp(ui->doing, doing) != 0) {
        hutch_progress_end(&ui->bar);
        snprintf(ui->doing, sizeof(ui->doing), "%s", doing);
        hutch_progress_start(&ui->bar, STDERR_FILENO, ui->doing);
    }
    hutch_progress_update(&ui->bar, done, total);
    return 0;
}

static int print_size(char *buffer, size_t size, uint64_t bytes)
{
    if (bytes >= 1000000)
        return snprintf(buffer, size, "%" PRIu64 " MB", (bytes + 500000) / 1000000);
    return snprintf(buffer, size, "%" PRIu64 " kB", (bytes + 999) / 1000);
}

/* --- unpack ----------------------------------------------------------------------------------------------- */

static int read_limits(const struct rootfs_opts *opts, struct store_unpack *ret, struct hutch_err *err)
{
    if (opts->max_size && hutch_parse_bytes(opts->max_size, &ret->max_bytes, err) < 0)
        return hutch_err_wrap(err, "--max-size");
    if (opts->max_entries && hutch_parse_u64(opts->max_entries, &ret->max_entries, err) < 0)
        return hutch_err_wrap(err, "--max-entries");
    if ((opts->max_size && ret->max_bytes == 0) || (opts->max_entries && ret->max_entries == 0))
        return hutch_err_set(err, 0, "a limit of 0 leaves no room for any image");
    return 0;
}

/* @source is where the archive was pulled from, NULL for the user's own. */
static int unpack(const struct store *store, const char *archive, const char *name, const char *source,
                  const struct rootfs_opts *opts, struct hutch_err *err)
{
    struct ui ui = { .is_quiet = opts->quiet };
    struct store_unpack how = { .name = name, .select = opts->select, .platform = opts->platform, .source = source,
                                .progress = on_progress, .ctx = &ui };
    struct store_image image;
    char size[32];
    int rc;

    if (read_limits(opts, &how, err) < 0)
        return -1;
    rc = hutch_store_unpack(store, archive, &how, &image, err);
    hutch_progress_end(&ui.bar);
    if (rc < 0)
        return -1;
    print_size(size, sizeof(size), image.bytes);
    if (!opts->quiet) {
        struct text_buffer names = TEXT_BUFFER_INIT;

        for (size_t i = 0; i < image.n_names; i++)
            hutch_text_addf(&names, "%s'%s'", i ? ", " : "", image.names[i]);
        hutch_say("image %s%sis in the store: %s in %" PRIu64 " entries", image.n_names && names.data ? names.data : "",
                  image.n_names ? " " : "", size, image.entries);
        if (image.devices > 0)
            hutch_say("%" PRIu64 " device node%s below /dev %s passed over: each sandbox has its own", image.devices,
                      image.devices == 1 ? "" : "s", image.devices == 1 ? "was" : "were");
        hutch_text_done(&names);
    }
    printf("sha256:%s\n", image.digest);
    hutch_store_image_done(&image);
    return 0;
}

static int cmd_unpack(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    const char *name = opts->name;

    if (opts->n_args < 1 || opts->n_args > 2 || (opts->n_args == 2 && name))
        return hutch_err_set(err, 0, "usage: hutch rootfs unpack ARCHIVE [NAME]");
    if (opts->n_args == 2)
        name = opts->args[1];
    return unpack(store, opts->args[0], name, NULL, opts, err);
}

/* --- pull ------------------------------------------------------------------------------------------------- */

static bool is_interrupted(void)
{
    return signal_caught != 0;
}

/* Everything that can be said before anybody is asked for the image. */
static int read_pull(const struct rootfs_opts *opts, struct pull_source *source, struct oci_platform *platform,
                     struct skopeo_copy *ret, struct hutch_err *err)
{
    struct store_unpack limits = { .max_bytes = 0 };
    uint64_t timeout_ms = PULL_MS;

    if (hutch_pull_source_parse(opts->args[0], source, err) < 0 || read_limits(opts, &limits, err) < 0 ||
        hutch_oci_platform_parse(opts->platform, platform, err) < 0)
        return -1;
    if ((opts->insecure || opts->authfile) && !source->is_registry)
        return hutch_err_set(err, 0, "%s is for images of a registry, docker://",
                             opts->insecure ? "--insecure" : "--authfile");
    if (opts->authfile && access(opts->authfile, R_OK) < 0)
        return hutch_err_set(err, errno, "read the passwords of --authfile '%.200s'", opts->authfile);
    if (opts->timeout && hutch_parse_duration_ms(opts->timeout, &timeout_ms, err) < 0)
        return hutch_err_wrap(err, "--timeout");
    if (timeout_ms == 0)
        return hutch_err_set(err, 0, "a --timeout of 0 leaves no time for any image");
    if (opts->name && !hutch_store_is_name(opts->name))
        return hutch_err_set(err, 0, "'%.80s' is not a name for an image", opts->name);
    if (!opts->name && !hutch_store_is_name(source->name))
        return hutch_err_set(err, 0, "'%.200s' does not say what the image is called; --name does", opts->args[0]);
    if (limits.max_bytes == 0)
        limits.max_bytes = STORE_MAX_BYTES;
    *ret = (struct skopeo_copy){
        .source = source->text, .arch = platform->arch, .variant = platform->variant, .authfile = opts->authfile,
        .is_insecure = opts->insecure, .is_shown = !opts->quiet && isatty(STDERR_FILENO) == 1,
        .timeout_ms = timeout_ms, .until = hutch_clock_ms() + (double)timeout_ms, .is_interrupted = is_interrupted,
        /* Twice: an archive is decompressed before its layers are copied. */
        .max_bytes = limits.max_bytes < UINT64_MAX / 2 ? limits.max_bytes * 2 : UINT64_MAX,
    };
    return 0;
}

/* As hutch_oci_image_read() chooses: the usual variant of this machine, else the best that it runs. */
static int fetch(struct skopeo_copy *copy, const struct oci_platform *platform, const struct store_work *work,
                 char **ret_path, struct hutch_err *err)
{
    int rc = hutch_skopeo_copy(copy, work, ret_path, err);
    struct hutch_err other = *err;

    for (unsigned n = 0; rc < 0 && other.errnum == ENOENT && !platform->is_given; n++) {
        copy->variant = hutch_machine_variant(platform->arch, n);
        if (!copy->variant)
            return -1;
        rc = hutch_skopeo_copy(copy, work, ret_path, &other);
        if (rc < 0 && other.errnum != ENOENT)
            *err = other;
    }
    return rc;
}

static int cmd_pull(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_store_work_end))) struct store_work work = STORE_WORK_INIT;
    struct oci_platform platform;
    struct pull_source source;
    struct skopeo_copy copy;
    auto_free char *path = NULL;

    if (opts->n_args != 1)
        return hutch_err_set(err, 0, "usage: hutch rootfs pull SOURCE [--name NAME]");
    if (read_pull(opts, &source, &platform, &copy, err) < 0 || hutch_store_work_begin(store, &work, err) < 0 ||
        fetch(&copy, &platform, &work, &path, err) < 0)
        return -1;
    return unpack(store, path, opts->name ? opts->name : source.name, opts->args[0], opts, err);
}

/* --- build ------------------------------------------------------------------------------------------------ */

/* Runs the builder with stdin from /dev/null and stdout (the digest, which unpacking tells again) thrown away. */
static int run_builder(const char *script, const char *flavour, const char *suite, const char *out,
                       const struct rootfs_opts *opts, struct hutch_err *err)
{
    char *argv[] = { (char *)(uintptr_t)script, (char *)(uintptr_t)flavour, (char *)(uintptr_t)out, NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, rc;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (opts->quiet)
        setenv("HUTCH_BUILD_QUIET", "1", 1);
    setenv("HUTCH_SUITE", suite, 1);
    rc = posix_spawn(&pid, script, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return hutch_err_set(err, rc, "run '%s'", script);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return hutch_err_set(err, errno, "wait for '%s'", script);
        if (signal_caught) /* a terminal told the script too, kill(1) told only us */
            kill(pid, SIGTERM);
    }
    if (signal_caught)
        return hutch_err_set(err, ECANCELED, "build image '%s'", flavour);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return hutch_err_set(err, 0, "build image '%s': the builder failed, it says why above", flavour);
    return 0;
}

/* HUTCH_SUITE is build.sh's: to take it for nothing could give an image of another release than was meant. */
static int check_suite(const struct flavour *flavour, const struct rootfs_opts *opts, struct hutch_err *err)
{
    const char *variable = getenv("HUTCH_SUITE");

    if (!opts->suite && variable && *variable && strcmp(variable, flavour->release) != 0)
        return hutch_err_set(err, 0, "HUTCH_SUITE is '%.80s', which build.sh alone obeys: here --suite names the "
                                     "release", variable);
    return 0;
}

static int cmd_build(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    const char *wanted = opts->n_args > 0 ? opts->args[0] : "python";
    __attribute__((cleanup(hutch_store_work_end))) struct store_work work = STORE_WORK_INIT;
    auto_free char *out = NULL, *script = NULL, *name = NULL;
    auto_flavour flavour = FLAVOUR_INIT;

    if (opts->n_args > 1)
        return hutch_err_set(err, 0, "usage: hutch rootfs build [FLAVOUR] [--suite RELEASE]");
    if (opts->name && !hutch_store_is_name(opts->name)) /* now, not when the build is done */
        return hutch_err_set(err, 0, "'%s' is not a name for an image", opts->name);
    if (hutch_flavour_choose(wanted, opts->suite, &flavour, &name, err) < 0 || check_suite(&flavour, opts, err) < 0 ||
        hutch_rootfs_script_find("build.sh", X_OK, &script, err) < 0)
        return -1;
    if (opts->output) {
        out = strdup(opts->output);
    } else {
        if (hutch_store_work_begin(store, &work, err) < 0)
            return -1;
        if (asprintf(&out, "%s/tmp/%s/image.tar", store->path, work.name) < 0)
            out = NULL;
    }
    if (!out)
        return hutch_err_set(err, ENOMEM, "build image '%s'", wanted);
    if (run_builder(script, flavour.name, flavour.release, out, opts, err) < 0)
        return -1;
    return unpack(store, out, opts->name ? opts->name : name, NULL, opts, err);
}

/* --- extend ----------------------------------------------------------------------------------------------- */

static int read_request(const struct rootfs_opts *opts, struct extend_request *ret, struct hutch_err *err)
{
    const struct extend_sources sources = { .index = opts->index, .wheels = opts->wheels,
                                            .is_npm = opts->npm.n > 0, .is_apt = opts->apt.n > 0,
                                            .allow_build = opts->allow_build };
    const unsigned kinds = (opts->pip.n > 0) + (opts->npm.n > 0) + (opts->apt.n > 0);

    for (size_t i = 0; i < opts->pip.n; i++)
        if (hutch_extend_request_add_pip(ret, opts->pip.values[i], err) < 0)
            return hutch_err_wrap(err, "option '--pip'");
    for (size_t i = 0; i < opts->npm.n; i++)
        if (hutch_extend_request_add_npm_words(ret, opts->npm.values[i], err) < 0)
            return -1;
    if (ret->npm_dir && ret->npm.n > 0)
        return hutch_err_set(err, 0, "option '--npm': a layer has what a package.json says, or packages by name");
    for (size_t i = 0; i < opts->apt.n; i++)
        if (hutch_extend_request_add_apt(ret, opts->apt.values[i], err) < 0)
            return hutch_err_wrap(err, "option '--apt'");
    if (kinds > 1)
        return hutch_err_set(err, 0, "options '%s' and '%s' are for two layers, as one tool makes one: extend the "
                                     "extended image with the other", opts->pip.n > 0 ? "--pip" : "--npm",
                             opts->apt.n > 0 ? "--apt" : "--npm");
    if (hutch_extend_request_set_sources(ret, &sources, err) < 0)
        return -1;
    if (hutch_extend_request_is_empty(ret))
        return hutch_err_set(err, 0, "there is nothing to lay over the image: --pip WHAT, --npm WHAT or --apt WHAT "
                                     "says what");
    return 0;
}

/* "rich 13.7.0, polars 1.2.0 and 4 more" */
static void print_packages(const struct store *store, const char *hex, char *to, size_t size)
{
    auto_free char *text = hutch_store_read_layer(store, hex);
    cJSON *layer = text ? cJSON_Parse(text) : NULL;
    const cJSON *packages = cJSON_GetObjectItemCaseSensitive(layer, "packages"), *package;
    int n = cJSON_GetArraySize(packages), shown = 0;
    size_t len = 0;

    to[0] = '\0';
    if (n == 0)
        snprintf(to, size, "nothing that was not there");
    cJSON_ArrayForEach(package, packages) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(package, "name"));
        const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(package, "version"));

        if (shown == MAX_PACKAGES_SHOWN || !name || !version || len + strlen(name) + strlen(version) + 24 > size)
            break;
        len += (size_t)snprintf(to + len, size - len, "%s%s %s", shown++ ? ", " : "", name, version);
    }
    if (n > shown)
        snprintf(to + len, size - len, " and %d more", n - shown);
    cJSON_Delete(layer);
}

static int report_extended(const struct store *store, const char *hex, const char *name, bool is_new, bool is_quiet,
                           struct hutch_err *err)
{
    struct store_image image;
    char packages[512], size[32];

    if (hutch_store_describe(store, hex, &image, err) < 0)
        return -1;
    if (!is_quiet && image.extension.n_layers > 0) {
        print_packages(store, image.extension.layers[image.extension.n_layers - 1], packages, sizeof(packages));
        print_size(size, sizeof(size), image.bytes);
        hutch_say("the image %s%s%sis %s: %s; %s in %zu layer%s", name ? "'" : "", name ? name : "", name ? "' " : "",
                  is_new ? "in the store" : "there already", packages, size, image.extension.n_layers,
                  image.extension.n_layers == 1 ? "" : "s");
    }
    printf("sha256:%s\n", hex);
    hutch_store_image_done(&image);
    return 0;
}

static int cmd_extend(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    auto_extend_request request = EXTEND_REQUEST_INIT;
    struct ui ui = { .is_quiet = opts->quiet };
    struct extend_job job = {
        .store = store, .name = opts->as, .request = &request, .timeout_ms = EXTEND_MS, .quiet = opts->quiet,
        .is_interrupted = is_interrupted, .progress = on_progress, .ctx = &ui,
    };
    struct store_unpack limits = { .max_bytes = STORE_MAX_BYTES, .max_entries = STORE_MAX_LAYER_ENTRIES };
    auto_free char *home = NULL;
    char hex[DIGEST_HEX + 1];
    bool is_new = false;
    int rc;

    if (opts->n_args != 1)
        return hutch_err_set(err, 0, "usage: hutch rootfs extend IMAGE --pip WHAT [--as NAME]");
    if (opts->as && !hutch_store_is_name(opts->as))
        return hutch_err_set(
            err, 0, "'%.80s' cannot be an image's name (letters, digits, and \"._-/:@\" after the first)", opts->as);
    if (read_request(opts, &request, err) < 0 || read_limits(opts, &limits, err) < 0 || hutch_home_path(&home, err) < 0)
        return -1;
    if (opts->timeout && hutch_parse_duration_ms(opts->timeout, &job.timeout_ms, err) < 0)
        return hutch_err_wrap(err, "option '--timeout'");
    if (job.timeout_ms == 0)
        return hutch_err_set(err, 0, "option '--timeout': in no time nothing is made");
    job.image = opts->args[0];
    job.home = home;
    job.max_bytes = limits.max_bytes;
    job.max_entries = limits.max_entries;
    rc = hutch_extend(&job, hex, &is_new, err);
    hutch_progress_end(&ui.bar);
    return rc < 0 ? -1 : report_extended(store, hex, opts->as, is_new, opts->quiet, err);
}

/* --- list ------------------------------------------------------------------------------------------------- */

/* The base and the layers; null and none for an image that extends no other. */
static void add_layers(cJSON *object, const struct store *store, const struct extension *extension)
{
    char digest[sizeof("sha256:") + DIGEST_HEX];
    cJSON *layers = cJSON_CreateArray();

    snprintf(digest, sizeof(digest), "sha256:%s", extension->base);
    if (extension->n_layers > 0)
        cJSON_AddStringToObject(object, "base", digest);
    else
        cJSON_AddNullToObject(object, "base");
    for (size_t i = 0; i < extension->n_layers; i++) {
        auto_free char *text = hutch_store_read_layer(store, extension->layers[i]);
        cJSON *layer = text ? cJSON_Parse(text) : NULL;

        if (!cJSON_IsObject(layer)) {
            cJSON_Delete(layer);
            layer = cJSON_CreateObject();
        }
        snprintf(digest, sizeof(digest), "sha256:%s", extension->layers[i]);
        cJSON_AddStringToObject(layer, "digest", digest);
        cJSON_AddItemToArray(layers, layer);
    }
    cJSON_AddItemToObject(object, "layers", layers);
}

static void add_json(cJSON *array, const struct store *store, const struct store_image *image)
{
    char digest[sizeof("sha256:") + DIGEST_HEX];
    cJSON *object = cJSON_CreateObject(), *names = cJSON_CreateArray();

    snprintf(digest, sizeof(digest), "sha256:%s", image->digest);
    cJSON_AddStringToObject(object, "digest", digest);
    for (size_t k = 0; k < image->n_names; k++)
        cJSON_AddItemToArray(names, cJSON_CreateString(image->names[k]));
    cJSON_AddItemToObject(object, "names", names);
    cJSON_AddNumberToObject(object, "bytes", (double)image->bytes);
    cJSON_AddNumberToObject(object, "entries", (double)image->entries);
    cJSON_AddNumberToObject(object, "devices", (double)image->devices);
    cJSON_AddNumberToObject(object, "unpacked", (double)image->unpacked);
    if (image->source)
        cJSON_AddStringToObject(object, "source", image->source);
    else
        cJSON_AddNullToObject(object, "source");
    add_layers(object, store, &image->extension);
    cJSON_AddStringToObject(object, "store", store->path);
    cJSON_AddItemToArray(array, object);
}

static void print_row(const struct store *store, const struct store_image *image)
{
    char size[32], when[32] = "?", over[64] = "";
    time_t unpacked = (time_t)image->unpacked;
    struct tm tm;

    print_size(size, sizeof(size), image->bytes);
    if (localtime_r(&unpacked, &tm))
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
    if (image->extension.n_layers > 0)
        snprintf(over, sizeof(over), "  %zu layer%s over %.12s", image->extension.n_layers,
                 image->extension.n_layers == 1 ? "" : "s", image->extension.base);
    for (size_t k = 0; k < image->n_names || k == 0; k++)
        printf("%-24s %.12s %9s %9" PRIu64 "  %s%s%s%s\n", image->n_names ? image->names[k] : "-", image->digest, size,
               image->entries, when, over, store->is_shared ? "  in " : "", store->is_shared ? store->path : "");
}

struct list_ui {
    cJSON *array; /* of JSON output, else NULL */
    size_t n;
};

static int list_store(void *ctx, const struct store *store, struct hutch_err *err)
{
    struct list_ui *list = ctx;
    struct store_image *images = NULL;
    size_t n = 0;

    if (hutch_store_list(store, &images, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (list->array) {
            add_json(list->array, store, &images[i]);
        } else {
            if (list->n + i == 0)
                printf("%-24s %-12s %9s %9s  %s\n", "NAME", "DIGEST", "SIZE", "ENTRIES", "UNPACKED");
            print_row(store, &images[i]);
        }
        hutch_store_image_done(&images[i]);
    }
    free(images);
    list->n += n;
    return 0;
}

static int cmd_list(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    struct list_ui list = { .array = opts->json ? cJSON_CreateArray() : NULL };
    char *text = NULL;
    int rc;

    if (opts->n_args > 0) {
        cJSON_Delete(list.array);
        return hutch_err_set(err, 0, "usage: hutch rootfs list [--json]");
    }
    rc = list_store(&list, store, err);
    if (rc == 0)
        rc = hutch_stores_each_shared(list_store, &list, err);
    if (rc == 0 && list.array) {
        text = cJSON_Print(list.array);
        rc = text ? hutch_say_json(text, err) : hutch_err_set(err, ENOMEM, "print the list");
        free(text);
    } else if (rc == 0 && list.n == 0) {
        hutch_say("the store '%s' is empty (hutch rootfs build python)", store->path);
    }
    cJSON_Delete(list.array);
    return rc;
}

/* --- verify ----------------------------------------------------------------------------------------------- */

struct verify_ui {
    struct ui ui; /* first: the store hands one context to both callbacks */
    cJSON *differences; /* of JSON output, else NULL */
    uint64_t n;
};

static void on_difference(void *ctx, const char *what, const char *path)
{
    struct verify_ui *v = ctx;

    if (v->n++ >= MAX_SHOWN)
        return;
    if (v->differences) {
        cJSON *difference = cJSON_CreateObject();

        cJSON_AddStringToObject(difference, "what", what);
        cJSON_AddStringToObject(difference, "path", path);
        cJSON_AddItemToArray(v->differences, difference);
        return;
    }
    hutch_progress_end(&v->ui.bar);
    printf("%-7s /", what);
    hutch_say_text(stdout, path, strlen(path));
    putchar('\n');
}

/* Adds to @array, or prints. 1 when the image is not as it was. */
static int verify_one(const struct store *store, const char *name, const struct rootfs_opts *opts, cJSON *array,
                      struct hutch_err *err)
{
    struct verify_ui v = { .ui.is_quiet = opts->quiet, .differences = array ? cJSON_CreateArray() : NULL };
    uint64_t n = 0;
    int rc = hutch_store_verify(store, name, &n, on_difference, on_progress, &v, err);

    hutch_progress_end(&v.ui.bar);
    if (rc < 0) {
        cJSON_Delete(v.differences);
        return -1;
    }
    if (array) {
        cJSON *image = cJSON_CreateObject();

        cJSON_AddStringToObject(image, "name", name);
        cJSON_AddNumberToObject(image, "differences", (double)n);
        cJSON_AddItemToObject(image, "shown", v.differences);
        cJSON_AddItemToArray(array, image);
    } else if (n > 0) {
        if (n > MAX_SHOWN)
            printf("... and %" PRIu64 " more\n", n - MAX_SHOWN);
        printf("%s: %" PRIu64 " difference%s from what was unpacked\n", name, n, n == 1 ? "" : "s");
    } else if (!opts->quiet) {
        printf("%s: unchanged\n", name);
    }
    return n > 0;
}

/* In whichever store has it. */
static int verify_named(const char *name, const struct rootfs_opts *opts, cJSON *array, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_store_done))) struct store store = STORE_INIT;
    auto_free char *home = NULL;

    if (hutch_home_path(&home, err) < 0 || hutch_stores_open(home, name, &store, err) < 0)
        return -1;
    return verify_one(&store, name, opts, array, err);
}

static int verify_all(const struct store *store, const struct rootfs_opts *opts, cJSON *array, struct hutch_err *err)
{
    struct store_image *images = NULL;
    size_t n = 0;
    int rc = 0, worst = 0;

    if (hutch_store_list(store, &images, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (rc >= 0)
            rc = verify_one(store, images[i].n_names ? images[i].names[0] : images[i].digest, opts, array, err);
        if (rc > worst)
            worst = rc;
        hutch_store_image_done(&images[i]);
    }
    free(images);
    return rc < 0 ? -1 : worst;
}

/* 0, 1 when something differs, -1. */
static int cmd_verify(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    cJSON *array = opts->json ? cJSON_CreateArray() : NULL;
    int rc = 0, worst = 0;

    if (opts->n_args == 0)
        worst = rc = verify_all(store, opts, array, err);
    for (size_t i = 0; i < opts->n_args && rc >= 0; i++) {
        rc = verify_named(opts->args[i], opts, array, err);
        if (rc > worst)
            worst = rc;
    }
    if (array && rc >= 0) {
        char *text = cJSON_Print(array);

        if (hutch_say_json(text ? text : "[]", err) < 0)
            rc = -1;
        free(text);
    }
    cJSON_Delete(array);
    return rc < 0 ? -1 : worst;
}

/* --- remove ----------------------------------------------------------------------------------------------- */

static int cmd_remove(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    if (opts->n_args == 0)
        return hutch_err_set(err, 0, "usage: hutch rootfs remove NAME...");
    for (size_t i = 0; i < opts->n_args; i++)
        if (hutch_store_remove(store, opts->args[i], err) < 0)
            return -1;
    return 0;
}

/* --- prune ------------------------------------------------------------------------------------------------ */

struct prune_ui {
    cJSON *array; /* of JSON output, else NULL */
    uint64_t bytes;
};

static void on_pruned(void *ctx, enum store_pruned kind, const char *name, uint64_t bytes)
{
    static const char *const kinds[] = { [STORE_PRUNED_IMAGE] = "image", [STORE_PRUNED_BUSY] = "in use",
                                         [STORE_PRUNED_NAME] = "name", [STORE_PRUNED_LAYER] = "layer" };
    struct prune_ui *ui = ctx;
    char shown[sizeof("sha256:") + DIGEST_HEX], size[32];

    if (kind != STORE_PRUNED_BUSY)
        ui->bytes += bytes;
    if (kind != STORE_PRUNED_NAME)
        snprintf(shown, sizeof(shown), "sha256:%s", name);
    if (ui->array) {
        cJSON *object = cJSON_CreateObject();

        cJSON_AddStringToObject(object, "what", kinds[kind]);
        cJSON_AddStringToObject(object, "name", kind == STORE_PRUNED_NAME ? name : shown);
        cJSON_AddNumberToObject(object, "bytes", (double)bytes);
        cJSON_AddItemToArray(ui->array, object);
        return;
    }
    print_size(size, sizeof(size), bytes);
    if (kind == STORE_PRUNED_NAME)
        printf("%-7s %s, of an image that is gone\n", kinds[kind], name);
    else
        printf("%-7s %.19s  %s%s\n", kinds[kind], shown, size, kind == STORE_PRUNED_BUSY ? ", kept" : "");
}

static int cmd_prune(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    struct prune_ui ui = { .array = opts->json ? cJSON_CreateArray() : NULL };
    char size[32], *text = NULL;
    int rc;

    if (opts->n_args > 0)
        rc = hutch_err_set(err, 0, "usage: hutch rootfs prune [--dry-run] [--json]");
    else
        rc = hutch_store_prune(store, opts->dry_run, on_pruned, &ui, err);
    if (rc == 0 && ui.array) {
        text = cJSON_Print(ui.array);
        rc = hutch_say_json(text ? text : "[]", err);
        free(text);
    } else if (rc == 0 && !opts->quiet) {
        print_size(size, sizeof(size), ui.bytes);
        hutch_say(opts->dry_run ? "%s would be freed" : "%s freed", size);
    }
    cJSON_Delete(ui.array);
    return rc;
}

/* --- share ------------------------------------------------------------------------------------------------ */

static int cmd_share(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err)
{
    auto_free char *closed = NULL;

    if (opts->n_args == 0)
        return hutch_err_set(err, 0, "usage: hutch rootfs share NAME...");
    for (size_t i = 0; i < opts->n_args; i++) {
        hutch_freep(&closed);
        closed = NULL;
        if (hutch_store_share(store, opts->args[i], &closed, err) < 0)
            return -1;
    }
    if (closed)
        hutch_say("other users cannot enter '%s', so they do not reach the store; what lets them: chmod o+x '%s'",
                  closed, closed);
    if (!opts->quiet)
        printf("HUTCH_IMAGES=%s\n", store->path);
    return 0;
}

/* --- the command line ------------------------------------------------------------------------------------- */

static const struct {
    enum command_id id;
    int (*run)(const struct store *store, const struct rootfs_opts *opts, struct hutch_err *err);
} commands[] = {
    { COMMAND_ROOTFS_BUILD, cmd_build }, { COMMAND_ROOTFS_UNPACK, cmd_unpack }, { COMMAND_ROOTFS_PULL, cmd_pull },
    { COMMAND_ROOTFS_EXTEND, cmd_extend },
    { COMMAND_ROOTFS_LIST, cmd_list }, { COMMAND_ROOTFS_VERIFY, cmd_verify }, { COMMAND_ROOTFS_REMOVE, cmd_remove },
    { COMMAND_ROOTFS_SHARE, cmd_share }, { COMMAND_ROOTFS_PRUNE, cmd_prune },
};

/* "build" of "rootfs build". */
static const char *second_word(enum command_id id)
{
    return strchr(hutch_commands[id].name, ' ') + 1;
}

static void print_usage(FILE *to)
{
    const struct command *first = &hutch_commands[commands[0].id]; /* all have the same rows */

    fprintf(to, "usage: hutch rootfs COMMAND [...]\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        const struct command *c = &hutch_commands[commands[i].id];

        fprintf(to, "  %-6s %-15s %s\n", second_word(commands[i].id), c->usage, c->summary);
    }
    fprintf(to, "\n");
    for (size_t row = 0; row < first->n_rows; row++) {
        char which[64] = "";
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
            if (first->rows[row].commands & hutch_commands[commands[i].id].bit)
                snprintf(which + strlen(which), sizeof(which) - strlen(which), "%s%s", n++ ? ", " : " [",
                         second_word(commands[i].id));
        hutch_option_print_row(to, &first->rows[row], n < ARRAY_SIZE(commands) ? strcat(which, "]") : "");
    }
}

static int take_args(struct rootfs_opts *opts, const struct command *command, int argc, char **argv,
                     struct hutch_err *err)
{
    int i = 0, is_over = 0;

    while (true) {
        if (!is_over)
            is_over = hutch_option_take(command, opts, argc, argv, &i, err);
        if (is_over < 0)
            return -1;
        if (i == argc)
            return 0;
        if (opts->n_args == ROOTFS_MAX_ARGS)
            return hutch_err_set(err, 0, "more than %d arguments", ROOTFS_MAX_ARGS);
        opts->args[opts->n_args++] = argv[i++];
    }
}

static int run_command(size_t row, int argc, char **argv, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_store_done))) struct store store = STORE_INIT;
    struct rootfs_opts opts = { .name = NULL };
    auto_free char *home = NULL;

    if (take_args(&opts, &hutch_commands[commands[row].id], argc, argv, err) < 0)
        return -1;
    if (opts.help) {
        print_usage(stdout);
        return 0;
    }
    catch_signals();
    if (hutch_home_path(&home, err) < 0 || hutch_store_open(home, &store, err) < 0)
        return -1;
    return commands[row].run(&store, &opts, err);
}

int hutch_cmd_rootfs(int argc, char **argv)
{
    struct hutch_err err = { 0 };
    size_t row = 0;
    int rc;

    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)) {
        print_usage(stdout);
        return 0;
    }
    while (argc >= 2 && row < ARRAY_SIZE(commands) && strcmp(argv[1], second_word(commands[row].id)) != 0)
        row++;
    if (argc < 2 || row == ARRAY_SIZE(commands)) {
        if (argc >= 2)
            hutch_say("there is no command 'rootfs %s'", argv[1]);
        print_usage(stderr);
        return EXIT_HUTCH;
    }
    rc = run_command(row, argc - 2, argv + 2, &err);
    if (rc < 0)
        hutch_say("%s", err.msg);
    if (signal_caught)
        die_of_signal();
    if (fflush(stdout) == EOF && rc >= 0) {
        hutch_say("write to standard output: %s", strerror(errno));
        return EXIT_HUTCH;
    }
    return rc < 0 ? EXIT_HUTCH : rc > 0 ? EXIT_DIFFERENT : 0;
}
