#include "rootfs/oci_image.h"

#include "sandbox/fd.h"
#include "rootfs/source.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define MAX_JSON (4u << 20)
#define MAX_DEPTH 32    /* of JSON; the formats need 6 */
#define QUOTE(x) #x
#define TEXT(x) QUOTE(x)
#define MAX_INDEXES 3   /* an index that points to an index … */
#define MAX_MANIFESTS 256
#define MAX_MEMBER 512

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

/* An OCI descriptor: what a thing is called, how large it is. */
struct descriptor {
    const char *media_type; /* the JSON's */
    char digest[DIGEST_HEX + 1];
    char member[sizeof("blobs/sha256/") + DIGEST_HEX];
    uint64_t size;
};

static int read_descriptor(const cJSON *json, const char *where, struct descriptor *ret, struct hutch_err *err)
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
    snprintf(ret->member, sizeof(ret->member), "blobs/sha256/%s", ret->digest);
    return 0;
}

static const char *machine_architecture(void)
{
    static const struct { const char *machine, *architecture; } names[] = {
        { "x86_64", "amd64" }, { "aarch64", "arm64" }, { "i686", "386" },         { "armv7l", "arm" },
        { "ppc64le", "ppc64le" }, { "s390x", "s390x" }, { "riscv64", "riscv64" },
    };
    struct utsname uts;

    if (uname(&uts) == 0)
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            if (strcmp(names[i].machine, uts.machine) == 0)
                return names[i].architecture;
    return "";
}

/* The platform may be absent; build tools also put "unknown" there for entries that are not images at all. */
static bool is_other_platform(const cJSON *object)
{
    const char *os = optional_string(object, "os"), *arch = optional_string(object, "architecture");

    return (os && strcmp(os, "linux") != 0) || (arch && strcmp(arch, machine_architecture()) != 0);
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
static int read_config(const struct source *source, const char *member, const char *want_digest, char *ret_digest,
                       struct oci_image *image, struct hutch_err *err)
{
    auto_json json = NULL;
    const cJSON *rootfs, *ids, *id;
    const char *os, *arch;
    size_t i = 0;

    if (read_json(source, member, want_digest, ret_digest, &json, err) < 0)
        return -1;
    if (is_other_platform(json)) {
        os = optional_string(json, "os");
        arch = optional_string(json, "architecture");
        return hutch_err_set(err, 0, "the image is made for %.40s/%.40s, this machine is linux/%s", os ? os : "linux",
                             arch ? arch : "?", machine_architecture());
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

static int read_manifest(const struct source *source, const struct descriptor *at, struct oci_image *image,
                         struct hutch_err *err)
{
    auto_json json = NULL;
    struct descriptor config, layer;
    const cJSON *layers, *item;

    if (read_json(source, at->member, at->digest, NULL, &json, err) < 0)
        return -1;
    if (read_descriptor(cJSON_GetObjectItemCaseSensitive(json, "config"), at->member, &config, err) < 0)
        return -1;
    layers = need_array(json, "layers", OCI_MAX_LAYERS, at->member, err);
    if (!layers)
        return -1;
    cJSON_ArrayForEach(item, layers) {
        if (read_descriptor(item, at->member, &layer, err) < 0)
            return -1;
        if (!layer.media_type || !is_layer_type(layer.media_type))
            return hutch_err_set(err, 0, "layer sha256:%.12s is of the kind '%.120s', which hutch cannot unpack",
                                 layer.digest, layer.media_type ? layer.media_type : "(none)");
        if (add_layer(image, layer.member, layer.digest, layer.size, err) < 0)
            return -1;
    }
    memcpy(image->digest, at->digest, sizeof(image->digest));
    return read_config(source, config.member, config.digest, NULL, image, err);
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

/* Finds the one image of an index that is for this machine. */
static int choose(const cJSON *index, const char *where, const cJSON **ret, struct hutch_err *err)
{
    const cJSON *manifests = need_array(index, "manifests", MAX_MANIFESTS, where, err);
    const cJSON *item, *found = NULL;
    unsigned n_found = 0, n_other = 0;

    if (!manifests)
        return -1;
    cJSON_ArrayForEach(item, manifests) {
        const cJSON *platform = cJSON_GetObjectItemCaseSensitive(item, "platform");
        const char *type = optional_string(item, "mediaType");

        if (!is_index_type(type) && !is_manifest_type(type))
            continue;
        if (cJSON_IsObject(platform) && is_other_platform(platform)) {
            n_other++;
            continue;
        }
        found = item;
        n_found++;
    }
    if (n_found == 0 && n_other > 0)
        return hutch_err_set(err, 0, "'%s' has no image for this machine (linux/%s), only for others", where,
                             machine_architecture());
    if (n_found == 0)
        return hutch_err_set(err, 0, "'%s' has no image", where);
    if (n_found > 1)
        return hutch_err_set(err, 0, "'%s' has %u images for this machine: save one at a time", where, n_found);
    *ret = found;
    return 0;
}

static int set_name(struct oci_image *image, const char *name, struct hutch_err *err)
{
    if (!name || image->name)
        return 0;
    image->name = strdup(name);
    return image->name ? 0 : hutch_err_set(err, ENOMEM, "read the image's name");
}

static int read_layout(const struct source *source, const cJSON *marker, struct oci_image *image, struct hutch_err *err)
{
    const char *version = need_string(marker, "imageLayoutVersion", "oci-layout", err);
    auto_json json = NULL;
    const cJSON *chosen = NULL;
    struct descriptor at;

    if (!version)
        return -1;
    if (strncmp(version, "1.", 2) != 0)
        return hutch_err_set(err, 0, "the image layout has version '%.20s', hutch knows 1.x", version);
    if (read_json(source, "index.json", NULL, NULL, &json, err) < 0 || choose(json, "index.json", &chosen, err) < 0)
        return -1;
    for (int depth = 0; depth < MAX_INDEXES; depth++) {
        cJSON *inner = NULL;

        if (set_name(image, descriptor_name(chosen), err) < 0 || read_descriptor(chosen, "index.json", &at, err) < 0)
            return -1;
        if (!is_index_type(at.media_type))
            return read_manifest(source, &at, image, err);
        if (read_json(source, at.member, at.digest, NULL, &inner, err) < 0)
            return -1;
        cJSON_Delete(json);
        json = inner;
        if (choose(json, at.member, &chosen, err) < 0)
            return -1;
    }
    return hutch_err_set(err, 0, "index.json leads from index to index more than %d times", MAX_INDEXES);
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

static int read_docker(const struct source *source, const cJSON *json, struct oci_image *image, struct hutch_err *err)
{
    static const char where[] = "manifest.json";
    char digest[DIGEST_HEX + 1];
    const cJSON *entry, *layers, *item, *tags;
    const char *config;

    if (!cJSON_IsArray(json) || cJSON_GetArraySize(json) < 1)
        return hutch_err_set(err, 0, "'%s' is not a list of images", where);
    if (cJSON_GetArraySize(json) > 1)
        return hutch_err_set(err, 0, "'%s' has %d images: save one at a time", where, cJSON_GetArraySize(json));
    entry = cJSON_GetArrayItem(json, 0);
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
    tags = cJSON_GetObjectItemCaseSensitive(entry, "RepoTags");
    if (cJSON_IsArray(tags) && cJSON_IsString(cJSON_GetArrayItem(tags, 0)) &&
        set_name(image, cJSON_GetArrayItem(tags, 0)->valuestring, err) < 0)
        return -1;
    return read_config(source, config, digest_in_name(config, digest) ? digest : NULL, image->digest, image, err);
}

int hutch_oci_image_read(const struct source *source, struct oci_image *ret, struct hutch_err *err)
{
    struct oci_image image = OCI_IMAGE_INIT;
    auto_json json = NULL;
    int rc;

    /* A newer `docker save` writes both. The layout says more: it has the digest of each stored layer. */
    rc = read_json(source, "oci-layout", NULL, NULL, &json, err);
    if (rc == 0) {
        rc = read_layout(source, json, &image, err);
    } else if (err->errnum == ENOENT) {
        rc = read_json(source, "manifest.json", NULL, NULL, &json, err);
        if (rc == 0)
            rc = read_docker(source, json, &image, err);
        else if (err->errnum == ENOENT)
            hutch_err_set(err, 0, "it is neither an OCI image layout (no 'oci-layout' in it) nor made by `docker save` "
                                  "(no 'manifest.json')");
    }
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
