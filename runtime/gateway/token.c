#include "runtime/gateway/token.h"

#include "runtime/text/hex.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <search.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES (1u << 20)
#define MAX_TOKENS 4096

_Static_assert(TOKEN_HASH_SIZE == SHA256_DIGEST_LENGTH, "a token's hash is a SHA-256");

static const char name_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

static int read_hash(const char *text, size_t len, unsigned char ret[TOKEN_HASH_SIZE])
{
    if (len != 2 * TOKEN_HASH_SIZE)
        return -1;
    for (size_t i = 0; i < len; i++) {
        int digit = hutch_hex_digit(text[i]);

        if (digit < 0)
            return -1;
        ret[i / 2] = (unsigned char)(i % 2 ? ret[i / 2] | digit : digit << 4);
    }
    return 0;
}

/* The rest of a line, in which no weight is one of 1. */
static int read_weight(const char *text, size_t len, unsigned *ret)
{
    unsigned weight = 0;
    size_t i = strspn(text, " \t");

    *ret = 1;
    if (len == 0)
        return 0;
    if (i == 0 || len - i < 1 || len - i > 3)
        return -1;
    for (; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        weight = 10 * weight + (unsigned)(text[i] - '0');
    }
    *ret = weight;
    return weight >= 1 && weight <= TOKEN_WEIGHT_MAX ? 0 : -1;
}

static int read_line(const char *line, size_t len, struct token *ret)
{
    size_t name_len = strspn(line, name_letters), gap, hash_at, rest_at;

    if (name_len == 0 || name_len > TOKEN_NAME_MAX || name_len >= len)
        return -1;
    gap = strspn(line + name_len, " \t");
    memcpy(ret->name, line, name_len);
    ret->name[name_len] = '\0';
    hash_at = name_len + gap;
    rest_at = hash_at + 2 * TOKEN_HASH_SIZE;
    if (gap == 0 || rest_at > len || read_hash(line + hash_at, rest_at - hash_at, ret->hash) < 0)
        return -1;
    return read_weight(line + rest_at, len - rest_at, &ret->weight);
}

static int append(struct tokens *tokens, const struct token *token)
{
    struct token **rows = realloc(tokens->rows, (tokens->n + 1) * sizeof(struct token *));
    struct token *copy = malloc(sizeof(*copy));

    if (rows)
        tokens->rows = rows;
    if (!rows || !copy) {
        free(copy);
        return -1;
    }
    *copy = *token;
    rows[tokens->n++] = copy;
    return 0;
}

/* ---- order ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct token *)a)->name, ((const struct token *)b)->name);
}

static int by_hash(const void *a, const void *b)
{
    return memcmp(((const struct token *)a)->hash, ((const struct token *)b)->hash, TOKEN_HASH_SIZE);
}

static int by_line(const void *a, const void *b)
{
    int order = by_name(a, b);

    return order ? order : by_hash(a, b);
}

/* Trees of tsearch(3), which point to rows: thousands of lines are not each compared with all others. */
struct seen {
    void *names, *hashes;
};

static void keep_row(void *row)
{
    (void)row; /* the tree does not own it */
}

static void seen_done(struct seen *seen)
{
    tdestroy(seen->names, keep_row);
    tdestroy(seen->hashes, keep_row);
}

/* 1: @row is the first with its name and its hash; 0: it is not; -1: no memory. */
static int see(struct seen *seen, const struct token *row)
{
    const struct token *const *name = tsearch(row, &seen->names, by_name);
    const struct token *const *hash = tsearch(row, &seen->hashes, by_hash);

    return name && hash ? *name == row && *hash == row : -1;
}

/* ---- the file ---- */

static int add(struct tokens *tokens, struct seen *seen, const struct token *token, const char *what, unsigned line,
               struct hutch_err *err)
{
    int is_first;

    if (append(tokens, token) < 0)
        return hutch_err_set(err, ENOMEM, "%s", what);
    is_first = see(seen, tokens->rows[tokens->n - 1]);
    if (is_first < 0)
        return hutch_err_set(err, ENOMEM, "%s", what);
    if (!is_first)
        return hutch_err_set(err, 0, "%s: line %u: '%s' has the name or the hash of an earlier line", what, line,
                             token->name);
    if (tokens->n > MAX_TOKENS)
        return hutch_err_set(err, 0, "%s: more than %d tokens", what, MAX_TOKENS);
    return 0;
}

int hutch_tokens_parse(const char *what, const char *text, size_t len, struct tokens *ret, struct hutch_err *err)
{
    __attribute__((cleanup(seen_done))) struct seen seen = { .names = NULL };
    struct tokens tokens = TOKENS_INIT;
    const char *end = text + len, *line = text;
    unsigned number = 1;

    if (memchr(text, '\0', len))
        return hutch_err_set(err, 0, "%s has a NUL byte", what);
    for (const char *next; line < end; line = next, number++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t line_len = (size_t)((newline ? newline : end) - line);
        struct token token = { .n_runs = 0 };

        next = newline ? newline + 1 : end;
        while (line_len && strchr(" \t\r", line[line_len - 1]))
            line_len--;
        if (line_len == 0 || line[0] == '#')
            continue;
        if (read_line(line, line_len, &token) < 0) {
            hutch_tokens_done(&tokens);
            return hutch_err_set(err, 0, "%s: line %u: expected NAME, 64 hexadecimal digits, the SHA-256 of a token, "
                                 "and perhaps a weight from 1 to %d", what, number, TOKEN_WEIGHT_MAX);
        }
        if (add(&tokens, &seen, &token, what, number, err) < 0) {
            hutch_tokens_done(&tokens);
            return -1;
        }
    }
    if (tokens.n == 0)
        return hutch_err_set(err, 0, "%s has no token", what);
    *ret = tokens;
    return 0;
}

int hutch_tokens_load(const char *path, struct tokens *ret, struct hutch_err *err)
{
    auto_free char *text = NULL, *what = NULL;
    struct stat st;
    size_t len;
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (asprintf(&what, "tokens '%s'", path) < 0) {
        what = NULL;
        return hutch_err_set(err, ENOMEM, "tokens '%s'", path);
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open %s", what);
    if (!S_ISREG(st.st_mode))
        return hutch_err_set(err, 0, "%s is not a regular file", what);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return hutch_err_set(err, 0, "%s can be written by others than its owner (chmod go-w)", what);
    if (hutch_fd_slurp(fd, MAX_FILE_BYTES, path, &text, &len, err) < 0)
        return hutch_err_wrap(err, "tokens");
    return hutch_tokens_parse(what, text, len, ret, err);
}

static int by_line_of_row(const void *a, const void *b)
{
    return by_line(*(const struct token *const *)a, *(const struct token *const *)b);
}

/* The rows in the order of their lines, for find_same(); the caller frees the list. NULL: no memory. */
static struct token **sort_rows(const struct tokens *tokens)
{
    struct token **sorted = reallocarray(NULL, tokens->n + 1, sizeof(*sorted));

    for (size_t i = 0; sorted && i < tokens->n; i++)
        sorted[i] = tokens->rows[i];
    if (sorted)
        qsort(sorted, tokens->n, sizeof(*sorted), by_line_of_row);
    return sorted;
}

static const struct token *find_same(struct token *const *sorted, size_t n, const struct token *token)
{
    struct token *const *found = bsearch(&token, sorted, n, sizeof(*sorted), by_line_of_row);

    return found ? *found : NULL;
}

int hutch_tokens_reload(struct tokens *tokens, const char *path, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_tokens_done))) struct tokens fresh = TOKENS_INIT;
    auto_free struct token **sorted = NULL, **sorted_fresh = NULL;
    size_t n_before = tokens->n;

    if (hutch_tokens_load(path, &fresh, err) < 0)
        return -1;
    sorted = sort_rows(tokens);
    sorted_fresh = sort_rows(&fresh);
    if (!sorted || !sorted_fresh)
        return hutch_err_set(err, ENOMEM, "tokens '%s'", path);
    for (size_t i = 0; i < fresh.n; i++)
        if (!find_same(sorted, n_before, fresh.rows[i]) && append(tokens, fresh.rows[i]) < 0) {
            while (tokens->n > n_before)
                free(tokens->rows[--tokens->n]);
            return hutch_err_set(err, ENOMEM, "tokens '%s'", path);
        }
    for (size_t i = 0; i < tokens->n; i++) {
        const struct token *now = find_same(sorted_fresh, fresh.n, tokens->rows[i]);

        tokens->rows[i]->is_retired = !now;
        if (now)
            tokens->rows[i]->weight = now->weight;
    }
    return 0;
}

void hutch_tokens_done(struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++)
        free(tokens->rows[i]);
    free(tokens->rows);
    *tokens = (struct tokens)TOKENS_INIT;
}

struct token *hutch_tokens_find_plain(const struct tokens *tokens, const char *token)
{
    unsigned char hash[TOKEN_HASH_SIZE];
    struct token *found = NULL;
    size_t len = strlen(token);

    if (len == 0 || len > TOKEN_MAX_LEN)
        return NULL;
    SHA256((const unsigned char *)token, len, hash);
    for (size_t i = 0; i < tokens->n; i++) /* all of them, wherever it is */
        if (CRYPTO_memcmp(tokens->rows[i]->hash, hash, sizeof(hash)) == 0 && !tokens->rows[i]->is_retired)
            found = tokens->rows[i];
    return found;
}

uint64_t hutch_token_tenant(const struct token *token)
{
    uint64_t tenant;

    if (!token)
        return 0;
    memcpy(&tenant, token->hash, sizeof(tenant));
    return tenant ? tenant : 1;
}

struct token *hutch_tokens_find(const struct tokens *tokens, const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    authorization += 7;
    return hutch_tokens_find_plain(tokens, authorization + strspn(authorization, " "));
}
