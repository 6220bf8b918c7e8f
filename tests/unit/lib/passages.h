/* passages.h - calls of an engine that fail one after the other, and sessions that are asked meanwhile. */
#ifndef HUTCH_TEST_LIB_PASSAGES_H
#define HUTCH_TEST_LIB_PASSAGES_H

#include "tests/unit/lib/lair.h" /* the first: it makes calls of libc fail */

/* How a session ended. */
static struct {
    unsigned ends;
    char message[256], directory[128];
} last_word;

static inline void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    (void)user;
    (void)session;
    last_word.ends++;
    snprintf(last_word.message, sizeof(last_word.message), "%s", why);
    snprintf(last_word.directory, sizeof(last_word.directory), "%s", directory ? directory : "");
}

static inline void close_session(struct lair *p, uint64_t id, const char *label)
{
    if (hutch_session_close(p->engine, id) != 1 && last_word.ends == 0)
        fail_msg("%s: there is no session, and nothing was said of its end", label);
    while (last_word.ends == 0)
        turn(p);
}

/* Nothing is left of the engine, however it went. Whether a call has failed. */
static inline bool end_of_failpoint(struct lair *p, const char *label, long blocks)
{
    bool has_failed;

    hutch_engine_free(p->engine);
    p->engine = NULL;
    has_failed = failpoint_disarm();
    if (count_fds() != p->n_fds)
        fail_msg("%s: %d descriptors, and %d before", label, count_fds(), p->n_fds);
    if (FAILPOINT_HAS_MALLOC && failpoint.blocks != blocks)
        fail_msg("%s: %ld blocks of memory are left", label, failpoint.blocks - blocks);
    if (waitpid(-1, NULL, WNOHANG) != -1)
        fail_msg("%s: a process is left", label);
    return has_failed;
}

/* Calls of an engine that is ready, each of which may fail. */
struct passage {
    const char *name;
    void (*go)(struct lair *p, const char *label);
    void (*check)(void); /* that all was well: nothing has failed */
    unsigned answer_ms;  /* of its helpers; 0: as usual */
};

static inline bool try_passage(struct lair *p, const struct passage *passage, enum failpoint_kind kind, unsigned first)
{
    long blocks = failpoint.blocks;
    char label[64];

    snprintf(label, sizeof(label), "%s %u of %s", failpoint_names[kind], first, passage->name);
    open_engine(p, "lives");
    await_full_pool(p);
    p->engine->core.setup_ms = p->engine->core.import_ms = 500;
    if (passage->answer_ms > 0)
        p->engine->core.answer_ms = passage->answer_ms;
    failpoint_arm(kind, first, 1);
    passage->go(p, label);
    return end_of_failpoint(p, label, blocks);
}

/* Nothing fails; then the first call of each kind, the second, and so on until there is none. */
static inline void try_each_call(struct lair *p, const struct passage *passage)
{
    open_engine(p, "lives");
    await_full_pool(p);
    passage->go(p, "none"); /* what libc keeps for itself it has now */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    passage->check();
    for (int kind = 0; kind < FAILPOINT_FORK; kind++) {
        unsigned first = 1;

        if (kind == FAILPOINT_ALLOCATION && !FAILPOINT_HAS_MALLOC)
            continue;
        while (try_passage(p, passage, (enum failpoint_kind)kind, first))
            first++;
        print_message("%s: %u calls of %s\n", failpoint_names[kind], first - 1, passage->name);
    }
}

#endif
