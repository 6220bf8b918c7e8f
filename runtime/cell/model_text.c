#include "runtime/cell/model_text.h"

#include "runtime/text/ansi.h"
#include "runtime/text/buffer.h"
#include "runtime/text/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Of a character of so many bytes. */
static uint64_t char_cost(size_t len)
{
    return len == 1 ? 1 : len < 4 ? 4 : 8;
}

/* The length of the character that begins at @text, in valid UTF-8. */
static size_t char_len(const char *text)
{
    unsigned char c = (unsigned char)*text;

    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

uint64_t hutch_cell_text_cost(const char *text, size_t len)
{
    uint64_t cost = 0;

    for (size_t i = 0, step; i < len; i += step) {
        step = char_len(text + i);
        cost += char_cost(step);
    }
    return cost;
}

static uint32_t code_point(const char *text, size_t len)
{
    uint32_t code = (unsigned char)text[0] & (0xffu >> (len + 1));

    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)text[i] & 63);
    return code;
}

/* Characters that are not seen: controls, marks that turn the direction of writing, spaces of no width, and tags, in
 * which orders to a model can be hidden. Joiners stay, as scripts and emoji need them. */
static bool is_invisible(uint32_t code)
{
    return (code >= 0x7f && code < 0xa0) || code == 0x200b || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || (code >= 0xe0000 && code < 0xe0100);
}

void hutch_cell_text_add_clean(struct text_buffer *to, const char *text, size_t len)
{
    size_t from = 0;

    for (size_t i = 0, step; i < len; i += step) {
        enum utf8_kind kind;
        unsigned char c = (unsigned char)text[i];

        step = 1;
        if ((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t')
            continue;
        step = c == 0x1b ? hutch_ansi_len(text + i, len - i) : hutch_utf8_next(text + i, len - i, &kind);
        if (c >= 0x80 && kind == UTF8_CHAR && !is_invisible(code_point(text + i, step)))
            continue;
        hutch_text_add(to, text + from, i - from);
        if (c >= 0x80 && kind != UTF8_CHAR)
            hutch_text_add_string(to, UTF8_REPLACEMENT);
        from = i + step;
    }
    hutch_text_add(to, text + from, len - from);
}

/* ---- leaving out the middle ---- */

/* How many bytes from the beginning cost at most @budget. */
static size_t head_len(const char *text, size_t len, uint64_t budget)
{
    size_t i = 0;

    while (i < len) {
        size_t step = char_len(text + i);
        uint64_t cost = char_cost(step);

        if (cost > budget)
            break;
        budget -= cost;
        i += step;
    }
    return i;
}

/* How many bytes at the end do. */
static size_t tail_len(const char *text, size_t len, uint64_t budget)
{
    size_t i = len;

    while (i > 0) {
        size_t at = i - 1;
        uint64_t cost;

        while ((text[at] & 0xc0) == 0x80)
            at--;
        cost = char_cost(i - at);
        if (cost > budget)
            break;
        budget -= cost;
        i = at;
    }
    return len - i;
}

static size_t count_chars(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

static size_t count_lines(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    return n;
}

/* What a note that something is missing costs at most, in quarters: "[… 18446744073709551615 characters left out
 * …]", and a newline. Where that would be most of the text it is "[…]". */
#define MAX_NOTE 60
#define SHORT_NOTE "[…]"
#define SHORT_NOTE_COST 7

void hutch_cell_text_add_shortened(struct text_buffer *to, const char *text, size_t len, uint64_t budget)
{
    size_t head = head_len(text, len, budget), tail;
    bool has_lines, is_short = budget < 2 * MAX_NOTE;
    const char *line;
    char note[80];

    if (head == len || budget < 3 * SHORT_NOTE_COST) { /* no room for saying that something is missing */
        hutch_text_add(to, text, head);
        return;
    }
    budget -= is_short ? SHORT_NOTE_COST : MAX_NOTE;
    head = head_len(text, len, budget / 2);
    tail = tail_len(text, len, budget - budget / 2);
    /* at line ends, unless that takes away more than half */
    line = memrchr(text, '\n', head);
    has_lines = line != NULL && (size_t)(line + 1 - text) >= head / 2;
    if (has_lines)
        head = (size_t)(line + 1 - text);
    line = memchr(text + len - tail, '\n', tail);
    if (line != NULL && (size_t)(text + len - (line + 1)) >= tail / 2 && line + 1 < text + len)
        tail = (size_t)(text + len - (line + 1));
    else
        has_lines = false;
    hutch_text_add(to, text, head);
    if (is_short)
        strcpy(note, has_lines ? SHORT_NOTE "\n" : SHORT_NOTE);
    else if (has_lines)
        snprintf(note, sizeof(note), "[… %zu lines left out …]\n", count_lines(text + head, len - head - tail));
    else
        snprintf(note, sizeof(note), "[… %zu characters left out …]", count_chars(text + head, len - head - tail));
    hutch_text_add_string(to, note);
    hutch_text_add(to, text + len - tail, tail);
}
