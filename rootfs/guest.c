#include "guest.h"

/* The files are read by the assembler, so their paths are relative to the top of the tree, where make compiles. */
#define EMBED(symbol, path)                    \
    __asm__(".pushsection .rodata\n"           \
            ".balign 16\n"                     \
            ".type " #symbol ", @object\n"     \
            #symbol ":\n"                      \
            ".incbin \"" path "\"\n"           \
            #symbol "_end:\n"                  \
            ".byte 0\n"                        \
            ".size " #symbol ", . - " #symbol "\n" \
            ".popsection\n");                  \
    extern const char symbol[] __attribute__((visibility("hidden"))); \
    extern const char symbol##_end[] __attribute__((visibility("hidden")))

EMBED(guest_python_sitecustomize, "rootfs/python/sitecustomize.py");
EMBED(guest_python_report, "rootfs/python/hutch_report.py");

const struct guest_file *hutch_guest_python(void)
{
    static struct guest_file files[] = {
        { GUEST_PYTHON_DIR "/sitecustomize.py", guest_python_sitecustomize, 0 },
        { GUEST_PYTHON_DIR "/hutch_report.py", guest_python_report, 0 },
        { NULL, NULL, 0 },
    };

    /* differences of addresses are no constants to the compiler */
    files[0].len = (size_t)(guest_python_sitecustomize_end - guest_python_sitecustomize);
    files[1].len = (size_t)(guest_python_report_end - guest_python_report);
    return files;
}
