/* Notebooks: what is taken is executed in thought, written, and then is a notebook again. */
#include "runtime/notebook/notebook.h"
#include "runtime/notebook/params.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const params[] = { "a=1", "b=text" };
    static const struct notebook_result result = {
        .execution_count = 1, .outputs = "[{\"name\": \"stdout\", \"output_type\": \"stream\", \"text\": \"a\\nb\"}]"
    };
    static const char widget[] = "{\"buffers\": [], \"id\": \"w\", \"state\": {\"_model_name\": \"M\"}}";
    struct notebook nb = NOTEBOOK_INIT, again = NOTEBOOK_INIT;
    struct hutch_err err = { .msg = "" };
    char *text = NULL;
    size_t len;
    int rc = hutch_notebook_parse("it", (const char *)data, size, &nb, &err);

    fuzz_check_err(rc, &err);
    if (rc < 0)
        return 0;
    fuzz_check(hutch_notebook_set_params(&nb, params, ARRAY_SIZE(params), &err) == 0);
    for (size_t i = 0; i < nb.n_cells; i++)
        if (hutch_notebook_is_executed(&nb.cells[i])) {
            fuzz_check(hutch_notebook_begin(&nb, i, &err) == 0);
            fuzz_check(hutch_notebook_set_result(&nb, i, &result, &err) == 0);
        }
    fuzz_check(hutch_notebook_set_widget(&nb, widget, &err) == 0);
    fuzz_check(hutch_notebook_print(&nb, &text, &len, &err) == 0);
    if (hutch_notebook_parse("it", text, len, &again, &err) < 0) {
        fprintf(stderr, "%s\n%s\n", err.msg, text);
        abort();
    }
    fuzz_check(again.n_cells == nb.n_cells);
    free(text);
    hutch_notebook_done(&again);
    hutch_notebook_done(&nb);
    return 0;
}
