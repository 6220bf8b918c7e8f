#include "runtime/term/sixel.h"

#include "runtime/term/picture.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define START "\x1bP0;1q"
#define END   "\x1b\\"
#define BAND  6             /* rows of pixels in one line of sixels */
#define SHADES 32           /* of red, green and blue each, that are told apart */
#define N_BINS (SHADES * SHADES * SHADES)

/* --- a palette: the colours that there are, cut into groups of like ones (median cut) --- */

struct bin {
    uint16_t id;
    uint32_t n;      /* pixels */
    uint64_t sum[3]; /* of their colours */
};
struct group {
    size_t first, n_bins;
    uint64_t n; /* pixels */
    int widest; /* of red, green and blue */
    int range;  /* in it */
};
struct palette {
    unsigned char rgb[SIXEL_COLOURS][3];
    size_t n;
    unsigned char of_bin[N_BINS];
};

static uint16_t bin_of(const unsigned char rgb[3])
{
    return (uint16_t)((rgb[0] >> 3) << 10 | (rgb[1] >> 3) << 5 | rgb[2] >> 3);
}

static int shade_of(const struct bin *bin, int channel)
{
    return bin->id >> (10 - 5 * channel) & (SHADES - 1);
}

static int compare_bins(const void *a, const void *b, void *channel)
{
    return shade_of(a, *(int *)channel) - shade_of(b, *(int *)channel);
}

static struct group describe_group(const struct bin *bins, size_t first, size_t n_bins)
{
    struct group g = { .first = first, .n_bins = n_bins };

    for (int channel = 0; channel < 3; channel++) {
        int low = SHADES, high = 0;

        for (size_t i = first; i < first + n_bins; i++) {
            int shade = shade_of(&bins[i], channel);

            low = shade < low ? shade : low;
            high = shade > high ? shade : high;
        }
        if (high - low > g.range) {
            g.range = high - low;
            g.widest = channel;
        }
    }
    for (size_t i = first; i < first + n_bins; i++)
        g.n += bins[i].n;
    return g;
}

/* In two where half of its pixels are. */
static void cut_group(struct bin *bins, struct group *g, struct group *ret_rest)
{
    uint64_t seen = 0;
    size_t n = 0;

    qsort_r(bins + g->first, g->n_bins, sizeof(*bins), compare_bins, &g->widest);
    while (n < g->n_bins - 1 && (n == 0 || seen + bins[g->first + n].n <= g->n / 2))
        seen += bins[g->first + n++].n;
    *ret_rest = describe_group(bins, g->first + n, g->n_bins - n);
    *g = describe_group(bins, g->first, n);
}

static void make_palette(struct bin *bins, size_t n_bins, struct palette *palette)
{
    struct group groups[SIXEL_COLOURS] = { describe_group(bins, 0, n_bins) };

    for (palette->n = 1; palette->n < SIXEL_COLOURS; palette->n++) {
        size_t best = 0;

        for (size_t i = 1; i < palette->n; i++)
            if (groups[i].n * (unsigned)groups[i].range > groups[best].n * (unsigned)groups[best].range)
                best = i;
        if (groups[best].range == 0)
            break;
        cut_group(bins, &groups[best], &groups[palette->n]);
    }
    for (size_t i = 0; i < palette->n; i++) {
        uint64_t sum[3] = { 0 };

        for (size_t j = groups[i].first; j < groups[i].first + groups[i].n_bins; j++) {
            palette->of_bin[bins[j].id] = (unsigned char)i;
            for (int channel = 0; channel < 3; channel++)
                sum[channel] += bins[j].sum[channel];
        }
        for (int channel = 0; channel < 3; channel++)
            palette->rgb[i][channel] = (unsigned char)(sum[channel] / groups[i].n);
    }
}

static struct palette *choose_palette(const struct picture *picture)
{
    struct palette *palette = malloc(sizeof(*palette));
    struct bin *bins = calloc(N_BINS, sizeof(*bins));
    size_t n = 0;

    for (size_t i = 0; bins && i < (size_t)picture->width * picture->height; i++) {
        const unsigned char *rgb = picture->rgb + 3 * i;
        struct bin *bin = &bins[bin_of(rgb)];

        bin->id = bin_of(rgb);
        bin->n++;
        for (int channel = 0; channel < 3; channel++)
            bin->sum[channel] += rgb[channel];
    }
    for (size_t i = 0; bins && i < N_BINS; i++)
        if (bins[i].n)
            bins[n++] = bins[i];
    if (bins && palette)
        make_palette(bins, n, palette);
    if (!bins) {
        free(palette);
        palette = NULL;
    }
    free(bins);
    return palette;
}

/* --- sixels --- */

/* A sixel so many times; "!12~" is shorter from four on. */
static void add_repeated(struct text_buffer *to, char sixel, uint32_t n)
{
    if (n > 3)
        hutch_text_addf(to, "!%u%c", n, sixel);
    else
        hutch_text_add(to, (const char[]){ sixel, sixel, sixel }, n);
}

static void add_line(struct text_buffer *to, const unsigned char *bits, uint32_t width)
{
    uint32_t start = 0;

    while (width > 0 && !bits[width - 1])
        width--;
    for (uint32_t x = 1; x <= width; x++)
        if (x == width || bits[x] != bits[start]) {
            add_repeated(to, (char)('?' + bits[start]), x - start);
            start = x;
        }
}

/* Rows @top to @bottom: one line for each colour that is in them, over the others. @bits: @width bytes for each
 * colour, all 0. */
static void add_band(struct text_buffer *to, const struct picture *picture, const struct palette *palette, uint32_t top,
                     uint32_t bottom, unsigned char *bits)
{
    bool is_used[SIXEL_COLOURS] = { false }, is_first = true;

    for (uint32_t y = top; y < bottom; y++)
        for (uint32_t x = 0; x < picture->width; x++) {
            unsigned char colour = palette->of_bin[bin_of(picture->rgb + 3 * ((size_t)y * picture->width + x))];

            is_used[colour] = true;
            bits[(size_t)colour * picture->width + x] |= (unsigned char)(1u << (y - top));
        }
    for (size_t i = 0; i < palette->n; i++) {
        if (!is_used[i])
            continue;
        hutch_text_addf(to, "%s#%zu", is_first ? "" : "$", i);
        is_first = false;
        add_line(to, bits + i * picture->width, picture->width);
        memset(bits + i * picture->width, 0, picture->width);
    }
}

char *hutch_sixel_encode(const struct png_image *image, size_t *ret_len)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    struct picture picture = { .rgb = NULL };
    bool is_made = hutch_picture_make(image, SIXEL_MAX_SIDE, SIXEL_MAX_SIDE, &picture);
    auto_free struct palette *palette = is_made ? choose_palette(&picture) : NULL;
    auto_free unsigned char *bits = palette ? calloc(SIXEL_COLOURS, picture.width) : NULL;

    hutch_text_add_string(&text, START);
    for (size_t i = 0; bits && i < palette->n; i++)
        hutch_text_addf(&text, "#%zu;2;%d;%d;%d", i, palette->rgb[i][0] * 100 / 255, palette->rgb[i][1] * 100 / 255,
                        palette->rgb[i][2] * 100 / 255);
    for (uint32_t top = 0; bits && top < picture.height; top += BAND) {
        if (top > 0)
            hutch_text_add_string(&text, "-");
        add_band(&text, &picture, palette, top, top + BAND < picture.height ? top + BAND : picture.height, bits);
    }
    hutch_text_add_string(&text, END);
    hutch_picture_done(&picture);
    if (!bits) {
        hutch_text_done(&text);
        return NULL;
    }
    return hutch_text_take(&text, ret_len);
}
