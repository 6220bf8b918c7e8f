#include "runtime/text/nbimage.h"

#include "runtime/text/base64.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const struct { const char *mime, *ending; } images[] = {
    { "image/png", "png" },   { "image/jpeg", "jpg" },    { "image/gif", "gif" },
    { "image/webp", "webp" }, { "image/svg+xml", "svg" },
};

const char *hutch_nbimage_find(const struct cJSON *output, const char **ret_data)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(output, "data");

    for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
        const cJSON *image = cJSON_GetObjectItemCaseSensitive(data, images[i].mime);

        if (cJSON_IsString(image)) {
            *ret_data = image->valuestring;
            return images[i].mime;
        }
    }
    return NULL;
}

void hutch_nbimage_name(char name[NBIMAGE_NAME_SIZE], unsigned n, const char *mime)
{
    const char *ending = "image";

    for (size_t i = 0; i < ARRAY_SIZE(images); i++)
        if (strcmp(mime, images[i].mime) == 0)
            ending = images[i].ending;
    snprintf(name, NBIMAGE_NAME_SIZE, "figure-%u.%s", n, ending);
}

void hutch_nbimage_sides(char buf[NBIMAGE_SIDES_SIZE], const char *mime, const char *base64)
{
    size_t len = 0;
    auto_free unsigned char *head = NULL;

    buf[0] = '\0';
    if (strcmp(mime, "image/png") != 0 || strlen(base64) < 32)
        return;
    /* 24 bytes: signature, length and name of the first chunk, width, height */
    head = hutch_base64_decode(base64, 32, &len);
    if (head == NULL || len < 24 || memcmp(head, "\x89PNG\r\n\x1a\n", 8) != 0)
        return;
    snprintf(buf, NBIMAGE_SIDES_SIZE, "%ux%u, ",
             (unsigned)head[16] << 24 | (unsigned)head[17] << 16 | (unsigned)head[18] << 8 | head[19],
             (unsigned)head[20] << 24 | (unsigned)head[21] << 16 | (unsigned)head[22] << 8 | head[23]);
}
