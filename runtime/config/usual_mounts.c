#include "runtime/config/usual_mounts.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "runtime/lang/program.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SYS_BYTES (64u << 10)
#define CPU_DIR   "/sys/devices/system/cpu"

int hutch_usual_mounts_add(struct sandbox_spec *spec, struct hutch_err *err)
{
    static const struct { enum sandbox_mount_kind kind; const char *target; unsigned flags; mode_t mode; } usual[] = {
        { MOUNT_PROC, "/proc", 0, 0 },
        { MOUNT_DEV, "/dev", 0, 0 },
        { MOUNT_TMPFS, "/tmp", 0, 01777 },
        { MOUNT_TMPFS, "/run", MOUNT_RDONLY, 0755 },
        { MOUNT_TMPFS, "/sys", MOUNT_RDONLY, 0755 },
        { MOUNT_TMPFS, INSIDE_DATA_DIR, MOUNT_RDONLY, 0755 }, /* keeps the place: a run puts the directory here */
    };

    for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
        struct sandbox_mount *m = hutch_spec_add_mount(spec, usual[i].kind, NULL, usual[i].target, usual[i].flags, err);

        if (!m)
            return -1;
        m->mode = usual[i].mode;
    }
    return 0;
}

void hutch_usual_mounts_size(struct sandbox_spec *spec)
{
    const bool is_root_written = hutch_spec_find_changes(spec) != NULL;

    for (size_t i = 0; i < spec->n_mounts; i++) {
        struct sandbox_mount *m = &spec->mounts[i];

        if (strcmp(m->target, "/run") == 0) {
            m->size_bytes = PROGRAM_MAX_BYTES + (4u << 20);
            if (is_root_written) { /* where a system's programs keep what is not to stay */
                m->flags &= ~MOUNT_RDONLY;
                m->mode = 01777;
            }
        } else if (strcmp(m->target, "/sys") == 0) {
            m->size_bytes = SYS_BYTES;
        } else if (!m->size_bytes && (m->kind == MOUNT_DEV || strcmp(m->target, "/tmp") == 0)) {
            m->size_bytes = spec->limits[LIMIT_TMP_SIZE];
        }
    }
}

/* Lists of processors as the host has them: which ones there are at all, and which ones could be added. Tables with a
 * row for each are indexed by the number of the processor, and so are as long as the host's; lscpu(1) ends without
 * them. A host without /sys has none. */
static int add_cpus_of_host(struct sandbox_spec *spec, const char *path, struct hutch_err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[512];
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, text, sizeof(text));

    if (n <= 0 || n == (ssize_t)sizeof(text))
        return 0;
    return hutch_spec_add_file(spec, path, text, (size_t)n, 0444, err);
}

/* The C library counts the processors that it may use by the list of those that are online, else in /proc/stat, which
 * has the host's. */
int hutch_usual_mounts_count_cpus(struct sandbox_spec *spec, struct hutch_err *err)
{
    uint64_t n = (spec->limits[LIMIT_CPUS] + 999) / 1000;
    char text[32];
    cpu_set_t allowed;

    if (add_cpus_of_host(spec, CPU_DIR "/present", err) < 0 || add_cpus_of_host(spec, CPU_DIR "/possible", err) < 0)
        return -1;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && (n == 0 || n > (uint64_t)CPU_COUNT(&allowed)))
        n = (uint64_t)CPU_COUNT(&allowed);
    if (n == 0)
        return 0; /* more than fit in the set: the host's number stands */
    snprintf(text, sizeof(text), n > 1 ? "0-%" PRIu64 "\n" : "0\n", n - 1);
    return hutch_spec_add_file(spec, CPU_DIR "/online", text, strlen(text), 0444, err);
}

bool hutch_usual_mounts_are_hidden_by(const char *target)
{
    static const struct {
        const char *path;
        bool with_below;
    } reserved[] = {
        { "/", false },   { "/proc", true }, { "/dev", true },      { "/sys", true },
        { "/tmp", false }, { "/run", false }, { INSIDE_OWN_DIR, true }, { INSIDE_DATA_DIR, false },
    };
    char clean[PATH_MAX];
    size_t n = 0;

    /* "//proc/" is "/proc". */
    for (const char *p = target; *p && n < sizeof(clean) - 1; p++)
        if (*p != '/' || n == 0 || clean[n - 1] != '/')
            clean[n++] = *p;
    if (n > 1 && clean[n - 1] == '/')
        n--;
    clean[n] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
        size_t len = strlen(reserved[i].path);

        if (strcmp(clean, reserved[i].path) == 0)
            return true;
        if (reserved[i].with_below && strncmp(clean, reserved[i].path, len) == 0 && clean[len] == '/')
            return true;
        if (strncmp(reserved[i].path, clean, n) == 0 && reserved[i].path[n] == '/') /* a parent, like /mnt */
            return true;
    }
    return false;
}
