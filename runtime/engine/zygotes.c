#include "runtime/engine/engine_priv.h"

#include "sandbox/fd.h"
#include "runtime/lang/python_imports.h"
#include "sandbox/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define RETRY_MS 100
#define STDERR_BYTES (64 << 10)
#define RETRY_MAX_MS 5000
#define DEFAULT_MIN 2
#define DEFAULT_MAX 32

static const struct hutch_zygote default_zygotes[] = {
    { .name = "bare", .min = 4 },
    { .name = "data", .parent = "bare", .modules = (const char *const[]){ "numpy", "pandas", NULL } },
    { .name = "plot", .parent = "data", .modules = (const char *const[]){ "matplotlib", "matplotlib.pyplot", NULL } },
    { .name = "shell", .parent = "plot", .modules = (const char *const[]){ "IPython", "ipykernel", NULL } },
};

/* --- what the operator asks for ---------------------------------------------------------------------------------- */

static bool is_word(const char *text, const char *also)
{
    size_t n = 0;

    for (; text[n]; n++)
        if (!(text[n] >= 'a' && text[n] <= 'z') && !(text[n] >= 'A' && text[n] <= 'Z') && !(text[n] >= '0' && text[n] <= '9') &&
            !strchr(also, text[n]))
            return false;
    return n > 0 && n < 256;
}

static void set_bit(uint64_t *bits, size_t n)
{
    bits[n / 64] |= 1ull << n % 64;
}

static size_t find_module(const struct hutch_engine *engine, const char *name, size_t len)
{
    size_t i;

    for (i = 0; i < engine->n_modules; i++)
        if (strncmp(engine->modules[i], name, len) == 0 && engine->modules[i][len] == '\0')
            break;
    return i;
}

static int add_module(struct hutch_engine *engine, struct zygote_conf *conf, const char *name, struct hutch_err *err)
{
    size_t len = strcspn(name, "."), n = find_module(engine, name, len);

    if (n == ENGINE_MAX_MODULES)
        return hutch_err_set(err, E2BIG, "zygote '%s': there are more than %d different modules", conf->name, ENGINE_MAX_MODULES);
    if (n == engine->n_modules) {
        engine->modules[n] = strndup(name, len);
        if (!engine->modules[n])
            return hutch_err_set(err, ENOMEM, "zygote '%s'", conf->name);
        engine->n_modules++;
    }
    set_bit(conf->own, n);
    return 0;
}

/* Names, one a line, and the code behind a line of its own. */
static int write_text(struct zygote_conf *conf, const struct hutch_zygote *zygote, struct hutch_err *err)
{
    FILE *f = open_memstream(&conf->text, &conf->text_len);

    if (!f)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", conf->name);
    for (const char *const *m = zygote->modules; m && *m; m++)
        fprintf(f, "%s\n", *m);
    if (zygote->warm_up)
        fprintf(f, "---\n%s", zygote->warm_up);
    if (fclose(f) != 0)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", conf->name);
    if (conf->text_len > ENGINE_PACKET_MAX / 4)
        return hutch_err_set(err, E2BIG, "zygote '%s': its modules and code are too long", conf->name);
    return 0;
}

/* What can be imported from each, its ancestors' included. */
static void sum_modules(struct hutch_engine *engine)
{
    for (size_t i = 0; i < engine->n_confs; i++) {
        struct zygote_conf *conf = &engine->confs[i];

        conf->n_modules = 0;
        for (size_t w = 0; w < ARRAY_SIZE(conf->own); w++) {
            conf->modules[w] = conf->own[w] | (conf->parent >= 0 ? engine->confs[conf->parent].modules[w] : 0);
            conf->n_modules += (size_t)__builtin_popcountll(conf->modules[w]);
        }
    }
}

static int configure_one(struct hutch_engine *engine, const struct hutch_zygote *zygote, struct hutch_err *err)
{
    struct zygote_conf *conf = &engine->confs[engine->n_confs];

    if (!zygote->name || !is_word(zygote->name, "-_"))
        return hutch_err_set(err, EINVAL, "zygote '%s': a name consists of letters, digits, '-' and '_'",
                             zygote->name ? zygote->name : "");
    conf->parent = -1;
    for (size_t i = 0; i < engine->n_confs; i++) {
        if (strcmp(engine->confs[i].name, zygote->name) == 0)
            return hutch_err_set(err, EINVAL, "zygote '%s' is there twice", zygote->name);
        if (zygote->parent && strcmp(engine->confs[i].name, zygote->parent) == 0)
            conf->parent = (int)i;
    }
    if (engine->n_confs > 0 && !zygote->parent)
        return hutch_err_set(err, EINVAL, "zygote '%s' needs a parent: only the first one is the root", zygote->name);
    if (zygote->parent && conf->parent < 0)
        return hutch_err_set(err, EINVAL, "zygote '%s': there is no zygote '%s' before it", zygote->name, zygote->parent);
    conf->min = zygote->min || zygote->max ? zygote->min : DEFAULT_MIN;
    conf->max = zygote->max ? zygote->max : conf->min > DEFAULT_MAX ? conf->min : DEFAULT_MAX;
    if (conf->min > conf->max)
        return hutch_err_set(err, EINVAL, "zygote '%s': min %u is above max %u", zygote->name, conf->min, conf->max);
    conf->name = strdup(zygote->name);
    if (!conf->name)
        return hutch_err_set(err, ENOMEM, "zygote '%s'", zygote->name);
    engine->n_confs++;
    for (const char *const *m = zygote->modules; m && *m; m++)
        if (!is_word(*m, "._"))
            return hutch_err_set(err, EINVAL, "zygote '%s': '%s' is not the name of a module", zygote->name, *m);
        else if (add_module(engine, conf, *m, err) < 0)
            return -1;
    return write_text(conf, zygote, err);
}

int hutch_zygotes_configure(struct hutch_engine *engine, const struct hutch_zygote *zygotes, size_t n, struct hutch_err *err)
{
    if (!zygotes) {
        zygotes = default_zygotes;
        n = ARRAY_SIZE(default_zygotes);
    }
    if (n == 0 || n > ENGINE_MAX_ZYGOTES)
        return hutch_err_set(err, EINVAL, "there are %zu zygotes, and 1 to %d can be", n, ENGINE_MAX_ZYGOTES);
    for (size_t i = 0; i < n; i++)
        if (configure_one(engine, &zygotes[i], err) < 0)
            return -1;
    sum_modules(engine);
    return 0;
}

struct wanted {
    const struct hutch_engine *engine;
    uint64_t modules[ENGINE_MAX_MODULES / 64];
};

static void note_import(void *context, const char *name, size_t len)
{
    struct wanted *wanted = context;
    size_t n = find_module(wanted->engine, name, len);

    if (n < wanted->engine->n_modules)
        set_bit(wanted->modules, n);
}

unsigned hutch_zygotes_choose(const struct hutch_engine *engine, const char *code, size_t len)
{
    struct wanted wanted = { .engine = engine };
    unsigned best = 0;
    size_t best_has = 0;

    hutch_imports_scan(code, len, note_import, &wanted);
    for (unsigned i = 0; i < engine->n_confs; i++) {
        const struct zygote_conf *conf = &engine->confs[i];
        size_t has = 0;

        for (size_t w = 0; w < ARRAY_SIZE(conf->modules); w++)
            has += (size_t)__builtin_popcountll(conf->modules[w] & wanted.modules[w]);
        if (i == 0 || has > best_has || (has == best_has && conf->n_modules < engine->confs[best].n_modules)) {
            best = i;
            best_has = has;
        }
    }
    return best;
}

int hutch_zygotes_choose_for_cells(const struct hutch_engine *engine, const char *name)
{
    size_t n = find_module(engine, "ipykernel", strlen("ipykernel"));
    int best = -1;

    for (size_t i = 0; i < engine->n_confs; i++) {
        const struct zygote_conf *conf = &engine->confs[i];

        if (name && strcmp(conf->name, name) == 0)
            return (int)i;
        if (!name && n < engine->n_modules && conf->modules[n / 64] >> n % 64 & 1 &&
            (best < 0 || conf->n_modules < engine->confs[best].n_modules))
            best = (int)i;
    }
    return name || best >= 0 ? best : (int)engine->n_confs - 1;
}

/* --- processes --------------------------------------------------------------------------------------------------- */

static void start_tree(struct tree *tree);

static struct place *place_of(struct node *node)
{
    return &node->tree->places[node->index];
}

/* Which tree it is in says what it is for. */
static bool is_in_use(const struct node *node)
{
    return node->tree == node->engine->tree || node->tree == node->engine->next_tree;
}

static void bury(struct node *node)
{
    hutch_link_close(&node->link);
    node->next = node->engine->dead_nodes; /* freed when no handler can be at work with it */
    node->engine->dead_nodes = node;
}

void hutch_zygotes_release(struct node *node)
{
    if (node->n_forking > 0)
        node->n_forking--;
}

static void drop_tree(struct tree *tree)
{
    for (size_t i = 0; i < tree->engine->n_confs; i++) {
        if (tree->places[i].node)
            bury(tree->places[i].node);
        if (tree->places[i].spare)
            bury(tree->places[i].spare);
    }
    hutch_fd_closep(&tree->stderr_fd);
    free(tree);
}

/* The last line that a process of the tree has written on its stderr. */
static bool read_last_words(const struct tree *tree, struct hutch_err *ret)
{
    char text[4096], *line;
    off_t end = tree->stderr_fd < 0 ? 0 : lseek(tree->stderr_fd, 0, SEEK_CUR); /* they all write at one place */
    off_t start = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
    ssize_t n = end > 0 ? pread(tree->stderr_fd, text, (size_t)(end - start), start) : 0;

    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n <= 0)
        return false;
    text[n] = '\0';
    line = strrchr(text, '\n');
    hutch_err_set(ret, 0, "it ended before it was ready: %s", line ? line + 1 : text);
    return true;
}

/* In this image it cannot be, and every further try would cost as much as the last. The nearest ancestor takes its place. */
static void give_up(struct hutch_engine *engine, unsigned index, const struct hutch_err *why)
{
    struct zygote_conf *conf = &engine->confs[index];
    struct slot *slot, *next;

    hutch_log_debug("engine: zygote '%s' is given up: %s", conf->name, why->msg);
    conf->has_given_up = true;
    memset(conf->own, 0, sizeof(conf->own));
    sum_modules(engine);
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        hutch_slot_on_zygote(slot);
    }
}

static void fail_waiting(struct node *node)
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&node->engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->node == node)
            hutch_slot_fail(slot, NULL);
    }
}

/* It is dead, or has to go. @why: NULL when nobody knows. */
static void lose(struct node *node, const struct hutch_err *why)
{
    struct hutch_engine *engine = node->engine;
    struct tree *tree = node->tree;
    struct place *place = place_of(node);
    struct hutch_err err;
    bool was_spare = place->spare == node;

    if (!why && node->state == NODE_STARTING && !was_spare && read_last_words(tree, &err))
        why = &err;
    hutch_log_debug("engine: zygote '%s'%s is gone%s%s", engine->confs[node->index].name, was_spare ? " (spare)" : "", why ? ": " : "",
                    why ? why->msg : "");
    bury(node);
    if (was_spare) {
        place->spare = NULL;
    } else if (place->node == node) {
        place->node = place->spare;
        place->spare = NULL;
        if (place->node)
            place->node->is_spare = false;
        if (is_in_use(node))
            engine->confs[node->index].recycled++;
    }
    fail_waiting(node);
    if (!is_in_use(node))
        return;
    if (node->state == NODE_STARTING) {
        double wait = RETRY_MS << (place->failures < 6 ? place->failures : 6);

        place->failures++;
        place->retry_at = hutch_supervisor_now() + (wait < RETRY_MAX_MS ? wait : RETRY_MAX_MS);
        if (place->failures >= ENGINE_MAX_RESTARTS && node->index == 0 && !engine->has_worked) {
            if (why)
                err = *why;
            else
                hutch_err_set(&err, 0, "it ended before it was ready");
            hutch_err_wrap(&err, "start the zygote '%s'", engine->confs[0].name);
            hutch_engine_break(engine, &err);
            return;
        }
        if (why && !was_spare && ++place->refusals >= ENGINE_MAX_RESTARTS && node->index > 0)
            give_up(engine, node->index, why);
    }
    start_tree(tree);
    /* One that was a spare may be ready for what waits. */
    if (tree == engine->tree && place->node && place->node->state == NODE_READY) {
        struct slot *slot, *next;

        for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
            next = TAILQ_NEXT(slot, link);
            hutch_slot_on_zygote(slot);
        }
    }
    hutch_engine_wake(engine, place->retry_at);
}

static void on_hangup(struct link *l)
{
    struct node *node = l->owner;

    if (is_in_use(node))
        node->engine->lost_zygotes++;
    lose(node, NULL);
}

static void note_missing(struct hutch_engine *engine, struct zygote_conf *conf, const char *names)
{
    for (const char *p = names; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = find_module(engine, p, strcspn(p, ".\n"));

        if (n < engine->n_modules)
            conf->own[n / 64] &= ~(1ull << n % 64);
    }
    sum_modules(engine);
}

static void swap_trees(struct hutch_engine *engine)
{
    struct tree *old = engine->tree;

    for (size_t i = 0; i < engine->n_confs; i++)
        if (engine->next_tree->places[i].failures == 0 && !engine->confs[i].has_given_up &&
            (!engine->next_tree->places[i].node || engine->next_tree->places[i].node->state != NODE_READY))
            return;
    hutch_log_debug("engine: fresh zygotes");
    engine->tree = engine->next_tree;
    engine->next_tree = NULL;
    old->next = engine->retiring;
    engine->retiring = old;
    for (size_t i = 0; i < engine->n_confs; i++)
        engine->confs[i].recycled++;
    hutch_engine_wake(engine, 0);
}

static void on_ready_node(struct node *node, const struct zygote_reply *reply, pid_t sender)
{
    struct hutch_engine *engine = node->engine;
    struct slot *slot, *next;
    struct hutch_err err;

    if (sender > 0)
        node->pid = sender;
    if (strncmp(reply->modules, "error: ", 7) == 0) {
        hutch_err_set(&err, 0, "%.*s", (int)strcspn(reply->modules + 7, "\n"), reply->modules + 7);
        lose(node, &err);
        return;
    }
    node->state = NODE_READY;
    place_of(node)->failures = place_of(node)->refusals = 0;
    note_missing(engine, &engine->confs[node->index], reply->modules);
    start_tree(node->tree);
    if (node->tree == engine->next_tree)
        swap_trees(engine);
    for (slot = TAILQ_FIRST(&engine->slots); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        hutch_slot_on_zygote(slot);
    }
    for (size_t i = 0; i < engine->n_confs; i++)
        hutch_pool_refill(&engine->pools[i]);
}

static struct node *find_node(struct hutch_engine *engine, uint32_t id)
{
    struct tree *trees[] = { engine->tree, engine->next_tree };

    for (size_t t = 0; t < ARRAY_SIZE(trees); t++)
        for (size_t i = 0; trees[t] && i < engine->n_confs; i++) {
            struct place *place = &trees[t]->places[i];

            if (place->node && place->node->id == id)
                return place->node;
            if (place->spare && place->spare->id == id)
                return place->spare;
        }
    return NULL;
}

static void on_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct node *node = l->owner, *child;
    struct hutch_engine *engine = node->engine;
    struct zygote_reply reply;
    struct slot *slot;

    for (size_t i = 0; i < n_fds; i++) /* it has nothing to send */
        hutch_fd_closep(&fds[i]);
    if (len != sizeof(reply))
        return;
    memcpy(&reply, data, sizeof(reply));
    reply.modules[sizeof(reply.modules) - 1] = '\0';
    reply.err.msg[sizeof(reply.err.msg) - 1] = '\0';
    slot = hutch_slot_find(engine, reply.id);
    if (slot && slot->node != node)
        slot = NULL;
    switch ((enum zygote_says)reply.what) {
    case ZYGOTE_READY:
        if (node->state == NODE_STARTING)
            on_ready_node(node, &reply, sender);
        break;
    case ZYGOTE_FORKED:
        if (slot) {
            node->forks++;
            hutch_slot_on_forked(slot, reply.pid);
            if (node->forks >= engine->recycle_forks)
                hutch_engine_wake(engine, 0);
        }
        break;
    case ZYGOTE_FAILED:
        if (slot)
            hutch_slot_fail(slot, &reply.err);
        else if ((child = find_node(engine, reply.id)))
            lose(child, &reply.err);
        break;
    }
}

/* Asks the launcher for a root, or @from for a copy that imports more (a spare: nothing more). */
static int ask_for(struct node *node, struct node *from, int theirs, struct hutch_err *err)
{
    struct hutch_engine *engine = node->engine;
    const struct zygote_conf *conf = &engine->confs[node->index];
    struct zygote_request request = { .what = ZYGOTE_ZYGOTE, .id = node->id };
    struct launcher_request order = { .what = LAUNCHER_ZYGOTE, .id = node->id, .spec_id = engine->zygote->id };

    if (!from) {
        const int fds[] = { theirs, node->tree->stderr_fd };

        return hutch_helper_order(engine, &order, fds, node->tree->stderr_fd < 0 ? 1 : 2, err);
    }
    request.text_len = node->is_spare ? 0 : (uint32_t)conf->text_len;
    return hutch_link_send(&from->link, &request, sizeof(request), conf->text, request.text_len, &theirs, 1, err);
}

static struct node *start_node(struct tree *tree, unsigned index, bool is_spare, struct node *from)
{
    struct hutch_engine *engine = tree->engine;
    struct node *node = calloc(1, sizeof(*node));
    auto_fd theirs = -1;
    struct hutch_err err;
    int pair[2];

    if (!node || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(node);
        return NULL;
    }
    theirs = pair[1];
    *node = (struct node){ .link = LINK_INIT, .engine = engine, .tree = tree, .index = index, .is_spare = is_spare,
                           .id = hutch_engine_make_id(engine), .since = hutch_supervisor_now() };
    node->link.on_packet = on_packet;
    node->link.on_hangup = on_hangup;
    node->link.owner = node;
    if (hutch_link_open(&node->link, engine, pair[0], &err) < 0 || ask_for(node, from, theirs, &err) < 0) {
        hutch_log_debug("engine: %s", err.msg);
        hutch_link_close(&node->link);
        free(node);
        return NULL;
    }
    hutch_engine_wake(engine, node->since + engine->import_ms);
    return node;
}

/* The nearest ancestor that there is; -1 for the root, which is not given up. */
static int find_parent(const struct hutch_engine *engine, unsigned index)
{
    int parent = engine->confs[index].parent;

    while (parent > 0 && engine->confs[parent].has_given_up)
        parent = engine->confs[parent].parent;
    return parent;
}

/* Starts what can be started: nodes whose parent is ready, and a spare beside each. */
static void start_tree(struct tree *tree)
{
    struct hutch_engine *engine = tree->engine;
    double now = hutch_supervisor_now();

    if (engine->is_broken)
        return;
    for (unsigned i = 0; i < engine->n_confs; i++) {
        struct place *place = &tree->places[i];
        int parent = find_parent(engine, i);
        struct node *from = parent < 0 ? NULL : tree->places[parent].node;
        bool can_ask = engine->confs[i].has_given_up ? false : parent < 0 ? engine->helper.has_launcher && engine->zygote->is_sent : from && from->state == NODE_READY;

        if (!place->node && now >= place->retry_at && can_ask) {
            place->node = start_node(tree, i, false, from);
            if (!place->node)
                place->retry_at = now + RETRY_MAX_MS;
        }
        if (place->node && place->node->state == NODE_READY && !place->spare && now >= place->retry_at) {
            place->spare = start_node(tree, i, true, place->node);
            if (!place->spare)
                place->retry_at = now + RETRY_MAX_MS;
        }
    }
}

static struct tree *create_tree(struct hutch_engine *engine)
{
    struct tree *tree = calloc(1, sizeof(*tree));

    if (!tree)
        return NULL;
    tree->engine = engine;
    tree->since = hutch_supervisor_now();
    tree->stderr_fd = memfd_create("hutch-zygotes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (tree->stderr_fd >= 0 && (ftruncate(tree->stderr_fd, STDERR_BYTES) < 0 ||
                                 fcntl(tree->stderr_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
        hutch_fd_closep(&tree->stderr_fd); /* then nobody hears it */
    return tree;
}

void hutch_zygotes_on_launcher(struct hutch_engine *engine)
{
    if (!engine->tree)
        engine->tree = create_tree(engine);
    if (!engine->tree)
        return;
    start_tree(engine->tree);
    if (engine->next_tree)
        start_tree(engine->next_tree);
    hutch_engine_wake(engine, engine->tree->since + (double)engine->recycle_ms);
}

void hutch_zygotes_on_reply(struct hutch_engine *engine, const struct launcher_reply *reply)
{
    struct node *node = find_node(engine, reply->id);

    if (!node)
        return;
    if (reply->what == LAUNCHER_FAILED) /* LAUNCHER_STARTED is nothing yet: it has to read its libraries */
        lose(node, &reply->err);
}

void hutch_zygotes_drop_all(struct hutch_engine *engine)
{
    struct tree **trees[] = { &engine->tree, &engine->next_tree, &engine->retiring };

    for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
        while (*trees[i]) {
            struct tree *tree = *trees[i];

            *trees[i] = tree->next;
            drop_tree(tree);
        }
}

void hutch_zygotes_done(struct hutch_engine *engine)
{
    hutch_zygotes_drop_all(engine);
    for (size_t i = 0; i < engine->n_confs; i++) {
        free(engine->confs[i].name);
        free(engine->confs[i].text);
    }
    for (size_t i = 0; i < engine->n_modules; i++)
        free(engine->modules[i]);
    engine->n_confs = engine->n_modules = 0;
}

struct node *hutch_zygotes_find(struct hutch_engine *engine, unsigned index)
{
    for (int i = (int)index; engine->tree && i >= 0; i = engine->confs[i].parent) {
        struct place *place = &engine->tree->places[i];

        if (place->node && place->node->state == NODE_READY)
            return place->node;
        if (place->failures < ENGINE_MAX_RESTARTS && !engine->confs[i].has_given_up) /* it is going to be ready */
            return NULL;
    }
    return NULL;
}

static void retire(struct hutch_engine *engine)
{
    for (struct tree **at = &engine->retiring; *at;) {
        struct tree *tree = *at;
        unsigned n_forking = 0;

        for (size_t i = 0; i < engine->n_confs; i++)
            n_forking += tree->places[i].node ? tree->places[i].node->n_forking : 0;
        if (n_forking > 0) {
            at = &tree->next;
            continue;
        }
        *at = tree->next;
        drop_tree(tree); /* their sockets close, and they end */
    }
}

static bool is_worn(const struct tree *tree, double now)
{
    const struct hutch_engine *engine = tree->engine;

    if (now >= tree->since + (double)engine->recycle_ms)
        return true;
    for (size_t i = 0; i < engine->n_confs; i++)
        if (tree->places[i].node && tree->places[i].node->forks >= engine->recycle_forks)
            return true;
    return false;
}

static double watch_tree(struct tree *tree, double now)
{
    double due = ENGINE_NEVER;

    for (size_t i = 0; i < tree->engine->n_confs; i++) {
        struct place *place = &tree->places[i];
        struct node *nodes[] = { place->node, place->spare };

        for (size_t k = 0; k < ARRAY_SIZE(nodes); k++) {
            double end;

            if (!nodes[k] || nodes[k]->state == NODE_READY)
                continue;
            end = nodes[k]->since + tree->engine->import_ms;
            if (now >= end) {
                struct hutch_err err;

                hutch_err_set(&err, ETIMEDOUT, "wait for its imports");
                lose(nodes[k], &err);
            } else if (end < due) {
                due = end;
            }
        }
        if ((!place->node || !place->spare) && place->retry_at > now && place->retry_at < due)
            due = place->retry_at;
    }
    start_tree(tree);
    return due;
}

double hutch_zygotes_clocks(struct hutch_engine *engine, double now)
{
    double due = ENGINE_NEVER, next;

    retire(engine);
    if (engine->tree)
        due = watch_tree(engine->tree, now);
    if (engine->tree && !engine->next_tree && is_worn(engine->tree, now)) {
        engine->next_tree = create_tree(engine);
        if (engine->next_tree)
            start_tree(engine->next_tree);
    }
    if (engine->next_tree) {
        next = watch_tree(engine->next_tree, now);
        due = next < due ? next : due;
    } else if (engine->tree && engine->tree->since + (double)engine->recycle_ms < due) {
        due = engine->tree->since + (double)engine->recycle_ms;
    }
    if (engine->retiring && now + 100 < due)
        due = now + 100;
    return due;
}
