#include "rootfs/image_config.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_FILE "config.json"
#define FILE_MAX_BYTES (6 * IMAGE_CONFIG_MAX_BYTES + (64u << 10)) /* JSON may write each byte as \u00XX */

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

void hutch_image_config_done(struct image_config *config)
{
    free_list(config->env);
    free_list(config->entrypoint);
    free_list(config->cmd);
    free(config->workdir);
    free(config->user);
    *config = (struct image_config)IMAGE_CONFIG_INIT;
}

static int count(const char *text, size_t *bytes, struct hutch_err *err)
{
    *bytes += strlen(text) + 1;
    return *bytes > IMAGE_CONFIG_MAX_BYTES
               ? hutch_err_set(err, E2BIG, "the image's configuration has more than %u bytes of texts",
                               IMAGE_CONFIG_MAX_BYTES)
               : 0;
}

static int take_list(const cJSON *config, const char *key, size_t *bytes, char ***ret, struct hutch_err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key), *item;
    size_t n = 0;

    if (!value || cJSON_IsNull(value) || (cJSON_IsArray(value) && !value->child))
        return 0;
    if (!cJSON_IsArray(value))
        return hutch_err_set(err, EINVAL, "'%s' of the image's configuration is not a list", key);
    if (cJSON_GetArraySize(value) > IMAGE_CONFIG_MAX_TEXTS)
        return hutch_err_set(err, E2BIG, "'%s' of the image's configuration has more than %d texts", key,
                             IMAGE_CONFIG_MAX_TEXTS);
    *ret = calloc((size_t)cJSON_GetArraySize(value) + 1, sizeof(**ret));
    if (!*ret)
        return hutch_err_set(err, ENOMEM, "read the image's configuration");
    cJSON_ArrayForEach(item, value) {
        if (!cJSON_IsString(item))
            return hutch_err_set(err, EINVAL, "'%s' of the image's configuration holds what is not a text", key);
        if (count(item->valuestring, bytes, err) < 0)
            return -1;
        (*ret)[n] = strdup(item->valuestring);
        if (!(*ret)[n++])
            return hutch_err_set(err, ENOMEM, "read the image's configuration");
    }
    return 0;
}

/* "" is written for what is not asked for. */
static int take_text(const cJSON *config, const char *key, size_t *bytes, char **ret, struct hutch_err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);

    if (!value || cJSON_IsNull(value) || (cJSON_IsString(value) && !value->valuestring[0]))
        return 0;
    if (!cJSON_IsString(value))
        return hutch_err_set(err, EINVAL, "'%s' of the image's configuration is not a text", key);
    if (count(value->valuestring, bytes, err) < 0)
        return -1;
    *ret = strdup(value->valuestring);
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "read the image's configuration");
}

int hutch_image_config_take(const cJSON *config, struct image_config *ret, struct hutch_err *err)
{
    struct image_config taken = IMAGE_CONFIG_INIT;
    size_t bytes = 0;
    int rc = 0;

    if (config && !cJSON_IsNull(config) && !cJSON_IsObject(config))
        return hutch_err_set(err, EINVAL, "'config' of the image's configuration is not an object");
    if (take_list(config, "Env", &bytes, &taken.env, err) < 0 ||
        take_list(config, "Entrypoint", &bytes, &taken.entrypoint, err) < 0 ||
        take_list(config, "Cmd", &bytes, &taken.cmd, err) < 0 ||
        take_text(config, "WorkingDir", &bytes, &taken.workdir, err) < 0 ||
        take_text(config, "User", &bytes, &taken.user, err) < 0)
        rc = -1;
    else if (taken.workdir && (taken.workdir[0] != '/' || strlen(taken.workdir) >= PATH_MAX))
        rc = hutch_err_set(err, EINVAL, "'WorkingDir' of the image's configuration is '%.80s', which is not an "
                           "absolute path", taken.workdir);
    if (rc < 0)
        hutch_image_config_done(&taken);
    else
        *ret = taken;
    return rc;
}

/* cJSON copies what it is given. */
static void add_list(cJSON *to, const char *key, char *const *list)
{
    cJSON *array = list ? cJSON_AddArrayToObject(to, key) : NULL;

    for (size_t i = 0; list && list[i]; i++)
        cJSON_AddItemToArray(array, cJSON_CreateString(list[i]));
}

int hutch_image_config_write(const struct image_config *config, int dirfd, struct hutch_err *err)
{
    auto_fd fd = openat(dirfd, CONFIG_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    cJSON *json = cJSON_CreateObject();
    char *text;
    int rc = 0;

    add_list(json, "Env", config->env);
    add_list(json, "Entrypoint", config->entrypoint);
    add_list(json, "Cmd", config->cmd);
    if (config->workdir)
        cJSON_AddStringToObject(json, "WorkingDir", config->workdir);
    if (config->user)
        cJSON_AddStringToObject(json, "User", config->user);
    text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    if (fd < 0 || !text || hutch_fd_write_all(fd, text, strlen(text)) < 0)
        rc = hutch_err_set(err, text ? errno : ENOMEM, "write '" CONFIG_FILE "'");
    cJSON_free(text);
    return rc;
}

int hutch_image_config_read(const char *root, struct image_config *ret, struct hutch_err *err)
{
    const char *slash = strrchr(root, '/');
    auto_free char *path = NULL, *text = NULL;
    auto_fd fd = -1;
    cJSON *json;
    size_t len;
    int rc;

    *ret = (struct image_config)IMAGE_CONFIG_INIT;
    if (!slash || asprintf(&path, "%.*s/" CONFIG_FILE, (int)(slash - root), root) < 0)
        return hutch_err_set(err, slash ? ENOMEM : EINVAL, "find the configuration of the image at '%s'", root);
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "open '%s'", path);
    if (hutch_fd_slurp(fd, FILE_MAX_BYTES, CONFIG_FILE, &text, &len, err) < 0)
        return -1;
    json = cJSON_ParseWithLength(text, len);
    rc = cJSON_IsObject(json) ? hutch_image_config_take(json, ret, err)
                              : hutch_err_set(err, EINVAL, "'%s' is not JSON", path);
    cJSON_Delete(json);
    return rc;
}
