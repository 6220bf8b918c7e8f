#include "runtime/run/limit_hint.h"

#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_CLAUSES 2

/* In the order in which they are told. */
static const struct {
    enum sandbox_limit limit;
    const char *unit, *raised_by; /* besides the limits of a policy */
} rows[] = {
    { LIMIT_OPEN_FILES, "", NULL },
    { LIMIT_PIDS, "", "--pids-limit" },
    { LIMIT_DATA_SIZE, " bytes, of /mnt/data", NULL },
    { LIMIT_TMP_SIZE, " bytes, of /tmp and of /dev/shm", "--tmpfs /tmp:SIZE" },
    { LIMIT_FILE_SIZE, " bytes", NULL },
    { LIMIT_MEMORY, " bytes", "--memory" },
};

/* What programs say: the C library's text for an errno, its name, or what a runtime makes of it. A word that means more
 * than one thing counts only beside another one. */
static const struct {
    enum sandbox_limit limit;
    const char *says, *beside[6]; /* one of them in the same text; none: it is enough alone */
} signs[] = {
    { LIMIT_OPEN_FILES, "oo many open files", { NULL } }, /* EMFILE */
    { LIMIT_OPEN_FILES, "EMFILE", { NULL } },
    { LIMIT_OPEN_FILES, "rlimit for open files", { NULL } }, /* memcached */
    { LIMIT_OPEN_FILES, "file descriptors", { "limit", "allow you to open", NULL } }, /* supervisord */
    { LIMIT_OPEN_FILES, "open file resource limit", { NULL } }, /* nginx */
    { LIMIT_PIDS, "an't start new thread", { NULL } }, /* Python */
    { LIMIT_PIDS, "unable to create native thread", { NULL } }, /* Java */
    { LIMIT_PIDS, "ailed to create new OS thread", { NULL } }, /* Go */
    { LIMIT_PIDS, "annot fork", { NULL } }, /* dash */
    { LIMIT_PIDS, "esource temporarily unavailable",
      { "fork", "thread", "spawn", "clone", "system_error", NULL } }, /* EAGAIN */
    { LIMIT_PIDS, "EAGAIN", { "fork", "thread", "spawn", "clone", NULL } },
    { LIMIT_DATA_SIZE, "o space left on device", { NULL } }, /* ENOSPC */
    { LIMIT_DATA_SIZE, "ENOSPC", { NULL } },
    { LIMIT_TMP_SIZE, "o space left on device", { NULL } },
    { LIMIT_TMP_SIZE, "ENOSPC", { NULL } },
    { LIMIT_FILE_SIZE, "ile too large", { "rrno 27", "write", "EFBIG", NULL } }, /* EFBIG */
    { LIMIT_FILE_SIZE, "EFBIG", { NULL } },
    { LIMIT_FILE_SIZE, "ile size limit exceeded", { NULL } },
    { LIMIT_MEMORY, "annot allocate memory", { NULL } }, /* ENOMEM */
    { LIMIT_MEMORY, "ENOMEM", { NULL } },
    { LIMIT_MEMORY, "MemoryError", { NULL } },          /* Python, which has bytes and words of its own */
    { LIMIT_MEMORY, "OutOfMemoryError", { NULL } },     /* Java */
    { LIMIT_MEMORY, "std::bad_alloc", { NULL } },       /* C++ */
    { LIMIT_MEMORY, "heap out of memory", { NULL } },   /* node */
    { LIMIT_MEMORY, "runtime: out of memory", { NULL } }, /* Go */
    { LIMIT_MEMORY, "memory allocation of ", { "bytes failed", NULL } }, /* Rust */
};

void hutch_limit_hint_set_exception(struct limit_hint *hint, const char *value, const char *traceback)
{
    hint->texts[1].data = value;
    hint->texts[1].len = value ? strlen(value) : 0;
    hint->texts[2].data = traceback;
    hint->texts[2].len = traceback ? strlen(traceback) : 0;
}

static bool has_word(const char *data, size_t len, const char *word)
{
    return memmem(data, len, word, strlen(word)) != NULL;
}

static bool is_said_in(size_t i, const char *data, size_t len)
{
    if (!has_word(data, len, signs[i].says))
        return false;
    if (!signs[i].beside[0])
        return true;
    for (const char *const *word = signs[i].beside; *word; word++)
        if (has_word(data, len, *word))
            return true;
    return false;
}

static bool is_said(const struct limit_hint *hint, enum sandbox_limit limit)
{
    for (size_t t = 0; t < LIMIT_HINT_TEXTS; t++) {
        const size_t len = hint->texts[t].len, seen = len < LIMIT_HINT_MAX ? len : LIMIT_HINT_MAX;

        for (size_t i = 0; hint->texts[t].data && i < ARRAY_SIZE(signs); i++)
            if (signs[i].limit == limit && is_said_in(i, hint->texts[t].data + (len - seen), seen))
                return true;
    }
    return false;
}

void hutch_limit_hint_write(const struct limit_hint *hint, char *ret, size_t room)
{
    size_t len = 0;
    unsigned n = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(rows) && n < MAX_CLAUSES; i++) {
        const enum sandbox_limit limit = rows[i].limit;
        const bool is_reached = limit == LIMIT_PIDS        ? hint->was_pids_reached
                                : limit == LIMIT_DATA_SIZE ? hint->is_data_full
                                                           : false;

        if (!hint->limits[limit] || (limit == LIMIT_DATA_SIZE && !is_reached) ||
            (limit == LIMIT_TMP_SIZE && hint->is_data_full))
            continue;
        if (!(is_reached && limit == LIMIT_PIDS) && !is_said(hint, limit))
            continue;
        len += (size_t)snprintf(ret + len, room - len,
                                "%sthe limit '%s' (%" PRIu64 "%s) %s: %s%s'%s' in the limits of a policy raises it",
                                n++ ? "; " : "", hutch_limit_name(limit), hint->limits[limit], rows[i].unit,
                                is_reached ? "was reached" : "may have been in the way",
                                rows[i].raised_by ? rows[i].raised_by : "", rows[i].raised_by ? " or " : "",
                                hutch_limit_name(limit));
        if (len >= room)
            return;
    }
}
