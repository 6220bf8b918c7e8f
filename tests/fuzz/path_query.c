/* The values of queries, in the native API and in E2B's and Azure's; and answers to calls of a cell's. The first byte
 * chooses which. */
#include "runtime/azure/request.h"
#include "runtime/e2b/filter.h"
#include "runtime/gateway/call_request.h"
#include "runtime/gateway/query.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"

#include "tests/fuzz/fuzz.h"

static void check_values(const char *text)
{
    unsigned number = 7, mode = 7;
    int flag = 7;

    if (hutch_query_flag(text, &flag) == 0)
        fuzz_check(strcmp(text, flag ? "true" : "false") == 0);
    else
        fuzz_check(flag == 7);
    if (hutch_query_number(text, 65536, &number) == 0)
        fuzz_check(number >= 1 && number <= 65536 && strspn(text, "0123456789") == strlen(text));
    else
        fuzz_check(number == 7);
    if (hutch_query_mode(text, &mode) == 0)
        fuzz_check(mode >= 1 && mode <= 0777 && mode == (unsigned)strtoul(text, NULL, 8));
    else
        fuzz_check(mode == 7);
}

/* What is decoded is not longer, and a text that says nothing by '%' and '+' is as it was. */
static void decode(const char *text)
{
    struct hutch_err err = { .msg = "" };
    auto_free char *decoded = hutch_query_decode(text, &err);
    const char *path;

    fuzz_check_err(decoded ? 0 : -1, &err);
    if (!decoded)
        return;
    fuzz_check(strlen(decoded) <= strlen(text));
    fuzz_check(strpbrk(text, "%+") || strcmp(text, decoded) == 0);
    check_values(decoded);
    path = hutch_azure_relative(decoded);
    fuzz_check(path >= decoded && path[0] != '/' && strcmp(path, decoded + strlen(decoded) - strlen(path)) == 0);
    hutch_e2b_filter_state(decoded, "running");
    fuzz_check(!hutch_e2b_filter_state(decoded, "paused") || strstr(decoded, "paused"));
}

static void add_encoded(struct text_buffer *t, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hutch_text_addf(t, "%%25%02X", (unsigned char)text[i]);
}

/* A pair that metadata has is found as clients ask for it; @rest, behind it, is anything. */
static void filter(const char *key, size_t key_len, const char *value, size_t value_len, const char *rest)
{
    struct text_buffer metadata = TEXT_BUFFER_INIT, wanted = TEXT_BUFFER_INIT;

    hutch_text_add_string(&metadata, "{\"other\":\"1\",");
    hutch_json_quote(&metadata, key, key_len);
    hutch_text_add_string(&metadata, ":");
    hutch_json_quote(&metadata, value, value_len);
    hutch_text_add_string(&metadata, "}");
    add_encoded(&wanted, key, key_len);
    hutch_text_add_string(&wanted, "=");
    add_encoded(&wanted, value, value_len);
    fuzz_check(hutch_e2b_filter_metadata(metadata.data, wanted.data));
    hutch_text_add_string(&wanted, "&");
    hutch_text_add_string(&wanted, rest);
    hutch_e2b_filter_metadata(metadata.data, wanted.data);
    hutch_e2b_filter_metadata(metadata.data, rest);
    fuzz_check(!hutch_e2b_filter_metadata(metadata.data, "nothing=1"));
    hutch_text_done(&metadata);
    hutch_text_done(&wanted);
}

static bool is_text(const char *text, size_t len)
{
    return hutch_utf8_is_valid(text, len) && !memchr(text, '\0', len);
}

static void find_pairs(const uint8_t *data, size_t size)
{
    size_t key_len, value_len;
    auto_free char *key = fuzz_piece(&data, &size, &key_len), *value = fuzz_piece(&data, &size, &value_len);
    auto_free char *rest = fuzz_string(data, size);

    if (is_text(key, key_len) && is_text(value, value_len) && !(key_len == 7 && memcmp(key, "nothing", 7) == 0))
        filter(key, key_len, value, value_len, rest);
    else
        hutch_e2b_filter_metadata("{\"a\":\"b\",\"\":\"\"}", rest);
}

static void parse_call(const char *text, size_t size)
{
    struct call_request r = { .is_error = false };
    struct hutch_err err = { .msg = "" };
    int rc = hutch_call_request_parse(text, size, &r, &err);
    struct json_view again;

    fuzz_check_err(rc, &err);
    if (rc < 0)
        return;
    fuzz_check(r.value.text > text && r.value.len > 0 && r.value.text + r.value.len < text + size);
    fuzz_check(hutch_json_view_check("value", 1, 1, r.value.text, r.value.len, &again, &err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned which = fuzz_byte(&data, &size) % 4;
    auto_free char *text = NULL;

    if (which == 0) {
        find_pairs(data, size);
    } else if (which == 1) {
        text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */
        fuzz_check(text);
        memcpy(text, data, size);
        parse_call(text, size);
    } else {
        text = fuzz_string(data, size);
        decode(text);
    }
    return 0;
}
