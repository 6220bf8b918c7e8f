/* A source for `hutch rootfs pull`, and what skopeo writes to standard error, some of it the words of a registry. */
#include "runtime/cli/pull_source.h"
#include "runtime/cli/skopeo.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_string(data, size);
    struct hutch_err err = { .msg = "" };
    char words[SKOPEO_MAX_WORDS + 1];
    struct pull_source source;
    int rc = hutch_pull_source_parse(text, &source, &err);

    fuzz_check_err(rc, &err);
    if (rc == 0) {
        fuzz_check(strlen(source.text) <= strlen(text) && strlen(source.name) < sizeof(source.name));
        fuzz_check(strchr(source.text, ':') && source.text[0] != '-');
    }
    hutch_skopeo_last_words((const char *)data, size, words);
    fuzz_check(strlen(words) <= SKOPEO_MAX_WORDS && !strchr(words, '\n'));
    return 0;
}
