/* Files of records: lines or one array. Any record can be had again by its place. */
#include "runtime/batch/source.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct batch_source source = BATCH_SOURCE_INIT;
    struct json_view record, again;
    struct batch_place place;
    struct hutch_err err = { .msg = "" };
    char path[32];
    auto_fd fd = -1;
    int rc;

    if (size >= 2 && data[0] == 0x1f && data[1] == 0x8b)
        return 0; /* gzip(1) reads that */
    fd = fuzz_file(data, size, path);
    fuzz_check(hutch_batch_source_open(path, &source, &err) == 0);
    while ((rc = hutch_batch_source_next(&source, &record, &place, &err)) == 1) {
        char *text;

        fuzz_check(place.offset + place.len <= size);
        fuzz_check(hutch_batch_source_load(&source, &place, &text, &again, &err) == 0);
        fuzz_check(again.len == record.len && memcmp(again.text, record.text, again.len) == 0);
        free(text);
    }
    fuzz_check_err(rc, &err);
    hutch_batch_source_done(&source);
    return 0;
}
