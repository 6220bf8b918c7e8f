#include "runtime/repl/repl.h"

#include "runtime/repl/copy.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_WORDS  64

/* --- words ------------------------------------------------------------------------------------------------------ */

/* As a shell has them, with quotes and backslashes and nothing else; "~/" is the home directory. @line is written
 * over. -1: an open quote, or too many. */
static int split_words(char *line, char *words[MAX_WORDS + 1])
{
    char *to = line, quote = '\0';
    int n = 0;

    for (char *p = line;;) {
        while (*p == ' ' || *p == '\t' || *p == '\n')
            p++;
        if (!*p)
            break;
        if (n == MAX_WORDS)
            return -1;
        words[n++] = to;
        for (; *p && (quote || !strchr(" \t\n", *p)); p++) {
            if (*p == '\\' && quote != '\'' && p[1])
                *to++ = *++p;
            else if (quote ? *p == quote : *p == '\'' || *p == '"')
                quote = quote ? '\0' : *p;
            else
                *to++ = *p;
        }
        if (quote)
            return -1;
        if (*p)
            p++;
        *to++ = '\0';
    }
    words[n] = NULL;
    return n;
}

/* The caller frees it; NULL: ENOMEM. */
static char *host_path(const char *word)
{
    const char *home = getenv("HOME");
    char *path;

    if (strncmp(word, "~/", 2) == 0 && home && *home)
        return asprintf(&path, "%s%s", home, word + 1) < 0 ? NULL : path;
    return strdup(word);
}

/* --- files ------------------------------------------------------------------------------------------------------ */

static bool is_called_off(void *repl)
{
    return hutch_repl_is_interrupted(repl);
}

static void upload_one(struct repl *r, const char *word)
{
    auto_free char *path = host_path(word);
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    auto_fd from = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    struct hutch_err err = { 0 };
    struct stat st;
    uint64_t bytes = 0;

    if (from < 0 || fstat(from, &st) < 0) {
        hutch_cell_show_say(&r->show, "open '%s': %s", word, strerror(path ? errno : ENOMEM));
        return;
    }
    if (!S_ISREG(st.st_mode)) {
        hutch_cell_show_say(&r->show, "'%s' is not a regular file", word);
        return;
    }
    if (r->host->kind->put_file(r->host, name, from, (uint64_t)st.st_size, is_called_off, r, &bytes, &err) < 0)
        hutch_cell_show_say(&r->show, "copy '%s': %s", word, err.msg);
    else
        hutch_cell_show_say(&r->show, INSIDE_DATA_DIR "/%s: %" PRIu64 " bytes", name, bytes);
}

static void do_upload(struct repl *r, char **words, int n)
{
    if (!hutch_repl_prepare(r))
        return;
    for (int i = 0; i < n && r->has_session; i++)
        upload_one(r, words[i]);
}

/* Where a file named @name inside goes to on the host. A path that the user has named himself may be there already. */
static int open_target(const char *name, const char *to, char **ret_path, struct hutch_err *err)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    auto_free char *path = to ? host_path(to) : NULL;
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, fd;
    struct stat st;

    *ret_path = NULL;
    if (to && !path)
        return hutch_err_set(err, ENOMEM, "save '%s'", name);
    if (!to || (stat(path, &st) == 0 && S_ISDIR(st.st_mode))) {
        flags |= O_EXCL;
        if (asprintf(ret_path, "%s%s%s", to ? path : "", to ? "/" : "", base) < 0)
            *ret_path = NULL;
    } else {
        *ret_path = path;
        path = NULL;
    }
    if (!*ret_path)
        return hutch_err_set(err, ENOMEM, "save '%s'", name);
    fd = open(*ret_path, flags, 0666);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || ftruncate(fd, 0) < 0)) {
        close(fd);
        return hutch_err_set(err, 0, "'%s' is not a regular file", *ret_path);
    }
    if (fd < 0 && errno == EEXIST)
        return hutch_err_set(err, 0, "'%s' is there already; another name: %%download NAME TO", *ret_path);
    return fd >= 0 ? fd : hutch_err_set(err, errno, "make the file '%s'", *ret_path);
}

static void do_download(struct repl *r, char **words, int n)
{
    static const char inside[] = INSIDE_DATA_DIR "/";
    const char *name = strncmp(words[0], inside, strlen(inside)) == 0 ? words[0] + strlen(inside) : words[0];
    struct host_file from = HOST_FILE_INIT;
    struct hutch_err err = { 0 };
    auto_free char *path = NULL;
    auto_fd to = -1;
    uint64_t bytes;

    if (!hutch_repl_prepare(r))
        return;
    if (r->host->kind->open_file(r->host, name, &from, &err) < 0) {
        hutch_cell_show_say(&r->show, "%s", err.msg);
        return;
    }
    to = open_target(name, n > 1 ? words[1] : NULL, &path, &err);
    /* No more than it has now: it may grow as fast as it is read. */
    if (to < 0 || (hutch_repl_copy(from.fd, to, from.size, is_called_off, r, &bytes, &err) < 0 && err.errnum != EFBIG))
        hutch_cell_show_say(&r->show, "%s", err.msg);
    else if (from.is_counted && bytes < from.size)
        hutch_cell_show_say(&r->show, "%s is not whole: %" PRIu64 " of %" PRIu64 " bytes", path, bytes, from.size);
    else
        hutch_cell_show_say(&r->show, "%s: %" PRIu64 " bytes", path, bytes);
    hutch_fd_closep(&from.fd);
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(value) ? value->valuestring : NULL;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static void show_file(struct repl *r, const cJSON *file)
{
    const char *path = text_of(file, "path"), *type = text_of(file, "type");
    time_t changed = (time_t)number_of(file, "mtime");
    char left[80], when[32];
    struct tm tm;

    if (!localtime_r(&changed, &tm) || strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm) == 0)
        strcpy(when, "?");
    hutch_cell_show_bytes(&r->show, 1, left,
                          (size_t)snprintf(left, sizeof(left), "%12.0f  %-16s  ", number_of(file, "size"), when));
    for (; path && *path; path++) /* one file, one line */
        hutch_cell_show_bytes(&r->show, 1, *path == '\n' || *path == '\r' ? "?" : path, 1);
    if (type && strcmp(type, "file") != 0)
        hutch_cell_show_bytes(&r->show, 1, left, (size_t)snprintf(left, sizeof(left), "  (%.30s)", type));
    hutch_cell_show_bytes(&r->show, 1, "\n", 1);
}

static void do_files(struct repl *r, char **words, int n)
{
    auto_free char *json = NULL;
    struct hutch_err err;
    cJSON *files, *file;

    (void)words;
    (void)n;
    if (!hutch_repl_prepare(r))
        return;
    json = r->host->kind->files(r->host, &err);
    if (!json) {
        hutch_cell_show_say(&r->show, "%s", err.msg);
        return;
    }
    if (hutch_nbjson_parse("the list of files", json, strlen(json), &NBJSON_NOTEBOOK, &files, &err) < 0) {
        hutch_cell_show_say(&r->show, "%s", err.msg);
        return;
    }
    cJSON_ArrayForEach(file, files) {
        show_file(r, file);
    }
    cJSON_Delete(files);
}

/* --- state ------------------------------------------------------------------------------------------------------ */

static void do_reset(struct repl *r, char **words, int n)
{
    struct hutch_err err;

    (void)words;
    (void)n;
    if (r->host->kind->restart(r->host, &err) < 0) {
        hutch_cell_show_say(&r->show, "%s", err.msg);
        return;
    }
    hutch_repl_begin_anew(r);
    hutch_cell_show_say(&r->show, "variables and checkpoints are gone, files are there");
}

bool hutch_repl_is_context(const char *name)
{
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");

    return len > 0 && len < REPL_CONTEXT_SIZE && !name[len];
}

static void do_context(struct repl *r, char **words, int n)
{
    if (n == 0)
        hutch_cell_show_say(&r->show, "the context is '%s'", r->context);
    else if (hutch_repl_is_context(words[0]))
        strcpy(r->context, words[0]);
    else
        hutch_cell_show_say(&r->show, "'%s' is no name for a context: 1 to %d letters, digits, '_' and '-'", words[0],
                            REPL_CONTEXT_SIZE - 1);
}

struct answer {
    struct repl *r;
    const char *what;   /* "checkpoint 3", without the number where there is none yet */
    bool tells_id, has_come, is_ok;
};

static void on_reply(void *user, uint64_t session, const struct hutch_reply *reply)
{
    struct answer *a = user;
    struct cell_show *show = &a->r->show;
    struct hutch_err err;
    cJSON *lost = NULL, *sentence;
    char number[24] = "";

    (void)session;
    a->r->is_busy = false;
    a->has_come = true;
    a->is_ok = reply->ok;
    if (!reply->ok) {
        hutch_cell_show_say(show, "%s", reply->message);
        return;
    }
    if (a->tells_id) {
        a->r->n_copies++;
        hutch_repl_counts_copy(&a->r->counts, a->r->branch, reply->id);
        snprintf(number, sizeof(number), " %" PRIu64, reply->id);
    }
    hutch_cell_show_say(show, "%s%s, in %.1f ms; %" PRIu64 " bytes of files", a->what, number, reply->ms, reply->bytes);
    if (hutch_nbjson_parse("what is lost", reply->lost, strlen(reply->lost), &NBJSON_NOTEBOOK, &lost, &err) < 0)
        return;
    cJSON_ArrayForEach(sentence, lost) {
        if (cJSON_IsString(sentence))
            hutch_cell_show_say(show, "not in it: %s", sentence->valuestring);
    }
    cJSON_Delete(lost);
}

/* Gives the order and waits for its answer, which may come at once. */
static void give_order(struct repl *r, struct answer *a, enum host_order order, uint64_t which)
{
    struct hutch_err err;
    int rc = r->host->kind->order(r->host, order, which, on_reply, a, &err);

    r->is_busy = rc == 0 && !a->has_come;
    if (rc < 0)
        hutch_cell_show_say(&r->show, "%s", err.msg);
    hutch_repl_wait(r);
}

static bool take_number(struct repl *r, const char *word, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = isdigit((unsigned char)*word) ? strtoull(word, &end, 10) : 0;
    if (isdigit((unsigned char)*word) && !*end && errno == 0)
        return true;
    hutch_cell_show_say(&r->show, "'%s' is not a number", word);
    return false;
}

static void do_checkpoint(struct repl *r, char **words, int n)
{
    struct answer a = { .r = r, .what = "checkpoint", .tells_id = true };

    (void)words;
    (void)n;
    give_order(r, &a, HOST_CHECKPOINT, 0);
}

static void do_fork(struct repl *r, char **words, int n)
{
    struct answer a = { .r = r, .what = "branch", .tells_id = true };

    (void)words;
    (void)n;
    give_order(r, &a, HOST_FORK, 0);
}

/* Gives @order about the checkpoint or branch @word. True when it was carried out. */
static bool order_by_number(struct repl *r, enum host_order order, const char *word, const char *what, uint64_t *ret_id)
{
    struct answer a = { .r = r, .what = what };

    if (take_number(r, word, ret_id))
        give_order(r, &a, order, *ret_id);
    return a.is_ok;
}

static void do_rollback(struct repl *r, char **words, int n)
{
    uint64_t id;

    (void)n;
    if (!order_by_number(r, HOST_ROLLBACK, words[0], "rolled back", &id))
        return;
    hutch_repl_counts_copy(&r->counts, id, r->branch);
    r->was_death_told = false;
}

static void do_switch(struct repl *r, char **words, int n)
{
    uint64_t id;

    (void)n;
    if (!order_by_number(r, HOST_SWITCH, words[0], "switched", &id))
        return;
    if (r->was_death_told) /* the branch before is no more */
        r->n_copies--;
    r->branch = id;
    r->was_death_told = false;
}

static void do_drop(struct repl *r, char **words, int n)
{
    uint64_t id;

    (void)n;
    if (!order_by_number(r, HOST_DROP, words[0], "dropped", &id))
        return;
    hutch_repl_counts_drop(&r->counts, id);
    r->n_copies--;
}

static void do_help(struct repl *r, char **words, int n);

static const struct {
    const char *name, *arguments;
    int min_words, max_words;
    void (*run)(struct repl *r, char **words, int n);
    const char *help;
} magics[] = {
    { "upload", "FILE...", 1, MAX_WORDS, do_upload, "copy files of this machine into " INSIDE_DATA_DIR },
    { "download", "NAME [TO]", 1, 2, do_download, "copy a file out of it, into this directory or TO" },
    { "files", "", 0, 0, do_files, "list what is in it" },
    { "reset", "[-f]", 0, 1, do_reset, "start the interpreter again: variables and checkpoints go, files stay" },
    { "context", "[NAME]", 0, 1, do_context, "go on with the variables of another context" },
    { "checkpoint", "", 0, 0, do_checkpoint, "keep variables and files as they are now" },
    { "rollback", "N", 1, 1, do_rollback, "go back to checkpoint N, as often as wanted" },
    { "fork", "", 0, 0, do_fork, "make a branch that has variables and files as they are now" },
    { "switch", "N", 1, 1, do_switch, "go on in branch N; 0 is the first" },
    { "drop", "N", 1, 1, do_drop, "forget checkpoint or branch N" },
    { "help", "", 0, 0, do_help, "this list" },
};

static void do_help(struct repl *r, char **words, int n)
{
    char line[160];

    (void)words;
    (void)n;
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
        char left[40];

        snprintf(left, sizeof(left), "%%%s %s", magics[i].name, magics[i].arguments);
        hutch_cell_show_bytes(&r->show, 1, line,
                              (size_t)snprintf(line, sizeof(line), "  %-20s %s\n", left, magics[i].help));
    }
    snprintf(line, sizeof(line),
             "Ctrl-C interrupts a cell, Ctrl-\\ ends its interpreter, Ctrl-D ends hutch. Other lines with %% are "
             "IPython's: %%run FILE.\n");
    hutch_cell_show_bytes(&r->show, 1, line, strlen(line));
}

char *hutch_repl_magic_names(const char *line, size_t len)
{
    struct text_buffer names = TEXT_BUFFER_INIT;

    if (len == 0 || line[0] != '%' || memchr(line, ' ', len))
        return NULL;
    hutch_text_add(&names, line, len);
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
        hutch_text_addf(&names, "\n%%%s", magics[i].name);
    return hutch_text_take(&names, NULL);
}

/* The row of a line of ours; ARRAY_SIZE(magics): it is another one. */
static size_t find_magic(const char *line, size_t len)
{
    size_t end = 0, row = 0;

    while (end < len && line[end] && !strchr(" \t\n", line[end]))
        end++;
    if (end == 0 || line[0] != '%')
        return ARRAY_SIZE(magics);
    while (row < ARRAY_SIZE(magics) &&
           (strlen(magics[row].name) != end - 1 || memcmp(magics[row].name, line + 1, end - 1) != 0))
        row++;
    return row;
}

bool hutch_repl_is_magic(const char *line, size_t len)
{
    return find_magic(line, len) < ARRAY_SIZE(magics);
}

bool hutch_repl_magic(struct repl *r, const char *line, size_t len)
{
    size_t i = find_magic(line, len);
    auto_free char *copy_of = i < ARRAY_SIZE(magics) ? strndup(line, len) : NULL;
    char *words[MAX_WORDS + 1];
    int n;

    if (!copy_of)
        return false;
    n = split_words(copy_of + 1 + strlen(magics[i].name), words);
    if (n < magics[i].min_words || n > magics[i].max_words)
        hutch_cell_show_say(&r->show, "usage: %%%s%s%s", magics[i].name, *magics[i].arguments ? " " : "",
                            magics[i].arguments);
    else if (hutch_repl_open_session(r))
        magics[i].run(r, words, n);
    return true;
}
