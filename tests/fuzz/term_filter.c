/* Bytes for a terminal: what comes out is text and colours, however the input is cut. */
#include "runtime/term/filter.h"

#include "runtime/text/utf8.h"

#include "tests/fuzz/fuzz.h"

static void check_piece(void *user, const char *text, size_t len)
{
    (void)user;
    fuzz_check(len > 0);
    if (text[0] == '\033') {
        fuzz_check(len >= 3 && text[1] == '[' && text[len - 1] == 'm');
        for (size_t i = 2; i < len - 1; i++)
            fuzz_check(strchr("0123456789;:", text[i]));
        return;
    }
    for (size_t i = 0; i < len; i++)
        fuzz_check((unsigned char)text[i] >= 0x20 ? text[i] != 0x7f : strchr("\n\t\r", text[i]) && text[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const unsigned flags = fuzz_byte(&data, &size);
    struct term_filter filter = { .has_colours = flags & 1, .has_utf8 = flags & 2 };

    while (size > 0) {
        size_t len;
        auto_free char *piece = fuzz_piece(&data, &size, &len);

        hutch_term_filter(&filter, piece, len, check_piece, NULL);
    }
    hutch_term_filter_end(&filter, check_piece, NULL);
    return 0;
}
