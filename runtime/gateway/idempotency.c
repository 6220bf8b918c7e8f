#include "runtime/gateway/idempotency.h"

#include "sandbox/fd.h"

#include <openssl/sha.h>
#include <string.h>

void hutch_idempotency_init(struct idempotency *all, unsigned max_entries, size_t max_bytes, double max_age_ms)
{
    *all = (struct idempotency){ .max_entries = max_entries, .max_bytes = max_bytes, .max_age_ms = max_age_ms };
    TAILQ_INIT(&all->list);
}

void hutch_idempotency_remove(struct idempotency *all, struct idempotency_entry *entry)
{
    TAILQ_REMOVE(&all->list, entry, in_list);
    all->n--;
    all->n_bytes -= entry->len;
    free(entry->answer);
    free(entry);
}

void hutch_idempotency_done(struct idempotency *all)
{
    struct idempotency_entry *entry;

    while ((entry = TAILQ_FIRST(&all->list)))
        hutch_idempotency_remove(all, entry);
}

bool hutch_idempotency_is_key(const char *key)
{
    size_t len = 0;

    for (; key[len]; len++)
        if (len == IDEMPOTENCY_MAX_KEY || key[len] <= ' ' || (unsigned char)key[len] >= 0x7f)
            return false;
    return len > 0;
}

/* Of two hashes, so that nothing in @what can be taken for a part of the body. */
void hutch_idempotency_hash(const char *what, const char *body, size_t len, unsigned char ret[IDEMPOTENCY_HASH_SIZE])
{
    unsigned char both[2 * IDEMPOTENCY_HASH_SIZE];

    SHA256((const unsigned char *)what, strlen(what), both);
    SHA256((const unsigned char *)(body ? body : ""), len, both + IDEMPOTENCY_HASH_SIZE);
    SHA256(both, sizeof(both), ret);
}

static void forget_old(struct idempotency *all, double now_ms)
{
    struct idempotency_entry *entry, *next;

    for (entry = TAILQ_FIRST(&all->list); entry; entry = next) {
        next = TAILQ_NEXT(entry, in_list);
        if (entry->is_over && now_ms - entry->over_ms >= all->max_age_ms)
            hutch_idempotency_remove(all, entry);
    }
}

struct idempotency_entry *hutch_idempotency_find(struct idempotency *all, const struct token *token, const char *key,
                                                 double now_ms)
{
    struct idempotency_entry *entry;

    forget_old(all, now_ms);
    TAILQ_FOREACH(entry, &all->list, in_list)
        if (entry->token == token && strcmp(entry->key, key) == 0)
            return entry;
    return NULL;
}

/* The oldest that has an answer; of @token, unless that is any. */
static bool forget_one(struct idempotency *all, bool any, const struct token *token,
                       const struct idempotency_entry *but)
{
    struct idempotency_entry *entry;

    TAILQ_FOREACH(entry, &all->list, in_list)
        if (entry != but && entry->is_over && (any || entry->token == token)) {
            hutch_idempotency_remove(all, entry);
            return true;
        }
    return false;
}

static unsigned count(const struct idempotency *all, const struct token *token)
{
    const struct idempotency_entry *entry;
    unsigned n = 0;

    TAILQ_FOREACH(entry, &all->list, in_list)
        n += entry->token == token;
    return n;
}

struct idempotency_entry *hutch_idempotency_add(struct idempotency *all, struct token *token, unsigned share,
                                                const char *key, double now_ms)
{
    struct idempotency_entry *entry;

    forget_old(all, now_ms);
    if (count(all, token) >= share && !forget_one(all, false, token, NULL))
        return NULL;
    if (all->n >= all->max_entries && !forget_one(all, false, token, NULL) && !forget_one(all, true, NULL, NULL))
        return NULL;
    entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->token = token;
    memcpy(entry->key, key, strlen(key) + 1);
    TAILQ_INSERT_TAIL(&all->list, entry, in_list);
    all->n++;
    return entry;
}

void hutch_idempotency_conclude(struct idempotency *all, struct idempotency_entry *entry, char *answer, size_t len,
                                double now_ms)
{
    entry->is_over = true;
    entry->over_ms = now_ms;
    /* One answer has an eighth of the room at most, so that it does not cost all others theirs. */
    if (!answer || len > all->max_bytes / 8) {
        free(answer);
        hutch_idempotency_remove(all, entry);
        return;
    }
    entry->answer = answer;
    entry->len = len;
    all->n_bytes += len;
    while (all->n_bytes > all->max_bytes &&
           (forget_one(all, false, entry->token, entry) || forget_one(all, true, NULL, entry)))
        ;
}
