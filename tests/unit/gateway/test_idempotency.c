/* Answers that are kept by a key: their bounds. */
#include "runtime/gateway/idempotency.h"

#include "runtime/gateway/token.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct token ada = { .name = "ada" }, bob = { .name = "bob" };

static struct idempotency_entry *add(struct idempotency *all, struct token *token, const char *key)
{
    return hutch_idempotency_add(all, token, 4, key, 0);
}

static void conclude(struct idempotency *all, struct idempotency_entry *entry, size_t len, double now_ms)
{
    hutch_idempotency_conclude(all, entry, calloc(1, len + 1), len, now_ms);
}

static void test_find(void **state)
{
    struct idempotency all;
    struct idempotency_entry *entry;

    (void)state;
    hutch_idempotency_init(&all, 8, 80, 100);
    entry = add(&all, &ada, "k");
    assert_non_null(entry);
    assert_ptr_equal(hutch_idempotency_find(&all, &ada, "k", 1e9), entry); /* what runs is not forgotten */
    assert_null(hutch_idempotency_find(&all, &bob, "k", 0));
    assert_null(hutch_idempotency_find(&all, NULL, "k", 0));
    conclude(&all, entry, 5, 1000);
    assert_ptr_equal(hutch_idempotency_find(&all, &ada, "k", 1099), entry);
    assert_int_equal(all.n_bytes, 5);
    assert_null(hutch_idempotency_find(&all, &ada, "k", 1100));
    assert_int_equal(all.n_bytes, 0);
    hutch_idempotency_done(&all);
}

static void test_share(void **state)
{
    static const char *const keys[] = { "a", "b", "c", "d" };
    struct idempotency_entry *entries[4];
    struct idempotency all;

    (void)state;
    hutch_idempotency_init(&all, 6, 800, 1e9);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(entries[i] = add(&all, &ada, keys[i]));
    assert_null(add(&all, &ada, "e")); /* all four run */
    assert_non_null(add(&all, &bob, "e"));
    conclude(&all, entries[2], 1, 1);
    assert_non_null(add(&all, &ada, "e"));
    assert_null(hutch_idempotency_find(&all, &ada, "c", 1));
    assert_non_null(hutch_idempotency_find(&all, &ada, "a", 1));
    assert_non_null(add(&all, &bob, "f"));
    assert_null(add(&all, &bob, "g")); /* six there are, and none is over */
    assert_int_equal(all.n, 6);
    hutch_idempotency_done(&all);
    assert_int_equal(all.n, 0);
}

static void test_bytes(void **state)
{
    struct idempotency all;
    struct idempotency_entry *of_bob;

    (void)state;
    hutch_idempotency_init(&all, 100, 80, 1e9);
    of_bob = add(&all, &bob, "k");
    conclude(&all, of_bob, 10, 1);
    for (int i = 0; i < 20; i++) {
        char key[8] = { (char)('a' + i) };

        conclude(&all, hutch_idempotency_add(&all, &ada, 50, key, 2), 10, 2);
        assert_true(all.n_bytes <= 80);
    }
    assert_ptr_equal(hutch_idempotency_find(&all, &bob, "k", 3), of_bob); /* ada's own went first */
    assert_non_null(hutch_idempotency_find(&all, &ada, "t", 3));
    assert_null(hutch_idempotency_find(&all, &ada, "a", 3));
    conclude(&all, add(&all, NULL, "large"), 11, 3);
    assert_null(hutch_idempotency_find(&all, NULL, "large", 3));
    hutch_idempotency_conclude(&all, add(&all, NULL, "none"), NULL, 0, 3);
    assert_null(hutch_idempotency_find(&all, NULL, "none", 3));
    hutch_idempotency_done(&all);
}

static void test_keys(void **state)
{
    char key[IDEMPOTENCY_MAX_KEY + 2];

    (void)state;
    memset(key, 'x', sizeof(key));
    key[IDEMPOTENCY_MAX_KEY + 1] = '\0';
    assert_false(hutch_idempotency_is_key(key));
    key[IDEMPOTENCY_MAX_KEY] = '\0';
    assert_true(hutch_idempotency_is_key(key));
    assert_true(hutch_idempotency_is_key("!~"));
    assert_false(hutch_idempotency_is_key(""));
    assert_false(hutch_idempotency_is_key("a\tb"));
    assert_false(hutch_idempotency_is_key("\xc3\xbf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
