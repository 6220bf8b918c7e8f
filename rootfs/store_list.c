#include "rootfs/store_priv.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define MAX_IMAGE_JSON (8 * STORE_MAX_SOURCE) /* its quotes and the numbers too */

static uint64_t json_number(const cJSON *json, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);

    return cJSON_IsNumber(value) && value->valuedouble >= 0 && value->valuedouble < 9e15 ? (uint64_t)value->valuedouble
                                                                                         : 0;
}

void hutch_store_read_numbers(int tree_fd, struct store_image *image)
{
    struct hutch_err ignored;
    auto_free char *text = NULL;
    auto_fd fd = openat(tree_fd, "image.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const cJSON *source;
    cJSON *json;
    size_t len;

    if (fd < 0 || hutch_fd_slurp(fd, MAX_IMAGE_JSON, "image.json", &text, &len, &ignored) < 0)
        return;
    json = cJSON_Parse(text);
    image->bytes = json_number(json, "bytes");
    image->entries = json_number(json, "entries");
    image->devices = json_number(json, "devices");
    image->unpacked = (int64_t)json_number(json, "unpacked");
    source = cJSON_GetObjectItemCaseSensitive(json, "source");
    if (cJSON_IsString(source) && strlen(source->valuestring) <= STORE_MAX_SOURCE)
        image->source = strdup(source->valuestring);
    cJSON_Delete(json);
}

struct listing {
    const struct store *store;
    struct store_image *images;
    size_t n;
    bool is_out_of_memory;
};

static void list_tree(void *ctx, const char *entry)
{
    struct listing *l = ctx;
    struct store_image *bigger;
    char path[16 + DIGEST_HEX];
    struct hutch_err ignored;
    auto_fd fd = -1;

    if (!hutch_digest_is_hex(entry))
        return;
    snprintf(path, sizeof(path), "trees/%s", entry);
    fd = hutch_store_open_dir(l->store->dirfd, path);
    if (fd < 0 && l->store->is_shared) /* its owner has not shared this one */
        return;
    bigger = reallocarray(l->images, l->n + 1, sizeof(*bigger));
    if (!bigger) {
        l->is_out_of_memory = true;
        return;
    }
    l->images = bigger;
    l->images[l->n] = (struct store_image){ .names = NULL };
    memcpy(l->images[l->n].digest, entry, DIGEST_HEX + 1);
    if (fd >= 0)
        hutch_store_read_numbers(fd, &l->images[l->n]);
    if (fd >= 0 && hutch_extension_read(fd, &l->images[l->n].extension, &ignored) < 0)
        l->images[l->n].extension.n_layers = 0; /* whoever uses it says what is wrong */
    l->n++;
}

static void list_name(void *ctx, const char *entry)
{
    struct listing *l = ctx;
    char hex[DIGEST_HEX + 1], name[STORE_MAX_NAME + 1];

    if (!hutch_store_decode_name(entry, name) || !hutch_store_read_name(l->store, entry, hex))
        return;
    for (size_t i = 0; i < l->n; i++) {
        struct store_image *image = &l->images[i];
        char **bigger;

        if (strcmp(image->digest, hex) != 0)
            continue;
        bigger = reallocarray(image->names, image->n_names + 1, sizeof(*bigger));
        if (!bigger || !(bigger[image->n_names] = strdup(name))) {
            l->is_out_of_memory = true;
            image->names = bigger ? bigger : image->names;
            return;
        }
        image->names = bigger;
        image->n_names++;
    }
}

static int by_first_name(const void *a, const void *b)
{
    const struct store_image *x = a, *y = b;

    if ((x->n_names > 0) != (y->n_names > 0))
        return x->n_names > 0 ? -1 : 1;
    return x->n_names > 0 ? strcmp(x->names[0], y->names[0]) : strcmp(x->digest, y->digest);
}

int hutch_store_list(const struct store *store, struct store_image **ret, size_t *ret_n, struct hutch_err *err)
{
    struct listing l = { .store = store };
    int rc = hutch_store_each_entry(store, "trees", list_tree, &l, err);

    if (rc == 0)
        rc = hutch_store_each_entry(store, "names", list_name, &l, err);
    if (rc == 0 && l.is_out_of_memory)
        rc = hutch_err_set(err, ENOMEM, "list the images");
    if (rc < 0) {
        for (size_t i = 0; i < l.n; i++)
            hutch_store_image_done(&l.images[i]);
        free(l.images);
        return -1;
    }
    if (l.n > 0)
        qsort(l.images, l.n, sizeof(*l.images), by_first_name);
    *ret = l.images;
    *ret_n = l.n;
    return 0;
}

void hutch_store_image_done(struct store_image *image)
{
    for (size_t i = 0; i < image->n_names; i++)
        free(image->names[i]);
    free(image->names);
    free(image->source);
    *image = (struct store_image){ .names = NULL };
}

int hutch_store_describe(const struct store *store, const char *hex, struct store_image *ret, struct hutch_err *err)
{
    struct listing l = { .store = store };

    list_tree(&l, hex);
    if (hutch_store_each_entry(store, "names", list_name, &l, err) < 0 || l.is_out_of_memory || l.n != 1) {
        for (size_t i = 0; i < l.n; i++)
            hutch_store_image_done(&l.images[i]);
        free(l.images);
        return hutch_err_set(err, ENOMEM, "describe the image");
    }
    *ret = l.images[0];
    free(l.images);
    return 0;
}
