#include "runtime/term/filter.h"

#include "runtime/text/ansi.h"
#include "runtime/text/utf8.h"

#include <stdio.h>
#include <string.h>

#define ESC 0x1b

/* What the pending bytes and @c make together. */
enum step {
    STEP_MORE,   /* something that goes on */
    STEP_LETTER, /* a whole letter, or a whole sequence for colours */
    STEP_COLOUR,
    STEP_BROKEN, /* the pending bytes are nothing, and @c begins anew */
};

static enum step take_char(const struct term_filter *f, char c)
{
    char letter[5];
    enum utf8_kind kind;

    if (f->n_pending && f->pending[0] == ESC) {
        if (f->n_pending == 1)
            return c == '[' ? STEP_MORE : STEP_BROKEN;
        if (c == 'm')
            return STEP_COLOUR;
        return ((c >= '0' && c <= '9') || c == ';' || c == ':') && f->n_pending + 1 < TERM_SEQUENCE_MAX ? STEP_MORE
                                                                                                        : STEP_BROKEN;
    }
    if (f->n_pending == 0 && c == ESC)
        return STEP_MORE;
    memcpy(letter, f->pending, f->n_pending); /* 3 bytes at most */
    letter[f->n_pending] = c;
    hutch_utf8_next(letter, f->n_pending + 1, &kind);
    return kind == UTF8_CUT ? STEP_MORE : kind == UTF8_BROKEN && f->n_pending ? STEP_BROKEN : STEP_LETTER;
}

/* Whether a terminal that takes each byte for a character finds one of C1 among them. */
static bool has_control_byte(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)bytes[i] >= 0x80 && (unsigned char)bytes[i] < 0xa0)
            return true;
    return false;
}

static void show_letter(struct term_filter *f, const char *bytes, size_t len, term_sink_fn *sink, void *user)
{
    unsigned c = hutch_utf8_decode(bytes, len);
    bool is_obeyed = !f->has_utf8 && has_control_byte(bytes, len);
    char text[16];

    if (c == '\n' || c == '\t' || c == '\r' || (c >= 0x20 && c < 0x7f))
        sink(user, bytes, len);
    else if (c < 0x20 || c == 0x7f)
        sink(user, text, (size_t)snprintf(text, sizeof(text), "^%c", (int)(c ^ 0x40)));
    else if (c < 0xa0)
        sink(user, text, (size_t)snprintf(text, sizeof(text), "\\x%02x", c));
    else if (hutch_ansi_obeys(c) || (is_obeyed && c < 0x10000))
        sink(user, text, (size_t)snprintf(text, sizeof(text), "\\u%04x", c));
    else if (is_obeyed)
        sink(user, text, (size_t)snprintf(text, sizeof(text), "\\U%08x", c));
    else
        sink(user, bytes, len);
}

static void show_byte(struct term_filter *f, char byte, term_sink_fn *sink, void *user)
{
    if ((unsigned char)byte < 0x80)
        show_letter(f, &byte, 1, sink, user);
    else
        show_letter(f, UTF8_REPLACEMENT, 3, sink, user);
}

/* Part of a letter is one letter that cannot be read; part of a sequence is the text that it is made of. */
static void show_pending(struct term_filter *f, term_sink_fn *sink, void *user)
{
    size_t n = f->n_pending && f->pending[0] != ESC ? 1 : f->n_pending;

    f->n_pending = 0;
    for (size_t i = 0; i < n; i++)
        show_byte(f, f->pending[i], sink, user);
}

static void show_colour(struct term_filter *f, const char *sequence, size_t len, term_sink_fn *sink, void *user)
{
    if (!f->has_colours)
        return;
    f->is_coloured = len > 3 && !(len == 4 && sequence[2] == '0'); /* ESC [ m and ESC [ 0 m end them */
    sink(user, sequence, len);
}

void hutch_term_filter(struct term_filter *f, const char *text, size_t len, term_sink_fn *sink, void *user)
{
    size_t i = 0;

    while (i < len) {
        size_t plain = i;
        enum step step;

        /* Most of it is this, and goes out as one piece. */
        while (f->n_pending == 0 && plain < len && ((text[plain] >= 0x20 && text[plain] < 0x7f) || text[plain] == '\n'))
            plain++;
        if (plain > i) {
            sink(user, text + i, plain - i);
            i = plain;
            continue;
        }
        step = take_char(f, text[i]);
        if (step == STEP_BROKEN) {
            show_pending(f, sink, user);
            continue;
        }
        f->pending[f->n_pending++] = text[i++];
        if (step == STEP_MORE)
            continue;
        if (step == STEP_COLOUR)
            show_colour(f, f->pending, f->n_pending, sink, user);
        else if (f->n_pending == 1)
            show_byte(f, f->pending[0], sink, user);
        else
            show_letter(f, f->pending, f->n_pending, sink, user);
        f->n_pending = 0;
    }
}

void hutch_term_filter_end(struct term_filter *f, term_sink_fn *sink, void *user)
{
    show_pending(f, sink, user);
    if (f->is_coloured)
        sink(user, "\x1b[0m", 4);
    f->is_coloured = false;
}
