/* template.h - the description of sandboxes that the launcher knows by a number, with its sources as open mounts where
 * root calls. */
#ifndef HUTCH_ENGINE_TEMPLATE_H
#define HUTCH_ENGINE_TEMPLATE_H

#include "runtime/engine/helper.h"
#include "sandbox/spec.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct template;

struct template_events {
    /* The present launcher has it: sandboxes and zygotes can be made of it. */
    void (*on_sent)(void *owner, struct template *template);
    /* It is no good, as its sources are now. hutch_template_want() tries again. */
    void (*on_failed)(void *owner, struct template *template, const struct hutch_err *why);
};

TAILQ_HEAD(template_list, template);

/* All of one engine. */
struct templates {
    struct helper *helper;
    const struct template_events *events;
    void *owner;
    struct template_list list;
};

struct template {
    TAILQ_ENTRY(template) link;
    struct templates *templates;
    uint32_t id;
    unsigned refs;
    struct sandbox_spec spec;
    int memfd;             /* owned; encoded */
    int *fds;              /* owned, with is_mapped_away: root tree and binds as detached mounts; -1: not there yet */
    size_t n_fds, n_open;  /* how many there have to be; have been asked for and answered */
    uint64_t missing[4];
    bool is_sent;          /* the present launcher has it */
    bool has_failed;       /* a source, or the description; tried again by hutch_template_want() */
    struct hutch_err why;  /* has_failed, with more sources on their way: what the first one lacks */
};

void hutch_templates_init(struct templates *templates, struct helper *helper, const struct template_events *events,
                          void *owner);

/* Takes @spec over, on failure too. One reference is the caller's. */
struct template *hutch_template_create(struct templates *templates, struct sandbox_spec *spec, struct hutch_err *err);
void hutch_template_unref(struct template *template); /* NULL is fine */
/* For a sandbox that waits for it from now on. */
void hutch_template_want(struct template *template);

/* What the owner hears of the helper processes, passed on. */
void hutch_templates_on_launcher(struct templates *templates);
void hutch_templates_on_lost_launcher(struct templates *templates);
void hutch_templates_on_lost_opener(struct templates *templates);
/* False when none of them has that number, and @fd is still the caller's. */
bool hutch_templates_on_opened(struct templates *templates, uint32_t id, int fd, const struct hutch_err *why);
void hutch_templates_on_refused(struct templates *templates, uint32_t id, const struct hutch_err *why);

#endif
