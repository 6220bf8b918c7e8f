#include "runtime/cli/extend.h"

#include "rootfs/image_root.h"
#include "rootfs/store_layers.h"
#include "rootfs/stores.h"
#include "runtime/cli/extend_apt.h"
#include "runtime/cli/extend_builder.h"
#include "runtime/cli/rootfs_script.h"
#include "runtime/cli/say.h"
#include "runtime/cli/words.h"
#include "runtime/text/buffer.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <glob.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define ARCHIVE "layer.tar"
#define MAX_PACKAGES 10000
#define MAX_FIELD 200 /* bytes of a package's name, version and file in a lock */

/* As layer.json has them. */
static const char *const kinds[] = { [EXTEND_PIP] = "pip", [EXTEND_NPM] = "npm", [EXTEND_APT] = "apt" };

static const char wheel_places[] = "/usr/share/python-wheels/pip-*.whl";
static const char bundled_places[] = "/usr/lib/python3*/ensurepip/_bundled/pip-*.whl";

#define auto_work __attribute__((cleanup(hutch_store_work_end))) struct store_work
#define auto_turn __attribute__((cleanup(hutch_store_turn_end))) struct store_turn
#define auto_layer __attribute__((cleanup(hutch_store_layer_done))) struct store_layer

/* --- where it runs ---------------------------------------------------------------------------------------------- */

/* The image in which pip or npm is executed, with the network: that which is extended, up to the first layer that pip
 * or npm has laid over it, as nobody has read what is in there. One of Debian's packages may have brought the tool, and
 * came from where this machine's own programs do; but the scripts of those above such a layer have run with its
 * programs, which could have written anything into theirs. */
struct ground {
    char hex[DIGEST_HEX + 1];
    struct image_root image; /* owned; of the whole image */
    size_t n_layers;         /* of @image's, the lowest ones, that @hex has */
};
#define GROUND_INIT { .image = IMAGE_ROOT_INIT }
#define auto_ground __attribute__((cleanup(ground_done))) struct ground

static void ground_done(struct ground *ground)
{
    hutch_image_root_done(&ground->image);
}

/* By what hutch has written of the layer. */
static bool is_of_system(const char *tree)
{
    auto_free char *text = hutch_store_read_layer_of(tree);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "kind"));
    const bool is = kind && strcmp(kind, kinds[EXTEND_APT]) == 0;

    cJSON_Delete(json);
    return is;
}

static int find_ground(const struct extend_job *job, const char *hex, const struct extension *extension,
                       const struct store_work *work, struct ground *ret, struct hutch_err *err)
{
    struct extension lower = *extension;
    char name[DIGEST_HEX + 8];

    lower.n_layers = 0;
    snprintf(name, sizeof(name), "sha256:%s", hex);
    if (hutch_stores_find(job->home, name, &ret->image, err) < 0)
        return -1;
    while (lower.n_layers < extension->n_layers && is_of_system(ret->image.layers[lower.n_layers]))
        lower.n_layers++;
    ret->n_layers = lower.n_layers;
    if (lower.n_layers > 0 && lower.n_layers < extension->n_layers)
        return hutch_store_keep_extension(job->store, work, &lower, ret->hex, err);
    memcpy(ret->hex, lower.n_layers > 0 ? hex : extension->base, sizeof(ret->hex));
    return 0;
}

/* --- the builder's command line --------------------------------------------------------------------------------- */

/* The layers that the builder's image is without: what is in them is looked at, and not executed. */
static void add_layers(struct words *words, const struct ground *ground)
{
    char name[32];

    for (size_t i = ground->n_layers; i < ground->image.n_layers; i++) {
        snprintf(name, sizeof(name), "/%02zu", i);
        hutch_extend_builder_show(words, ground->image.layers[i], "/mnt/layers", name);
    }
}

/* A copy of pip that this host has: for images that have none. */
static void add_pip(struct words *words)
{
    glob_t found;

    if (glob(wheel_places, 0, NULL, &found) != 0 && glob(bundled_places, 0, NULL, &found) != 0)
        return;
    hutch_extend_builder_show(words, found.gl_pathv[found.gl_pathc - 1], "/mnt/pip/", "pip.whl");
    globfree(&found);
}

/* The file of those whom the host trusts to vouch for an index: a company's own authority is in no image. *@ret is the
 * caller's; NULL: there is none. */
static int find_authorities(const struct extend_request *request, char **ret, struct hutch_err *err)
{
    const char *const names[] = { hutch_extend_request_kind(request) == EXTEND_NPM ? "NODE_EXTRA_CA_CERTS" : "PIP_CERT",
                                  "SSL_CERT_FILE" };
    const char *path = "/etc/ssl/certs/ca-certificates.crt", *name = NULL;
    struct stat st;

    *ret = NULL;
    if (!hutch_extend_request_needs_network(request))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !name; i++)
        if (getenv(names[i]) && getenv(names[i])[0])
            name = names[i];
    *ret = realpath(name ? getenv(name) : path, NULL);
    if (!*ret)
        return name ? hutch_err_set(err, errno, "%s names '%.200s': look at it", name, getenv(name)) : 0;
    if (stat(*ret, &st) < 0 || !S_ISREG(st.st_mode) || strstr(*ret, ":/"))
        return hutch_err_set(err, 0, "%s: '%.200s' is no file of authorities", name ? name : "TLS", *ret);
    return 0;
}

static void add_environment(cJSON *json)
{
    cJSON *environment = cJSON_AddObjectToObject(json, "environment");

    for (const char *const *name = hutch_extend_proxies; *name; name++)
        if (getenv(*name))
            cJSON_AddStringToObject(environment, *name, getenv(*name));
}

static char *describe_request(const struct extend_request *request)
{
    cJSON *json = cJSON_CreateObject();
    char *text;

    if (request->index)
        cJSON_AddStringToObject(json, "index", request->index);
    else
        cJSON_AddNullToObject(json, "index");
    if (request->trusted)
        cJSON_AddStringToObject(json, "trusted", request->trusted);
    else
        cJSON_AddNullToObject(json, "trusted");
    if (hutch_extend_request_needs_network(request))
        add_environment(json);
    cJSON_AddBoolToObject(json, "wheels", request->wheel_dir != NULL);
    cJSON_AddBoolToObject(json, "build", request->allow_build);
    text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

static void make_words(struct words *words, const struct extend_builder *builder, const struct ground *ground,
                       const char *script, const char *authorities)
{
    const struct extend_request *request = builder->job->request;
    const bool is_npm = hutch_extend_request_kind(request) == EXTEND_NPM;

    hutch_extend_builder_begin(builder, ground->hex, hutch_extend_request_needs_network(request), words);
    ADD_WORD(words, "-e");
    ADD_WORD(words, "PYTHONHASHSEED=0");
    if (authorities)
        hutch_extend_builder_show(words, authorities, "/mnt/authorities", "/all.pem");
    if (request->npm_dir)
        hutch_extend_builder_show(words, request->npm_dir, "/mnt/npm", "");
    else if (is_npm) {
        ADD_WORD(words, "-v");
        ADD_WORD(words, builder->directory, "/in:/mnt/npm:ro");
    } else {
        add_pip(words);
        add_layers(words, ground);
    }
    if (request->wheel_dir)
        hutch_extend_builder_show(words, request->wheel_dir, "/mnt/wheels", "");
    for (size_t i = 0; i < request->wheel_files.n; i++)
        hutch_extend_builder_show(words, request->wheel_files.texts[i], "/mnt/files",
                                  strrchr(request->wheel_files.texts[i], '/'));
    hutch_extend_builder_show(words, script, "/mnt/builder", strrchr(script, '/'));
    ADD_WORD(words, "--entrypoint");
    ADD_WORD(words, is_npm ? "node" : "python3");
    ADD_WORD(words, "--");
    if (!is_npm) { /* without what the image has Python do when it starts */
        ADD_WORD(words, "-s");
        ADD_WORD(words, "-S");
    }
    ADD_WORD(words, "/mnt/builder", strrchr(script, '/'));
}

/* --- what it is given ------------------------------------------------------------------------------------------- */

static int give_requirements(const struct extend_builder *builder, struct hutch_err *err)
{
    const struct extend_request *request = builder->job->request;
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *text = NULL;

    hutch_text_add_string(&t, "");
    for (size_t i = 0; i < request->pip.n; i++) {
        hutch_text_add_string(&t, request->pip.texts[i]);
        hutch_text_add_string(&t, "\n");
    }
    for (size_t i = 0; i < request->wheel_files.n; i++) {
        hutch_text_add_string(&t, "/mnt/files");
        hutch_text_add_string(&t, strrchr(request->wheel_files.texts[i], '/'));
        hutch_text_add_string(&t, "\n");
    }
    text = hutch_text_take(&t, NULL);
    if (!text)
        return hutch_err_set(err, ENOMEM, "list the requirements");
    return hutch_extend_builder_give(builder, "requirements.txt", text, err);
}

/* What the builder takes for the caller's directory, where the packages were named. */
static int give_manifest(const struct extend_builder *builder, struct hutch_err *err)
{
    const struct npm_packages *npm = &builder->job->request->npm;
    auto_free char *text = NULL;

    if (npm->n == 0)
        return 0;
    text = hutch_npm_packages_print_manifest(npm, err);
    return text ? hutch_extend_builder_give(builder, "package.json", text, err) : -1;
}

/* --- its run ---------------------------------------------------------------------------------------------------- */

/* By pip or npm, which choose, fetch and install in one. */
static int run_tool(const struct extend_builder *builder, const char *hex, const struct extension *extension,
                    struct hutch_err *err)
{
    const struct extend_request *request = builder->job->request;
    const char *name = hutch_extend_request_kind(request) == EXTEND_NPM ? "extend_npm.js" : "extend_pip.py";
    auto_free char *script = NULL, *about = describe_request(request), *authorities = NULL;
    auto_ground ground = GROUND_INIT;
    auto_words words = WORDS_INIT;

    if (!about)
        return hutch_err_set(err, ENOMEM, "make a layer");
    if (give_requirements(builder, err) < 0 || give_manifest(builder, err) < 0 ||
        hutch_extend_builder_give(builder, "request.json", about, err) < 0 ||
        hutch_rootfs_script_find(name, R_OK, &script, err) < 0 || find_authorities(request, &authorities, err) < 0 ||
        find_ground(builder->job, hex, extension, builder->work, &ground, err) < 0)
        return -1;
    make_words(&words, builder, &ground, script, authorities);
    return hutch_extend_builder_run(builder, &words, ARCHIVE, err);
}

static int run_builder(const struct extend_job *job, const char *hex, const struct extension *extension,
                       const struct store_work *work, double until, struct hutch_err *err)
{
    auto_extend_builder builder = EXTEND_BUILDER_INIT;

    if (hutch_extend_builder_open(job, work, until, &builder, err) < 0)
        return -1;
    return hutch_extend_request_kind(job->request) == EXTEND_APT ? hutch_extend_apt(&builder, hex, ARCHIVE, err)
                                                                 : run_tool(&builder, hex, extension, err);
}

/* --- what it says of the layer ---------------------------------------------------------------------------------- */

/* The builder's word, as code of a package may have run beside it: texts of one line, bounded, and nothing else. */
static bool take_field(const cJSON *from, const char *key, cJSON *to)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(from, key));

    if (!text || strlen(text) > MAX_FIELD)
        return false;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p >= 127)
            return false;
    return cJSON_AddStringToObject(to, key, text) != NULL;
}

static int describe_layer(const struct store_layer *layer, const char *kind, cJSON **ret, struct hutch_err *err)
{
    cJSON *lock = cJSON_Parse(layer->lock), *about = cJSON_CreateObject(), *packages;
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(lock, "packages");
    bool is_good;

    cJSON_AddNumberToObject(about, "version", 1);
    cJSON_AddStringToObject(about, "kind", kind);
    cJSON_AddNumberToObject(about, "bytes", (double)layer->bytes);
    cJSON_AddNumberToObject(about, "entries", (double)layer->entries);
    cJSON_AddNumberToObject(about, "made", (double)time(NULL));
    packages = cJSON_CreateArray();
    is_good = take_field(lock, "tool", about) && take_field(lock, "language", about) && cJSON_IsArray(list) &&
              cJSON_GetArraySize(list) <= MAX_PACKAGES;
    cJSON_ArrayForEach(item, list) {
        cJSON *package = cJSON_CreateObject();

        is_good = is_good && take_field(item, "name", package) && take_field(item, "version", package) &&
                  (take_field(item, "sha256", package) || take_field(item, "integrity", package)) &&
                  take_field(item, "file", package);
        cJSON_AddItemToArray(packages, package);
    }
    cJSON_AddItemToObject(about, "packages", packages);
    cJSON_Delete(lock);
    if (is_good) {
        *ret = about;
        return 0;
    }
    cJSON_Delete(about);
    return hutch_err_set(err, 0, "what the builder says that it has installed is no list of packages");
}

/* --- the image -------------------------------------------------------------------------------------------------- */

static int make(const struct extend_job *job, const char *hex, struct extension *extension, const char *request,
                double until, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err)
{
    const struct store_unpack limits = { .max_bytes = job->max_bytes, .max_entries = job->max_entries,
                                         .progress = job->progress, .ctx = job->ctx };
    /* Where a language's packages go, and where a system's do. */
    static const char *const languages[] = { "usr", "opt", "node_modules", NULL };
    static const char *const systems[] = { "usr", "opt", "etc", "var", "bin", "sbin", "lib", "lib32", "lib64", "libx32",
                                           NULL };
    const enum extend_kind kind = hutch_extend_request_kind(job->request);
    auto_layer layer = { .lock = NULL };
    auto_work work = STORE_WORK_INIT;
    auto_free char *text = NULL;
    uint64_t bytes, entries;
    cJSON *about = NULL;

    if (hutch_store_work_begin(job->store, &work, err) < 0 || run_builder(job, hex, extension, &work, until, err) < 0 ||
        hutch_store_unpack_layer(&work, ARCHIVE, kind == EXTEND_APT ? systems : languages, &limits, &layer,
                                 err) < 0 ||
        describe_layer(&layer, kinds[kind], &about, err) < 0)
        return -1;
    text = cJSON_PrintUnformatted(about);
    cJSON_Delete(about);
    if (!text)
        return hutch_err_set(err, ENOMEM, "describe the layer");
    bytes = layer.bytes;
    entries = layer.entries;
    for (size_t i = 0; i < extension->n_layers; i++)
        bytes += hutch_store_layer_bytes(job->store, extension->layers[i]);
    memcpy(extension->layers[extension->n_layers++], layer.digest, DIGEST_HEX + 1);
    return hutch_store_add_extension(job->store, &work, extension, bytes, entries, text, job->name, request, ret_hex,
                                     err);
}

struct waiting {
    const struct extend_job *job;
    double until;
    bool has_told, is_late;
};

static int wait_for_turn(void *ctx)
{
    struct waiting *w = ctx;

    if (!w->has_told && !w->job->quiet)
        hutch_say("another process makes the same image: waiting for it");
    w->has_told = true;
    w->is_late = hutch_clock_ms() >= w->until;
    return w->is_late || w->job->is_interrupted();
}

int hutch_extend(const struct extend_job *job, char ret_hex[DIGEST_HEX + 1], bool *ret_is_new, struct hutch_err *err)
{
    struct waiting waiting = { .job = job, .until = hutch_clock_ms() + (double)job->timeout_ms };
    auto_turn turn = STORE_TURN_INIT;
    auto_free char *request = NULL;
    struct extension extension;
    char hex[DIGEST_HEX + 1];

    if (hutch_stores_read_extension(job->home, job->image, hex, &extension, err) < 0)
        return -1;
    if (extension.n_layers == SPEC_MAX_LAYERS)
        return hutch_err_set(err, 0, "the image '%s' has %d layers, the most that there can be: extend its base with "
                                     "all that they have", job->image, SPEC_MAX_LAYERS);
    request = hutch_extend_request_print(job->request, hex, err);
    if (!request)
        return -1;
    if (strlen(request) >= STORE_MAX_REQUEST - 2 * DIGEST_HEX)
        return hutch_err_set(err, 0, "what is asked for is too long");
    *ret_is_new = false;
    if (!hutch_store_find_request(job->store, request, ret_hex)) {
        if (hutch_store_turn_begin(job->store, request, wait_for_turn, &waiting, &turn, err) < 0)
            return waiting.is_late ? hutch_err_say(err, ETIMEDOUT, "another process has not made the same image after "
                                                   "%" PRIu64 " s (--timeout)", (job->timeout_ms + 999) / 1000) : -1;
        *ret_is_new = !hutch_store_find_request(job->store, request, ret_hex);
    }
    if (!*ret_is_new)
        return job->name ? hutch_store_set_name(job->store, job->name, ret_hex, err) : 0;
    if (hutch_extend_request_needs_network(job->request) && !job->quiet)
        hutch_say(hutch_extend_request_kind(job->request) == EXTEND_APT
                      ? "the packages are fetched in a sandbox that has this host's network, and installed in one "
                        "that has none"
                      : "the layer is made in a sandbox of its own, which has this host's network; what runs on the "
                        "image later has not");
    return make(job, hex, &extension, request, waiting.until, ret_hex, err);
}
