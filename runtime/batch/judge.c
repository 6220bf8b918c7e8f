#include "runtime/batch/judge.h"

#include "runtime/batch/sample.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

/* Files are read by the assembler, so their paths are relative to the top of the tree, where make compiles. */
#define EMBED(symbol, path)                                           \
    __asm__(".pushsection .rodata\n"                                  \
            ".type " #symbol ", @object\n"                            \
            #symbol ":\n"                                             \
            ".incbin \"" path "\"\n"                                  \
            ".byte 0\n"                                               \
            ".size " #symbol ", . - " #symbol "\n"                    \
            ".popsection\n");                                         \
    extern const char symbol[] __attribute__((visibility("hidden")))

EMBED(judge_wire_py, "runtime/batch/judge/wire.py");
EMBED(judge_candidate_py, "runtime/batch/judge/candidate.py");
EMBED(judge_remote_py, "runtime/batch/judge/remote.py");
EMBED(judge_judge_py, "runtime/batch/judge/judge.py");

/* In this order: each imports from those before it. */
static const struct {
    const char *name, *text;
} modules[] = {
    { "hutch_judge.wire", judge_wire_py },
    { "hutch_judge.candidate", judge_candidate_py },
    { "hutch_judge.remote", judge_remote_py },
    { "hutch_judge", judge_judge_py },
};

#define MAX_IMPORTS 32
#define MODULE_NAME_MAX 59

void hutch_batch_judge_add_modules(struct text_buffer *t)
{
    hutch_text_add_string(t, "import sys, types\n");
    for (size_t i = 0; i < ARRAY_SIZE(modules); i++) {
        const char *name = modules[i].name;

        hutch_text_addf(t, "sys.modules['%s'] = types.ModuleType('%s')\nexec(compile(", name, name);
        hutch_json_quote(t, modules[i].text, strlen(modules[i].text)); /* JSON's escapes mean the same to Python */
        hutch_text_addf(t, ", '%s', 'exec'), sys.modules['%s'].__dict__)\n", name, name);
    }
}

char *hutch_batch_judge_warm_up(void)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_batch_judge_add_modules(&t);
    return hutch_text_take(&t, NULL);
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Adds what the statement at @p imports, if it is an import. */
static bool add_import(struct text_buffer *t, const char *p, const char *end)
{
    static const char *const words[] = { "import ", "from " };

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t len = strlen(words[i]);
        const char *name = p + len, *name_end = name;

        if ((size_t)(end - p) <= len || memcmp(p, words[i], len) != 0)
            continue;
        while (name_end < end && is_name_char(*name_end))
            name_end++;
        if (name_end == name || name_end - name > MODULE_NAME_MAX)
            return false;
        hutch_text_addf(t, "import %.*s\n", (int)(name_end - name), name);
        return true;
    }
    return false;
}

/* Names what the program imports behind the end of the code that is submitted, where the engine looks for it when it
 * chooses a zygote. Reads the text as JSON spells it. */
static void add_imports(struct text_buffer *t, struct json_view program)
{
    static const char line_end[] = "\\n";
    const char *p = program.text + 1, *end = program.text + program.len - 1;

    for (int n = 0; p < end && n < MAX_IMPORTS;) {
        while (p < end && *p == ' ')
            p++;
        n += add_import(t, p, end);
        p = memmem(p, (size_t)(end - p), line_end, strlen(line_end));
        if (!p)
            break;
        p += strlen(line_end);
    }
}

void hutch_batch_judge_add_code(struct text_buffer *t, const struct batch_sample *sample)
{
    static const char code[] =
        "import sys\n"
        "m = sys.modules.get('hutch_judge')\n"
        "if m is None:\n"
        "    sys.stdout.write('" BATCH_JUDGE_MISSING "\\n')\n"
        "    sys.stdout.flush()\n"
        "    raise SystemExit\n"
        "m.main()\n";

    hutch_text_add_string(t, code);
    add_imports(t, sample->program);
}
