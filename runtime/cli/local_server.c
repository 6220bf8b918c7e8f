#include "runtime/cli/local_server.h"

#include "runtime/cli/run_options.h"
#include "runtime/config/limits.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define SEND_SECONDS 10 /* for the server to take a piece of a request, or to give one that is waited for */

/* One that somebody else could have made is not used. */
static int check_place(const char *path, mode_t type, mode_t others, struct hutch_err *err)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return hutch_err_set(err, errno, "no server listens on '%s'", path);
    if ((st.st_mode & S_IFMT) != type || st.st_uid != geteuid() || (st.st_mode & others))
        return hutch_err_set(err, 0, "'%s' is not this user's alone", path);
    return 0;
}

int hutch_local_server_connect(int *ret, struct hutch_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const struct timeval patience = { .tv_sec = SEND_SECONDS };
    socklen_t len = sizeof(struct ucred);
    struct ucred peer;
    char folder[sizeof(address.sun_path)];
    auto_fd fd = -1;

    if (!runtime || runtime[0] != '/' ||
        (size_t)snprintf(folder, sizeof(folder), "%s/hutch", runtime) >= sizeof(folder) - sizeof("/hutch.sock"))
        return hutch_err_set(err, 0, "XDG_RUNTIME_DIR does not say where a server would listen");
    snprintf(address.sun_path, sizeof(address.sun_path), "%.*s/hutch.sock",
             (int)(sizeof(folder) - sizeof("/hutch.sock")), folder);
    if (check_place(folder, S_IFDIR, S_IWGRP | S_IWOTH, err) < 0 ||
        check_place(address.sun_path, S_IFSOCK, S_IRWXG | S_IRWXO, err) < 0)
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return hutch_err_set(err, errno, "no server listens on '%s'", address.sun_path);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid())
        return hutch_err_set(err, 0, "the server on '%s' is another user's", address.sun_path);
    *ret = hutch_fd_take(&fd);
    return 0;
}

bool hutch_local_server_add_env(struct text_buffer *t, const struct option_list *env)
{
    bool is_text = true;

    hutch_text_add_string(t, ",\"env\":{");
    for (size_t i = 0; i < env->n; i++) {
        const char *equals = strchr(env->values[i], '=');

        if (!equals || !hutch_utf8_is_valid(env->values[i], strlen(env->values[i])))
            return false;
        for (size_t k = 0; k < i; k++)
            is_text &= strncmp(env->values[k], env->values[i], (size_t)(equals - env->values[i]) + 1) != 0; /* twice */
        hutch_text_add_string(t, i ? "," : "");
        hutch_json_quote(t, env->values[i], (size_t)(equals - env->values[i]));
        hutch_text_add_string(t, ":");
        hutch_json_quote(t, equals + 1, strlen(equals + 1));
    }
    hutch_text_add_string(t, "}");
    return is_text;
}

int hutch_local_server_add_limits(struct text_buffer *t, const struct run_opts *opts, unsigned without,
                                  struct hutch_err *err)
{
    struct hutch_limits limits;
    bool has_one = false;

    if (hutch_run_options_limits(opts, &limits, err) < 0)
        return -1;
    hutch_text_add_string(t, ",\"limits\":{");
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        const struct limit *row = &hutch_limit_rows[i];
        uint64_t value;

        if (!opts->limits[i] || (without & 1u << i))
            continue;
        memcpy(&value, (const char *)&limits + row->limits_at, sizeof(value));
        if (!row->field || value == HUTCH_NO_LIMIT)
            return hutch_err_set(err, 0, "a server takes limits within its policy's only");
        hutch_text_addf(t, "%s\"%s\":%" PRIu64, has_one ? "," : "", row->field, value);
        has_one = true;
    }
    hutch_text_add_string(t, "}");
    return 0;
}

void hutch_local_server_add_path(struct text_buffer *t, const char *header, const char *path)
{
    hutch_text_addf(t, "\r\n%s: ", header);
    for (; *path; path++)
        hutch_text_addf(t, *path > ' ' && *path < 127 && *path != '%' ? "%c" : "%%%02x", (unsigned char)*path);
}
