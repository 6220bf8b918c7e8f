#include "cell_text.h"

#include "fd.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *mime, *ending;
} images[] = { { "image/png", "png" }, { "image/jpeg", "jpg" }, { "image/gif", "gif" }, { "image/webp", "webp" }, { "image/svg+xml", "svg" } };

const char *hutch_cell_image(const struct cJSON *output, const char **ret_data)
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

void hutch_cell_image_name(char name[CELL_IMAGE_NAME_SIZE], unsigned n, const char *mime)
{
    for (size_t i = 0; i < ARRAY_SIZE(images); i++)
        if (strcmp(mime, images[i].mime) == 0)
            snprintf(name, CELL_IMAGE_NAME_SIZE, "figure-%u.%s", n, images[i].ending);
}
