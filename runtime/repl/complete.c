#include "runtime/repl/complete.h"

#include "runtime/repl/repl.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wctype.h>

#define COLUMNS 80 /* of a terminal that does not say */

/* --- the answer ------------------------------------------------------------------------------------------------- */

/* What names, attributes, magics, keys and paths are made of. No blank, and nothing that is not seen: a word would hide
 * behind it. The four letters are Hangul's fillers, which are as blank as U+3000 and letters to iswalnum(). */
static bool is_fit_character(unsigned code)
{
    if (code < 0x80)
        return isalnum((int)code) || (code && strchr("_.%/-~+=:,@'\"[]", (int)code));
    return iswalnum((wint_t)code) && code != 0x115f && code != 0x1160 && code != 0x3164 && code != 0xffa0;
}

static bool is_fit(const char *word, size_t len)
{
    for (size_t i = 0; i < len;) {
        enum utf8_kind kind;
        size_t n = hutch_utf8_next(word + i, len - i, &kind);

        if (kind != UTF8_CHAR || !is_fit_character(hutch_utf8_decode(word + i, n)))
            return false;
        i += n;
    }
    return true;
}

static void add_word(struct completion *c, const char *word, size_t len)
{
    for (size_t i = 0; i < c->n; i++)
        if (strlen(c->words[i]) == len && memcmp(c->words[i], word, len) == 0)
            return;
    if (c->n == COMPLETE_MAX_WORDS)
        c->is_cut = true;
    else if ((c->words[c->n] = strndup(word, len)))
        c->n++;
}

void hutch_completion_add(struct completion *c, const char *line, size_t len, const char *answer)
{
    size_t typed = strcspn(answer, "\n");
    const char *typed_word = line + len - typed;

    if (typed > len || memcmp(typed_word, answer, typed) != 0)
        return;
    c->typed = typed;
    for (answer += typed; *answer == '\n' && !c->is_cut;) {
        size_t n = strcspn(++answer, "\n");

        if (n > typed && n <= COMPLETE_MAX_LEN && memcmp(answer, typed_word, typed) == 0 && is_fit(answer, n))
            add_word(c, answer, n);
        answer += n;
    }
}

/* Bytes of the first @n characters. */
static size_t bytes_of(const char *line, size_t len, int64_t n)
{
    size_t at = 0;

    while (at < len && (n > 0 || ((unsigned char)line[at] & 0xc0) == 0x80))
        n -= ((unsigned char)line[at++] & 0xc0) != 0x80;
    return at;
}

void hutch_completion_read(struct completion *c, const char *line, size_t len, const char *json)
{
    static const struct nbjson_bounds bounds = { .max_len = 4u << 20, .max_depth = 8, .max_nodes = 10000 };
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *answer = NULL;
    const cJSON *matches, *match;
    int64_t start;
    size_t typed;
    cJSON *reply;
    struct hutch_err err;

    if (hutch_nbjson_parse("an answer", json, strlen(json), &bounds, &reply, &err) < 0)
        return;
    matches = cJSON_GetObjectItemCaseSensitive(reply, "matches");
    if (hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(reply, "cursor_start"), &start) && start >= 0) {
        typed = bytes_of(line, len, start);
        hutch_text_add(&t, line + typed, len - typed);
        cJSON_ArrayForEach(match, matches) {
            if (!cJSON_IsString(match) || strchr(match->valuestring, '\n'))
                continue;
            hutch_text_add_string(&t, "\n");
            hutch_text_add_string(&t, match->valuestring);
        }
        answer = hutch_text_take(&t, NULL);
    }
    cJSON_Delete(reply);
    if (answer)
        hutch_completion_add(c, line, len, answer);
}

char *hutch_completion_rest(const struct completion *c)
{
    size_t len = c->n > 0 && !c->is_cut ? strlen(c->words[0]) : c->typed;

    for (size_t i = 1; i < c->n; i++)
        for (size_t at = c->typed; at < len; at++)
            if (c->words[i][at] != c->words[0][at]) /* the NUL at the end of a shorter one, too */
                len = at;
    while (len > c->typed && ((unsigned char)c->words[0][len] & 0xc0) == 0x80) /* not within a letter */
        len--;
    return len > c->typed ? strndup(c->words[0] + c->typed, len - c->typed) : NULL;
}

void hutch_completion_done(struct completion *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i]);
    c->n = 0;
}

/* --- what is seen of it ------------------------------------------------------------------------------------------ */

static size_t count_letters(const char *word)
{
    size_t n = 0;

    for (; *word; word++)
        n += ((unsigned char)*word & 0xc0) != 0x80;
    return n;
}

/* In columns, without what stands before the last dot in all of them. */
static void show_words(struct repl *r, const struct completion *c)
{
    struct winsize window = { .ws_col = 0 };
    size_t common = 0, widest = 0, per_line, columns = COLUMNS;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        columns = window.ws_col;
    for (size_t at = 0; at < c->typed; at++)
        common = c->words[0][at] == '.' ? at + 1 : common;
    for (size_t i = 0; i < c->n; i++) {
        size_t n = count_letters(c->words[i] + common);

        widest = n > widest ? n : widest;
    }
    per_line = columns / (widest + 2);
    per_line += per_line == 0;
    hutch_cell_show_end(&r->show);
    for (size_t i = 0; i < c->n; i++) {
        const char *word = c->words[i] + common;
        bool is_last = (i + 1) % per_line == 0 || i + 1 == c->n;

        hutch_cell_show_bytes(&r->show, 1, word, strlen(word));
        for (size_t n = is_last ? widest + 2 : count_letters(word); n < widest + 2; n++)
            hutch_cell_show_raw(&r->show, " ", 1);
        if (is_last)
            hutch_cell_show_raw(&r->show, "\n", 1);
    }
    if (c->is_cut)
        hutch_cell_show_say(&r->show, "and more");
}

char *hutch_repl_complete(void *user, const char *line, size_t len, bool *ret_was_shown)
{
    struct repl *r = user;
    struct cell_show_stream *out = &r->show.streams[0];
    struct completion c = { .n = 0 };
    bool is_ours = r->is_in_magic || hutch_repl_is_magic(line, len); /* it acts on this machine */
    auto_free char *own = hutch_repl_magic_names(line, len), *answer = NULL;
    char *rest;

    out->is_in_line = true; /* behind the prompt, and what has to be said begins a line of its own */
    answer = is_ours ? NULL : hutch_repl_ask(r, line, len);
    if (answer)
        hutch_completion_read(&c, line, len, answer);
    if (own)
        hutch_completion_add(&c, line, len, own);
    rest = hutch_completion_rest(&c);
    if (!rest && (c.n > 1 || c.is_cut))
        show_words(r, &c);
    hutch_repl_wait(r);
    *ret_was_shown = !out->is_in_line;
    out->is_in_line = false;
    hutch_completion_done(&c);
    return rest;
}
