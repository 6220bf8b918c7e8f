/* Files: hutch's home, the policies, the images and what building them takes. */
#include "runtime/doctor/probes.h"

#include "sandbox/fd.h"
#include "runtime/config/policy.h"
#include "rootfs/stores.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SPACE_WANTED (2ull << 30) /* an image of 700 MB, its archive, and some room for results */
#define SUBIDS_WANTED 65536

/* @path, or the nearest directory above it that is there. */
static bool find_existing(const char *path, char *ret, size_t size)
{
    struct stat st;

    if ((size_t)snprintf(ret, size, "%s", path) >= size)
        return false;
    while (stat(ret, &st) < 0) {
        char *slash = strrchr(ret, '/');

        if (errno != ENOENT || !slash || strcmp(ret, "/") == 0)
            return false;
        slash[slash == ret] = '\0';
    }
    return S_ISDIR(st.st_mode);
}

void hutch_probe_home(const struct doctor_host *host, struct doctor_finding *ret)
{
    char there[PATH_MAX], name[48];
    auto_fd dir = -1;
    struct statvfs fs;

    if (!host->home) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", host->home_err.msg);
        return;
    }
    if (!find_existing(host->home, there, sizeof(there)) ||
        (dir = open(there, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "look at '%.400s': %s", host->home, strerrordesc_np(errno));
        return;
    }
    snprintf(name, sizeof(name), ".%s", host->scratch_name);
    if (mkdirat(dir, name, 0700) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "write into '%.400s': %s", there, strerrordesc_np(errno));
        return;
    }
    unlinkat(dir, name, AT_REMOVEDIR);
    if (flock(dir, LOCK_SH | LOCK_NB) < 0 && errno != EWOULDBLOCK) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "lock '%.400s': %s", there, strerrordesc_np(errno));
        hutch_doctor_fix(ret, "export HUTCH_HOME=DIR    (on a file system that has locks)");
        return;
    }
    if (fstatvfs(dir, &fs) == 0 && (fs.f_flag & ST_NOEXEC)) {
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "'%.400s' is mounted noexec", there);
        hutch_doctor_costs(ret, "nothing in an image can be executed");
        hutch_doctor_fix(ret, "export HUTCH_HOME=DIR    (on a file system without noexec)");
        return;
    }
    hutch_doctor_found(ret, DOCTOR_OK, "'%.400s' can be %s", host->home,
                       strcmp(there, host->home) == 0 ? "written to" : "made");
}

void hutch_probe_space(const struct doctor_host *host, struct doctor_finding *ret)
{
    char there[PATH_MAX];
    struct statvfs fs;
    uint64_t bytes;

    if (!host->home || !find_existing(host->home, there, sizeof(there)) || statvfs(there, &fs) < 0) {
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes hutch's home");
        return;
    }
    bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    hutch_doctor_found(ret, bytes < SPACE_WANTED || fs.f_favail == 0 ? DOCTOR_DEGRADED : DOCTOR_OK,
                       "%" PRIu64 " MB free where hutch's home is", bytes >> 20);
    if (fs.f_files && fs.f_favail < 100000) { /* 0 files: a file system that does not count them */
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "only %" PRIu64 " more files where hutch's home is",
                           (uint64_t)fs.f_favail);
    } else if (!fs.f_files && bytes >= SPACE_WANTED) {
        ret->status = DOCTOR_OK;
    }
}

void hutch_probe_policies(const struct doctor_host *host, struct doctor_finding *ret)
{
    static const char *const names[] = { "default", "strict", "trusted" };
    struct hutch_err err;

    if (!host->policy_dir) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", host->policy_err.msg);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct sandbox_spec spec;
        struct seccomp_program program;

        if (hutch_spec_init(&spec, &err) < 0 || hutch_policy_load(names[i], host->policy_dir, &spec, &err) < 0 ||
            (spec.layers[LAYER_SECCOMP] != NEED_OFF && hutch_seccomp_compile(&spec.seccomp, &program, &err) < 0)) {
            hutch_doctor_found(ret, DOCTOR_MISSING, "%s", err.msg);
            return;
        }
    }
    hutch_doctor_found(ret, DOCTOR_OK, "default, strict and trusted can be read from '%.400s'", host->policy_dir);
}

struct image_names {
    char text[400];
    size_t n;          /* images, with a name or without one */
    bool has_usual;
};

static int add_names(void *ctx, const struct store *store, struct hutch_err *err)
{
    struct image_names *names = ctx;
    struct store_image *images;
    size_t n, len = strlen(names->text);

    if (hutch_store_list(store, &images, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < images[i].n_names; k++) {
            const char *name = images[i].names[k];

            names->has_usual |= strcmp(name, "python") == 0 || strcmp(name, "python:latest") == 0;
            if (len + strlen(name) + 3 < sizeof(names->text))
                len += (size_t)snprintf(names->text + len, sizeof(names->text) - len, "%s%s", len ? ", " : "", name);
        }
        hutch_store_image_done(&images[i]);
    }
    free(images);
    names->n += n;
    return 0;
}

void hutch_probe_images(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct image_names names = { .n = 0 };
    struct hutch_err err;
    struct store own;
    auto_free char *path = NULL;

    if (!host->home || asprintf(&path, "%s/images", host->home) < 0) {
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes hutch's home");
        return;
    }
    if (access(path, F_OK) == 0 || errno != ENOENT) { /* opening the store would make it */
        int rc = hutch_store_open(host->home, &own, &err);

        if (rc == 0) {
            rc = add_names(&names, &own, &err);
            hutch_store_done(&own);
        }
        if (rc < 0) {
            hutch_doctor_found(ret, DOCTOR_MISSING, "%s", err.msg);
            return;
        }
    }
    if (hutch_stores_each_shared(add_names, &names, &err) < 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", err.msg);
    else if (names.n == 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "none; only '--rootfs host' works without");
    else if (names.has_usual)
        hutch_doctor_found(ret, DOCTOR_OK, "%s", names.text);
    else
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "%s; not the usual one, python",
                           names.text[0] ? names.text : "some without a name");
}

/* Runs a program without output; its exit status, 127 when it is not there, 128 when a signal ended it. */
static int run_quietly(const char *const argv[])
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        int null_fd = open("/dev/null", O_RDWR);

        for (int fd = 0; fd <= 2; fd++)
            dup2(null_fd, fd);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (pid < 0 || TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
        return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void hutch_probe_host_python(const struct doctor_host *host, struct doctor_finding *ret)
{
    static const char *const argv[] = { "env", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-SEsc", "pass", NULL };
    int status = run_quietly(argv);

    (void)host;
    if (status == 0)
        hutch_doctor_found(ret, DOCTOR_OK, "'--rootfs host' has a Python");
    else
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s",
                           status == 127 ? "this host has no python3" : "this host's python3 does not start");
}

void hutch_probe_builder(const struct doctor_host *host, struct doctor_finding *ret)
{
    static const char *const argv[] = { "mmdebstrap", "--version", NULL };
    int status = run_quietly(argv);

    (void)host;
    if (status == 0)
        hutch_doctor_found(ret, DOCTOR_OK, "mmdebstrap is there");
    else
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s",
                           status == 127 ? "mmdebstrap is not installed" : "mmdebstrap does not start");
}

struct subids {
    unsigned start, count;
};

/* The first range that is large enough for a distribution's users: subuid(5). */
static bool find_subids(const struct doctor_host *host, const char *file, struct subids *ret)
{
    FILE *f = fopen(file, "re");
    char line[256], owner[64], number[16];
    bool found = false;

    snprintf(number, sizeof(number), "%u", host->uid);
    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%63[^:]:%u:%u", owner, &ret->start, &ret->count) == 3 && ret->count >= SUBIDS_WANTED &&
                (strcmp(owner, number) == 0 || (host->user[0] && strcmp(owner, host->user) == 0));
    if (f)
        fclose(f);
    return found;
}

void hutch_doctor_give_subids(const struct doctor_host *host, struct doctor_finding *ret)
{
    /* Ranges of others are not looked up: 100000 and what adduser gives next lie far below. */
    unsigned start = 0x30000000u + (host->uid & 0xfff) * 0x10000u;

    if (host->user[0])
        hutch_doctor_fix(ret, "sudo usermod --add-subuids %u-%u --add-subgids %u-%u %s", start,
                         start + SUBIDS_WANTED - 1, start, start + SUBIDS_WANTED - 1, host->user);
}

void hutch_probe_subids(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct subids uids, gids;

    if (host->uid == 0) {
        hutch_doctor_found(ret, DOCTOR_NOT_NEEDED, "root builds images without");
        return;
    }
    if (find_subids(host, "/etc/subuid", &uids) && find_subids(host, "/etc/subgid", &gids)) {
        hutch_doctor_found(ret, DOCTOR_OK, "uids from %u, gids from %u", uids.start, gids.start);
        return;
    }
    hutch_doctor_found(ret, DOCTOR_MISSING, "%s has no range of %d in /etc/subuid and /etc/subgid",
                       host->user[0] ? host->user : "this uid", SUBIDS_WANTED);
    hutch_doctor_give_subids(host, ret);
}

void hutch_probe_newuidmap(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct subids ranges[2];
    static const char *const programs[] = { "newuidmap", "newgidmap" };
    unsigned own[2] = { host->uid, getegid() };
    pid_t pid;

    if (host->uid == 0) {
        hutch_doctor_found(ret, DOCTOR_NOT_NEEDED, "root builds images without");
        return;
    }
    if (!host->has_user_ns || !find_subids(host, "/etc/subuid", &ranges[0]) ||
        !find_subids(host, "/etc/subgid", &ranges[1])) {
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes %s",
                           host->has_user_ns ? "subordinate ids" : "a user namespace");
        return;
    }
    pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        for (;;)
            pause();
    if (pid < 0) {
        hutch_doctor_failed(host, ret, errno, "make a user namespace");
        return;
    }
    hutch_doctor_found(ret, DOCTOR_OK, "ranges of ids can be mapped");
    for (size_t i = 0; i < ARRAY_SIZE(programs) && ret->status == DOCTOR_OK; i++) {
        char text[6][16];
        const char *argv[9] = { programs[i] };
        unsigned numbers[] = { 0, own[i], 1, 1, ranges[i].start, ranges[i].count };
        char pid_text[16];
        int status;

        snprintf(pid_text, sizeof(pid_text), "%d", pid);
        argv[1] = pid_text;
        for (size_t k = 0; k < ARRAY_SIZE(numbers); k++) {
            snprintf(text[k], sizeof(text[k]), "%u", numbers[k]);
            argv[2 + k] = text[k];
        }
        argv[8] = NULL;
        status = run_quietly(argv);
        if (status == 127)
            hutch_doctor_found(ret, DOCTOR_MISSING, "%s is not installed", programs[i]);
        else if (status != 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) {
            hutch_doctor_found(ret, DOCTOR_MISSING, "%s has no effect: no_new_privs is set around hutch", programs[i]);
            hutch_doctor_fix(ret,
                             "start hutch outside of the sandbox or service that set it (systemd: NoNewPrivileges=)");
        } else if (status != 0) {
            hutch_doctor_found(ret, DOCTOR_MISSING, "%s maps no range of ids", programs[i]);
            if (host->facts.is_nested)
                hutch_doctor_fix(ret, "start hutch outside of the user namespace that it is in");
            else
                hutch_doctor_fix(ret, "sudo chmod u+s \"$(command -v newuidmap)\" \"$(command -v newgidmap)\"");
        }
    }
    kill(pid, SIGKILL);
    TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
}
