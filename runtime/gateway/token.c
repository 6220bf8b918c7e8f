#include "runtime/gateway/token.h"

#include "runtime/text/hex.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
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

static int read_line(const char *line, size_t len, struct token *ret)
{
    size_t name_len = strspn(line, name_letters), gap;

    if (name_len == 0 || name_len > TOKEN_NAME_MAX || name_len >= len)
        return -1;
    gap = strspn(line + name_len, " \t");
    memcpy(ret->name, line, name_len);
    ret->name[name_len] = '\0';
    return gap == 0 ? -1 : read_hash(line + name_len + gap, len - name_len - gap, ret->hash);
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

static int add(struct tokens *tokens, const struct token *token, const char *what, unsigned line, struct hutch_err *err)
{
    for (size_t i = 0; i < tokens->n; i++)
        if (strcmp(tokens->rows[i]->name, token->name) == 0 ||
            memcmp(tokens->rows[i]->hash, token->hash, TOKEN_HASH_SIZE) == 0)
            return hutch_err_set(err, 0, "%s: line %u: '%s' has the name or the hash of an earlier line", what, line,
                                 token->name);
    if (tokens->n == MAX_TOKENS)
        return hutch_err_set(err, 0, "%s: more than %d tokens", what, MAX_TOKENS);
    return append(tokens, token) < 0 ? hutch_err_set(err, ENOMEM, "%s", what) : 0;
}

int hutch_tokens_parse(const char *what, const char *text, size_t len, struct tokens *ret, struct hutch_err *err)
{
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
            return hutch_err_set(err, 0, "%s: line %u: expected NAME and 64 hexadecimal digits, the SHA-256 of a token",
                                 what, number);
        }
        if (add(&tokens, &token, what, number, err) < 0) {
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

static struct token *find_same(const struct tokens *tokens, const struct token *token)
{
    for (size_t i = 0; i < tokens->n; i++)
        if (strcmp(tokens->rows[i]->name, token->name) == 0 &&
            memcmp(tokens->rows[i]->hash, token->hash, TOKEN_HASH_SIZE) == 0)
            return tokens->rows[i];
    return NULL;
}

int hutch_tokens_reload(struct tokens *tokens, const char *path, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_tokens_done))) struct tokens fresh = TOKENS_INIT;
    size_t n_before = tokens->n;

    if (hutch_tokens_load(path, &fresh, err) < 0)
        return -1;
    for (size_t i = 0; i < fresh.n; i++)
        if (!find_same(tokens, fresh.rows[i]) && append(tokens, fresh.rows[i]) < 0) {
            while (tokens->n > n_before)
                free(tokens->rows[--tokens->n]);
            return hutch_err_set(err, ENOMEM, "tokens '%s'", path);
        }
    for (size_t i = 0; i < tokens->n; i++)
        tokens->rows[i]->is_retired = !find_same(&fresh, tokens->rows[i]);
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

struct token *hutch_tokens_find(const struct tokens *tokens, const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    authorization += 7;
    return hutch_tokens_find_plain(tokens, authorization + strspn(authorization, " "));
}
