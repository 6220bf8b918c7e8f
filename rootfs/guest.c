#include "guest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The files are read by the assembler, so their paths are relative to the top of the tree, where make compiles. */
#define EMBED(symbol, path)                                           \
    __asm__(".pushsection .rodata\n"                                  \
            ".balign 16\n"                                            \
            ".type " #symbol ", @object\n"                            \
            #symbol ":\n"                                             \
            ".incbin \"" path "\"\n"                                  \
            #symbol "_end:\n"                                         \
            ".byte 0\n"                                               \
            ".size " #symbol ", . - " #symbol "\n"                    \
            ".popsection\n");                                         \
    extern const char symbol[] __attribute__((visibility("hidden"))); \
    extern const char symbol##_end[] __attribute__((visibility("hidden")))

EMBED(guest_python_sitecustomize, "rootfs/python/sitecustomize.py");
EMBED(guest_python_report, "rootfs/python/hutch_report.py");

/* The byte code of the first, as precompile.py made it: with it the hook costs a start 0.3 ms, without it 1.4 ms, most of
 * which Python spends on getting its compiler ready. Empty where the build found no Python. */
#ifdef HUTCH_HOOK_PYC
EMBED(guest_python_pyc, HUTCH_HOOK_PYC);
#else
static const char guest_python_pyc[1], *const guest_python_pyc_end = guest_python_pyc;
#endif

#define MAX_TAG 32

/* Where Python of the version that made the byte code looks for it. False when there is none. */
static bool find_pyc(char *path, size_t size, struct guest_file *ret)
{
    size_t len = (size_t)(guest_python_pyc_end - guest_python_pyc);
    const char *newline = memchr(guest_python_pyc, '\n', len < MAX_TAG ? len : MAX_TAG);
    int tag_len;

    if (newline == NULL)
        return false;
    tag_len = (int)(newline - guest_python_pyc);
    snprintf(path, size, GUEST_PYTHON_DIR "/__pycache__/sitecustomize.%.*s.pyc", tag_len, guest_python_pyc);
    ret->target = path;
    ret->data = newline + 1;
    ret->len = (size_t)(guest_python_pyc_end - ret->data);
    return true;
}

const struct guest_file *hutch_guest_python(void)
{
    static char pyc_path[sizeof(GUEST_PYTHON_DIR) + MAX_TAG + 40];
    static struct guest_file files[] = {
        { GUEST_PYTHON_DIR "/sitecustomize.py", guest_python_sitecustomize, 0 },
        { GUEST_PYTHON_DIR "/hutch_report.py", guest_python_report, 0 },
        { NULL, NULL, 0 },
        { NULL, NULL, 0 },
    };

    /* differences of addresses are no constants to the compiler */
    files[0].len = (size_t)(guest_python_sitecustomize_end - guest_python_sitecustomize);
    files[1].len = (size_t)(guest_python_report_end - guest_python_report);
    if (files[2].target == NULL)
        (void)find_pyc(pyc_path, sizeof(pyc_path), &files[2]);
    return files;
}
