/* Texts that a cell wants to be shown in a pager: help, mostly. */
#include "runtime/repl/repl.h"

#include "sandbox/fd.h"
#include "runtime/term/terminal.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

static void append_to_page(void *user, const char *text, size_t len)
{
    hutch_text_add(user, text, len);
}

/* The text as a terminal takes it; false: there is no memory. */
static bool filter_page(const char *text, struct text_buffer *to)
{
    struct term_filter filter;

    hutch_term_describe(STDOUT_FILENO, &filter);
    hutch_term_filter(&filter, text, strlen(text), append_to_page, to);
    hutch_term_filter_end(&filter, append_to_page, to);
    hutch_text_add_string(to, "\n");
    return !to->is_broken;
}

bool hutch_repl_take_page(struct repl *r, const struct hutch_output *output)
{
    struct text_buffer page = TEXT_BUFFER_INIT;
    auto_free char *text = NULL;
    const cJSON *value;
    struct hutch_err err;
    cJSON *json;

    if (output->kind != HUTCH_DISPLAY || !strstr(output->json, "\"" REPL_PAGE_TYPE "\"") ||
        hutch_nbjson_parse("a text for a pager", output->json, strlen(output->json), &NBJSON_NOTEBOOK, &json, &err) < 0)
        return false;
    value = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "data"), REPL_PAGE_TYPE);
    text = cJSON_IsString(value) ? hutch_nbjson_c_text(value) : NULL;
    cJSON_Delete(json);
    if (!text)
        return false;
    if (r->is_interactive && filter_page(text, &page) &&
        (r->page.len > 0 || hutch_pager_is_wanted(STDOUT_FILENO, page.data, page.len))) {
        hutch_text_add(&r->page, page.data, page.len);
    } else {
        hutch_cell_show_bytes(&r->show, 1, text, strlen(text));
        hutch_cell_show_bytes(&r->show, 1, "\n", 1);
    }
    hutch_text_done(&page);
    return true;
}

void hutch_repl_show_page(struct repl *r)
{
    struct pager pager;
    bool was_shown = false;

    if (!r->fatal_signal && !r->page.is_broken && hutch_pager_open(&pager, r->page.data, r->page.len)) {
        r->pager = &pager;
        hutch_repl_await_pager(r);
        r->pager = NULL;
        was_shown = hutch_pager_reap(&pager);
    }
    if (!was_shown && r->page.data)
        hutch_cell_show_bytes(&r->show, 1, r->page.data, r->page.len);
    hutch_text_done(&r->page);
}
