#include "rootfs/digest.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* FIPS 180-4 examples. */
static const struct { const char *label, *text, *want; } hash_cases[] = {
    { "empty", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "one block", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "two blocks", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
};

static void test_known_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(hash_cases); i++) {
        struct hutch_err err = { 0 };
        struct digest d = DIGEST_INIT;
        char hex[DIGEST_HEX + 1];

        print_message("%s\n", hash_cases[i].label);
        assert_int_equal(hutch_digest_of(hash_cases[i].text, strlen(hash_cases[i].text), hex, &err), 0);
        assert_string_equal(hex, hash_cases[i].want);

        /* byte by byte, and started a second time */
        for (int round = 0; round < 2; round++) {
            assert_int_equal(hutch_digest_start(&d, &err), 0);
            for (const char *p = hash_cases[i].text; *p; p++)
                assert_int_equal(hutch_digest_update(&d, p, 1, &err), 0);
            assert_int_equal(hutch_digest_finish(&d, hex, &err), 0);
            assert_string_equal(hex, hash_cases[i].want);
        }
        hutch_digest_done(&d);
        hutch_digest_done(&d);
    }
}

#define HEX64 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const struct { const char *label, *text; bool want; } parse_cases[] = {
    { "good", "sha256:" HEX64, true },
    { "no algorithm", HEX64, false },
    { "other algorithm", "sha512:" HEX64, false },
    { "upper case", "sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", false },
    { "one digit short", "sha256:a7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", false },
    { "one digit long", "sha256:" HEX64 "0", false },
    { "a path", "sha256:../../../../../../../../../../../../../../../../../../../../etc/pas", false },
    { "empty", "", false },
    { "only the prefix", "sha256:", false },
};

static void test_parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(parse_cases); i++) {
        char hex[DIGEST_HEX + 1] = "untouched";

        print_message("%s\n", parse_cases[i].label);
        assert_int_equal(hutch_digest_parse(parse_cases[i].text, hex), parse_cases[i].want);
        assert_string_equal(hex, parse_cases[i].want ? HEX64 : "untouched");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_parse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
