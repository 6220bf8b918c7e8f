#include "runtime/cli/extend_builder.h"

#include "runtime/cli/beside.h"
#include "runtime/cli/child.h"
#include "runtime/data/changes.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT_EVERY_MS 500.0

const char *const hutch_extend_proxies[] = { "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
                                             "no_proxy", NULL };

/* As a string of JSON; the caller frees it. */
static char *quote(const char *text)
{
    cJSON *json = cJSON_CreateString(text);
    char *quoted = cJSON_PrintUnformatted(json);

    cJSON_Delete(json);
    return quoted;
}

/* What is downloaded lies beside what is installed, so twice the size may be taken while the layer is made. */
static int write_policy(const struct extend_builder *b, const char *changes, struct hutch_err *err)
{
    const struct extend_job *job = b->job;
    auto_free char *text = NULL, *quoted = changes ? quote(changes) : NULL;

    if ((changes && !quoted) ||
        asprintf(&text,
                 "{\"schema\":1,\"extends\":\"default\",\"data_place\":\"disk\"%s%s,\"limits\":{\"memory\":\"4G\","
                 "\"pids\":256,\"cpus\":null,\"wall\":\"%" PRIu64 "ms\",\"output\":%" PRIu64 ",\"file_size\":%" PRIu64
                 ",\"open_files\":4096,\"data_size\":%" PRIu64 ",\"data_files\":%" PRIu64 "}}",
                 quoted ? ",\"root_changes\":" : "", quoted ? quoted : "", job->timeout_ms, job->max_bytes,
                 job->max_bytes, 2 * job->max_bytes, 2 * job->max_entries) < 0) {
        text = NULL;
        return hutch_err_set(err, ENOMEM, "write the builder's policy");
    }
    if (unlinkat(b->in_fd, "policy.json", 0) < 0 && errno != ENOENT)
        return hutch_err_set(err, errno, "write the builder's policy");
    return hutch_extend_builder_give(b, "policy.json", text, err);
}

int hutch_extend_builder_open(const struct extend_job *job, const struct store_work *work, double until,
                              struct extend_builder *ret, struct hutch_err *err)
{
    auto_extend_builder b = { .job = job, .work = work, .until = until, .in_fd = -1, .changes_fd = -1 };

    if (mkdirat(work->dirfd, "in", 0755) < 0 ||
        (b.in_fd = openat(work->dirfd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return hutch_err_set(err, errno, "make room for a layer");
    if (asprintf(&b.directory, "%s/tmp/%s", work->store->path, work->name) < 0) {
        b.directory = NULL;
        return hutch_err_set(err, ENOMEM, "make a layer");
    }
    if (write_policy(&b, NULL, err) < 0)
        return -1;
    *ret = b;
    b = (struct extend_builder)EXTEND_BUILDER_INIT;
    return 0;
}

void hutch_extend_builder_close(struct extend_builder *builder)
{
    free(builder->directory);
    builder->directory = NULL;
    hutch_fd_closep(&builder->in_fd);
    hutch_fd_closep(&builder->changes_fd);
}

int hutch_extend_builder_give(const struct extend_builder *builder, const char *name, const char *text,
                              struct hutch_err *err)
{
    return hutch_fd_write_new(builder->in_fd, name, text, 0644, err);
}

int hutch_extend_builder_keep_changes(struct extend_builder *builder, struct hutch_err *err)
{
    auto_free char *path = NULL;

    if (asprintf(&path, "%s/changes", builder->directory) < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "make a layer");
    }
    if (mkdirat(builder->work->dirfd, "changes", 0755) < 0 ||
        (builder->changes_fd = openat(builder->work->dirfd, "changes", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        mkdirat(builder->changes_fd, "upper", 0755) < 0 || mkdirat(builder->changes_fd, "work", 0755) < 0)
        return hutch_err_set(err, errno, "make room for a layer");
    return write_policy(builder, path, err);
}

/* --- its command line ------------------------------------------------------------------------------------------- */

void hutch_extend_builder_show(struct words *words, const char *source, const char *directory, const char *name)
{
    ADD_WORD(words, "-v");
    ADD_WORD(words, source, ":", directory, name, ":ro");
}

void hutch_extend_builder_begin(const struct extend_builder *builder, const char *image_hex, bool has_network,
                                struct words *words)
{
    ADD_WORD(words, "hutch");
    ADD_WORD(words, "run");
    ADD_WORD(words, "--no-server");
    ADD_WORD(words, "--raw");
    ADD_WORD(words, "--quiet");
    if (image_hex) {
        ADD_WORD(words, "--image");
        ADD_WORD(words, "sha256:", image_hex);
    } else {
        ADD_WORD(words, "--rootfs");
        ADD_WORD(words, "host");
    }
    ADD_WORD(words, "--policy");
    ADD_WORD(words, builder->directory, "/in/policy.json");
    ADD_WORD(words, "--network");
    ADD_WORD(words, has_network ? "host" : "none");
    ADD_WORD(words, "-v");
    ADD_WORD(words, builder->directory, "/in:/mnt/in:ro");
}

/* --- its run ---------------------------------------------------------------------------------------------------- */

struct watch {
    const struct extend_builder *builder;
    int output_fd;
    double count_at;
};

static int refuse_size(const struct extend_job *job, struct hutch_err *err)
{
    return hutch_err_say(err, EFBIG, "the layer takes more than %" PRIu64 " kB (--max-size)", job->max_bytes / 1000);
}

/* What a sandbox writes to its root is on the disk, and nothing else counts it. */
static int check_changes(struct watch *watch, struct hutch_err *err)
{
    const struct extend_job *job = watch->builder->job;
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    uint64_t bytes, entries;

    if (watch->builder->changes_fd < 0 || hutch_clock_ms() < watch->count_at)
        return 0;
    watch->count_at = hutch_clock_ms() + COUNT_EVERY_MS;
    bounds.usage_bytes = job->max_bytes;
    bounds.usage_entries = 2 * job->max_entries;
    if (hutch_collect_usage(watch->builder->changes_fd, &bounds, &bytes, &entries, err) < 0)
        return -1;
    if (bytes > bounds.usage_bytes)
        return refuse_size(job, err);
    if (entries > bounds.usage_entries)
        return hutch_err_say(err, EFBIG, "the layer has more than %" PRIu64 " entries (--max-entries)",
                             job->max_entries);
    return 0;
}

static int check(void *ctx, struct hutch_err *err)
{
    struct watch *watch = ctx;
    const struct extend_job *job = watch->builder->job;
    struct stat st;

    if (job->is_interrupted())
        return hutch_err_set(err, ECANCELED, "extend the image '%s'", job->image);
    if (hutch_clock_ms() >= watch->builder->until)
        return hutch_err_say(err, ETIMEDOUT, "the layer is not made after %" PRIu64 " s (--timeout)",
                             (job->timeout_ms + 999) / 1000);
    if (fstat(watch->output_fd, &st) == 0 && (uint64_t)st.st_size >= job->max_bytes)
        return refuse_size(job, err);
    return check_changes(watch, err);
}

static int judge(struct watch *watch, const struct child_tail *tail, int status, struct hutch_err *err)
{
    char words[CHILD_MAX_WORDS + 1];

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (check(watch, err) < 0)
        return -1;
    hutch_child_last_words(tail->text, tail->len, NULL, words);
    if (WIFSIGNALED(status))
        return hutch_err_set(err, 0, "the builder was ended by signal %d", WTERMSIG(status));
    if (!words[0])
        return hutch_err_set(err, 0, "the builder failed, and did not say why");
    return hutch_err_say(err, 0, "%s", strncmp(words, "hutch: ", 7) == 0 ? words + 7 : words);
}

int hutch_extend_builder_run_program(const struct extend_builder *builder, const char *path, char *const *argv,
                                     const char *output, struct hutch_err *err)
{
    auto_fd fd = openat(builder->work->dirfd, output, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    struct watch watch = { .builder = builder, .output_fd = fd };
    const struct child_run run = { .path = path, .argv = argv, .env = environ, .stdout_fd = fd,
                                   .lock_fd = builder->work->dirfd, .until = builder->until, .check = check,
                                   .ctx = &watch };
    struct child_tail tail;
    int status;

    if (fd < 0)
        return hutch_err_set(err, errno, "make room for a layer");
    return hutch_child_run(&run, &tail, &status, err) < 0 ? -1 : judge(&watch, &tail, status, err);
}

int hutch_extend_builder_run(const struct extend_builder *builder, const struct words *words, const char *output,
                             struct hutch_err *err)
{
    char path[PATH_MAX];

    if (words->is_broken)
        return hutch_err_set(err, ENOMEM, "make a layer");
    if (hutch_beside_find("hutch", path, err) < 0)
        return -1;
    return hutch_extend_builder_run_program(builder, path, words->argv, output, err);
}
