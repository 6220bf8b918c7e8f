/* Records of task and sample files, of every format. The first byte chooses. */
#include "runtime/batch/sample.h"
#include "runtime/batch/task.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const unsigned choice = fuzz_byte(&data, &size);
    struct batch_task_options options = { .format = (enum batch_format)(choice % BATCH_FORMAT_COUNT),
                                          .with_challenge = choice & 0x80 };
    struct batch_task task = BATCH_TASK_INIT;
    struct batch_sample sample;
    struct hutch_err err = { .msg = "" };
    struct json_view record;
    char *text = malloc(size ? size : 1), *id = NULL;
    int rc;

    fuzz_check(text);
    memcpy(text, data, size);
    rc = hutch_json_view_check("it", 1, 1, text, size, &record, &err);
    if (rc < 0 || !hutch_json_view_is_object(record)) {
        free(text);
        return 0;
    }
    if (options.format == BATCH_AUTO)
        options.format = hutch_batch_format_guess(record);
    if (hutch_batch_sample_id("it", options.format, record, &id, &err) == 0)
        free(id);
    fuzz_check_err(hutch_batch_sample_read("it", record, choice & 0x40, &sample, &err), &err);
    rc = hutch_batch_task_read(&options, "it", text, record, &task, &err); /* takes the text */
    fuzz_check_err(rc, &err);
    if (rc == 0) {
        fuzz_check(task.id);
        fuzz_check_err(hutch_batch_sample_own("it", &task, &sample, &err), &err);
        hutch_batch_task_done(&task);
    }
    return 0;
}
