#include "runtime/term/image.h"

#include "runtime/text/base64.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KITTY_CHUNK    4096 /* of base64, a multiple of 4: https://sw.kovidgoyal.net/kitty/graphics-protocol/ */
#define SIXEL_MAX      (8u << 20)
#define SIXEL_MAX_SIDE 4096
#define SIXEL_WANTED_SIDE 1000 /* a larger image is made smaller: nobody's window is wider */
#define SIXEL_HEIGHT   6

/* Read by the assembler, so its path is relative to the top of the tree, where make compiles. */
__asm__(".pushsection .rodata\n"
        ".type term_sixel_py, @object\n"
        "term_sixel_py:\n"
        ".incbin \"runtime/term/sixel.py\"\n"
        ".byte 0\n"
        ".size term_sixel_py, . - term_sixel_py\n"
        ".popsection\n");
extern const char term_sixel_py[] __attribute__((visibility("hidden")));

static const struct {
    const char *name;
    enum term_images images;
} names[] = { { "none", TERM_IMAGES_NONE }, { "kitty", TERM_IMAGES_KITTY }, { "sixel", TERM_IMAGES_SIXEL } };

/* @is_prefix: "foot" is also "foot-extra". */
static const struct {
    const char *variable, *value;
    bool is_prefix;
    enum term_images images;
} signs[] = {
    { "TERM", "screen", true, TERM_IMAGES_NONE }, /* first: what runs within inherits the rest */
    { "TERM", "tmux", true, TERM_IMAGES_NONE },
    { "TERM", "dumb", false, TERM_IMAGES_NONE },
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
};

enum term_images hutch_term_images_detect(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
        const char *value = getenv(signs[i].variable);

        if (value && *value && (signs[i].is_prefix ? strncmp(value, signs[i].value, strlen(signs[i].value)) : strcmp(value, signs[i].value)) == 0)
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
    return hutch_err_set(err, 0, "'%s' is no way to show images: expected kitty, sixel or none", text);
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

        n += (size_t)snprintf(out + n, room - n, "\x1b_G%sm=%d;%.*s\x1b\\", at == 0 ? "a=T,f=100,q=2," : "", at + part < text_len,
                              (int)part, text + at);
    }
    *ret_len = n;
    return out;
}

char *hutch_term_image_sixel_code(const char *name)
{
    char *code;

    return asprintf(&code, "%sconvert('" INSIDE_DATA_DIR "/%s', %d)\n", term_sixel_py, name, SIXEL_WANTED_SIDE) < 0 ? NULL : code;
}

/* A number of at most five digits; -1: there is none. */
static long take_number(const char **p, const char *end)
{
    const char *start = *p;
    long n = 0;

    while (*p < end && **p >= '0' && **p <= '9' && *p - start < 5)
        n = 10 * n + *(*p)++ - '0';
    return *p == start ? -1 : n;
}

static bool is_sixel(char c)
{
    return c >= '?' && c <= '~';
}

/* "#5": a colour; "#5;2;10;20;30": what it is, in hundredths of red, green and blue. */
static bool take_colour(const char **p, const char *end)
{
    long n = take_number(p, end);

    if (n < 0 || n > 255)
        return false;
    for (int i = 0; i < 4 && *p < end && **p == ';'; i++) {
        ++*p;
        n = take_number(p, end);
        if (n < 0 || n > 100 || (i == 0 && n != 2))
            return false;
        if (i < 3 && (*p == end || **p != ';'))
            return false;
    }
    return true;
}

bool hutch_term_image_is_sixel(const char *text, size_t len)
{
    const char *p = text, *end = text + len;
    long column = 0, lines = 1;

    if (len == 0 || len > SIXEL_MAX)
        return false;
    while (p < end) {
        char c = *p++;

        if (c == '#') {
            if (!take_colour(&p, end))
                return false;
        } else if (c == '!') {
            long n = take_number(&p, end);

            if (n < 1 || p == end || !is_sixel(*p++))
                return false;
            column += n;
        } else if (c == '$') {
            column = 0;
        } else if (c == '-') {
            column = 0;
            lines++;
        } else if (is_sixel(c)) {
            column++;
        } else {
            return false;
        }
        if (column > SIXEL_MAX_SIDE || lines > SIXEL_MAX_SIDE / SIXEL_HEIGHT)
            return false;
    }
    return true;
}
