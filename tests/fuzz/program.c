/* Programs, before anything runs: their language, what they import, whether they are complete, what kind of file. */
#include "runtime/data/mime.h"
#include "runtime/lang/program.h"
#include "runtime/lang/python_complete.h"
#include "runtime/lang/python_imports.h"

#include "sandbox/spec.h"

#include "tests/fuzz/fuzz.h"

static void found(void *context, const char *name, size_t len)
{
    (void)context;
    fuzz_check(len > 0 && name[0] == name[0] && name[len - 1] == name[len - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "a.py", "a", "a.sh", "a.js" };
    char *args[] = { NULL };
    const char *name = names[fuzz_byte(&data, &size) % ARRAY_SIZE(names)];
    auto_free char *text = malloc(size ? size : 1);
    struct sandbox_spec spec;
    struct hutch_err err = { .msg = "" };

    fuzz_check(text);
    memcpy(text, data, size);
    hutch_imports_scan(text, size, found, NULL);
    hutch_py_is_complete(text, size);
    fuzz_check(hutch_mime_by_content(text, size < MIME_SNIFF_LEN ? size : MIME_SNIFF_LEN, size <= MIME_SNIFF_LEN));
    if (hutch_spec_init(&spec, &err) == 0) {
        fuzz_check_err(hutch_program_set_text(&spec, NULL, name, text, size, args, &err), &err);
        hutch_spec_done(&spec);
    }
    return 0;
}
