#include "runtime/engine/zygote_config.h"

#include "runtime/lang/python_imports.h"
#include "sandbox/fd.h"
#include "sandbox/zygote_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MIN 2
#define DEFAULT_MAX 32

static const struct hutch_zygote default_zygotes[] = {
    { .name = "bare", .min = 4 },
    { .name = "data", .parent = "bare", .modules = (const char *const[]){ "numpy", "pandas", NULL } },
    { .name = "plot", .parent = "data", .modules = (const char *const[]){ "matplotlib", "matplotlib.pyplot", NULL } },
    { .name = "shell", .parent = "plot", .modules = (const char *const[]){ "IPython", "ipykernel", NULL } },
};

static bool is_word(const char *text, const char *also)
{
    size_t n = 0;

    for (; text[n]; n++)
        if (!(text[n] >= 'a' && text[n] <= 'z') && !(text[n] >= 'A' && text[n] <= 'Z') &&
            !(text[n] >= '0' && text[n] <= '9') && !strchr(also, text[n]))
            return false;
    return n > 0 && n < 256;
}

static void set_bit(uint64_t *bits, size_t n)
{
    bits[n / 64] |= 1ull << n % 64;
}

static size_t find_module(const struct zygote_configs *configs, const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < configs->n_modules; i++)
        if (strncmp(configs->modules[i], name, len) == 0 && configs->modules[i][len] == '\0')
            break;
    return i;
}

static int add_module(struct zygote_configs *configs, struct zygote_config *config, const char *name,
                      struct hutch_err *err)
{
    size_t len = strcspn(name, "."), n = find_module(configs, name, len);

    if (n == ZYGOTE_MAX_MODULES)
        return hutch_err_say(err, E2BIG, "zygote '%s': there are more than %d different modules", config->name,
                             ZYGOTE_MAX_MODULES);
    if (n == configs->n_modules) {
        configs->modules[n] = strndup(name, len);
        if (!configs->modules[n])
            return hutch_err_set(err, ENOMEM, "zygote '%s'", config->name);
        configs->n_modules++;
    }
    set_bit(config->own, n);
    return 0;
}

/* Names, one a line, and the code behind a line of its own. */
static int write_text(struct zygote_config *config, const struct hutch_zygote *zygote, struct hutch_err *err)
{
    FILE *f = open_memstream(&config->text, &config->text_len);

    if (!f)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", config->name);
    for (const char *const *m = zygote->modules; m && *m; m++)
        fprintf(f, "%s\n", *m);
    if (zygote->warm_up)
        fprintf(f, "---\n%s", zygote->warm_up);
    if (fclose(f) != 0)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", config->name);
    if (config->text_len > ZYGOTE_TEXT_MAX)
        return hutch_err_say(err, E2BIG, "zygote '%s': its modules and code are too long", config->name);
    return 0;
}

/* What can be imported from each, its ancestors' included. */
static void sum_modules(struct zygote_configs *configs)
{
    for (size_t i = 0; i < configs->n; i++) {
        struct zygote_config *config = &configs->list[i];

        config->n_modules = 0;
        for (size_t w = 0; w < ARRAY_SIZE(config->own); w++) {
            config->modules[w] = config->own[w] | (config->parent >= 0 ? configs->list[config->parent].modules[w] : 0);
            config->n_modules += (size_t)__builtin_popcountll(config->modules[w]);
        }
    }
}

bool hutch_zygote_configs_set_bounds(unsigned *min, unsigned *max)
{
    if (*min == 0 && *max == 0)
        *min = DEFAULT_MIN;
    if (*max == 0)
        *max = *min > DEFAULT_MAX ? *min : DEFAULT_MAX;
    return *min <= *max;
}

static int configure_one(struct zygote_configs *configs, const struct hutch_zygote *zygote, struct hutch_err *err)
{
    struct zygote_config *config = &configs->list[configs->n];

    if (!zygote->name || !is_word(zygote->name, "-_"))
        return hutch_err_say(err, EINVAL, "zygote '%s': a name consists of letters, digits, '-' and '_'",
                             zygote->name ? zygote->name : "");
    config->parent = -1;
    for (size_t i = 0; i < configs->n; i++) {
        if (strcmp(configs->list[i].name, zygote->name) == 0)
            return hutch_err_say(err, EINVAL, "zygote '%s' is there twice", zygote->name);
        if (zygote->parent && strcmp(configs->list[i].name, zygote->parent) == 0)
            config->parent = (int)i;
    }
    if (configs->n > 0 && !zygote->parent)
        return hutch_err_say(err, EINVAL, "zygote '%s' needs a parent: only the first one is the root", zygote->name);
    if (zygote->parent && config->parent < 0)
        return hutch_err_say(err, EINVAL, "zygote '%s': there is no zygote '%s' before it", zygote->name,
                             zygote->parent);
    config->min = zygote->min;
    config->max = zygote->max;
    if (!hutch_zygote_configs_set_bounds(&config->min, &config->max))
        return hutch_err_say(err, EINVAL, "zygote '%s': min %u is above max %u", zygote->name, config->min,
                             config->max);
    config->name = strdup(zygote->name);
    if (!config->name)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", zygote->name);
    configs->n++;
    for (const char *const *m = zygote->modules; m && *m; m++)
        if (!is_word(*m, "._"))
            return hutch_err_say(err, EINVAL, "zygote '%s': '%s' is not the name of a module", zygote->name, *m);
        else if (add_module(configs, config, *m, err) < 0)
            return -1;
    return write_text(config, zygote, err);
}

int hutch_zygote_configs_read(struct zygote_configs *configs, const struct hutch_zygote *zygotes, size_t n,
                              struct hutch_err *err)
{
    if (!zygotes) {
        zygotes = default_zygotes;
        n = ARRAY_SIZE(default_zygotes);
    }
    if (n == 0 || n > ZYGOTE_MAX_CONFIGS)
        return hutch_err_say(err, EINVAL, "there are %zu zygotes, and 1 to %d can be", n, ZYGOTE_MAX_CONFIGS);
    for (size_t i = 0; i < n; i++)
        if (configure_one(configs, &zygotes[i], err) < 0)
            return -1;
    configs->n_zygotes = configs->n;
    sum_modules(configs);
    return 0;
}

struct wanted {
    const struct zygote_configs *configs;
    uint64_t modules[ZYGOTE_MAX_MODULES / 64];
};

static void note_import(void *context, const char *name, size_t len)
{
    struct wanted *wanted = context;
    size_t n = find_module(wanted->configs, name, len);

    if (n < wanted->configs->n_modules)
        set_bit(wanted->modules, n);
}

unsigned hutch_zygote_configs_choose(const struct zygote_configs *configs, const char *code, size_t len)
{
    struct wanted wanted = { .configs = configs };
    unsigned best = 0;
    size_t best_has = 0;

    hutch_imports_scan(code, len, note_import, &wanted);
    for (unsigned i = 0; i < configs->n_zygotes; i++) {
        const struct zygote_config *config = &configs->list[i];
        size_t has = 0;

        for (size_t w = 0; w < ARRAY_SIZE(config->modules); w++)
            has += (size_t)__builtin_popcountll(config->modules[w] & wanted.modules[w]);
        if (i == 0 || has > best_has || (has == best_has && config->n_modules < configs->list[best].n_modules)) {
            best = i;
            best_has = has;
        }
    }
    return best;
}

int hutch_zygote_configs_find(const struct zygote_configs *configs, const char *name)
{
    for (size_t i = 0; i < configs->n_zygotes; i++)
        if (strcmp(configs->list[i].name, name) == 0)
            return (int)i;
    return -1;
}

bool hutch_zygote_configs_contains(const struct zygote_configs *configs, unsigned index, unsigned needed)
{
    const uint64_t *has = configs->list[index].modules, *wants = configs->list[needed].modules;

    for (size_t w = 0; w < ZYGOTE_MAX_MODULES / 64; w++)
        if (wants[w] & ~has[w])
            return false;
    return true;
}

int hutch_zygote_configs_choose_for_cells(const struct zygote_configs *configs, const char *name)
{
    size_t n = find_module(configs, "ipykernel", strlen("ipykernel"));
    int best = -1;

    for (size_t i = 0; i < configs->n_zygotes; i++) {
        const struct zygote_config *config = &configs->list[i];

        if (name && strcmp(config->name, name) == 0)
            return (int)i;
        if (!name && n < configs->n_modules && config->modules[n / 64] >> n % 64 & 1 &&
            (best < 0 || config->n_modules < configs->list[best].n_modules))
            best = (int)i;
    }
    return name || best >= 0 ? best : (int)configs->n_zygotes - 1;
}

void hutch_zygote_configs_note_missing(struct zygote_configs *configs, unsigned index, const char *names)
{
    struct zygote_config *config = &configs->list[index];

    for (const char *p = names; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = find_module(configs, p, strcspn(p, ".\n"));

        if (n < configs->n_modules)
            config->own[n / 64] &= ~(1ull << n % 64);
    }
    sum_modules(configs);
}

void hutch_zygote_configs_give_up(struct zygote_configs *configs, unsigned index, const struct hutch_err *why)
{
    struct zygote_config *config = &configs->list[index];

    config->has_given_up = true;
    config->why = *why;
    memset(config->own, 0, sizeof(config->own));
    sum_modules(configs);
}

int hutch_zygote_configs_parent(const struct zygote_configs *configs, unsigned index)
{
    int parent = configs->list[index].parent;

    while (parent > 0 && configs->list[parent].has_given_up)
        parent = configs->list[parent].parent;
    return parent;
}

static void forget_config(struct zygote_config *config)
{
    free(config->name);
    free(config->text);
    *config = (struct zygote_config){ .parent = -1, .has_given_up = true, .is_function = true };
}

/* rootfs/python/zygote/preload.py */
static int write_function(struct zygote_config *config, const char *code, size_t len, struct hutch_err *err)
{
    size_t head_len = strlen("===\n\n") + strlen(config->name);

    if (head_len + len > ZYGOTE_TEXT_MAX)
        return hutch_err_set(err, 0, "the function '%s' has %zu bytes, and can have %zu", config->name, len,
                             (size_t)ZYGOTE_TEXT_MAX - head_len);
    config->text = malloc(head_len + len + 1);
    if (!config->text)
        return hutch_err_set(err, ENOMEM, "keep the function '%s'", config->name);
    snprintf(config->text, head_len + 1, "===\n%s\n", config->name);
    memcpy(config->text + head_len, code, len);
    config->text_len = head_len + len;
    return 0;
}

static int too_many(const char *name, struct hutch_err *err)
{
    hutch_err_set(err, 0, "function '%s': there are %d already, with those that are being replaced", name,
                  ZYGOTE_MAX_FUNCTIONS);
    err->errnum = EAGAIN;
    return -1;
}

int hutch_zygote_configs_add_function(struct zygote_configs *configs, const char *name, const char *code, size_t len,
                                      unsigned *ret_index, struct hutch_err *err)
{
    int parent = (int)hutch_zygote_configs_choose(configs, code, len);
    struct zygote_config *config;
    size_t i = configs->n_zygotes;

    if (!is_word(name, "-_"))
        return hutch_err_set(err, 0, "function '%s': a name consists of letters, digits, '-' and '_'", name);
    while (i < configs->n && configs->list[i].name)
        i++;
    if (i == configs->n_zygotes + ZYGOTE_MAX_FUNCTIONS)
        return too_many(name, err);
    config = &configs->list[i];
    *config = (struct zygote_config){ .parent = parent, .is_function = true, .name = strdup(name) };
    if (!config->name)
        hutch_err_set(err, ENOMEM, "keep the function '%s'", name);
    if (!config->name || write_function(config, code, len, err) < 0) {
        forget_config(config);
        return -1;
    }
    if (i == configs->n)
        configs->n++;
    sum_modules(configs);
    *ret_index = (unsigned)i;
    return 0;
}

void hutch_zygote_configs_remove_function(struct zygote_configs *configs, unsigned index)
{
    forget_config(&configs->list[index]);
}

void hutch_zygote_configs_done(struct zygote_configs *configs)
{
    for (size_t i = 0; i < configs->n; i++) {
        free(configs->list[i].name);
        free(configs->list[i].text);
    }
    for (size_t i = 0; i < configs->n_modules; i++)
        free(configs->modules[i]);
    configs->n = configs->n_zygotes = configs->n_modules = 0;
}
