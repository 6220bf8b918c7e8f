#include "runtime/gateway/functions.h"

#include "runtime/gateway/log.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 200 /* for a signal */

static void log_event(const struct gateway_function *f, const char *event, const char *key, const char *text)
{
    if (f->functions->log)
        hutch_gateway_log_event(f->functions->log, event, key, text);
}

static void free_row(struct gateway_functions *fs, size_t i)
{
    struct gateway_function *f = fs->rows[i];

    fs->rows[i] = fs->rows[--fs->n];
    free(f->name);
    free(f->text);
    free(f->next_path);
    free(f);
}

static size_t index_of(const struct gateway_functions *fs, const struct gateway_function *f)
{
    size_t i = 0;

    while (fs->rows[i] != f)
        i++;
    return i;
}

struct gateway_function *hutch_gateway_functions_find(struct gateway_functions *fs, const char *name)
{
    for (size_t i = 0; i < fs->n; i++)
        if (!fs->rows[i]->is_dropped && strcmp(fs->rows[i]->name, name) == 0)
            return fs->rows[i];
    return NULL;
}

/* A file that could not be taken is tried again by the next reload, though it may be the same. */
static void note_failure(struct gateway_function *f, const struct hutch_err *why)
{
    f->why = *why;
    free(f->text);
    f->text = NULL;
    log_event(f, "function failed", "message", why->msg);
}

static int set_one(struct gateway_functions *fs, const struct function_source *source, struct hutch_err *err);

static void set_again(struct gateway_function *f)
{
    auto_free char *path = f->next_path;
    const struct function_source source = { f->name, path, f->next_min, f->next_max };
    struct hutch_err ignored; /* it is noted */

    f->next_path = NULL;
    set_one(f->functions, &source, &ignored);
}

static void on_ready(void *user, const char *name, const struct hutch_error *why)
{
    struct gateway_function *f = user;
    bool is_dropped = f->is_dropped;
    struct hutch_err err;

    f->is_pending = false;
    if (is_dropped) {
        free_row(f->functions, index_of(f->functions, f));
    } else if (why) {
        hutch_err_set(&err, 0, "%s", why->message);
        note_failure(f, &err);
    } else {
        f->why.msg[0] = '\0';
        log_event(f, "function ready", "function", name);
    }
    if (!is_dropped && f->next_path)
        set_again(f);
}

/* ---- files ---- */

static int read_file(const char *name, const char *path, char **ret, size_t *ret_len, struct hutch_err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    auto_free char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "the function '%s': read '%s'", name, path);
    if (!S_ISREG(st.st_mode))
        return hutch_err_set(err, 0, "the function '%s': '%s' is not a regular file", name, path);
    if (st.st_size > (off_t)FUNCTION_MAX_BYTES)
        return hutch_err_set(err, 0, "the function '%s': '%s' has %lld bytes, and can have %u", name, path,
                             (long long)st.st_size, FUNCTION_MAX_BYTES);
    text = malloc((size_t)st.st_size + 1);
    if (!text)
        return hutch_err_set(err, ENOMEM, "the function '%s'", name);
    n = hutch_fd_read_full(fd, text, (size_t)st.st_size);
    if (n < 0)
        return hutch_err_set(err, errno, "the function '%s': read '%s'", name, path);
    text[n] = '\0';
    *ret_len = (size_t)n;
    *ret = text;
    text = NULL;
    return 0;
}

static bool is_as_before(const struct gateway_function *f, const struct function_source *source, const char *text,
                         size_t len)
{
    return f->text && f->text_len == len && memcmp(f->text, text, len) == 0 && f->min == source->min &&
           f->max == source->max;
}

static int have_imported(struct gateway_function *f, struct hutch_err *err)
{
    struct hutch_function function;
    struct hutch_error error;

    hutch_function_init(&function);
    function.name = f->name;
    function.code = f->text;
    function.code_len = f->text_len;
    function.min = f->min;
    function.max = f->max;
    function.on_ready = on_ready;
    function.user = f;
    if (hutch_engine_set_function(f->functions->engine, &function, &error) < 0)
        return hutch_err_set(err, 0, "%s", error.message);
    f->is_pending = true;
    return 0;
}

static struct gateway_function *add_row(struct gateway_functions *fs, const char *name, struct hutch_err *err)
{
    struct gateway_function *f = fs->n < 2 * FUNCTIONS_MAX ? calloc(1, sizeof(*f)) : NULL;

    if (!f || !(f->name = strdup(name))) {
        free(f);
        hutch_err_set(err, ENOMEM, "the function '%s'", name);
        return NULL;
    }
    f->functions = fs;
    fs->rows[fs->n++] = f;
    return f;
}

/* When it has been imported. */
static int set_later(struct gateway_function *f, const struct function_source *source, struct hutch_err *err)
{
    free(f->next_path);
    f->next_path = strdup(source->path);
    f->next_min = source->min;
    f->next_max = source->max;
    return f->next_path ? 0 : hutch_err_set(err, ENOMEM, "the function '%s'", source->name);
}

static int set_one(struct gateway_functions *fs, const struct function_source *source, struct hutch_err *err)
{
    struct gateway_function *f = hutch_gateway_functions_find(fs, source->name);
    auto_free char *text = NULL;
    size_t len = 0;

    if (f && f->is_pending)
        return set_later(f, source, err);
    if (!f)
        f = add_row(fs, source->name, err);
    if (!f)
        return -1;
    if (read_file(source->name, source->path, &text, &len, err) < 0) {
        note_failure(f, err);
        return -1;
    }
    if (is_as_before(f, source, text, len))
        return 0;
    free(f->text);
    f->text = text;
    text = NULL;
    f->text_len = len;
    f->min = source->min;
    f->max = source->max;
    if (have_imported(f, err) < 0) {
        note_failure(f, err);
        return -1;
    }
    return 0;
}

static bool has(const struct function_source *sources, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(sources[i].name, name) == 0)
            return true;
    return false;
}

static void drop_others(struct gateway_functions *fs, const struct function_source *sources, size_t n)
{
    for (size_t i = fs->n; i-- > 0;) {
        struct gateway_function *f = fs->rows[i];

        if (f->is_dropped || has(sources, n, f->name))
            continue;
        hutch_engine_drop_function(fs->engine, f->name);
        f->is_dropped = true;
        if (!f->is_pending) /* else by its callback */
            free_row(fs, i);
    }
}

int hutch_gateway_functions_set(struct gateway_functions *fs, const struct function_source *sources, size_t n,
                                struct hutch_err *err)
{
    struct hutch_err one;
    int rc = 0;

    drop_others(fs, sources, n);
    for (size_t i = 0; i < n; i++)
        if (set_one(fs, &sources[i], &one) < 0) {
            if (rc == 0)
                *err = one;
            rc = -1;
        }
    return rc;
}

/* ---- the wait ---- */

static bool is_stopped(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

/* The first that was not taken, or that is still on its way. */
static const struct gateway_function *find_unready(const struct gateway_functions *fs, bool is_pending)
{
    for (size_t i = 0; i < fs->n; i++)
        if (is_pending ? fs->rows[i]->is_pending : fs->rows[i]->why.msg[0])
            return fs->rows[i];
    return NULL;
}

int hutch_gateway_functions_await(struct gateway_functions *fs, struct hutch_err *err)
{
    const struct gateway_function *failed;

    while (!find_unready(fs, false) && find_unready(fs, true) && !is_stopped()) {
        struct pollfd p = { .fd = hutch_engine_fd(fs->engine), .events = POLLIN };
        struct hutch_error error;

        if (poll(&p, 1, LOOK_MS) < 0 && errno != EINTR)
            return hutch_err_set(err, errno, "wait for the functions");
        if (hutch_engine_dispatch(fs->engine, &error) < 0)
            return hutch_err_set(err, 0, "%s", error.message);
    }
    failed = find_unready(fs, false);
    if (failed)
        *err = failed->why;
    return failed ? -1 : 0;
}

/* ---- beginning and end ---- */

void hutch_gateway_functions_init(struct gateway_functions *fs, struct hutch_engine *engine, struct gateway_log *log)
{
    *fs = (struct gateway_functions){ .engine = engine, .log = log };
}

void hutch_gateway_functions_done(struct gateway_functions *fs)
{
    while (fs->n > 0)
        free_row(fs, 0);
}
