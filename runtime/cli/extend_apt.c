#include "runtime/cli/extend_apt.h"

#include "runtime/cli/rootfs_script.h"
#include "runtime/lang/debian_package.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_STATUS (64u << 20) /* bytes of dpkg's list of an image */
#define ANSWER "answer"
#define FETCHED "in/debs.tar"

/* Adds a script that comes with hutch as the program of an image's sandbox. */
static int add_inside(struct words *words, const char *name, struct hutch_err *err)
{
    auto_free char *script = NULL;

    if (hutch_rootfs_script_find(name, R_OK, &script, err) < 0)
        return -1;
    hutch_extend_builder_show(words, script, "/mnt/builder", strrchr(script, '/'));
    ADD_WORD(words, "--entrypoint");
    ADD_WORD(words, "sh");
    ADD_WORD(words, "--");
    ADD_WORD(words, "/mnt/builder", strrchr(script, '/'));
    return 0;
}

/* --- what the image has ----------------------------------------------------------------------------------------- */

struct image_answer {
    char *text;        /* owned */
    const char *suite, *arch, *status; /* parts of it */
};

/* The image's word: a line with the names of a release and of an architecture, and what only apt reads. */
static int read_answer(const struct store_work *work, struct image_answer *ret, struct hutch_err *err)
{
    auto_fd fd = openat(work->dirfd, ANSWER, O_RDONLY | O_CLOEXEC);
    char *line_end, *space;
    size_t len;

    if (fd < 0)
        return hutch_err_set(err, errno, "read what the image has");
    if (hutch_fd_slurp(fd, MAX_STATUS, "the image's list of packages", &ret->text, &len, err) < 0)
        return -1;
    line_end = strchr(ret->text, '\n');
    space = line_end ? memchr(ret->text, ' ', (size_t)(line_end - ret->text)) : NULL;
    if (!space || strlen(ret->text) != len)
        return hutch_err_set(err, 0, "what the image says of its packages is no list of dpkg's");
    *space = *line_end = '\0';
    ret->suite = ret->text;
    ret->arch = space + 1;
    ret->status = line_end + 1;
    if (!hutch_debian_is_label(ret->suite) || !hutch_debian_is_label(ret->arch))
        return hutch_err_set(err, 0, "what the image says of its release is no name of one");
    return 0;
}

static int ask_image(const struct extend_builder *builder, const char *image_hex, struct image_answer *ret,
                     struct hutch_err *err)
{
    auto_words words = WORDS_INIT;

    hutch_extend_builder_begin(builder, image_hex, false, &words);
    if (add_inside(&words, "extend_apt_ask.sh", err) < 0 ||
        hutch_extend_builder_run(builder, &words, ANSWER, err) < 0)
        return -1;
    return read_answer(builder->work, ret, err);
}

/* --- what is fetched -------------------------------------------------------------------------------------------- */

static int find_sources(const struct extend_builder *builder, const char *suite, struct hutch_err *err)
{
    auto_free char *script = NULL;
    auto_words words = WORDS_INIT;

    if (hutch_rootfs_script_find("debian-sources.sh", X_OK, &script, err) < 0)
        return -1;
    ADD_WORD(&words, script);
    ADD_WORD(&words, suite);
    if (words.is_broken)
        return hutch_err_set(err, ENOMEM, "find Debian's archive");
    return hutch_extend_builder_run_program(builder, script, words.argv, "in/sources", err);
}

/* A line is one of them. */
static int give_environment(const struct extend_builder *builder, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *text = NULL;

    hutch_text_add_string(&t, "");
    for (const char *const *name = hutch_extend_proxies; *name; name++) {
        const char *value = getenv(*name);

        if (!value || strchr(value, '\n'))
            continue;
        hutch_text_add_string(&t, *name);
        hutch_text_add_string(&t, "=");
        hutch_text_add_string(&t, value);
        hutch_text_add_string(&t, "\n");
    }
    text = hutch_text_take(&t, NULL);
    return text ? hutch_extend_builder_give(builder, "environment", text, err)
                : hutch_err_set(err, ENOMEM, "pass the proxies on");
}

static int fetch(const struct extend_builder *builder, const struct image_answer *image, struct hutch_err *err)
{
    const struct debian_packages *apt = &builder->job->request->apt;
    auto_free char *script = NULL, *config = realpath("/etc/apt", NULL);
    auto_words words = WORDS_INIT;

    if (find_sources(builder, image->suite, err) < 0 || give_environment(builder, err) < 0 ||
        hutch_extend_builder_give(builder, "status", image->status, err) < 0 ||
        hutch_rootfs_script_find("extend_apt_fetch.sh", R_OK, &script, err) < 0)
        return -1;
    hutch_extend_builder_begin(builder, NULL, true, &words);
    if (config)
        hutch_extend_builder_show(&words, config, "/etc/apt", "");
    ADD_WORD(&words, script);
    ADD_WORD(&words, image->arch);
    for (size_t i = 0; i < apt->n; i++)
        ADD_WORD(&words, apt->texts[i]);
    return hutch_extend_builder_run(builder, &words, FETCHED, err);
}

/* --- what is installed ------------------------------------------------------------------------------------------ */

static int install(struct extend_builder *builder, const char *image_hex, const char *output, struct hutch_err *err)
{
    static const char *const secret[] = { "environment", "sources", "status" };
    auto_free char *config = NULL;
    auto_words words = WORDS_INIT;

    /* There may be passwords in them, of proxies and of archives, and the packages' scripts run here. */
    for (size_t i = 0; i < ARRAY_SIZE(secret); i++)
        if (unlinkat(builder->in_fd, secret[i], 0) < 0)
            return hutch_err_set(err, errno, "take away '%s'", secret[i]);
    if (hutch_extend_builder_keep_changes(builder, err) < 0 ||
        hutch_rootfs_script_find("dpkg.cfg", R_OK, &config, err) < 0)
        return -1;
    hutch_extend_builder_begin(builder, image_hex, false, &words);
    hutch_extend_builder_show(&words, config, "/mnt/builder", "/dpkg.cfg");
    return add_inside(&words, "extend_apt.sh", err) < 0 ? -1
                                                        : hutch_extend_builder_run(builder, &words, output, err);
}

int hutch_extend_apt(struct extend_builder *builder, const char *image_hex, const char *output, struct hutch_err *err)
{
    struct image_answer image = { .text = NULL };
    int rc = ask_image(builder, image_hex, &image, err);

    if (rc == 0)
        rc = fetch(builder, &image, err);
    free(image.text);
    return rc < 0 ? -1 : install(builder, image_hex, output, err);
}
