#include "runtime/launcher/spec_wire.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SEAL_ATTEMPTS 4
#define MAGIC 0x50535448u
#define MAX_ITEMS 65536 /* of any list */
#define NO_STRING UINT32_MAX

/* One walk serves both directions, so that they cannot disagree: with a writer every visit appends, with a reader it
 * fills in. */
struct wire {
    FILE *out;              /* writing */
    const char *data;       /* reading */
    size_t len, at;
    bool is_broken;
};

static void raw(struct wire *w, void *value, size_t len)
{
    if (w->out) {
        if (len && fwrite(value, 1, len, w->out) != len)
            w->is_broken = true;
        return;
    }
    if (w->is_broken || len > w->len - w->at) {
        w->is_broken = true;
        memset(value, 0, len);
        return;
    }
    memcpy(value, w->data + w->at, len);
    w->at += len;
}

/* A count, bounded, so that memory for it can be made. */
static uint32_t count(struct wire *w, size_t n)
{
    uint32_t value = (uint32_t)n;

    raw(w, &value, sizeof(value));
    if (value > MAX_ITEMS) {
        w->is_broken = true;
        return 0;
    }
    return w->is_broken ? 0 : value;
}

static void *room(struct wire *w, size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        w->is_broken = true;
    return p;
}

/* NULL is a string too. */
static void bytes(struct wire *w, char **value, size_t *len)
{
    uint32_t n = *value ? (uint32_t)*len : NO_STRING;

    raw(w, &n, sizeof(n));
    if (w->out) {
        if (*value)
            raw(w, *value, *len);
        return;
    }
    if (w->is_broken || n == NO_STRING)
        return;
    if (n > w->len - w->at) {
        w->is_broken = true;
        return;
    }
    *value = room(w, (size_t)n + 1, 1);
    if (*value)
        raw(w, *value, n);
    *len = n;
}

static void string(struct wire *w, char **value)
{
    size_t len = *value ? strlen(*value) : 0;

    if (!w->out) { /* what hutch_spec_init() put there */
        free(*value);
        *value = NULL;
    }
    bytes(w, value, &len);
    if (!w->out && *value && strlen(*value) != len)
        w->is_broken = true; /* a NUL inside would hide what follows */
}

static void list(struct wire *w, char ***value)
{
    uint32_t is_there = *value != NULL, n = 0;

    if (!w->out && *value) {
        for (char **p = *value; *p; p++)
            free(*p);
        free(*value);
        *value = NULL;
    }
    raw(w, &is_there, sizeof(is_there));
    if (!is_there || w->is_broken)
        return;
    while (w->out && (*value)[n])
        n++;
    n = count(w, n);
    if (!w->out)
        *value = room(w, (size_t)n + 1, sizeof(**value));
    for (uint32_t i = 0; *value && i < n; i++) {
        string(w, &(*value)[i]);
        if (!(*value)[i]) { /* a NULL inside would end the list, and what came behind it would be freed by no one */
            w->is_broken = true;
            break;
        }
    }
}

#define VALUE(w, field) raw(w, &(field), sizeof(field))

static void mount(struct wire *w, struct sandbox_mount *m)
{
    VALUE(w, m->kind);
    VALUE(w, m->flags);
    string(w, &m->source);
    string(w, &m->target);
    VALUE(w, m->size_bytes);
    VALUE(w, m->inodes);
    VALUE(w, m->mode);
    VALUE(w, m->dev);
    VALUE(w, m->ino);
    if (!w->out)
        m->tree_fd = -1;
}

static void file(struct wire *w, struct sandbox_file *f)
{
    string(w, &f->target);
    bytes(w, &f->data, &f->len);
    VALUE(w, f->mode);
}

static void rule(struct wire *w, struct seccomp_rule *r)
{
    uint32_t n;

    list(w, &r->names);
    VALUE(w, r->verdict);
    VALUE(w, r->errnum);
    n = count(w, r->n_args);
    if (n > SECCOMP_MAX_ARGS) {
        w->is_broken = true;
        return;
    }
    if (!w->out && n > 0)
        r->args = room(w, n, sizeof(*r->args));
    for (uint32_t i = 0; r->args && i < n; i++) {
        VALUE(w, r->args[i].index);
        VALUE(w, r->args[i].op);
        VALUE(w, r->args[i].mask);
        VALUE(w, r->args[i].value);
        r->n_args = i + 1;
    }
}

static void walk(struct wire *w, struct sandbox_spec *s)
{
    uint32_t magic = MAGIC, n;

    VALUE(w, magic);
    if (magic != MAGIC)
        w->is_broken = true;
    string(w, &s->hostname);
    VALUE(w, s->root_kind);
    string(w, &s->rootfs_path);
    n = count(w, s->n_mounts);
    if (!w->out)
        s->mounts = room(w, n, sizeof(*s->mounts));
    for (uint32_t i = 0; s->mounts && i < n; i++) {
        mount(w, &s->mounts[i]);
        s->n_mounts = i + 1;
    }
    n = count(w, s->n_files);
    if (!w->out)
        s->files = room(w, n, sizeof(*s->files));
    for (uint32_t i = 0; s->files && i < n; i++) {
        file(w, &s->files[i]);
        s->n_files = i + 1;
    }
    list(w, &s->masked_paths);
    list(w, &s->readonly_paths);
    VALUE(w, s->network);
    VALUE(w, s->data_place);
    VALUE(w, s->uid_inside);
    VALUE(w, s->gid_inside);
    VALUE(w, s->layers);
    VALUE(w, s->limits);
    VALUE(w, s->limits_need);
    VALUE(w, s->grace_ms);
    VALUE(w, s->seccomp.default_verdict);
    VALUE(w, s->seccomp.default_errnum);
    n = count(w, s->seccomp.n_rules);
    if (!w->out)
        s->seccomp.rules = room(w, n, sizeof(*s->seccomp.rules));
    for (uint32_t i = 0; s->seccomp.rules && i < n; i++) {
        rule(w, &s->seccomp.rules[i]);
        s->seccomp.n_rules = i + 1;
    }
    list(w, &s->argv);
    list(w, &s->envp);
    string(w, &s->cwd);
}

/* A page that something else in the kernel holds just now, as reclaim and DAMON do for a moment, is in the way: then
 * fcntl(2) waits for it, up to 0.15 s, and says EBUSY. */
static int seal(int memfd)
{
    int rc = -1;

    for (int i = 0; i < SEAL_ATTEMPTS && rc < 0 && (i == 0 || errno == EBUSY); i++)
        rc = fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return rc;
}

int hutch_spec_encode(const struct sandbox_spec *spec, int *ret_memfd, struct hutch_err *err)
{
    auto_fd fd = memfd_create("hutch-spec", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct sandbox_spec copy = *spec; /* the walk is of both directions, and writing changes nothing */
    auto_fd other = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct wire w = { .out = other < 0 ? NULL : fdopen(other, "w") };

    if (!w.out)
        return hutch_err_set(err, errno, "make room for a sandbox's description");
    hutch_fd_take(&other); /* the stream's */
    walk(&w, &copy);
    if (fclose(w.out) != 0 || w.is_broken)
        return hutch_err_set(err, errno, "write a sandbox's description");
    if (seal(fd) < 0)
        return hutch_err_set(err, errno, "seal a sandbox's description");
    *ret_memfd = hutch_fd_take(&fd);
    return 0;
}

int hutch_spec_decode(int memfd, struct sandbox_spec *ret, struct hutch_err *err)
{
    auto_free char *data = NULL;
    struct wire w = { .data = NULL };

    if (lseek(memfd, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "read a sandbox's description");
    if (hutch_fd_slurp(memfd, SPEC_WIRE_MAX, "sandbox description", &data, &w.len, err) < 0)
        return -1;
    w.data = data;
    memset(ret, 0, sizeof(*ret));
    walk(&w, ret);
    if (!ret->hostname || !ret->cwd || (ret->root_kind == ROOT_DIR && !ret->rootfs_path))
        w.is_broken = true;
    for (size_t i = 0; i < ret->n_mounts; i++)
        if (!ret->mounts[i].target || ret->mounts[i].target[0] != '/')
            w.is_broken = true;
    for (size_t i = 0; i < ret->n_files; i++)
        if (!ret->files[i].target || !ret->files[i].data)
            w.is_broken = true;
    if (w.is_broken || w.at != w.len) {
        hutch_spec_done(ret);
        return hutch_err_set(err, EPROTO, "read a sandbox's description of %zu bytes", w.len);
    }
    return 0;
}
