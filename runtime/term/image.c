#include "runtime/term/image.h"

#include "runtime/text/base64.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KITTY_CHUNK 4096 /* of base64, a multiple of 4: https://sw.kovidgoyal.net/kitty/graphics-protocol/ */
static const struct {
    const char *name;
    enum term_images images;
} names[] = { { "none", TERM_IMAGES_NONE }, { "kitty", TERM_IMAGES_KITTY }, { "sixel", TERM_IMAGES_SIXEL },
            { "blocks", TERM_IMAGES_BLOCKS } };

/* @is_prefix: "foot" is also "foot-extra". */
static const struct {
    const char *variable, *value;
    bool is_prefix;
    enum term_images images;
} signs[] = {
    { "TERM", "dumb", false, TERM_IMAGES_NONE },
    { "TERM", "screen-256color", true, TERM_IMAGES_BLOCKS }, /* first: what runs within inherits the rest */
    { "TERM", "tmux-256color", true, TERM_IMAGES_BLOCKS },
    { "TERM", "screen", true, TERM_IMAGES_NONE },
    { "TERM", "tmux", true, TERM_IMAGES_NONE },
    { "KITTY_WINDOW_ID", "", true, TERM_IMAGES_KITTY },
    { "TERM", "xterm-kitty", false, TERM_IMAGES_KITTY },
    { "TERM", "xterm-ghostty", false, TERM_IMAGES_KITTY },
    { "TERM_PROGRAM", "kitty", false, TERM_IMAGES_KITTY },
    { "TERM_PROGRAM", "ghostty", false, TERM_IMAGES_KITTY },
    { "TERM_PROGRAM", "WezTerm", false, TERM_IMAGES_KITTY },
    { "TERM_PROGRAM", "mlterm", false, TERM_IMAGES_SIXEL },
    { "TERM_PROGRAM", "iTerm.app", false, TERM_IMAGES_SIXEL },
    { "TERM", "foot", true, TERM_IMAGES_SIXEL },
    { "TERM", "mlterm", true, TERM_IMAGES_SIXEL },
    { "TERM", "contour", true, TERM_IMAGES_SIXEL },
    { "TERM", "xterm-sixel", true, TERM_IMAGES_SIXEL },
    { "COLORTERM", "truecolor", false, TERM_IMAGES_BLOCKS },
    { "COLORTERM", "24bit", false, TERM_IMAGES_BLOCKS },
    { "TERM", "xterm-256color", true, TERM_IMAGES_BLOCKS },
    { "TERM", "rxvt-unicode-256color", true, TERM_IMAGES_BLOCKS },
    { "TERM", "alacritty", true, TERM_IMAGES_BLOCKS },
};

enum term_images hutch_term_images_detect(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
        const char *value = getenv(signs[i].variable);

        if (value && *value &&
            (signs[i].is_prefix ? strncmp(value, signs[i].value, strlen(signs[i].value))
                                : strcmp(value, signs[i].value)) == 0)
            return signs[i].images;
    }
    return TERM_IMAGES_NONE;
}

int hutch_term_images_parse(const char *text, enum term_images *ret, struct hutch_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(text, names[i].name) == 0) {
            *ret = names[i].images;
            return 0;
        }
    return hutch_err_set(err, 0, "'%s' is no way to show images: expected kitty, sixel, blocks or none", text);
}

char *hutch_term_image_kitty(const unsigned char *png, size_t len, size_t *ret_len)
{
    size_t text_len, room, n = 0;
    auto_free char *text = hutch_base64_encode(png, len, &text_len);
    char *out;

    if (!text)
        return NULL;
    room = text_len + (text_len / KITTY_CHUNK + 1) * 40 + 1;
    out = malloc(room);
    if (!out)
        return NULL;
    /* a=T: show it; f=100: PNG; q=2: no answer, which would come as if it were typed; m=1: there is more. */
    for (size_t at = 0; at < text_len; at += KITTY_CHUNK) {
        size_t part = text_len - at < KITTY_CHUNK ? text_len - at : KITTY_CHUNK;

        n += (size_t)snprintf(out + n, room - n, "\x1b_G%sm=%d;%.*s\x1b\\", at == 0 ? "a=T,f=100,q=2," : "",
                              at + part < text_len, (int)part, text + at);
    }
    *ret_len = n;
    return out;
}
