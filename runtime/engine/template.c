#include "runtime/engine/template.h"

#include "runtime/launcher/spec_wire.h"
#include "sandbox/fd.h"

#include <stdlib.h>
#include <string.h>

static bool has_root(const struct sandbox_spec *spec)
{
    return spec->root_kind == ROOT_DIR;
}

/* The mount that descriptor number @n of a template is for; NULL: the root tree. */
static const struct sandbox_mount *mount_of_fd(const struct sandbox_spec *spec, size_t n, size_t *ret_index)
{
    if (has_root(spec) && n-- == 0)
        return NULL;
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mounts[i].kind == MOUNT_BIND && n-- == 0) {
            *ret_index = i;
            return &spec->mounts[i];
        }
    return NULL;
}

static void fail_template(struct template *template, const struct hutch_err *why)
{
    template->has_failed = true;
    template->is_sent = false;
    template->templates->events->on_failed(template->templates->owner, template, why);
}

static int ask_for_sources(struct template *template, struct hutch_err *err)
{
    if (template->n_open > 0 || template->fds) /* on its way */
        return 0;
    template->fds = malloc((template->n_fds + 1) * sizeof(*template->fds));
    if (!template->fds)
        return hutch_err_set(err, ENOMEM, "open the sources of a sandbox");
    for (size_t i = 0; i < template->n_fds; i++)
        template->fds[i] = -1;
    for (size_t i = 0; i < template->n_fds; i++) {
        size_t index;
        const struct sandbox_mount *m = mount_of_fd(&template->spec, i, &index);

        if (hutch_helper_open(template->templates->helper, template->id, m ? m->source : template->spec.rootfs_path,
                              m ? m->flags & (MOUNT_RDONLY | MOUNT_IDMAP) : MOUNT_RDONLY, 0, 0, err) < 0)
            return -1;
    }
    return 0;
}

static int send_template(struct template *template, struct hutch_err *err)
{
    struct helper *h = template->templates->helper;
    struct launcher_request request = { .what = LAUNCHER_SPEC, .spec_id = template->id };
    int fds[WARM_MAX_FDS] = { template->memfd };
    size_t n = 1;

    if (template->is_sent || template->has_failed || !h->has_launcher)
        return 0;
    if (h->is_mapped_away) {
        if (template->n_open < template->n_fds)
            return ask_for_sources(template, err);
        for (size_t i = 0; i < template->n_fds; i++)
            if (template->fds[i] >= 0)
                fds[n++] = template->fds[i];
        memcpy(request.missing, template->missing, sizeof(request.missing));
    }
    if (hutch_helper_order(h, &request, fds, n, err) < 0)
        return -1;
    template->is_sent = true;
    template->templates->events->on_sent(template->templates->owner, template);
    return 0;
}

static void take_source(struct template *template, int fd, const struct hutch_err *why)
{
    size_t index = 0;
    const struct sandbox_mount *m;
    struct hutch_err err;

    if (!template->fds || template->n_open == template->n_fds) {
        hutch_fd_closep(&fd);
        return;
    }
    m = mount_of_fd(&template->spec, template->n_open, &index);
    template->fds[template->n_open++] = fd;
    if (fd < 0 && m && (m->flags & MOUNT_OPTIONAL) && why->errnum == ENOENT) {
        template->missing[index / 64] |= 1ull << index % 64;
    } else if (fd < 0 && !template->has_failed) {
        template->has_failed = true;
        template->why = *why;
    }
    if (template->n_open < template->n_fds)
        return;
    if (template->has_failed)
        fail_template(template, &template->why);
    else if (send_template(template, &err) < 0)
        fail_template(template, &err);
}

static void forget_sources(struct template *template)
{
    for (size_t i = 0; template->fds && i < template->n_open; i++)
        hutch_fd_closep(&template->fds[i]);
    free(template->fds);
    template->fds = NULL;
    template->n_open = 0;
    memset(template->missing, 0, sizeof(template->missing));
    template->has_failed = false;
}

void hutch_template_want(struct template *template)
{
    struct hutch_err err;

    /* what is on its way comes first */
    if (!template->has_failed || (template->fds && template->n_open < template->n_fds))
        return;
    forget_sources(template);
    if (send_template(template, &err) < 0)
        fail_template(template, &err);
}

struct template *hutch_template_create(struct templates *templates, struct sandbox_spec *spec, struct hutch_err *err)
{
    struct template *template = calloc(1, sizeof(*template));
    size_t index;

    if (!template) {
        hutch_spec_done(spec);
        hutch_err_set(err, ENOMEM, "describe a sandbox");
        return NULL;
    }
    template->templates = templates;
    template->id = hutch_core_make_id(templates->helper->core);
    template->refs = 1;
    template->spec = *spec;
    *spec = (struct sandbox_spec){ 0 };
    template->memfd = -1;
    TAILQ_INSERT_TAIL(&templates->list, template, link);
    template->n_fds = has_root(&template->spec);
    while (mount_of_fd(&template->spec, template->n_fds, &index))
        template->n_fds++;
    if (template->n_fds + 1 > WARM_MAX_FDS || template->spec.n_mounts > 64 * ARRAY_SIZE(template->missing))
        hutch_err_set(err, E2BIG, "a sandbox with %zu mounts", template->spec.n_mounts);
    else if (hutch_spec_encode(&template->spec, &template->memfd, err) == 0 && send_template(template, err) == 0)
        return template;
    hutch_template_unref(template);
    return NULL;
}

void hutch_template_unref(struct template *template)
{
    struct launcher_request request = { .what = LAUNCHER_FORGET };
    struct hutch_err ignored;

    if (!template || --template->refs > 0)
        return;
    if (template->is_sent) {
        request.spec_id = template->id;
        hutch_helper_order(template->templates->helper, &request, NULL, 0, &ignored);
    }
    TAILQ_REMOVE(&template->templates->list, template, link);
    forget_sources(template);
    hutch_fd_closep(&template->memfd);
    hutch_spec_done(&template->spec);
    free(template);
}

static struct template *find_template(struct templates *templates, uint32_t id)
{
    struct template *template;

    TAILQ_FOREACH(template, &templates->list, link)
        if (template->id == id)
            return template;
    return NULL;
}

void hutch_templates_init(struct templates *templates, struct helper *helper, const struct template_events *events,
                          void *owner)
{
    *templates = (struct templates){ .helper = helper, .events = events, .owner = owner };
    TAILQ_INIT(&templates->list);
}

void hutch_templates_on_launcher(struct templates *templates)
{
    struct template *template, *next;
    struct hutch_err err;

    for (template = TAILQ_FIRST(&templates->list); template; template = next) {
        next = TAILQ_NEXT(template, link);
        if (send_template(template, &err) < 0)
            fail_template(template, &err);
    }
}

void hutch_templates_on_lost_launcher(struct templates *templates)
{
    struct template *template;

    TAILQ_FOREACH(template, &templates->list, link)
        template->is_sent = false;
}

void hutch_templates_on_lost_opener(struct templates *templates)
{
    struct template *template;

    TAILQ_FOREACH(template, &templates->list, link)
        forget_sources(template);
}

bool hutch_templates_on_opened(struct templates *templates, uint32_t id, int fd, const struct hutch_err *why)
{
    struct template *template = find_template(templates, id);

    if (template)
        take_source(template, fd, why);
    return template;
}

void hutch_templates_on_refused(struct templates *templates, uint32_t id, const struct hutch_err *why)
{
    struct template *template = find_template(templates, id);

    if (template)
        fail_template(template, why);
}
