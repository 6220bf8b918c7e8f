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
EMBED(guest_zygote_main, "rootfs/python/zygote/main.py");
EMBED(guest_zygote_preload, "rootfs/python/zygote/preload.py");
EMBED(guest_zygote_first_use, "rootfs/python/zygote/first_use.py");
EMBED(guest_zygote_environment, "rootfs/python/zygote/environment.py");
EMBED(guest_zygote_renew, "rootfs/python/zygote/renew.py");
EMBED(guest_zygote_worker, "rootfs/python/zygote/worker.py");
EMBED(guest_zygote_cells, "rootfs/python/zygote/cells.py");
EMBED(guest_zygote_channel, "rootfs/python/zygote/channel.py");
EMBED(guest_zygote_contexts, "rootfs/python/zygote/contexts.py");
EMBED(guest_zygote_drawing, "rootfs/python/zygote/drawing.py");
EMBED(guest_zygote_figures, "rootfs/python/zygote/figures.py");
EMBED(guest_zygote_kernel, "rootfs/python/zygote/kernel.py");
EMBED(guest_zygote_uncopied, "rootfs/python/zygote/uncopied.py");
EMBED(guest_zygote_park, "rootfs/python/zygote/park.py");
EMBED(guest_zygote_rehearsal, "rootfs/python/zygote/rehearsal.py");
EMBED(guest_zygote_shell, "rootfs/python/zygote/shell.py");
EMBED(guest_zygote_tracebacks, "rootfs/python/zygote/tracebacks.py");
EMBED(guest_zygote_helper, HUTCH_HELPER_SO);

/* The byte code of the first, as precompile.py made it: with it the hook costs a start 0.3 ms, without it 1.4 ms, most of
 * which Python spends on getting its compiler ready. Empty where the build found no Python. */
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

    /* known to the linker, so no constants to the compiler */
    files[0].len = guest_python_sitecustomize_len;
    files[1].len = guest_python_report_len;
    if (files[2].target == NULL)
        (void)find_pyc(pyc_path, sizeof(pyc_path), &files[2]);
    return files;
}

const struct guest_file *hutch_guest_zygote(void)
{
    static _Thread_local struct guest_file files[] = {
        { GUEST_ZYGOTE_MAIN, guest_zygote_main, 0 },
        { GUEST_ZYGOTE_DIR "/preload.py", guest_zygote_preload, 0 },
        { GUEST_ZYGOTE_DIR "/first_use.py", guest_zygote_first_use, 0 },
        { GUEST_ZYGOTE_DIR "/environment.py", guest_zygote_environment, 0 },
        { GUEST_ZYGOTE_DIR "/renew.py", guest_zygote_renew, 0 },
        { GUEST_ZYGOTE_DIR "/worker.py", guest_zygote_worker, 0 },
        { GUEST_ZYGOTE_DIR "/cells.py", guest_zygote_cells, 0 },
        { GUEST_ZYGOTE_DIR "/channel.py", guest_zygote_channel, 0 },
        { GUEST_ZYGOTE_DIR "/contexts.py", guest_zygote_contexts, 0 },
        { GUEST_ZYGOTE_DIR "/drawing.py", guest_zygote_drawing, 0 },
        { GUEST_ZYGOTE_DIR "/figures.py", guest_zygote_figures, 0 },
        { GUEST_ZYGOTE_DIR "/kernel.py", guest_zygote_kernel, 0 },
        { GUEST_ZYGOTE_DIR "/uncopied.py", guest_zygote_uncopied, 0 },
        { GUEST_ZYGOTE_DIR "/park.py", guest_zygote_park, 0 },
        { GUEST_ZYGOTE_DIR "/rehearsal.py", guest_zygote_rehearsal, 0 },
        { GUEST_ZYGOTE_DIR "/shell.py", guest_zygote_shell, 0 },
        { GUEST_ZYGOTE_DIR "/tracebacks.py", guest_zygote_tracebacks, 0 },
        { GUEST_ZYGOTE_DIR "/hutch_report.py", guest_python_report, 0 },
        { GUEST_ZYGOTE_DIR "/helper.so", guest_zygote_helper, 0 },
        { NULL, NULL, 0 },
    };
    const size_t lens[] = { guest_zygote_main_len,   guest_zygote_preload_len, guest_zygote_first_use_len,
                            guest_zygote_environment_len, guest_zygote_renew_len, guest_zygote_worker_len,
                            guest_zygote_cells_len, guest_zygote_channel_len, guest_zygote_contexts_len,
                            guest_zygote_drawing_len, guest_zygote_figures_len,
                            guest_zygote_kernel_len, guest_zygote_uncopied_len, guest_zygote_park_len,
                            guest_zygote_rehearsal_len, guest_zygote_shell_len, guest_zygote_tracebacks_len,
                            guest_python_report_len, guest_zygote_helper_len };

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
        files[i].len = lens[i];
    return files;
}
