/* A file of tokens. */
#include "runtime/gateway/token.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_string(data, size);
    struct tokens tokens = TOKENS_INIT;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_tokens_parse("tokens", text, size, &tokens, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 ? tokens.n == 0 : tokens.n > 0);
    for (size_t i = 0; i < tokens.n; i++)
        fuzz_check(tokens.rows[i]->name[0] && strlen(tokens.rows[i]->name) <= TOKEN_NAME_MAX);
    fuzz_check(!hutch_tokens_find(&tokens, text) || rc == 0);
    hutch_tokens_done(&tokens);
    return 0;
}
