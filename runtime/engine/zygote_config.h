/* zygote_config.h - what the operator asks of the zygotes: their names, what each imports, and which of them a program
 * wants. */
#ifndef HUTCH_ENGINE_ZYGOTE_CONFIG_H
#define HUTCH_ENGINE_ZYGOTE_CONFIG_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZYGOTE_MAX_CONFIGS 32
#define ZYGOTE_MAX_FUNCTIONS 64 /* with those that are being replaced */
#define ZYGOTE_MAX_ALL (ZYGOTE_MAX_CONFIGS + ZYGOTE_MAX_FUNCTIONS)
#define ZYGOTE_MAX_MODULES 256 /* different ones, over all zygotes */

struct zygote_config {
    char *name;               /* owned */
    int parent;               /* index, -1 for the root */
    char *text;               /* owned: names to import, and "---" and code */
    size_t text_len;
    uint64_t modules[ZYGOTE_MAX_MODULES / 64]; /* bits: importable here, those of the ancestors too */
    uint64_t own[ZYGOTE_MAX_MODULES / 64];     /* bits: those that this one adds */
    size_t n_modules;         /* the bits in modules: its size */
    unsigned min, max;        /* prepared sandboxes */
    bool has_given_up;        /* it cannot be made in this image: others stand in for it, but for a function … */
    bool is_function;         /* function.h; no program is given to it but by its name */
    bool has_been_ready;
    struct hutch_err why;     /* … which has this for a reason */
};

/* All of an engine, a parent always before its children, and functions behind the zygotes of the options. */
struct zygote_configs {
    struct zygote_config list[ZYGOTE_MAX_ALL];
    size_t n;                 /* with functions, and with places that some have left: those have given up */
    size_t n_zygotes;         /* without */
    char *modules[ZYGOTE_MAX_MODULES]; /* owned; their names */
    size_t n_modules;
};

/* Into a zeroed @configs, which hutch_zygote_configs_done() frees, on failure too. NULL @zygotes: the default ones.
 * Errors: EINVAL, E2BIG, ENOMEM. */
int hutch_zygote_configs_read(struct zygote_configs *configs, const struct hutch_zygote *zygotes, size_t n,
                              struct hutch_err *err);
void hutch_zygote_configs_done(struct zygote_configs *configs);

/* The index for a program that imports what the text says. */
unsigned hutch_zygote_configs_choose(const struct zygote_configs *configs, const char *code, size_t len);
/* The index of the one called @name; without a name, of the smallest that has what executes cells, else the last. -1:
 * no such name. */
int hutch_zygote_configs_choose_for_cells(const struct zygote_configs *configs, const char *name);
/* What a zygote or pool has, @min and @max, for what was asked for. False where the first is more. */
bool hutch_zygote_configs_set_bounds(unsigned *min, unsigned *max);
/* The index of the one called @name, -1: none. */
int hutch_zygote_configs_find(const struct zygote_configs *configs, const char *name);
/* Whether all that @needed has imported is in @index, too. */
bool hutch_zygote_configs_contains(const struct zygote_configs *configs, unsigned index, unsigned needed);
/* The nearest ancestor that there is; -1 for the root, which is not given up. */
int hutch_zygote_configs_parent(const struct zygote_configs *configs, unsigned index);

/* This image has not all of what it was to import: @names, one a line. */
void hutch_zygote_configs_note_missing(struct zygote_configs *configs, unsigned index, const char *names);
/* In this image it cannot be. */
void hutch_zygote_configs_give_up(struct zygote_configs *configs, unsigned index, const struct hutch_err *why);

/* One more, a child of the zygote that has what @code imports; its zygote executes @code. Errors: EAGAIN (there are too
 * many), E2BIG, ENOMEM. */
int hutch_zygote_configs_add_function(struct zygote_configs *configs, const char *name, const char *code, size_t len,
                                      unsigned *ret_index, struct hutch_err *err);
/* Nothing refers to it any more. */
void hutch_zygote_configs_remove_function(struct zygote_configs *configs, unsigned index);

#endif
