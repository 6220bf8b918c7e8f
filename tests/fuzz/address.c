/* What a request is about, as its first line and its headers say it: the path, the part of a file, who may ask. */
#include "runtime/gateway/range.h"
#include "runtime/gateway/uri.h"

#include "tests/fuzz/fuzz.h"

/* The first byte: how large the file is that a part is asked of. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t sizes[] = { 0, 1, 10, 4096, UINT32_MAX, INT64_MAX, UINT64_MAX };
    const uint64_t file_size = sizes[fuzz_byte(&data, &size) % (sizeof(sizes) / sizeof(sizes[0]))];
    auto_free char *piece = malloc(size ? size : 1), *text = fuzz_string(data, size), *path = NULL;
    struct hutch_err err = { .msg = "" };
    struct range range;

    fuzz_check(piece);
    memcpy(piece, data, size);
    path = hutch_uri_decode(piece, size, &err);
    fuzz_check_err(path ? 0 : -1, &err);
    fuzz_check(!path || strlen(path) <= size);
    fuzz_check(!path || memchr(piece, '%', size) || (strlen(path) <= size && strncmp(path, text, size) == 0));

    range = hutch_range_parse(text, file_size);
    fuzz_check(range.kind != RANGE_PART || (range.len > 0 && range.first < file_size));
    fuzz_check(range.kind != RANGE_PART || range.len <= file_size - range.first);
    return 0;
}
