#include "runtime/repl/prompt.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <wchar.h>

#define REPLACEMENT       0xfffd /* what stands for bytes that are no UTF-8 */
#define LITERAL           '\001' /* around what libedit passes on as it is */
#define GREEN             "\001\033[32m\001"
#define PLAIN             "\001\033[0m\001"
#define HISTORY_MAX_BYTES (4 * PROMPT_HISTORY_LINES * PROMPT_HISTORY_LINE) /* the file writes some bytes as four */

struct prompt {
    EditLine *el;
    History *history;
    char *path; /* owned; of the history */
    prompt_wait_fn *wait;
    prompt_complete_fn *complete;
    void *user;
    mbstate_t letter;
    bool was_stopped;
    bool has_colours;
    bool marks_pastes; /* the terminal is asked to */
    bool is_pasting;
    char ahead[6];     /* read, and no mark of a paste */
    size_t at_ahead, n_ahead;
    char text[160];
};

static struct prompt *prompt_of(EditLine *el)
{
    void *prompt = NULL;

    el_get(el, EL_CLIENTDATA, &prompt);
    return prompt;
}

static char *prompt_text(EditLine *el)
{
    return prompt_of(el)->text;
}

/* What a terminal puts around a text that is pasted, once ESC [ ? 2004 h has asked for it. Its fifth character: '0' or
 * '1'. */
#define PASTE_BEGINS "\033[200~"
#define PASTE_ENDS   "\033[201~"
#define PASTE_LEN    6
#define ESC_MS       20 /* the Escape key is followed by nothing for so long, a mark comes at once */

/* One byte at a time, so that what is typed ahead of the next prompt stays with the terminal. As read(2). */
static ssize_t read_byte(char *ret)
{
    ssize_t n;

    do
        n = read(STDIN_FILENO, ret, 1);
    while (n < 0 && errno == EINTR);
    return n;
}

/* The first byte of what may be a mark has been read: the rest of it, or, into @ahead, what it is instead. True: it
 * was a mark. */
static bool take_mark(struct prompt *p)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };

    p->ahead[0] = PASTE_BEGINS[0];
    p->at_ahead = 0;
    for (p->n_ahead = 1; p->n_ahead < PASTE_LEN; p->n_ahead++) {
        if (poll(&in, 1, ESC_MS) <= 0 || read_byte(&p->ahead[p->n_ahead]) != 1)
            return false;
        if (memcmp(p->ahead, PASTE_BEGINS, p->n_ahead + 1) != 0 && memcmp(p->ahead, PASTE_ENDS, p->n_ahead + 1) != 0) {
            p->n_ahead++;
            return false;
        }
    }
    p->is_pasting = p->ahead[4] == '0';
    p->n_ahead = 0;
    return true;
}

static int get_char(EditLine *el, wchar_t *ret)
{
    struct prompt *p = prompt_of(el);

    for (;;) {
        ssize_t n = 1;
        size_t len;
        char c;

        if (p->at_ahead < p->n_ahead) {
            c = p->ahead[p->at_ahead++];
        } else {
            if (!p->wait(p->user)) {
                p->was_stopped = true;
                errno = EINTR;
                return -1;
            }
            n = read_byte(&c);
            if (n < 0 && errno == EAGAIN)
                continue;
            if (n <= 0)
                return (int)n;
            if (c == PASTE_BEGINS[0] && p->marks_pastes) {
                take_mark(p);
                continue;
            }
        }
        len = mbrtowc(ret, &c, 1, &p->letter);
        if (len == (size_t)-1) { /* a byte that is dropped would make another program of what was typed */
            memset(&p->letter, 0, sizeof(p->letter));
            *ret = REPLACEMENT;
        }
        if (len != (size_t)-2)
            return 1;
    }
}

static void load_history(struct prompt *p)
{
    HistEvent event;
    struct stat st;

    if (p->path && stat(p->path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= HISTORY_MAX_BYTES)
        history(p->history, &event, H_LOAD, p->path);
}

/* Tab. At the beginning of a line it indents, and in a pasted text it is what it is. */
static unsigned char complete_word(EditLine *el, int key)
{
    struct prompt *p = prompt_of(el);
    const LineInfo *line = el_line(el);
    size_t len = (size_t)(line->cursor - line->buffer);
    auto_free char *rest = NULL;
    bool was_shown = false;

    (void)key;
    if (p->is_pasting || strspn(line->buffer, " \t") >= len)
        return el_insertstr(el, "\t") < 0 ? CC_ERROR : CC_REFRESH;
    rest = p->complete(p->user, line->buffer, len, &was_shown);
    if (rest && el_insertstr(el, rest) < 0)
        return CC_ERROR;
    if (!was_shown)
        return rest ? CC_REFRESH : CC_ERROR;
    hutch_prompt_redraw(p, false, false);
    return CC_NORM;
}

int hutch_prompt_open(const char *path, prompt_wait_fn *wait, prompt_complete_fn *complete, void *user,
                      bool has_colours, struct prompt **ret, struct hutch_err *err)
{
    struct prompt *p = calloc(1, sizeof(*p));
    const char *term = getenv("TERM");
    HistEvent event;

    if (!p)
        return hutch_err_set(err, ENOMEM, "make a prompt");
    /* Python's source is UTF-8 whatever the locale says. This locale is a part of glibc since 2.35, and of musl. */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    p->marks_pastes = term && *term && strcmp(term, "dumb") != 0;
    p->wait = wait;
    p->complete = complete;
    p->has_colours = has_colours;
    p->user = user;
    p->path = path ? strdup(path) : NULL;
    p->history = history_init();
    p->el = el_init("hutch", stdin, stdout, stderr);
    if (!p->history || !p->el || (path && !p->path)) {
        hutch_prompt_free(p);
        return hutch_err_set(err, ENOMEM, "make a prompt");
    }
    history(p->history, &event, H_SETSIZE, PROMPT_HISTORY_LINES);
    history(p->history, &event, H_SETUNIQUE, 1);
    load_history(p);
    el_set(p->el, EL_CLIENTDATA, p);
    el_set(p->el, EL_PROMPT_ESC, prompt_text, LITERAL);
    el_set(p->el, EL_EDITOR, "emacs");
    el_set(p->el, EL_SIGNAL, 0);
    el_set(p->el, EL_HIST, history, p->history);
    el_set(p->el, EL_GETCFN, get_char);
    el_set(p->el, EL_ADDFN, "hutch-complete", "complete a word of Python", complete_word);
    el_set(p->el, EL_BIND, "\t", "hutch-complete", NULL);
    el_set(p->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(p->el, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
    el_source(p->el, NULL);
    *ret = p;
    return 0;
}

int hutch_prompt_save(struct prompt *p, struct hutch_err *err)
{
    auto_free char *part = NULL;
    auto_fd fd = -1;
    HistEvent event;
    FILE *file;
    int rc;

    if (!p->path)
        return 0;
    if (asprintf(&part, "%s.%d", p->path, (int)getpid()) < 0) {
        part = NULL;
        return hutch_err_set(err, ENOMEM, "write the history");
    }
    unlink(part); /* of a process before us that had our number */
    fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        return hutch_err_set(err, errno, "write the history '%s'", part);
    hutch_fd_take(&fd);
    rc = history(p->history, &event, H_SAVE_FP, file);
    if (fclose(file) != 0 || rc < 0 || rename(part, p->path) < 0) {
        hutch_err_set(err, errno, "write the history '%s'", p->path);
        unlink(part);
        return -1;
    }
    return 0;
}

void hutch_prompt_free(struct prompt *p)
{
    if (!p)
        return;
    if (p->el)
        el_end(p->el);
    if (p->history)
        history_end(p->history);
    free(p->path);
    free(p);
}

static void mark_pastes(const struct prompt *p, bool is_on)
{
    if (!p->marks_pastes)
        return;
    fputs(is_on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

bool hutch_prompt_is_pasting(const struct prompt *p)
{
    return p->is_pasting;
}

/* libedit wants a character behind what it passes on as it is, so the blank at the end has no colour. */
static void write_text(struct prompt *p, const char *text)
{
    int len = (int)strlen(text);

    if (p->has_colours && len > 0)
        snprintf(p->text, sizeof(p->text), GREEN "%.*s" PLAIN "%s", len - 1, text, text + len - 1);
    else
        snprintf(p->text, sizeof(p->text), "%s", text);
}

enum prompt_end hutch_prompt_read(struct prompt *p, const char *text, const char **ret_line, size_t *ret_len)
{
    int len = 0;

    write_text(p, text);
    p->was_stopped = false;
    memset(&p->letter, 0, sizeof(p->letter));
    el_set(p->el, EL_PREP_TERM, 1); /* el_gets() does it after the prompt: what is typed between the two would be shown
                                     * twice */
    mark_pastes(p, true);
    *ret_line = el_gets(p->el, &len);
    mark_pastes(p, false);
    *ret_len = len > 0 ? (size_t)len : 0;
    if (p->was_stopped) {
        p->is_pasting = false;
        p->n_ahead = 0;
        el_reset(p->el);
        return PROMPT_STOPPED;
    }
    return *ret_line && len > 0 ? PROMPT_LINE : PROMPT_EOF;
}

void hutch_prompt_remember(struct prompt *p, const char *line, size_t len)
{
    auto_free char *text = NULL;
    HistEvent event;

    while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == ' '))
        len--;
    if (len == 0 || len > PROMPT_HISTORY_LINE)
        return;
    text = strndup(line, len);
    if (text)
        history(p->history, &event, H_ENTER, text);
}

void hutch_prompt_redraw(struct prompt *p, bool is_resized, bool is_lost)
{
    if (is_resized)
        el_resize(p->el);
    if (is_lost)
        el_set(p->el, EL_PREP_TERM, 1);
    if (!is_resized)
        el_set(p->el, EL_REFRESH);
}
