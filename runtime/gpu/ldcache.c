#include "runtime/gpu/ldcache.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OLD_MAGIC    "ld.so-1.7.0"
#define OLD_HEADER   16 /* with the number of entries, behind the magic, at 12 */
#define OLD_ENTRY    12
#define NEW_MAGIC    "glibc-ld.so.cache1.1"
#define NEW_HEADER   48 /* entries at 20, bytes of names at 24, byte order at 28 */
#define NEW_ENTRY    24 /* flags, offset of the name, offset of the path, …; both from the header */
#define ORDER_MASK   3
#define ORDER_UNSET  0
#define ORDER_LITTLE 2
#define ORDER_BIG    3

/* FLAG_ELF_LIBC6 and the machine's: sysdeps/generic/ldconfig.h. */
#if defined(__x86_64__)
#define OWN_FLAGS 0x0303
#elif defined(__aarch64__)
#define OWN_FLAGS 0x0a03
#else
#define OWN_FLAGS 0x0003
#endif

static uint32_t number_at(const char *data, size_t at)
{
    uint32_t value;

    memcpy(&value, data + at, sizeof(value));
    return value;
}

static int find_header(const char *data, size_t len, size_t *ret)
{
    size_t n, at;

    if (len >= sizeof(NEW_MAGIC) - 1 && memcmp(data, NEW_MAGIC, sizeof(NEW_MAGIC) - 1) == 0) {
        *ret = 0;
        return 0;
    }
    if (len < OLD_HEADER || memcmp(data, OLD_MAGIC, sizeof(OLD_MAGIC) - 1) != 0)
        return -1;
    n = number_at(data, 12);
    if (n > (len - OLD_HEADER) / OLD_ENTRY)
        return -1;
    at = (OLD_HEADER + n * OLD_ENTRY + 7) & ~(size_t)7;
    if (at > len || len - at < sizeof(NEW_MAGIC) - 1 || memcmp(data + at, NEW_MAGIC, sizeof(NEW_MAGIC) - 1) != 0)
        return -1;
    *ret = at;
    return 0;
}

int hutch_ldcache_parse(const char *what, char *data, size_t len, struct ldcache *ret, struct hutch_err *err)
{
    const int own_order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ORDER_LITTLE : ORDER_BIG;
    size_t header, n;
    int order;

    if (find_header(data, len, &header) < 0)
        return hutch_err_set(err, 0, "%s is no cache of the dynamic linker (glibc's ldconfig makes one)", what);
    if (len - header < NEW_HEADER)
        return hutch_err_set(err, 0, "%s ends in its header", what);
    order = data[header + 28] & ORDER_MASK;
    if (order != ORDER_UNSET && order != own_order)
        return hutch_err_set(err, 0, "%s is of a machine with another byte order", what);
    n = number_at(data, header + 20);
    if (n > (len - header - NEW_HEADER) / NEW_ENTRY)
        return hutch_err_set(err, 0, "%s has %zu entries by its header, and is too short for them", what, n);
    *ret = (struct ldcache){ .data = data, .len = len, .header = header, .n = n };
    return 0;
}

void hutch_ldcache_done(struct ldcache *cache)
{
    free(cache->data);
    *cache = (struct ldcache)LDCACHE_INIT;
}

/* NULL: it does not end within the cache. */
static const char *text_at(const struct ldcache *cache, uint32_t offset)
{
    const char *p = cache->data + cache->header;
    size_t room = cache->len - cache->header;

    return offset < room && memchr(p + offset, '\0', room - offset) ? p + offset : NULL;
}

bool hutch_ldcache_next(const struct ldcache *cache, size_t *at, const char **ret_name, const char **ret_path)
{
    while (*at < cache->n) {
        size_t entry = cache->header + NEW_HEADER + (*at)++ * NEW_ENTRY;

        if ((number_at(cache->data, entry) & 0xffff) != OWN_FLAGS)
            continue;
        *ret_name = text_at(cache, number_at(cache->data, entry + 4));
        *ret_path = text_at(cache, number_at(cache->data, entry + 8));
        if (*ret_name && *ret_path)
            return true;
    }
    return false;
}
