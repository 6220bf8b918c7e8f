#include "sandbox/hosts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_NAME 64 /* HOST_NAME_MAX */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of [*at, end), NULL at the end or at a comment; *@ret_len is its length. */
static const char *next_word(const char **at, const char *end, size_t *ret_len)
{
    const char *word;

    while (*at < end && is_space(**at))
        (*at)++;
    word = *at;
    while (*at < end && !is_space(**at) && **at != '#')
        (*at)++;
    *ret_len = (size_t)(*at - word);
    return *ret_len ? word : NULL;
}

static bool is_word(const char *word, size_t len, const char *name)
{
    return len == strlen(name) && strncasecmp(word, name, len) == 0;
}

/* Whether the line gives @name an address; with @address, that one. */
static bool has_name(const char *line, const char *end, const char *address, const char *name)
{
    size_t len;
    const char *word = next_word(&line, end, &len);

    if (!word || (address && !is_word(word, len, address)))
        return false;
    while ((word = next_word(&line, end, &len)))
        if (is_word(word, len, name))
            return true;
    return false;
}

static bool is_host_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    size_t len = strspn(name, letters);

    return len > 0 && len <= MAX_NAME && name[len] == '\0' && strcasecmp(name, "localhost") != 0;
}

static const char *end_of_line(const char *line, const char *end)
{
    const char *newline = memchr(line, '\n', (size_t)(end - line));

    return newline ? newline : end;
}

/* Up to the last whole line of those that are taken. */
static const char *end_of_text(const char *given, size_t len)
{
    const char *last;

    if (len <= HOSTS_MAX_GIVEN)
        return given + len;
    last = memrchr(given, '\n', HOSTS_MAX_GIVEN);
    return last ? last : given;
}

/* Whether a line other than those that name @without (NULL: any) has @address for "localhost". */
static bool has_localhost(const char *given, const char *end, const char *address, const char *without)
{
    for (const char *line = given, *next; line < end; line = next + 1) {
        next = end_of_line(line, end);
        if (has_name(line, next, address, "localhost") && !(without && has_name(line, next, NULL, without)))
            return true;
    }
    return false;
}

bool hutch_hosts_lack_ipv6(const char *given, size_t len)
{
    return !has_localhost(given, end_of_text(given, len), "::1", NULL);
}

size_t hutch_hosts_format(const char *given, size_t len, const char *name, bool has_ipv6, char *buf)
{
    const char *own = is_host_name(name) ? name : NULL, *end = end_of_text(given, len);
    size_t n = 0;

    if (!has_localhost(given, end, "127.0.0.1", own))
        n += (size_t)sprintf(buf + n, "127.0.0.1 localhost\n");
    if (has_ipv6 && !has_localhost(given, end, "::1", own))
        n += (size_t)sprintf(buf + n, "::1 localhost ip6-localhost ip6-loopback\n");
    if (own)
        n += (size_t)sprintf(buf + n, "127.0.1.1 %s\n", own);
    for (const char *line = given, *next; line < end; line = next + 1) {
        next = end_of_line(line, end);
        if (own && has_name(line, next, NULL, own))
            continue;
        memcpy(buf + n, line, (size_t)(next - line));
        n += (size_t)(next - line);
        buf[n++] = '\n';
    }
    return n;
}
