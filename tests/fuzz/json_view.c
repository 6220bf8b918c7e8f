/* JSON looked at where it stands: runtime/text/json_view.h. What it takes is walked through to the last value. */
#include "runtime/text/json_view.h"

#include "tests/fuzz/fuzz.h"

static void look(struct json_view value)
{
    struct json_view key, inner;
    struct hutch_err err;
    int64_t number;

    if (hutch_json_view_is_string(value)) {
        char *text;
        size_t len;

        fuzz_check(hutch_json_view_text(value, &text, &len, &err) == 0 && len <= value.len && text[len] == '\0');
        free(text);
    } else if (hutch_json_view_is_object(value) || hutch_json_view_is_array(value)) {
        struct json_walk walk = hutch_json_view_walk(value);
        size_t n = 0;

        while (hutch_json_view_next(&walk, &key, &inner)) {
            fuzz_check(inner.text > value.text && inner.text + inner.len < value.text + value.len);
            look(inner);
            n++;
        }
        fuzz_check(n == hutch_json_view_count(value));
        if (hutch_json_view_is_object(value))
            hutch_json_view_get(value, "key");
    } else {
        hutch_json_view_integer(value, &number);
        hutch_json_view_is(value, "key");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_view value;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_json_view_check("it", 1, 1, (const char *)data, size, &value, &err);

    fuzz_check_err(rc, &err);
    if (rc == 0)
        look(value);
    return 0;
}
