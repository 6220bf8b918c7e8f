#include "rootfs/guest.h"

#include <stdbool.h>
#include <stdio.h>

/* The files are read by the assembler, so their paths are relative to the top of the tree, where make compiles. */
#define EMBED(symbol, path)                                           \
    __asm__(".pushsection .rodata\n"                                  \
            ".balign 16\n"                                            \
            ".type " #symbol ", @object\n"                            \
            #symbol ":\n"                                             \
            ".incbin \"" path "\"\n"                                  \
            #symbol "_end:\n"                                         \
            ".size " #symbol ", . - " #symbol "\n"                    \
            ".byte 0\n"                                               \
            ".balign 8\n"                                             \
            #symbol "_len:\n"                                         \
            ".dc.a " #symbol "_end - " #symbol "\n"                   \
            ".popsection\n");                                         \
    extern const char symbol[] __attribute__((visibility("hidden"))); \
    extern const size_t symbol##_len __attribute__((visibility("hidden")))

EMBED(guest_python_sitecustomize, "rootfs/python/sitecustomize.py");
EMBED(guest_python_report, "rootfs/python/hutch_report.py");
/* The Python files of the zygote, rootfs/python/zygote/NAME.py. */
#define ZYGOTE_FILES(X)                                                                             \
    X(main) X(preload) X(first_use) X(immortal) X(environment) X(renew) X(worker) X(calls) X(cells) \
    X(channel) X(contexts) X(drawing) X(figures) X(frames) X(functions) X(kernel) X(uncopied)       \
    X(files) X(park) X(pools) X(questions) X(rehearsal) X(seal) X(shell) X(tracebacks) X(values)    \
    X(widgets)
#define EMBED_ZYGOTE_FILE(name) EMBED(guest_zygote_##name, "rootfs/python/zygote/" #name ".py");
ZYGOTE_FILES(EMBED_ZYGOTE_FILE)
EMBED(guest_zygote_helper, HUTCH_HELPER_SO);

/* The byte code of the first, as precompile.py made it: with it the hook costs a start 0.3 ms, without it 1.4 ms,
 * most of which Python spends on getting its compiler ready. Empty where the build found no Python. */
#ifdef HUTCH_HOOK_PYC
EMBED(guest_python_pyc, HUTCH_HOOK_PYC);
#else
static const char guest_python_pyc[1];
static const size_t guest_python_pyc_len = 0;
#endif

#define MAX_TAG 32

/* Where Python of the version that made the byte code looks for it. False when there is none. */
static bool find_pyc(char *path, size_t size, struct guest_file *ret)
{
    size_t tag_len = 0;

    while (tag_len < guest_python_pyc_len && tag_len < MAX_TAG && guest_python_pyc[tag_len] != '\n')
        tag_len++;
    if (tag_len == guest_python_pyc_len || tag_len == MAX_TAG)
        return false;
    snprintf(path, size, GUEST_PYTHON_DIR "/__pycache__/sitecustomize.%.*s.pyc", (int)tag_len, guest_python_pyc);
    ret->target = path;
    ret->data = guest_python_pyc + tag_len + 1;
    ret->len = guest_python_pyc_len - tag_len - 1;
    return true;
}

const struct guest_file *hutch_guest_python(void)
{
    static _Thread_local char pyc_path[sizeof(GUEST_PYTHON_DIR) + MAX_TAG + 40];
    static _Thread_local struct guest_file files[] = {
        { GUEST_PYTHON_DIR "/sitecustomize.py", guest_python_sitecustomize, 0 },
        { GUEST_PYTHON_DIR "/hutch_report.py", guest_python_report, 0 },
        { NULL, NULL, 0 },
        { NULL, NULL, 0 },
    };

    /* The linker knows the lengths; to the compiler they are no constants. */
    files[0].len = guest_python_sitecustomize_len;
    files[1].len = guest_python_report_len;
    if (files[2].target == NULL)
        (void)find_pyc(pyc_path, sizeof(pyc_path), &files[2]);
    return files;
}

const struct guest_file *hutch_guest_zygote(void)
{
#define ROW(name) { GUEST_ZYGOTE_DIR "/" #name ".py", guest_zygote_##name, 0 },
#define LEN(name) guest_zygote_##name##_len,
    static _Thread_local struct guest_file files[] = {
        ZYGOTE_FILES(ROW)
        { GUEST_ZYGOTE_DIR "/hutch_report.py", guest_python_report, 0 },
        { GUEST_ZYGOTE_DIR "/helper.so", guest_zygote_helper, 0 },
        { NULL, NULL, 0 },
    };
    const size_t lens[] = { ZYGOTE_FILES(LEN) guest_python_report_len, guest_zygote_helper_len };

    _Static_assert(sizeof(lens) / sizeof(lens[0]) + 1 == sizeof(files) / sizeof(files[0]), "a length for each file");
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
        files[i].len = lens[i];
    return files;
}
