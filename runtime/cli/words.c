#include "runtime/cli/words.h"

#include "runtime/text/buffer.h"

#include <stdlib.h>

void hutch_words_add(struct words *words, const char *const *parts)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    char **bigger = words->argv;

    if (words->n + 2 > words->room) {
        bigger = reallocarray(words->argv, words->room * 2 + 32, sizeof(*bigger));
        if (!bigger) {
            words->is_broken = true;
            return;
        }
        words->argv = bigger;
        words->room = words->room * 2 + 32;
    }
    hutch_text_add_string(&t, "");
    for (; *parts; parts++)
        hutch_text_add_string(&t, *parts);
    bigger[words->n] = hutch_text_take(&t, NULL);
    if (!bigger[words->n]) {
        words->is_broken = true;
        return;
    }
    bigger[++words->n] = NULL;
}

void hutch_words_done(struct words *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->argv[i]);
    free(words->argv);
    *words = (struct words)WORDS_INIT;
}
