#include "soak.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLE_S   120
#define REPLACE_MS 30000

/* "rss" and "heap" may vary by a little, the others not at all. */
static const struct {
    const char *name, *what;
    long slack; /* percent */
    long slack_kb;
} measures[MEASURES] = {
    [FDS] = { "fds", "descriptors of the engine's process", 0, 0 },
    [CHILD_FDS] = { "helper fds", "descriptors of opener, anchor, launcher, zygotes", 0, 0 },
    [PROCESSES] = { "processes", "below the engine's", 0, 0 },
    [ZOMBIES] = { "zombies", "among them", 0, 0 },
    [CGROUPS] = { "cgroups", "of the engine", 0, 0 },
    [MOUNTS] = { "mounts", "of the engine's process", 0, 0 },
    [CHILD_MOUNTS] = { "helper mounts", "of opener, anchor, launcher", 0, 0 },
    [STATE] = { "state", "entries below HUTCH_HOME/runs and outputs", 0, 0 },
    [RSS_KB] = { "rss", "kB of the engine's process", 2, 1024 },
    [HEAP_KB] = { "heap", "kB of it that malloc has given out", 2, 512 },
    [LAUNCHER_RSS_KB] = { "launcher", "kB", 5, 1024 },
    [ZYGOTES_RSS_KB] = { "zygotes", "kB, all together", 5, 2048 },
};

static long count_entries(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    long n = 0;

    if (!dir)
        return -1;
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static long count_fds(pid_t pid)
{
    char path[40];
    long n;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    n = count_entries(path);
    return n > 0 && pid == getpid() ? n - 1 : n; /* without the one that looks */
}

static long count_lines(pid_t pid, const char *name)
{
    char path[64], buffer[65536];
    ssize_t n;
    long lines = 0;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0)
        for (ssize_t i = 0; i < n; i++)
            lines += buffer[i] == '\n';
    close(fd);
    return n < 0 ? -1 : lines;
}

static long rss_kb(pid_t pid)
{
    char path[40], line[256];
    long kb = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = atol(line + 6);
    if (file)
        fclose(file);
    return kb;
}

/* Everything below, links not followed. Data directories come and go with sandboxes, of which there is a fixed
 * number. */
static long count_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    long n = 0;

    while (dir && (entry = readdir(dir))) {
        char below[4096];
        struct stat st;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        n++;
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        if (lstat(below, &st) == 0 && S_ISDIR(st.st_mode))
            n += count_tree(below);
    }
    if (dir)
        closedir(dir);
    return n;
}

static long count_state(void)
{
    const char *home = getenv("HUTCH_HOME");
    char path[4096];
    long n;

    if (!home)
        return -1;
    snprintf(path, sizeof(path), "%s/runs", home);
    n = count_tree(path);
    snprintf(path, sizeof(path), "%s/outputs", home);
    return n + count_tree(path);
}

static long count_groups_below(const char *path, unsigned depth)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    long n = 1;

    if (!dir)
        return 0;
    while (depth < 16 && (entry = readdir(dir))) {
        char below[4096];

        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        n += count_groups_below(below, depth + 1);
    }
    closedir(dir);
    return n;
}

/* The engine's own group and all in it: where the launcher is, up to the first part of the path that is called
 * hutch-ID. Empty where there is none. */
static void find_group(pid_t launcher, char *ret, size_t size)
{
    char line[4096], name[64], mount[1024] = "", *part = NULL;
    FILE *file = fopen("/proc/self/mountinfo", "re");

    while (file && fgets(line, sizeof(line), file))
        if (strstr(line, " - cgroup2 ") && !*mount)
            (void)!sscanf(line, "%*s %*s %*s %*s %1023s", mount);
    if (file)
        fclose(file);
    snprintf(name, sizeof(name), "/proc/%d/cgroup", launcher);
    file = fopen(name, "re");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            part = line + 3;
            break;
        }
    if (file)
        fclose(file);
    *ret = '\0';
    for (char *p = part; *mount && p && (p = strstr(p, "/hutch-")); p++) {
        size_t len = strcspn(p + 1, "/") + 1;

        if (len != strlen("/hutch-0123456789abcdef") || strspn(p + 7, "0123456789abcdef") != 16)
            continue;
        p[len] = '\0';
        snprintf(ret, size, "%s%s", mount, part);
        return;
    }
}

/* A sum of which one part is not known is not known. */
static void add(long *sum, long n)
{
    *sum = *sum < 0 || n < 0 ? -1 : *sum + n;
}

static char group[8192]; /* the engine's */

static void measure_self(long m[MEASURES])
{
    m[FDS] = count_fds(getpid());
    m[CGROUPS] = *group ? count_groups_below(group, 0) : -1;
    m[MOUNTS] = count_lines(getpid(), "mountinfo");
    m[STATE] = count_state();
}

void counts_take(struct hutch_engine *engine, struct procs *procs, struct counts *ret)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    long *m = ret->n;

    hutch_engine_get_stats(engine, &stats);
    memset(ret, 0, sizeof(*ret));
    procs_scan(procs, stats.launcher_pid);
    for (size_t i = 0; i < procs->n; i++) {
        const struct proc *p = &procs->all[i];

        if (!p->is_ours || p->is_holder)
            continue;
        m[p->is_zombie ? ZOMBIES : PROCESSES]++;
        if (p->is_zombie || p->kind == PROC_INIT || p->kind == PROC_WORKER)
            continue;
        add(&m[CHILD_FDS], count_fds(p->pid));
        if (p->kind == PROC_ZYGOTE)
            m[ZYGOTES_RSS_KB] += rss_kb(p->pid);
        else
            add(&m[CHILD_MOUNTS], count_lines(p->pid, "mountinfo"));
    }
    if (!*group)
        find_group(stats.launcher_pid, group, sizeof(group));
    measure_self(m);
    m[RSS_KB] = rss_kb(getpid());
    m[HEAP_KB] = (long)(mallinfo2().uordblks / 1024);
    m[LAUNCHER_RSS_KB] = rss_kb(stats.launcher_pid);
}

void counts_print(const char *scenario, const char *label, const struct counts *counts)
{
    printf("%s %-14s", scenario, label);
    for (int i = 0; i < MEASURES; i++)
        if (!counts)
            printf(" %13s", measures[i].name);
        else if (counts->n[i] < 0)
            printf(" %13s", "?");
        else
            printf(" %13ld", counts->n[i]);
    putchar('\n');
    fflush(stdout);
}

static bool has_grown(const struct counts *first, const struct counts *last, int i)
{
    return first->n[i] >= 0 && last->n[i] > first->n[i] + first->n[i] * measures[i].slack / 100 + measures[i].slack_kb;
}

void counts_compare(const struct counts *first, const struct counts *last, bool has_memory)
{
    for (int i = 0; i < (has_memory ? MEASURES : RSS_KB); i++)
        if (has_grown(first, last, i))
            complain("%s grew from %ld to %ld (%s)", measures[i].name, first->n[i], last->n[i], measures[i].what);
}

static bool has_anything_grown(const struct counts *first, const struct counts *last)
{
    for (int i = 0; i < MEASURES; i++)
        if (has_grown(first, last, i))
            return true;
    return false;
}

/* A zygote that is being replaced is there beside the new one for a moment; what has leaked stays. */
static void wait_for_replacements(struct load *load, struct procs *procs, const struct counts *first,
                                  struct counts *last)
{
    double until = now_ms() + REPLACE_MS;

    while (has_anything_grown(first, last) && now_ms() < until) {
        load_turn(load, now_ms() + 200);
        counts_take(load->engine, procs, last);
    }
}

int soak_flat(const struct settings *settings)
{
    unsigned warm_up = settings->runs / 10, each = (settings->runs - warm_up) / settings->samples;
    struct counts before = { 0 }, first, last;
    struct procs *procs = calloc(1, sizeof(*procs));
    struct load load;
    char label[32];
    double begin;

    if (!procs || each == 0)
        die("too few --runs for so many --samples");
    memset(procs, 0xff, sizeof(*procs));
    measure_self(before.n);
    load_open(&load, settings, settings->runs);
    if (!load_settle(&load, SETTLE_S))
        return -1;
    counts_print("flat:", "runs", NULL);
    begin = now_ms();
    load.room = warm_up;
    for (unsigned sample = 0; sample <= settings->samples; sample++) {
        while (load.n < load.room)
            load_turn(&load, now_ms() + 100);
        if (!load_settle(&load, SETTLE_S) || complaints > 20)
            return -1;
        counts_take(load.engine, procs, sample == 0 ? &first : &last);
        snprintf(label, sizeof(label), "%u", load.n);
        counts_print("flat:", label, sample == 0 ? &first : &last);
        load.room = sample + 1 < settings->samples ? load.room + each : settings->runs;
    }
    wait_for_replacements(&load, procs, &first, &last);
    counts_print("flat:", "at rest", &last);
    counts_compare(&first, &last, true);
    printf("flat: %u runs in %.1f s, %.0f a second; begun again %u times\n", load.n, (now_ms() - begin) / 1e3,
           load.n / (now_ms() - begin) * 1e3, load.restarted);
    load_close(&load);
    last = (struct counts){ 0 };
    procs_check_gone(procs);
    measure_self(last.n);
    procs_scan(procs, 0);
    last.n[PROCESSES] = procs_count(procs);
    counts_print("flat:", "before", &before);
    counts_print("flat:", "after the end", &last);
    before.n[STATE]++; /* the engine's slot stays, empty */
    before.n[CGROUPS] = 0;
    counts_compare(&before, &last, true);
    free(procs);
    return 0;
}
