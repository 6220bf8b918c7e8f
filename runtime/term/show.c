#include "runtime/term/show.h"

#include "runtime/text/base64.h"
#include "runtime/text/nbimage.h"
#include "sandbox/fd.h"
#include "runtime/text/nbjson.h"
#include "runtime/term/blocks.h"
#include "runtime/term/png.h"
#include "runtime/term/sixel.h"
#include "runtime/term/terminal.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 100000 /* that are tried for one image */

void hutch_cell_show_init(struct cell_show *show, int out_fd, int err_fd)
{
    *show = (struct cell_show){ .is_one = hutch_fd_is_same_file(out_fd, err_fd) };
    for (int i = 0; i < 2; i++) {
        struct cell_show_stream *s = &show->streams[i];

        s->backlog.fd = i ? err_fd : out_fd;
        s->is_terminal = hutch_term_describe(s->backlog.fd, &s->filter);
    }
    show->images = show->streams[0].is_terminal ? hutch_term_images_detect() : TERM_IMAGES_NONE;
    if (show->images == TERM_IMAGES_BLOCKS &&
        (!show->streams[0].filter.has_colours || !show->streams[0].filter.has_utf8))
        show->images = TERM_IMAGES_NONE;
}

void hutch_cell_show_done(struct cell_show *show)
{
    hutch_backlog_done(&show->streams[0].backlog);
    hutch_backlog_done(&show->streams[1].backlog);
}

/* --- text ------------------------------------------------------------------------------------------------------- */

struct sink {
    struct cell_show *show;
    int stream;
};

static struct cell_show_stream *stream_of(struct cell_show *show, int stream)
{
    return &show->streams[show->is_one ? 0 : stream - 1];
}

static void append_output(struct cell_show *show, int stream, const char *text, size_t len)
{
    if (len == 0)
        return;
    if (!hutch_backlog_add(&stream_of(show, stream)->backlog, text, len))
        show->is_out_of_memory = true;
    stream_of(show, stream)->is_in_line = text[len - 1] != '\n';
}

static void append_filtered_part(void *user, const char *text, size_t len)
{
    const struct sink *sink = user;
    bool was_in_line = stream_of(sink->show, sink->stream)->is_in_line;

    append_output(sink->show, sink->stream, text, len);
    if (text[0] == '\x1b') /* colours move nothing */
        stream_of(sink->show, sink->stream)->is_in_line = was_in_line;
}

static void append_filtered(struct cell_show *show, int stream, const char *text, size_t len)
{
    struct sink sink = { show, stream };

    hutch_term_filter(&show->streams[stream - 1].filter, text, len, append_filtered_part, &sink);
}

void hutch_cell_show_bytes(struct cell_show *show, int stream, const char *text, size_t len)
{
    if (show->streams[stream - 1].is_terminal)
        append_filtered(show, stream, text, len);
    else if (len > 0)
        append_output(show, stream, text, len);
}

static void show_text(struct cell_show *show, int stream, const char *text)
{
    hutch_cell_show_bytes(show, stream, text, strlen(text));
}

static void begin_line(struct cell_show *show, int stream)
{
    for (int i = 1; i <= 2; i++)
        hutch_term_filter_end(&show->streams[i - 1].filter, append_filtered_part, &(struct sink){ show, i });
    if (stream_of(show, stream)->is_in_line)
        append_output(show, stream, "\n", 1);
}

void hutch_cell_show_end(struct cell_show *show)
{
    if (show->streams[0].is_terminal)
        begin_line(show, 1);
    show->n_cell_images = 0;
    show->n_cell_pixels = 0;
}

void hutch_cell_show_say(struct cell_show *show, const char *fmt, ...)
{
    auto_free char *text = NULL;
    va_list args;
    int len;

    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0) {
        text = NULL;
        show->is_out_of_memory = true;
        return;
    }
    if (show->streams[1].is_terminal)
        begin_line(show, 2);
    show_text(show, 2, "hutch: ");
    append_filtered(show, 2, text, (size_t)len); /* it may quote what came from inside */
    show_text(show, 2, "\n");
}

void hutch_cell_show_raw(struct cell_show *show, const char *text, size_t len)
{
    append_output(show, 1, text, len);
}

bool hutch_cell_show_is_written(const struct cell_show *show)
{
    return hutch_backlog_is_empty(&show->streams[0].backlog) && hutch_backlog_is_empty(&show->streams[1].backlog);
}

bool hutch_cell_show_is_behind(const struct cell_show *show)
{
    return hutch_backlog_is_long(&show->streams[0].backlog) || hutch_backlog_is_long(&show->streams[1].backlog);
}

/* --- images ----------------------------------------------------------------------------------------------------- */

/* Under the first number from @n_images on whose name is not taken. */
static int save_image(struct cell_show *show, const char *mime, const void *data, size_t len,
                      char name[NBIMAGE_NAME_SIZE], struct hutch_err *err)
{
    int rc = -1;

    err->errnum = EEXIST;
    for (unsigned last = show->n_images + MAX_NAMES; rc < 0 && err->errnum == EEXIST && show->n_images < last;
         show->n_images++) {
        hutch_nbimage_name(name, show->n_images + 1, mime);
        rc = show->save_image(show->user, name, data, len, err);
    }
    return rc;
}

/* What the terminal gets is made of decoded pixels: nothing of the program's own bytes is in it. */
static char *encode_for_terminal(const struct cell_show *show, const struct png_image *image, size_t *ret_len)
{
    auto_free unsigned char *png = NULL;
    struct hutch_err err;
    size_t len;

    if (show->images == TERM_IMAGES_SIXEL)
        return hutch_sixel_encode(image, ret_len);
    if (show->images == TERM_IMAGES_BLOCKS) {
        struct blocks_screen screen = hutch_blocks_screen(show->streams[0].backlog.fd);

        return hutch_blocks_encode(image, &screen, ret_len);
    }
    return hutch_png_encode(image, &png, &len, &err) < 0 ? NULL : hutch_term_image_kitty(png, len, ret_len);
}

static void show_inline(struct cell_show *show, const char *name, const char *mime, const unsigned char *data,
                        size_t len)
{
    struct png_image image;
    struct hutch_err err;
    auto_free char *text = NULL;
    int rc;

    if (show->images == TERM_IMAGES_NONE || strcmp(mime, "image/png") != 0)
        return;
    if (show->n_cell_pixels >= CELL_SHOW_MAX_PIXELS) {
        hutch_cell_show_say(show, "%s is not shown: the images before it have %" PRIu64 " pixels", name,
                            show->n_cell_pixels);
        return;
    }
    rc = hutch_png_decode(data, len, &image, &err);
    show->n_cell_pixels += (uint64_t)image.width * image.height; /* broken ones take their time, too */
    if (rc < 0) {
        hutch_cell_show_say(show, "%s is not shown: %s", name, err.msg);
        return;
    }
    text = encode_for_terminal(show, &image, &len);
    hutch_png_image_done(&image);
    if (text) {
        hutch_cell_show_raw(show, text, len);
        hutch_cell_show_raw(show, "\n", 1);
    } else {
        show->is_out_of_memory = true;
    }
}

static void show_image(struct cell_show *show, const char *mime, const char *data)
{
    bool is_text = strcmp(mime, "image/svg+xml") == 0;
    auto_free unsigned char *bytes = NULL;
    size_t len = strlen(data);
    char name[NBIMAGE_NAME_SIZE];
    struct hutch_err err = { 0 };

    if (++show->n_cell_images > CELL_SHOW_MAX_IMAGES) {
        show->n_images++;
        if (show->n_cell_images == CELL_SHOW_MAX_IMAGES + 1)
            hutch_cell_show_say(show, "more than %d images: the others are not saved", CELL_SHOW_MAX_IMAGES);
        return;
    }
    begin_line(show, 1);
    if (!is_text)
        bytes = hutch_base64_decode(data, len, &len);
    if (!is_text && !bytes) {
        show->n_images++;
        hutch_cell_show_say(show, "an image is not saved: %s",
                            errno == ENOMEM ? strerror(ENOMEM) : "its base64 is broken");
        return;
    }
    if (save_image(show, mime, is_text ? (const void *)data : bytes, len, name, &err) < 0) {
        hutch_cell_show_say(show, "an image is not saved: %s", err.msg);
        return;
    }
    show->n_saved++;
    if (!show->only_images) {
        show_inline(show, name, mime, is_text ? (const void *)data : bytes, len);
        hutch_cell_show_say(show, "%s", name);
    }
}

/* --- outputs ---------------------------------------------------------------------------------------------------- */

/* A string, or an array of them. The caller frees it; NULL: it is something else. */
static char *get_text(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    cJSON *joined = value ? hutch_nbjson_join_lines(value) : NULL;
    char *text = joined ? hutch_nbjson_text(joined, NULL) : NULL;

    cJSON_Delete(joined);
    return text;
}

/* What is text in it, the plainest first. */
static void show_bundle(struct cell_show *show, const cJSON *data, int count)
{
    static const char *const types[] = { "text/plain", "text/markdown", "text/latex" };
    auto_free char *text = NULL;
    char number[32];

    for (size_t i = 0; i < ARRAY_SIZE(types) && !text; i++)
        text = get_text(data, types[i]);
    begin_line(show, 1);
    if (show->has_numbers && count > 0) {
        snprintf(number, sizeof(number), "Out[%d]: ", count);
        show_text(show, 1, number);
        if (text && strchr(text, '\n'))
            show_text(show, 1, "\n");
    }
    if (text) {
        show_text(show, 1, text);
    } else {
        const cJSON *item;
        const char *between = "";

        show_text(show, 1, "[");
        cJSON_ArrayForEach(item, data) {
            show_text(show, 1, between);
            show_text(show, 1, item->string);
            between = ", ";
        }
        show_text(show, 1, "]");
    }
    show_text(show, 1, "\n");
}

static void show_error(struct cell_show *show, const cJSON *output)
{
    const cJSON *lines = cJSON_GetObjectItemCaseSensitive(output, "traceback"), *line;

    if (show->streams[1].is_terminal)
        begin_line(show, 2);
    /* Its colours are for terminals, so it goes through the filter wherever it goes to. */
    cJSON_ArrayForEach(line, lines) {
        if (cJSON_IsString(line)) {
            append_filtered(show, 2, line->valuestring, strlen(line->valuestring));
            append_filtered(show, 2, "\n", 1);
        }
    }
    if (!cJSON_IsArray(lines) || cJSON_GetArraySize(lines) == 0) {
        auto_free char *name = get_text(output, "ename"), *value = get_text(output, "evalue");

        show_text(show, 2, name ? name : "error");
        show_text(show, 2, value && *value ? ": " : "");
        show_text(show, 2, value ? value : "");
        show_text(show, 2, "\n");
    }
    begin_line(show, 2);
}

static int get_int(const cJSON *object, const char *key)
{
    int64_t n;

    return hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(object, key), &n) && n > 0 && n < INT32_MAX
               ? (int)n
               : 0;
}

void hutch_cell_show_json(struct cell_show *show, const cJSON *output)
{
    auto_free char *type = get_text(output, "output_type");
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(output, "data");
    const char *image, *mime;

    if (!show->only_images && type && strcmp(type, "stream") == 0) {
        auto_free char *name = get_text(output, "name"), *text = get_text(output, "text");

        if (text)
            show_text(show, name && strcmp(name, "stderr") == 0 ? 2 : 1, text);
        return;
    }
    if (!show->only_images && type && strcmp(type, "error") == 0) {
        show_error(show, output);
        return;
    }
    if (!cJSON_IsObject(data))
        return;
    mime = show->save_image ? hutch_nbimage_find(output, &image) : NULL;
    /* A figure's text is "<Figure size 640x480 with 1 Axes>"; that of a value says more than its image. */
    if (!show->only_images && (!mime || (type && strcmp(type, "execute_result") == 0)))
        show_bundle(show, data, get_int(output, "execution_count"));
    if (mime)
        show_image(show, mime, image);
}

void hutch_cell_show_output(struct cell_show *show, const struct hutch_output *output)
{
    cJSON *json;
    struct hutch_err err;

    if (output->kind == HUTCH_STREAM) {
        hutch_cell_show_bytes(show, output->stream, output->text, output->text_len);
        return;
    }
    if (output->kind == HUTCH_CLEAR) /* what a terminal has shown stays */
        return;
    if (hutch_nbjson_parse("an output", output->json, strlen(output->json), &NBJSON_NOTEBOOK, &json, &err) < 0) {
        hutch_cell_show_say(show, "%s", err.msg);
        return;
    }
    hutch_cell_show_json(show, json);
    cJSON_Delete(json);
}
