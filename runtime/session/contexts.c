#include "runtime/session/contexts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct context *find(const struct contexts *contexts, const char *name)
{
    for (unsigned i = 0; i < contexts->n; i++)
        if (strcmp(contexts->list[i].name, name) == 0)
            return (struct context *)&contexts->list[i];
    return NULL;
}

static struct context *add(struct contexts *contexts, const char *name)
{
    struct context *context;

    if (contexts->n == CONTEXTS_MAX)
        return NULL; /* the interpreter has refused it, or says what is not so */
    context = &contexts->list[contexts->n++];
    *context = (struct context){ .count = 0 };
    snprintf(context->name, sizeof(context->name), "%s", name);
    return context;
}

void hutch_contexts_note(struct contexts *contexts, const char *name, int64_t count, const char *directory)
{
    struct context *context;

    if (contexts->n == 0)
        add(contexts, CONTEXTS_MAIN);
    context = find(contexts, name);
    if (!context)
        context = add(contexts, name);
    if (!context)
        return;
    context->count = count;
    if (!directory)
        return;
    free(context->directory);
    context->directory = strdup(directory);
}

bool hutch_contexts_has(const struct contexts *contexts, const char *name)
{
    return strcmp(name, CONTEXTS_MAIN) == 0 || find(contexts, name);
}

void hutch_contexts_reset(struct contexts *contexts, const char *name)
{
    struct context *context = find(contexts, name);

    if (context)
        context->count = 0;
}

void hutch_contexts_drop(struct contexts *contexts, const char *name)
{
    struct context *context = find(contexts, name);

    if (!context)
        return;
    free(context->directory);
    contexts->n--;
    memmove(context, context + 1, (size_t)(&contexts->list[contexts->n] - context) * sizeof(*context));
}

int hutch_contexts_copy(const struct contexts *contexts, struct contexts *ret, struct hutch_err *err)
{
    *ret = *contexts;
    for (unsigned i = 0; i < ret->n; i++)
        ret->list[i].directory = NULL;
    for (unsigned i = 0; i < ret->n; i++)
        if (contexts->list[i].directory && !(ret->list[i].directory = strdup(contexts->list[i].directory))) {
            hutch_contexts_done(ret);
            return hutch_err_set(err, ENOMEM, "keep the list of contexts");
        }
    return 0;
}

void hutch_contexts_done(struct contexts *contexts)
{
    for (unsigned i = 0; i < contexts->n; i++)
        free(contexts->list[i].directory);
    contexts->n = 0;
}
