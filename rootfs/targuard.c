#include "rootfs/targuard.h"

#include "sandbox/fd.h"

#include <string.h>

#define BLOCK 512

int hutch_targuard_open(struct targuard *ret, struct hutch_err *err)
{
    *ret = (struct targuard){ .ext = malloc(TARGUARD_MAX_HEADER + 1) };
    return ret->ext ? 0 : hutch_err_set(err, ENOMEM, "read a tar stream");
}

void hutch_targuard_done(struct targuard *guard)
{
    hutch_freep(&guard->ext);
    guard->ext = NULL;
}

/* Octal digits, or base 256 when the first bit is set (GNU). Whatever else libraries read differently, so it is
 * refused: -1. */
static int header_number(const unsigned char *field, size_t len, uint64_t *ret)
{
    uint64_t n = 0;
    size_t i = 0;

    if (field[0] & 0x80) {
        for (i = 1; i < len - 8; i++)
            if (field[i])
                return -1;
        for (i = len - 8; i < len; i++)
            n = n << 8 | field[i];
        *ret = n;
        return field[0] == 0x80 && n <= INT64_MAX ? 0 : -1;
    }
    while (i < len && field[i] == ' ')
        i++;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++)
        n = n << 3 | (uint64_t)(field[i] - '0');
    for (; i < len; i++)
        if (field[i] != ' ' && field[i] != '\0')
            return -1;
    *ret = n;
    return 0;
}

static uint64_t padding(uint64_t size)
{
    return (BLOCK - size % BLOCK) % BLOCK;
}

/* Records "LENGTH KEY=VALUE\n", one after the other. */
static int check_pax(struct targuard *g, struct hutch_err *err)
{
    const char *p = g->ext, *end = g->ext + g->ext_size;

    while (p < end) {
        char *after;
        unsigned long len = strtoul(p, &after, 10); /* g->ext ends with a NUL */
        const char *key = after + 1, *value;

        if (*p < '0' || *p > '9' || *after != ' ' || len > (size_t)(end - p) || len <= (size_t)(key - p))
            return 0; /* not for us to judge */
        value = memchr(key, '=', (size_t)(p + len - key));
        if (!value)
            return 0;
        value++;
        if ((strncmp(key, "path=", 5) == 0 || strncmp(key, "linkpath=", 9) == 0 ||
             strncmp(key, "GNU.sparse.name=", 16) == 0) &&
            memchr(value, '\0', (size_t)(p + len - value)))
            return hutch_err_set(err, 0, "a name with a NUL byte in it: '%.60s…'", value);
        if (strncmp(key, "size=", 5) == 0 && g->ext_type == 'x') {
            g->size = strtoull(value, NULL, 10);
            g->has_size = true;
        }
        if (strncmp(key, "GNU.sparse.major=", 17) == 0 && g->ext_type == 'x')
            g->has_map = strtoul(value, NULL, 10) >= 1;
        p += len;
    }
    return 0;
}

static int check_map(uint64_t count, struct hutch_err *err)
{
    if (count > TARGUARD_MAX_HOLES)
        return hutch_err_set(err, 0, "a sparse file in more than %u pieces", TARGUARD_MAX_HOLES);
    return 0;
}

/* The number at the beginning of a sparse file's content. */
static int read_map_count(struct targuard *g, const unsigned char *p, size_t len, struct hutch_err *err)
{
    for (size_t i = 0; i < len && g->in_map_count; i++) {
        g->in_map_count = p[i] >= '0' && p[i] <= '9';
        if (g->in_map_count)
            g->map_count = g->map_count * 10 + (p[i] - '0');
        if (check_map(g->map_count, err) < 0)
            return -1;
    }
    return 0;
}

static void begin_content(struct targuard *g, uint64_t size)
{
    if (size > UINT64_MAX - BLOCK)
        size = 0; /* nonsense, which the library will say better */
    g->skip = size + padding(size);
}

/* One block of an old GNU map; its byte 504 says whether another one follows. */
static int take_map_block(struct targuard *g, struct hutch_err *err)
{
    g->header_len = 0;
    g->map_count += 21;
    g->in_map_blocks = g->header[504] != 0;
    if (!g->in_map_blocks)
        begin_content(g, g->entry_size);
    return check_map(g->map_count, err);
}

static int end_extension(struct targuard *g, struct hutch_err *err)
{
    size_t n = g->ext_size;

    g->ext[n] = '\0';
    g->skip = g->ext_padding;
    if (g->ext_type == 'x' || g->ext_type == 'g') {
        if (check_pax(g, err) < 0)
            return -1;
    } else { /* GNU: the name, ended by NULs */
        while (n > 0 && g->ext[n - 1] == '\0')
            n--;
        if (memchr(g->ext, '\0', n))
            return hutch_err_set(err, 0, "a name with a NUL byte in it: '%.60s…'", g->ext);
    }
    g->ext_type = 0;
    return 0;
}

static int take_header(struct targuard *g, struct hutch_err *err)
{
    char type = (char)g->header[156];
    uint64_t size;

    g->header_len = 0;
    if (header_number(g->header + 124, 12, &size) < 0)
        return hutch_err_set(err, 0, "an entry whose size is not a number");
    if (g->header[0] == '\0' && size == 0) /* the end, or padding behind it */
        return 0;
    if (type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K') {
        if (size > TARGUARD_MAX_HEADER)
            return hutch_err_set(err, 0, "an extended tar header of %llu bytes", (unsigned long long)size);
        g->ext_type = type == 'X' ? 'x' : type; /* Sun's letter for it */
        g->ext_size = (size_t)size;
        g->ext_len = 0;
        g->ext_padding = (size_t)padding(size);
        return size == 0 ? end_extension(g, err) : 0;
    }
    if (g->has_size)
        size = g->size;
    g->has_size = false;
    if (type != '\0' && type != 'S' && (type < '0' || type > '7'))
        return hutch_err_set(err, 0, "an entry of the unknown type '%c'", type);
    /* Links, devices, directories and FIFOs have no content; whether a size there is obeyed differs between
     * libraries. */
    if (type >= '1' && type <= '6' && size > 0)
        return hutch_err_set(err, 0, "an entry of type '%c', which has no content, with a size of %llu bytes", type,
                             (unsigned long long)size);
    g->map_count = 0;
    g->in_map_count = g->has_map && size > 0;
    g->has_map = false;
    if (type == 'S' && g->header[482]) {
        g->in_map_blocks = true;
        g->entry_size = size;
        return 0;
    }
    begin_content(g, size);
    return 0;
}

int hutch_targuard_feed(struct targuard *guard, const void *data, size_t len, struct hutch_err *err)
{
    const unsigned char *p = data;

    while (len > 0) {
        size_t n;

        if (guard->skip > 0) {
            n = guard->skip < len ? (size_t)guard->skip : len;
            guard->skip -= n;
            if (guard->in_map_count && read_map_count(guard, p, n, err) < 0)
                return -1;
        } else if (guard->ext_type) {
            n = guard->ext_size - guard->ext_len;
            if (n > len)
                n = len;
            memcpy(guard->ext + guard->ext_len, p, n);
            guard->ext_len += n;
            if (guard->ext_len == guard->ext_size && end_extension(guard, err) < 0)
                return -1;
        } else {
            n = BLOCK - guard->header_len;
            if (n > len)
                n = len;
            memcpy(guard->header + guard->header_len, p, n);
            guard->header_len += n;
            if (guard->header_len == BLOCK &&
                (guard->in_map_blocks ? take_map_block(guard, err) : take_header(guard, err)) < 0)
                return -1;
        }
        p += n;
        len -= n;
    }
    return 0;
}
