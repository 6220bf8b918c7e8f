/* idempotency.h - answers that are kept for a client that asks again with the same key: what it asked for runs once.
 *
 * A run with a key, or a call, belongs to its entry and not to the request that began it: a client whose connection
 * broke asks again and gets the first answer, also while that is still to come. Only what was accepted has an entry.
 * Entries are bounded in number, bytes and age; the oldest answer goes first, and what runs is not forgotten. */
#ifndef HUTCH_GATEWAY_IDEMPOTENCY_H
#define HUTCH_GATEWAY_IDEMPOTENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define IDEMPOTENCY_MAX_KEY     255
#define IDEMPOTENCY_MAX_WAITING 16 /* requests for one answer that is to come */
#define IDEMPOTENCY_HASH_SIZE   32

struct exchange;
struct token;

struct idempotency_entry {
    TAILQ_ENTRY(idempotency_entry) in_list;
    struct token *token;        /* whose key it is */
    char key[IDEMPOTENCY_MAX_KEY + 1];
    unsigned char hash[IDEMPOTENCY_HASH_SIZE]; /* of what was asked for */
    uint64_t run;               /* the engine's number */
    struct exchange *waiting[IDEMPOTENCY_MAX_WAITING];
    size_t n_waiting;
    bool is_over;
    double over_ms;             /* when it was */
    char *answer;               /* owned; JSON */
    size_t len;
};
TAILQ_HEAD(idempotency_list, idempotency_entry);

struct idempotency {
    struct idempotency_list list; /* the oldest first */
    size_t n, n_bytes;            /* of answers */
    unsigned max_entries;
    size_t max_bytes;
    double max_age_ms;
};

#define IDEMPOTENCY_ENTRIES 1024
#define IDEMPOTENCY_BYTES   (64u << 20)
#define IDEMPOTENCY_AGE_MS  600000.0

void hutch_idempotency_init(struct idempotency *all, unsigned max_entries, size_t max_bytes, double max_age_ms);
void hutch_idempotency_done(struct idempotency *all);

/* 1 to 255 visible characters of ASCII. */
bool hutch_idempotency_is_key(const char *key);
/* @what: whom the body is for, such as a path, so that the same bytes for another one are another request. */
void hutch_idempotency_hash(const char *what, const char *body, size_t len, unsigned char ret[IDEMPOTENCY_HASH_SIZE]);

/* NULL: there is none, or not any more. */
struct idempotency_entry *hutch_idempotency_find(struct idempotency *all, const struct token *token, const char *key,
                                                 double now_ms);
/* For a key that has none. Where there is no room, or @token has its @share, the oldest answer is forgotten, one of
 * @token if it has any. NULL: all of them are still to come, or memory was short. */
struct idempotency_entry *hutch_idempotency_add(struct idempotency *all, struct token *token, unsigned share,
                                                const char *key, double now_ms);
/* Its answer has come. Takes @answer; NULL or too large to be kept: the entry is freed. */
void hutch_idempotency_conclude(struct idempotency *all, struct idempotency_entry *entry, char *answer, size_t len,
                                double now_ms);
void hutch_idempotency_remove(struct idempotency *all, struct idempotency_entry *entry);

#endif
