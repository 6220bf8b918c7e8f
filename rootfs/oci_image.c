#include "rootfs/oci_image.h"

#include "sandbox/fd.h"
#include "rootfs/machine.h"
#include "rootfs/source.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MAX_JSON (4u << 20)
#define MAX_DEPTH 32    /* of JSON; the formats need 6 */
#define QUOTE(x) #x
#define TEXT(x) QUOTE(x)
#define MAX_INDEXES 3   /* an index that points to an index … */
#define MAX_MANIFESTS 256
#define MAX_MEMBER 512
#define MAX_VERSION 256 /* of the file "version" */

#define auto_member __attribute__((cleanup(hutch_member_done))) struct member
#define auto_json __attribute__((cleanup(json_freep))) cJSON *

static void json_freep(cJSON **json)
{
    cJSON_Delete(*json);
    *json = NULL;
}

/* What cJSON would do wrong; NULL: nothing. It recurses once for each level, and ends a text at a NUL. */
static const char *find_fault(const char *text, size_t len)
{
    bool in_string = false;
    unsigned depth = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string && c == '\\' && len - i > 5 && memcmp(text + i + 1, "u0000", 5) == 0)
            return "JSON with a NUL in a text";
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{') && ++depth > MAX_DEPTH)
            return "JSON nested more than " TEXT(MAX_DEPTH) " deep";
        else if (!in_string && (c == ']' || c == '}') && depth > 0)
            depth--;
    }
    return NULL;
}

/* Reads and parses a member. @want_digest is NULL when nothing vouches for it; @ret_digest may be NULL. */
static int read_json(const struct source *source, const char *name, const char *want_digest, char *ret_digest,
                     cJSON **ret, struct hutch_err *err)
{
    auto_member member = MEMBER_INIT;
    auto_free char *text = NULL;
    char digest[DIGEST_HEX + 1];
    const char *end, *fault;
    size_t len;

    if (hutch_source_find(source, name, &member, err) < 0 ||
        hutch_member_slurp(&member, MAX_JSON, &text, &len, err) < 0 || hutch_digest_of(text, len, digest, err) < 0)
        return -1;
    if (want_digest && strcmp(digest, want_digest) != 0)
        return hutch_err_set(err, 0, "'%s' has the digest sha256:%s, not the sha256:%s that it is named by", name,
                             digest, want_digest);
    fault = find_fault(text, len);
    if (fault)
        return hutch_err_set(err, 0, "'%s' is %s", name, fault);
    *ret = cJSON_ParseWithLengthOpts(text, len + 1, &end, true);
    if (!*ret || strlen(text) != len) {
        json_freep(ret);
        return hutch_err_set(err, 0, "'%s' is not valid JSON", name);
    }
    if (ret_digest)
        memcpy(ret_digest, digest, sizeof(digest));
    return 0;
}

/* The string @key of @object; NULL with @err when it is missing or something else. */
static const char *need_string(const cJSON *object, const char *key, const char *where, struct hutch_err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

    if (cJSON_IsString(value))
        return value->valuestring;
    hutch_err_set(err, 0, "'%s' has no string '%s'", where, key);
    return NULL;
}

static const cJSON *need_array(const cJSON *object, const char *key, size_t max, const char *where,
                               struct hutch_err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

    if (!cJSON_IsArray(value)) {
        hutch_err_set(err, 0, "'%s' has no array '%s'", where, key);
        return NULL;
    }
    if ((size_t)cJSON_GetArraySize(value) > max) {
        hutch_err_set(err, 0, "'%s' in '%s' has more than %zu entries", key, where, max);
        return NULL;
    }
    return value;
}

static const char *optional_string(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(value) ? value->valuestring : NULL;
}

/* Where the two layouts have what a descriptor names: a blob, and an image's manifest (or a further index). */
static const struct place {
    const char *before, *after; /* the digest */
} oci_blob = { "blobs/sha256/", "" }, dir_blob = { "", "" }, dir_manifest = { "", ".manifest.json" };

/* What is read, where its parts are, and which image of it. */
struct reading {
    const struct source *source;
    const struct place *blob, *manifest;
    const char *select; /* NULL: the only one */
    struct oci_platform platform;
};

/* An OCI descriptor: what a thing is called, how large it is. */
struct descriptor {
    const char *media_type; /* the JSON's */
    char digest[DIGEST_HEX + 1];
    char member[sizeof("blobs/sha256/.manifest.json") + DIGEST_HEX];
    uint64_t size;
};

static int read_descriptor(const cJSON *json, const struct place *place, const char *where, struct descriptor *ret,
                           struct hutch_err *err)
{
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(json, "size");
    const char *digest;

    if (!cJSON_IsObject(json))
        return hutch_err_set(err, 0, "'%s' has a descriptor that is not an object", where);
    digest = need_string(json, "digest", where, err);
    if (!digest)
        return -1;
    if (!hutch_digest_parse(digest, ret->digest))
        return hutch_err_set(err, 0, "'%s' names the digest '%.80s', which is not \"sha256:\" and 64 digits", where,
                             digest);
    if (!cJSON_IsNumber(size) || !(size->valuedouble >= 0) || size->valuedouble > 9e15)
        return hutch_err_set(err, 0, "'%s' has no valid size for sha256:%s", where, ret->digest);
    ret->size = (uint64_t)size->valuedouble;
    ret->media_type = optional_string(json, "mediaType");
    snprintf(ret->member, sizeof(ret->member), "%s%s%s", place->before, ret->digest, place->after);
    return 0;
}

static bool is_platform_word(const char *word)
{
    return word[0] != '\0' && strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == strlen(word);
}

int hutch_oci_platform_parse(const char *text, struct oci_platform *ret, struct hutch_err *err)
{
    char *slash;

    ret->is_given = false;
    if (!text) {
        snprintf(ret->arch, sizeof(ret->arch), "%s", hutch_machine_architecture());
        snprintf(ret->variant, sizeof(ret->variant), "%s", hutch_machine_usual_variant(ret->arch));
        return 0;
    }
    ret->is_given = true;
    if (strncmp(text, "linux/", 6) != 0 || strlen(text + 6) >= sizeof(ret->arch))
        return hutch_err_set(err, 0, "the platform '%.80s' is not of the form linux/ARCH[/VARIANT]", text);
    snprintf(ret->arch, sizeof(ret->arch), "%s", text + 6);
    slash = strchr(ret->arch, '/');
    if (slash)
        *slash = '\0';
    snprintf(ret->variant, sizeof(ret->variant), "%s", slash ? slash + 1 : hutch_machine_usual_variant(ret->arch));
    if (!is_platform_word(ret->arch) || (slash && !is_platform_word(ret->variant)))
        return hutch_err_set(err, 0, "the platform '%.80s' is not of the form linux/ARCH[/VARIANT]", text);
    return 0;
}

static void print_platform(const struct oci_platform *platform, char *ret, size_t size)
{
    bool is_usual = strcmp(platform->variant, hutch_machine_usual_variant(platform->arch)) == 0;

    snprintf(ret, size, "linux/%s%s%s", platform->arch, is_usual ? "" : "/", is_usual ? "" : platform->variant);
}

/* The platform may be absent; build tools also put "unknown" there for entries that are not images at all. What has no
 * variant has the @missing one; NULL: any. */
static bool is_other_platform(const cJSON *object, const struct oci_platform *want, const char *missing)
{
    const char *os = optional_string(object, "os"), *arch = optional_string(object, "architecture");
    const char *variant = optional_string(object, "variant");

    if (!variant || variant[0] == '\0')
        variant = missing;
    return (os && strcmp(os, "linux") != 0) || (arch && strcmp(arch, want->arch) != 0) ||
           (variant && strcmp(variant, want->variant) != 0);
}

/* This machine with another variant that it runs. False: there is no @n-th one, or the user has given a platform. */
static bool next_variant(const struct oci_platform *platform, unsigned n, struct oci_platform *ret)
{
    const char *variant = platform->is_given ? NULL : hutch_machine_variant(platform->arch, n);

    if (!variant)
        return false;
    *ret = *platform;
    snprintf(ret->variant, sizeof(ret->variant), "%s", variant);
    return true;
}

/* Whether what has this configuration is for the platform. */
static bool is_config_for(const struct oci_platform *platform, const cJSON *config)
{
    struct oci_platform other;

    if (!is_other_platform(config, platform, NULL))
        return true;
    for (unsigned n = 0; next_variant(platform, n, &other); n++)
        if (!is_other_platform(config, &other, NULL))
            return true;
    return false;
}

static int add_layer(struct oci_image *image, const char *member, const char *digest, uint64_t size,
                     struct hutch_err *err)
{
    struct oci_layer *bigger = reallocarray(image->layers, image->n_layers + 1, sizeof(*image->layers));
    struct oci_layer *layer;

    if (!bigger)
        return hutch_err_set(err, ENOMEM, "read the list of layers");
    image->layers = bigger;
    layer = &image->layers[image->n_layers];
    *layer = (struct oci_layer){ .member = strdup(member), .size = size };
    if (!layer->member)
        return hutch_err_set(err, ENOMEM, "read the list of layers");
    snprintf(layer->digest, sizeof(layer->digest), "%s", digest);
    image->n_layers++;
    return 0;
}

/* Takes the layers' diff ids, and whether this machine can run it, from the image's configuration. */
static int read_config(const struct reading *r, const char *member, const char *want_digest, char *ret_digest,
                       struct oci_image *image, struct hutch_err *err)
{
    auto_json json = NULL;
    const cJSON *rootfs, *ids, *id;
    const char *os, *arch, *variant;
    char want[160];
    size_t i = 0;

    if (read_json(r->source, member, want_digest, ret_digest, &json, err) < 0)
        return -1;
    if (!is_config_for(&r->platform, json)) {
        os = optional_string(json, "os");
        arch = optional_string(json, "architecture");
        variant = optional_string(json, "variant");
        print_platform(&r->platform, want, sizeof(want));
        return hutch_err_set(err, 0, "the image is made for %.40s/%.40s%s%.40s, %s %s", os ? os : "linux",
                             arch ? arch : "?", variant && variant[0] ? "/" : "", variant ? variant : "",
                             r->platform.is_given ? "and --platform asks for" : "this machine is", want);
    }
    rootfs = cJSON_GetObjectItemCaseSensitive(json, "rootfs");
    if (!cJSON_IsObject(rootfs))
        return hutch_err_set(err, 0, "'%s' has no object 'rootfs'", member);
    ids = need_array(rootfs, "diff_ids", OCI_MAX_LAYERS, member, err);
    if (!ids)
        return -1;
    if ((size_t)cJSON_GetArraySize(ids) != image->n_layers)
        return hutch_err_set(err, 0, "the image has %zu layers, but its configuration '%s' names %d", image->n_layers,
                             member, cJSON_GetArraySize(ids));
    cJSON_ArrayForEach(id, ids)
        if (!cJSON_IsString(id) || !hutch_digest_parse(id->valuestring, image->layers[i++].diff_id))
            return hutch_err_set(err, 0, "'%s' has a diff id that is not \"sha256:\" and 64 digits", member);
    if (hutch_image_config_take(cJSON_GetObjectItemCaseSensitive(json, "config"), &image->config, err) < 0) {
        err->errnum = 0;
        return hutch_err_wrap(err, "'%s'", member);
    }
    return 0;
}

static bool is_layer_type(const char *type)
{
    static const char *const known[] = {
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.oci.image.layer.v1.tar+zstd",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(type, known[i]) == 0)
            return true;
    return false;
}

/* @json is what @at names. */
static int read_manifest(const struct reading *r, const cJSON *json, const struct descriptor *at,
                         struct oci_image *image, struct hutch_err *err)
{
    struct descriptor config, layer;
    const cJSON *layers, *item;

    if (read_descriptor(cJSON_GetObjectItemCaseSensitive(json, "config"), r->blob, at->member, &config, err) < 0)
        return -1;
    layers = need_array(json, "layers", OCI_MAX_LAYERS, at->member, err);
    if (!layers)
        return -1;
    cJSON_ArrayForEach(item, layers) {
        if (read_descriptor(item, r->blob, at->member, &layer, err) < 0)
            return -1;
        if (!layer.media_type || !is_layer_type(layer.media_type))
            return hutch_err_set(err, 0, "layer sha256:%.12s is of the kind '%.120s', which hutch cannot unpack",
                                 layer.digest, layer.media_type ? layer.media_type : "(none)");
        if (add_layer(image, layer.member, layer.digest, layer.size, err) < 0)
            return -1;
    }
    memcpy(image->digest, at->digest, sizeof(image->digest));
    return read_config(r, config.member, config.digest, NULL, image, err);
}

static bool is_index_type(const char *type)
{
    return type && (strcmp(type, "application/vnd.oci.image.index.v1+json") == 0 ||
                    strcmp(type, "application/vnd.docker.distribution.manifest.list.v2+json") == 0);
}

static bool is_manifest_type(const char *type)
{
    return !type || strcmp(type, "application/vnd.oci.image.manifest.v1+json") == 0 ||
           strcmp(type, "application/vnd.docker.distribution.manifest.v2+json") == 0;
}

/* What tools call the image. containerd's annotation has the whole reference, the standard one often the tag. */
static const char *descriptor_name(const cJSON *descriptor)
{
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(descriptor, "annotations");
    const char *name = optional_string(notes, "io.containerd.image.name");

    return name ? name : optional_string(notes, "org.opencontainers.image.ref.name");
}

/* --select: the number of an image, as lists of what there is have it (-1: none), or its name; "x" also is
 * "x:latest". */
static bool is_selected(const char *select, int number, const char *name)
{
    char digits[16];
    size_t len = strlen(select);

    snprintf(digits, sizeof(digits), "%d", number);
    if (number >= 0 && strcmp(select, digits) == 0)
        return true;
    return name && strncmp(name, select, len) == 0 && (name[len] == '\0' || strcmp(name + len, ":latest") == 0);
}

/* Images that a message lists: "0 (example/a:1), 1 (example/b:2)". */
struct image_list {
    char text[280];
};

static void list_image(struct image_list *list, int number, const char *name)
{
    size_t len = strlen(list->text);
    char one[128];

    snprintf(one, sizeof(one), "%s%d%s%.80s%s", len ? ", " : "", number, name ? " (" : "", name ? name : "",
             name ? ")" : "");
    if (len + strlen(one) + sizeof(", ...") < sizeof(list->text))
        strcpy(list->text + len, one);
    else if (len > 0 && list->text[len - 1] != '.')
        strcpy(list->text + len, ", ...");
}

static bool is_descriptor_selected(const cJSON *item, const char *select, int number)
{
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(item, "annotations");

    return is_selected(select, number, descriptor_name(item)) ||
           is_selected(select, number, optional_string(notes, "org.opencontainers.image.ref.name"));
}

/* Finds the one image of an index that is for @platform and, of the first one, that --select means. An image that is
 * there several times, for each of its names, is one. *@ret_is_missing: all of them are for other platforms. */
static int choose_for(const struct reading *r, const struct oci_platform *platform, const cJSON *index, bool is_first,
                      const char *where, const cJSON **ret, bool *ret_is_missing, struct hutch_err *err)
{
    const char *select = is_first ? r->select : NULL;
    const cJSON *manifests = need_array(index, "manifests", MAX_MANIFESTS, where, err);
    const char *digest, *first = NULL;
    const cJSON *item, *found = NULL;
    unsigned n_found = 0, n_other = 0;
    struct image_list list = { .text = "" };
    char want[160];
    int number = -1;

    if (!manifests)
        return -1;
    print_platform(platform, want, sizeof(want));
    cJSON_ArrayForEach(item, manifests) {
        const cJSON *made_for = cJSON_GetObjectItemCaseSensitive(item, "platform");
        const char *type = optional_string(item, "mediaType");

        number++;
        if (!is_index_type(type) && !is_manifest_type(type))
            continue;
        if (cJSON_IsObject(made_for) &&
            is_other_platform(made_for, platform, hutch_machine_usual_variant(platform->arch))) {
            n_other++;
            continue;
        }
        list_image(&list, number, descriptor_name(item));
        if (select && !is_descriptor_selected(item, select, number))
            continue;
        digest = optional_string(item, "digest");
        if (found && digest && first && strcmp(digest, first) == 0)
            continue;
        found = item;
        first = digest;
        n_found++;
    }
    *ret_is_missing = list.text[0] == '\0' && n_other > 0;
    if (*ret_is_missing)
        return hutch_err_set(err, 0, "'%s' has no image for %s (%s), only for others", where,
                             r->platform.is_given ? "the platform" : "this machine", want);
    if (list.text[0] == '\0')
        return hutch_err_set(err, 0, "'%s' has no image", where);
    if (n_found == 0)
        return hutch_err_set(err, 0, "'%s' has no image '%.80s' for %s; --select takes one of: %s", where, select, want,
                             list.text);
    if (n_found > 1)
        return hutch_err_set(err, 0, "'%s' has %u images for %s; %s: %s", where, n_found, want,
                             is_first ? "--select takes one of" : "it may have one", list.text);
    *ret = found;
    return 0;
}

/* The usual variant of this machine goes first, so that the same image is found on all machines of a kind where that is
 * there; where it is not, the best that this one runs. */
static int choose(const struct reading *r, const cJSON *index, bool is_first, const char *where, const cJSON **ret,
                  struct hutch_err *err)
{
    struct oci_platform platform = r->platform;
    struct hutch_err first;
    bool is_missing = false;
    int rc = choose_for(r, &platform, index, is_first, where, ret, &is_missing, &first);

    for (unsigned n = 0; rc < 0 && is_missing && next_variant(&r->platform, n, &platform); n++) {
        rc = choose_for(r, &platform, index, is_first, where, ret, &is_missing, err);
        if (rc < 0 && !is_missing)
            return -1;
    }
    if (rc < 0)
        *err = first;
    return rc;
}

static int set_name(struct oci_image *image, const char *name, struct hutch_err *err)
{
    if (!name || image->name)
        return 0;
    image->name = strdup(name);
    return image->name ? 0 : hutch_err_set(err, ENOMEM, "read the image's name");
}

/* From an index, which @json is, by further ones to the manifest of one image. */
static int read_index(const struct reading *r, cJSON *json, struct oci_image *image, struct hutch_err *err)
{
    auto_json owned = NULL; /* what @json is after the first level */
    struct descriptor at = { .member = "index.json" };
    char where[sizeof(at.member)];
    const cJSON *chosen = NULL;

    if (r->blob == &dir_blob)
        snprintf(at.member, sizeof(at.member), "manifest.json");
    for (int depth = 0; depth < MAX_INDEXES; depth++) {
        cJSON *inner = NULL;
        bool is_index;

        memcpy(where, at.member, sizeof(where));
        if (choose(r, json, depth == 0, where, &chosen, err) < 0 ||
            set_name(image, descriptor_name(chosen), err) < 0 ||
            read_descriptor(chosen, r->manifest, where, &at, err) < 0)
            return -1;
        is_index = is_index_type(at.media_type);
        if (read_json(r->source, at.member, at.digest, NULL, &inner, err) < 0)
            return -1;
        cJSON_Delete(owned);
        json = owned = inner;
        if (!is_index)
            return read_manifest(r, json, &at, image, err);
    }
    return hutch_err_set(err, 0, "it leads from index to index more than %d times", MAX_INDEXES);
}

static int read_layout(struct reading *r, const cJSON *marker, struct oci_image *image, struct hutch_err *err)
{
    const char *version = need_string(marker, "imageLayoutVersion", "oci-layout", err);
    auto_json json = NULL;

    if (!version)
        return -1;
    if (strncmp(version, "1.", 2) != 0)
        return hutch_err_set(err, 0, "the image layout has version '%.20s', hutch knows 1.x", version);
    r->blob = r->manifest = &oci_blob;
    if (read_json(r->source, "index.json", NULL, NULL, &json, err) < 0)
        return -1;
    return read_index(r, json, image, err);
}

/* The layout of skopeo's "dir:", which podman calls docker-dir: all in one directory, blobs by their digest,
 * "manifest.json" the manifest of one image or an index of several. Source: containers-transports(5). */
static int read_dir(struct reading *r, cJSON *json, const char *digest, struct oci_image *image, struct hutch_err *err)
{
    static const char marker[] = "Directory Transport Version: 1.";
    auto_member member = MEMBER_INIT;
    auto_free char *text = NULL;
    struct descriptor at = { .member = "manifest.json" };
    size_t len;

    if (hutch_source_find(r->source, "version", &member, err) < 0 ||
        hutch_member_slurp(&member, MAX_VERSION, &text, &len, err) < 0)
        return hutch_err_wrap(err, "'manifest.json' is no list of images as `docker save` writes it, and for skopeo's "
                                   "dir: 'version' has to be there");
    if (strncmp(text, marker, strlen(marker)) != 0)
        return hutch_err_set(err, 0, "'version' does not say \"%sx\", as skopeo's dir: has it", marker);
    r->blob = &dir_blob;
    r->manifest = &dir_manifest;
    if (cJSON_GetObjectItemCaseSensitive(json, "manifests"))
        return read_index(r, json, image, err);
    if (r->select && !is_selected(r->select, 0, NULL))
        return hutch_err_set(err, 0, "it has one image, without a name, and no '%.80s' (--select)", r->select);
    snprintf(at.digest, sizeof(at.digest), "%s", digest);
    return read_manifest(r, json, &at, image, err);
}

static bool is_member_name(const char *name)
{
    size_t len = strlen(name);

    if (len == 0 || len > MAX_MEMBER || name[0] == '/' || name[len - 1] == '/')
        return false;
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        size_t n = strcspn(at, "/");

        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
    }
    return true;
}

/* `docker save` names the configuration by its digest: "<hex>.json", "blobs/sha256/<hex>", "sha256:<hex>". */
static bool digest_in_name(const char *name, char ret_hex[DIGEST_HEX + 1])
{
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;

    if (strncmp(base, "sha256:", 7) == 0)
        base += 7;
    if (strlen(base) < DIGEST_HEX)
        return false;
    memcpy(ret_hex, base, DIGEST_HEX);
    ret_hex[DIGEST_HEX] = '\0';
    return hutch_digest_is_hex(ret_hex) && (base[DIGEST_HEX] == '\0' || strcmp(base + DIGEST_HEX, ".json") == 0);
}

/* The tag by which @select means the @entry, or its first one; "" without any, NULL when it is not meant. */
static const char *docker_tag(const cJSON *entry, const char *select, int number)
{
    const cJSON *tag, *tags = cJSON_GetObjectItemCaseSensitive(entry, "RepoTags");
    const char *first = NULL;

    cJSON_ArrayForEach(tag, tags) {
        if (!cJSON_IsString(tag))
            continue;
        if (select && is_selected(select, -1, tag->valuestring))
            return tag->valuestring;
        first = first ? first : tag->valuestring;
    }
    return !select || is_selected(select, number, NULL) ? (first ? first : "") : NULL;
}

static int choose_docker(const struct reading *r, const cJSON *json, const char *where, const cJSON **ret,
                         const char **ret_tag, struct hutch_err *err)
{
    struct image_list list = { .text = "" };
    const cJSON *entry;
    unsigned n_found = 0;
    int number = 0;

    if (cJSON_GetArraySize(json) < 1)
        return hutch_err_set(err, 0, "'%s' has no image", where);
    if (cJSON_GetArraySize(json) > MAX_MANIFESTS)
        return hutch_err_set(err, 0, "'%s' has more than %d images", where, MAX_MANIFESTS);
    cJSON_ArrayForEach(entry, json) {
        const char *tag = docker_tag(entry, r->select, number), *first = docker_tag(entry, NULL, number);

        list_image(&list, number++, first && first[0] ? first : NULL);
        if (!tag)
            continue;
        *ret = entry;
        *ret_tag = tag;
        n_found++;
    }
    if (n_found == 0)
        return hutch_err_set(err, 0, "'%s' has no image '%.80s'; --select takes one of: %s", where, r->select,
                             list.text);
    if (n_found > 1)
        return hutch_err_set(err, 0, "'%s' has %u images; --select takes one of: %s", where, n_found, list.text);
    return 0;
}

static int read_docker(const struct reading *r, const cJSON *json, struct oci_image *image, struct hutch_err *err)
{
    static const char where[] = "manifest.json";
    char digest[DIGEST_HEX + 1];
    const cJSON *entry = NULL, *layers, *item;
    const char *config, *tag = "";

    if (choose_docker(r, json, where, &entry, &tag, err) < 0)
        return -1;
    config = need_string(entry, "Config", where, err);
    layers = config ? need_array(entry, "Layers", OCI_MAX_LAYERS, where, err) : NULL;
    if (!layers)
        return -1;
    cJSON_ArrayForEach(item, layers) {
        if (!cJSON_IsString(item) || !is_member_name(item->valuestring))
            return hutch_err_set(err, 0, "'%s' names a layer '%.80s', which is not a path inside the archive", where,
                                 cJSON_IsString(item) ? item->valuestring : "(not a string)");
        if (add_layer(image, item->valuestring, "", 0, err) < 0)
            return -1;
    }
    if (!is_member_name(config))
        return hutch_err_set(err, 0, "'%s' names a configuration '%.80s', which is not a path inside the archive",
                             where, config);
    if (tag[0] && set_name(image, tag, err) < 0)
        return -1;
    return read_config(r, config, digest_in_name(config, digest) ? digest : NULL, image->digest, image, err);
}

static int read_any(struct reading *r, struct oci_image *image, struct hutch_err *err)
{
    char digest[DIGEST_HEX + 1];
    auto_json json = NULL;
    struct hutch_err why;

    /* A newer `docker save` writes both. The layout says more: it has the digest of each stored layer. */
    if (read_json(r->source, "oci-layout", NULL, NULL, &json, &why) == 0)
        return read_layout(r, json, image, err);
    if (why.errnum == ENOENT && read_json(r->source, "manifest.json", NULL, digest, &json, &why) == 0)
        return cJSON_IsArray(json) ? read_docker(r, json, image, err) : read_dir(r, json, digest, image, err);
    if (why.errnum == ENOENT)
        return hutch_err_set(err, 0, "it is neither an OCI image layout (no 'oci-layout' in it) nor made by `docker "
                                     "save` or skopeo's dir: (no 'manifest.json')");
    *err = why;
    return -1;
}

int hutch_oci_image_read(const struct source *source, const struct oci_choice *choice, struct oci_image *ret,
                         struct hutch_err *err)
{
    struct reading r = { .source = source, .select = choice->select };
    struct oci_image image = OCI_IMAGE_INIT;
    int rc = hutch_oci_platform_parse(choice->platform, &r.platform, err);

    if (rc == 0)
        rc = read_any(&r, &image, err);
    if (rc < 0) {
        hutch_oci_image_done(&image);
        return hutch_err_wrap(err, "read image '%s'", source->path);
    }
    *ret = image;
    return 0;
}

void hutch_oci_image_done(struct oci_image *image)
{
    for (size_t i = 0; i < image->n_layers; i++)
        hutch_freep(&image->layers[i].member);
    hutch_freep(&image->layers);
    hutch_freep(&image->name);
    hutch_image_config_done(&image->config);
    *image = (struct oci_image)OCI_IMAGE_INIT;
}
