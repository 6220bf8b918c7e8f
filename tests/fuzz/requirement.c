/* What a program says that it depends on: a script's comment, a requirements file, words of a command line. */
#include "runtime/lang/requirement.h"

#include "tests/fuzz/fuzz.h"

static void check(const struct requirement_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->texts[i];

        fuzz_check(text[0] != '-' && text[0] != '/' && text[0] != '.' && text[0] && !strchr(text, '\n'));
        fuzz_check(i == 0 || strcmp(list->texts[i - 1], text) < 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct requirement_list list = REQUIREMENT_LIST_INIT, again = REQUIREMENT_LIST_INIT;
    uint8_t kind = fuzz_byte(&data, &size);
    auto_free char *text = fuzz_string(data, size);
    struct hutch_err err = { .msg = "" };
    int rc = kind % 3 == 0   ? hutch_requirement_add_script(&list, text, size, &err)
             : kind % 3 == 1 ? hutch_requirement_add_file(&list, text, size, &err)
                             : hutch_requirement_add_words(&list, text, &err);

    fuzz_check_err(rc, &err);
    check(&list);
    /* What one process has taken, the other takes as the same. */
    for (size_t i = 0; i < list.n; i++)
        fuzz_check(hutch_requirement_add(&again, list.texts[i], strlen(list.texts[i]), &err) == 0);
    fuzz_check(again.n == list.n);
    for (size_t i = 0; i < list.n; i++)
        fuzz_check(strcmp(again.texts[i], list.texts[i]) == 0);
    hutch_requirement_list_done(&list);
    hutch_requirement_list_done(&again);
    return 0;
}
