#include "runtime/term/png.h"

#include "sandbox/fd.h"

#include <stdbool.h>
#include <string.h>

#define SIGNATURE_LEN 8
#define CHUNK_EXTRA   12 /* length and type before the data, checksum behind */
#define IHDR_LEN      13

struct chunk {
    char type[5];
    const unsigned char *start; /* with the length */
    const unsigned char *data;
    size_t len;
};

struct walk {
    const unsigned char *at;
    size_t left;
    uint32_t crc_table[256];
    unsigned char colour_type;
    bool has_palette, has_data;
};

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Annex D of the specification. */
static void make_crc_table(uint32_t table[256])
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;

        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        table[n] = c;
    }
}

static uint32_t crc_of(const uint32_t table[256], const unsigned char *data, size_t len)
{
    uint32_t c = UINT32_MAX;

    for (size_t i = 0; i < len; i++)
        c = table[(c ^ data[i]) & 0xff] ^ c >> 8;
    return ~c;
}

static int next_chunk(struct walk *w, struct chunk *ret, struct hutch_err *err)
{
    uint32_t len;

    if (w->left < CHUNK_EXTRA)
        return hutch_err_set(err, 0, "it is not a whole PNG image");
    len = read_u32(w->at);
    if (len > w->left - CHUNK_EXTRA)
        return hutch_err_set(err, 0, "it is not a whole PNG image");
    for (int i = 0; i < 4; i++) {
        unsigned char c = w->at[4 + i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
            return hutch_err_set(err, 0, "it is not a PNG image: a chunk has no name");
        ret->type[i] = (char)c;
    }
    ret->type[4] = '\0';
    ret->start = w->at;
    ret->data = w->at + 8;
    ret->len = len;
    if (crc_of(w->crc_table, w->at + 4, len + 4u) != read_u32(ret->data + len))
        return hutch_err_set(err, 0, "it is a broken PNG image: the checksum of '%s' is wrong", ret->type);
    w->at += len + CHUNK_EXTRA;
    w->left -= len + CHUNK_EXTRA;
    return 0;
}

static int check_header(struct walk *w, const struct chunk *c, struct png_size *ret, struct hutch_err *err)
{
    /* By colour type: a bit for each depth that it may have. */
    static const uint32_t depths[] = { 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8 | 1u << 16, 0, 1u << 8 | 1u << 16,
                                       1u << 1 | 1u << 2 | 1u << 4 | 1u << 8, 1u << 8 | 1u << 16, 0, 1u << 8 | 1u << 16 };
    const unsigned char *p = c->data;

    if (strcmp(c->type, "IHDR") != 0 || c->len != IHDR_LEN)
        return hutch_err_set(err, 0, "it is not a PNG image: it has no header");
    *ret = (struct png_size){ .width = read_u32(p), .height = read_u32(p + 4) };
    w->colour_type = p[9];
    if (p[9] >= ARRAY_SIZE(depths) || p[8] > 16 || !(depths[p[9]] & 1u << p[8]) || p[10] || p[11] || p[12] > 1)
        return hutch_err_set(err, 0, "it is not a PNG image: its header says what none can be");
    if (ret->width == 0 || ret->height == 0 || ret->width > PNG_MAX_SIDE || ret->height > PNG_MAX_SIDE ||
        (uint64_t)ret->width * ret->height > PNG_MAX_PIXELS)
        return hutch_err_set(err, 0, "it is too large to be shown: %u x %u pixels", ret->width, ret->height);
    return 0;
}

/* Whether a chunk after the header is one that the picture needs: 1, or 0, or -1 when it must not be there. */
static int is_needed(struct walk *w, const struct chunk *c, struct hutch_err *err)
{
    if (strcmp(c->type, "IDAT") == 0) {
        if (w->colour_type == 3 && !w->has_palette)
            return hutch_err_set(err, 0, "it is a broken PNG image: there is no palette");
        w->has_data = true;
        return 1;
    }
    if (strcmp(c->type, "PLTE") == 0) {
        if (w->has_palette || w->has_data || c->len == 0 || c->len > 768 || c->len % 3)
            return hutch_err_set(err, 0, "it is a broken PNG image: its palette cannot be one");
        w->has_palette = true;
        return 1;
    }
    if (strcmp(c->type, "tRNS") == 0)
        return !w->has_data && c->len <= 256;
    if (!(c->type[0] & 0x20)) /* upper case: nobody can do without it */
        return hutch_err_set(err, 0, "it is not a PNG image that can be shown: it needs '%s'", c->type);
    return 0;
}

int hutch_png_clean(const unsigned char *data, size_t len, unsigned char **ret, size_t *ret_len, struct png_size *ret_size,
                    struct hutch_err *err)
{
    struct walk w = { .at = data + SIGNATURE_LEN, .left = len - SIGNATURE_LEN };
    struct png_size size;
    struct chunk c;
    unsigned char *copy, *to;

    if (len < SIGNATURE_LEN || memcmp(data, "\x89PNG\r\n\x1a\n", SIGNATURE_LEN) != 0)
        return hutch_err_set(err, 0, "it is not a PNG image");
    make_crc_table(w.crc_table);
    if (next_chunk(&w, &c, err) < 0 || check_header(&w, &c, &size, err) < 0)
        return -1;
    copy = malloc(len);
    if (!copy)
        return hutch_err_set(err, ENOMEM, "look at an image");
    memcpy(copy, data, SIGNATURE_LEN);
    to = copy + SIGNATURE_LEN;
    for (;;) {
        int needed;

        memcpy(to, c.start, c.len + CHUNK_EXTRA);
        to += c.len + CHUNK_EXTRA;
        if (strcmp(c.type, "IEND") == 0)
            break;
        do {
            if (next_chunk(&w, &c, err) < 0)
                goto fail;
            needed = strcmp(c.type, "IEND") == 0 ? 1 : is_needed(&w, &c, err);
            if (needed < 0)
                goto fail;
        } while (!needed);
    }
    if (!w.has_data || c.len) {
        hutch_err_set(err, 0, "it is a broken PNG image: it has no picture");
        goto fail;
    }
    *ret = copy;
    *ret_len = (size_t)(to - copy);
    *ret_size = size;
    return 0;
fail:
    free(copy);
    return -1;
}
