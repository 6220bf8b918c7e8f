#include "runtime/engine/core.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int open_data_root(struct core *core, const char *home, struct hutch_err *err)
{
    if (hutch_state_open(home, &core->state, err) < 0 || hutch_state_make_data(&core->state, &core->data_root, err) < 0)
        return -1;
    if (chmod(core->data_root, 0755) < 0) /* whatever the caller's umask is */
        return hutch_err_set(err, errno, "open up the directory '%s'", core->data_root);
    core->data_root_fd = open(core->data_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (core->data_root_fd < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", core->data_root);
    return 0;
}

int hutch_core_open(struct core *core, const char *home, struct hutch_err *err)
{
    return hutch_loop_open(&core->loop, err) < 0 ? -1 : open_data_root(core, home, err);
}

void hutch_core_done(struct core *core, double until)
{
    struct hutch_err err;

    hutch_fd_closep(&core->data_root_fd);
    if (hutch_state_close_until(&core->state, until, &err) < 0)
        hutch_log_debug("engine: %s (the next start sweeps it)", err.msg);
    free(core->data_root);
    core->data_root = NULL;
    hutch_loop_done(&core->loop);
}

uint32_t hutch_core_make_id(struct core *core)
{
    if (++core->next_id == 0) /* 0 means none */
        core->next_id = 1;
    return core->next_id;
}

void hutch_core_break(struct core *core, const struct hutch_err *why)
{
    if (core->is_broken)
        return;
    hutch_log_debug("engine: broken: %s", why->msg);
    core->is_broken = true;
    core->why = *why;
    hutch_loop_wake(&core->loop);
}

static bool is_removed(int dirfd)
{
    struct stat st;

    return fstat(dirfd, &st) == 0 && st.st_nlink == 0;
}

bool hutch_core_is_removed(struct core *core, int dirfd)
{
    struct hutch_err err;

    if (!is_removed(core->data_root_fd))
        return is_removed(dirfd);
    hutch_err_set(&err, 0, "the directory '%s' was removed while the engine used it: open another engine",
                  core->data_root);
    hutch_core_break(core, &err);
    return true;
}

void hutch_core_note_hung(struct core *core, const char *who)
{
    hutch_log_debug("engine: %s does not answer, and is killed", who);
    core->hung++;
    core->hung_at = hutch_clock_ms();
    snprintf(core->hung_who, sizeof(core->hung_who), "%s", who);
}

void hutch_core_blame_hung(const struct core *core, double since, struct hutch_err *err)
{
    size_t len = strlen(err->msg);

    if (core->hung > 0 && core->hung_at >= since)
        snprintf(err->msg + len, sizeof(err->msg) - len, "; %s did not answer within %g s and was killed",
                 core->hung_who, core->answer_ms / 1e3);
}

const char *hutch_core_last_line(char *text, ssize_t len)
{
    char *line;

    while (len > 0 && text[len - 1] == '\n')
        len--;
    if (len <= 0)
        return NULL;
    text[len] = '\0';
    line = strrchr(text, '\n');
    return line ? line + 1 : text;
}
