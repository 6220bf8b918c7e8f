#include "rootfs/machine.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define MAX_CPUINFO 8192 /* of the first processor, which is where the flags are */

const char *hutch_machine_architecture(void)
{
    static const struct { const char *machine, *architecture; } names[] = {
        { "x86_64", "amd64" }, { "aarch64", "arm64" }, { "i686", "386" },         { "armv7l", "arm" },
        { "ppc64le", "ppc64le" }, { "s390x", "s390x" }, { "riscv64", "riscv64" },
    };
    struct utsname uts;

    if (uname(&uts) == 0)
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            if (strcmp(names[i].machine, uts.machine) == 0)
                return names[i].architecture;
    return "";
}

const char *hutch_machine_usual_variant(const char *arch)
{
    return strcmp(arch, "arm64") == 0 ? "v8" : strcmp(arch, "arm") == 0 ? "v7" : "";
}

static int has_flag(const char *flags, const char *flag, size_t len)
{
    for (const char *at = flags; *at && *at != '\n';) {
        size_t n = strcspn(at, " \t\n");

        if (n == len && memcmp(at, flag, n) == 0)
            return 1;
        at += n;
        at += strspn(at, " \t");
    }
    return 0;
}

int hutch_machine_x86_level(const char *flags)
{
    /* As the kernel calls them: pni is SSE3, abm LZCNT; it shows avx only when the system saves its registers. */
    static const char *const needed[] = { "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
                                          "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
                                          "avx512f avx512bw avx512cd avx512dq avx512vl" };
    int level = 1;

    for (size_t i = 0; i < ARRAY_SIZE(needed); i++, level++)
        for (const char *at = needed[i]; *at;) {
            size_t n = strcspn(at, " ");

            if (!has_flag(flags, at, n))
                return level;
            at += n + (at[n] == ' ');
        }
    return level;
}

static int read_x86_level(void)
{
    char text[MAX_CPUINFO + 1];
    auto_fd fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, text, MAX_CPUINFO);
    const char *flags;

    if (n < 0)
        return 1;
    text[n] = '\0';
    flags = strstr(text, "\nflags");
    flags = flags ? strchr(flags, ':') : NULL;
    return flags ? hutch_machine_x86_level(flags + 1) : 1;
}

const char *hutch_machine_variant(const char *arch, unsigned n)
{
    static const char *const x86[] = { "v4", "v3", "v2", "v1" }, *const arm[] = { "v6", "v5" };
    const char *own = hutch_machine_architecture();
    unsigned skipped;

    if (strcmp(arch, own) != 0)
        return NULL;
    if (strcmp(arch, "arm") == 0)
        return n < ARRAY_SIZE(arm) ? arm[n] : NULL;
    if (strcmp(arch, "amd64") != 0 || n >= ARRAY_SIZE(x86))
        return NULL;
    skipped = (unsigned)ARRAY_SIZE(x86) - (unsigned)read_x86_level();
    return n + skipped < ARRAY_SIZE(x86) ? x86[n + skipped] : NULL;
}
