/* What a server tells of a cell, which quotes hostile code: each callback gets whole values, and one result comes. */
#include "runtime/repl/server_cell.h"

#include "tests/fuzz/fuzz.h"

struct heard {
    unsigned n_results, n_inputs, n_outputs;
};

static void on_output(void *user, uint64_t session, const struct hutch_output *output)
{
    struct heard *heard = user;

    (void)session;
    heard->n_outputs++;
    if (output->kind != HUTCH_STREAM)
        fuzz_check(output->json && output->json[0] == '{' && output->json[strlen(output->json) - 1] == '}');
    else
        fuzz_check((output->stream == 1 || output->stream == 2) && (output->text_len == 0 || output->text));
}

static void on_input(void *user, uint64_t session, const char *prompt, int is_password)
{
    (void)session;
    (void)is_password;
    fuzz_check(prompt);
    ((struct heard *)user)->n_inputs++;
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    (void)session;
    fuzz_check(result->message && result->execution_count >= 0 && (int)result->verdict <= HUTCH_SETUP_FAILED);
    ((struct heard *)user)->n_results++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct heard heard = { 0 };
    struct server_cell c = { .has_result = false };
    const char *p = (const char *)data, *const end = p + size;
    struct hutch_err err;

    hutch_cell_init(&c.cell);
    c.cell.on_output = on_output;
    c.cell.on_input = on_input;
    c.cell.on_result = on_result;
    c.cell.user = &heard;
    while (p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        size_t len = line_end ? (size_t)(line_end - p) + 1 : (size_t)(end - p);
        struct json_view root = JSON_VIEW_NONE;

        if (hutch_json_view_check("the answer", 1, 1, p, len, &root, &err) == 0) {
            const unsigned before = heard.n_outputs + heard.n_inputs;
            const bool had_result = c.has_result;

            hutch_server_cell_take(&c, hutch_json_view_get(root, "event"), hutch_json_view_get(root, "data"));
            fuzz_check(!had_result || heard.n_outputs + heard.n_inputs == before);
        }
        p += len;
    }
    hutch_server_cell_end(&c, NULL);
    fuzz_check(heard.n_results == 1);
    return 0;
}
