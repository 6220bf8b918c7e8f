#include "runtime/cli/skopeo.h"

#include "rootfs/store.h"
#include "runtime/cli/child.h"
#include "runtime/cli/words.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"
#include "sandbox/walk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TARGET "fetched"
#define SCRATCH "scratch"

/* --- what it says ----------------------------------------------------------------------------------------- */

/* The text of 'time="…" level=fatal msg="…"', quoted as Go does it, in place of the line. */
static size_t unquote_message(char *line)
{
    static const char key[] = " msg=\"";
    const char *in = strstr(line, key);
    char *out = line;

    if (!in)
        return strlen(line);
    for (in += strlen(key); *in && *in != '"'; in++) {
        if (*in == '\\' && (in[1] == '"' || in[1] == '\\'))
            in++;
        else if (*in == '\\' && (in[1] == 'n' || in[1] == 't')) {
            in++;
            *out++ = ' ';
            continue;
        }
        *out++ = *in;
    }
    *out = '\0';
    return (size_t)(out - line);
}

void hutch_skopeo_last_words(const char *text, size_t len, char ret[SKOPEO_MAX_WORDS + 1])
{
    hutch_child_last_words(text, len, unquote_message, ret);
}

/* --- its start -------------------------------------------------------------------------------------------- */

static int find_program(char ret[PATH_MAX], struct hutch_err *err)
{
    const char *path = getenv("PATH");
    struct stat st;

    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin", *next; at; at = next) {
        size_t n = strcspn(at, ":");

        next = at[n] ? at + n + 1 : NULL;
        /* Not from the current directory, as an empty element would have it. */
        if (n > 0 && at[0] == '/' && (size_t)snprintf(ret, PATH_MAX, "%.*s/skopeo", (int)n, at) < PATH_MAX &&
            stat(ret, &st) == 0 && S_ISREG(st.st_mode) && access(ret, X_OK) == 0)
            return 0;
    }
    return hutch_err_set(err, 0, "pulling takes skopeo, which is not in PATH: install Debian's package skopeo, or have "
                                 "it write a file elsewhere (skopeo copy SOURCE docker-archive:FILE) and unpack that "
                                 "here (hutch rootfs unpack FILE)");
}

/* What skopeo is told of the caller's environment: where it and its credential helpers are, where the caller's
 * passwords, settings and images are, and the way to the network. */
static char **make_environment(char *tmpdir)
{
    static const char *const passed[] = {
        "PATH", "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG",
        "CONTAINERS_STORAGE_CONF",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "SSL_CERT_FILE", "SSL_CERT_DIR",
    };
    char **env = calloc(ARRAY_SIZE(passed) + 2, sizeof(*env));
    size_t n = 0;

    for (char **at = environ; env && *at; at++)
        for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
            size_t len = strlen(passed[i]);

            if (n < ARRAY_SIZE(passed) && strncmp(*at, passed[i], len) == 0 && (*at)[len] == '=')
                env[n++] = *at;
        }
    if (env)
        env[n] = tmpdir;
    return env;
}

/* A value never is a word of its own, so that none is taken for an option. */
static void make_words(struct words *words, const struct skopeo_copy *copy, const char *scratch, const char *target)
{
    ADD_WORD(words, "skopeo");
    ADD_WORD(words, "--tmpdir=", scratch);
    ADD_WORD(words, "--override-os=", "linux");
    ADD_WORD(words, "--override-arch=", copy->arch);
    if (copy->variant[0])
        ADD_WORD(words, "--override-variant=", copy->variant);
    ADD_WORD(words, "copy");
    if (!copy->is_shown)
        ADD_WORD(words, "--quiet");
    if (copy->is_insecure)
        ADD_WORD(words, "--src-tls-verify=", "false");
    if (copy->authfile)
        ADD_WORD(words, "--src-authfile=", copy->authfile);
    ADD_WORD(words, "--");
    ADD_WORD(words, copy->source);
    ADD_WORD(words, "dir:", target);
}

/* --- its run ---------------------------------------------------------------------------------------------- */

/* What lies below @dirfd, in bytes of the disk; what cannot be seen now is counted the next time. */
static uint64_t measure(int dirfd)
{
    __attribute__((cleanup(hutch_walk_done))) struct walk walk = WALK_INIT;
    enum walk_event event;
    struct hutch_err ignored;
    uint64_t bytes = 0;
    int skipped;

    if (hutch_walk_open(&walk, dirfd, ".", 0, &ignored) < 0)
        return 0;
    while (hutch_walk_next(&walk, &event, &ignored) == 0 && event != WALK_END) {
        struct stat st;

        if (event != WALK_ENTRY || fstatat(walk.dirfd, walk.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        bytes += (uint64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode) && hutch_walk_enter(&walk, &skipped, &ignored) < 0)
            break;
    }
    return bytes;
}

static bool has_said(const struct child_tail *tail, const char *text)
{
    return memmem(tail->text, tail->len, text, strlen(text)) != NULL;
}

/* Where there is a way round that its words do not say. */
static const char *find_hint(const struct child_tail *tail)
{
    static const struct { const char *one, *two, *hint; } hints[] = {
        { "server gave HTTP response to HTTPS client", "", " (--insecure takes a registry without TLS)" },
        { "unauthorized", "", " (skopeo login REGISTRY keeps a password, --authfile FILE names another file of them)" },
        { "x509: ", "", " (SSL_CERT_FILE names the authority that vouches for it; --insecure takes any)" },
        { "untarring file", "operation not permitted", " (hutch rootfs unpack reads the file by itself)" },
        /* Root's own tools make that directory for root alone. */
        { "/run/containers/", "auth.json: permission denied", " (XDG_RUNTIME_DIR has to name a directory of yours)" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
        if (has_said(tail, hints[i].one) && has_said(tail, hints[i].two))
            return hints[i].hint;
    return "";
}

static int judge(const struct skopeo_copy *copy, const struct child_tail *tail, int status, struct hutch_err *err)
{
    char words[SKOPEO_MAX_WORDS + 1];

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    hutch_skopeo_last_words(tail->text, tail->len, words);
    if (WIFSIGNALED(status))
        return hutch_err_set(err, 0, "pull '%.200s': skopeo was ended by signal %d", copy->source, WTERMSIG(status));
    if (!words[0])
        return hutch_err_set(err, 0, "pull '%.200s': skopeo failed (%d) and did not say why", copy->source,
                             WEXITSTATUS(status));
    return hutch_err_say(err, has_said(tail, "no image found in") ? ENOENT : 0, "skopeo: %s%s", words,
                         find_hint(tail));
}

struct look {
    const struct skopeo_copy *copy;
    int work_fd;
};

static int check(void *ctx, struct hutch_err *err)
{
    const struct look *look = ctx;
    const struct skopeo_copy *copy = look->copy;

    if (copy->is_interrupted())
        return hutch_err_set(err, ECANCELED, "pull '%.200s'", copy->source);
    if (hutch_clock_ms() >= copy->until)
        return hutch_err_say(err, ETIMEDOUT, "pull '%.200s': it is not here after %" PRIu64 " s (--timeout)",
                             copy->source, (copy->timeout_ms + 999) / 1000);
    if (measure(look->work_fd) > copy->max_bytes)
        return hutch_err_say(err, EFBIG, "pull '%.200s': it takes more than %" PRIu64 " kB of the disk (--max-size)",
                             copy->source, copy->max_bytes / 1000);
    return 0;
}

static int run(const struct skopeo_copy *copy, const char *path, char **argv, char **env, int work_fd,
               struct hutch_err *err)
{
    struct look look = { .copy = copy, .work_fd = work_fd };
    struct child_run child = {
        .path = path, .argv = argv, .env = env, .stdout_fd = copy->is_shown ? STDERR_FILENO : -1, .lock_fd = work_fd,
        .until = copy->until, .check = check, .ctx = &look,
    };
    struct child_tail tail;
    int status;

    return hutch_child_run(&child, &tail, &status, err) < 0 ? -1 : judge(copy, &tail, status, err);
}

int hutch_skopeo_copy(const struct skopeo_copy *copy, const struct store_work *work, char **ret_path,
                      struct hutch_err *err)
{
    auto_free char *target = NULL, *tmpdir = NULL;
    auto_words words = WORDS_INIT;
    auto_free char **env = NULL;
    char path[PATH_MAX];
    auto_fd made = -1;

    if (find_program(path, err) < 0)
        return -1;
    if (asprintf(&target, "%s/tmp/%s/" TARGET, work->store->path, work->name) < 0)
        target = NULL;
    if (asprintf(&tmpdir, "TMPDIR=%s/tmp/%s/" SCRATCH, work->store->path, work->name) < 0)
        tmpdir = NULL;
    if (target && tmpdir)
        make_words(&words, copy, strchr(tmpdir, '=') + 1, target);
    env = make_environment(tmpdir);
    if (!target || !tmpdir || !env || words.is_broken)
        return hutch_err_set(err, ENOMEM, "pull '%.200s'", copy->source);
    if (hutch_rmtree(work->dirfd, TARGET, err) < 0 || hutch_rmtree(work->dirfd, SCRATCH, err) < 0)
        return -1;
    if (mkdirat(work->dirfd, SCRATCH, 0700) < 0)
        return hutch_err_set(err, errno, "create '%s'", strchr(tmpdir, '=') + 1);
    if (run(copy, path, words.argv, env, work->dirfd, err) < 0)
        return -1;
    made = openat(work->dirfd, TARGET, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (made < 0)
        return hutch_err_set(err, 0, "pull '%.200s': skopeo says that it is done, and has written no image",
                             copy->source);
    *ret_path = target;
    target = NULL;
    return 0;
}
