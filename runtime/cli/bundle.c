#include "runtime/cli/bundle.h"

#include "rootfs/home.h"
#include "rootfs/image_config.h"
#include "rootfs/image_root.h"
#include "runtime/cli/bundle_dir.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/run_inside.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/say.h"
#include "runtime/config/oci_config.h"
#include "runtime/config/oci_gaps.h"
#include "runtime/config/profile.h"
#include "runtime/lang/program.h"
#include "runtime/lang/requirement.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_help(void)
{
    printf("usage: hutch bundle [options] IMAGE DIR\n"
           "       hutch bundle [options] IMAGE DIR FILE [ARGS...]\n"
           "       hutch bundle [options] IMAGE DIR -- PROGRAM [ARGS...]\n\n"
           "Writes an OCI runtime bundle into DIR, which is new or empty: runc and crun run the image in it as the\n"
           "policy says. The process is a FILE of the host, a PROGRAM of the image, or the image's own; without any\n"
           "of these Python, or sh, from standard input. What the bundle's config.json cannot say is listed on\n"
           "standard error.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_BUNDLE]);
}

/* --- the command line ------------------------------------------------------------------------------------------- */

struct bundle_words {
    const char *image, *dir, *file; /* not owned; NULL for what is not there */
    char **rest;                    /* what follows FILE, or "--" */
};

/* Options may stand between IMAGE and DIR, and behind them; FILE ends them, as its own come then. */
static int parse(int argc, char **argv, struct bundle_opts *opts, struct bundle_words *words, struct hutch_err *err)
{
    int i = 1, is_over = 0;

    while (true) {
        is_over = hutch_option_take(&hutch_commands[COMMAND_BUNDLE], opts, argc, argv, &i, err);
        if (is_over < 0)
            return -1;
        if (opts->help || is_over || i == argc || words->file)
            break;
        if (!words->image) {
            words->image = argv[i++];
        } else if (!words->dir) {
            words->dir = argv[i++];
        } else {
            words->file = argv[i++];
            break;
        }
    }
    words->rest = argv + i;
    if (opts->help || words->dir)
        return 0;
    return hutch_err_set(err, 0, "expected IMAGE and DIR%s (see: hutch bundle --help)", is_over ? " before '--'" : "");
}

/* --- what runs in it -------------------------------------------------------------------------------------------- */

/* @languages: "python, sh, bash". */
static bool has_language(const char *languages, const char *name)
{
    const size_t len = strlen(name);

    for (const char *p = languages; *p; p += strcspn(p, ","), p += strspn(p, ", "))
        if (strcspn(p, ",") == len && strncmp(p, name, len) == 0)
            return true;
    return false;
}

/* As `hutch run -` has it: what comes on standard input is the program. */
static int set_standard_input(struct sandbox_spec *spec, struct hutch_err *err)
{
    static const char *const shell[] = { "sh" };
    char *const none[] = { NULL };
    char languages[256];

    hutch_program_list_installed(spec->rootfs_path, languages, sizeof(languages));
    if (has_language(languages, "python"))
        return hutch_program_set_stdin(spec, none, err);
    if (has_language(languages, "sh"))
        return hutch_spec_set_list(&spec->argv, shell, ARRAY_SIZE(shell), err);
    return hutch_err_set(err, 0, "there is nothing to run: the image names no program, and has neither Python nor sh; "
                                 "which of it is to run comes after '--'");
}

static int has_own_program(const struct sandbox_spec *spec, bool *ret, struct hutch_err *err)
{
    struct image_config config;

    if (hutch_image_config_read(spec->rootfs_path, &config, err) < 0)
        return -1;
    *ret = (config.entrypoint && config.entrypoint[0]) || (config.cmd && config.cmd[0]);
    hutch_image_config_done(&config);
    return 0;
}

/* A bundle has the tree of an image, and no layer over it. The program is the file that was added last. */
static int refuse_packages(const struct sandbox_spec *spec, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_requirement_list_done))) struct requirement_list wanted = REQUIREMENT_LIST_INIT;
    const struct sandbox_file *program = spec->n_files ? &spec->files[spec->n_files - 1] : NULL;

    if (strcmp(spec->argv[0], "python3") != 0 || !program)
        return 0;
    if (hutch_requirement_add_script(&wanted, program->data, program->len, err) < 0)
        return -1;
    if (wanted.n == 0)
        return 0;
    return hutch_err_set(err, 0, "the script wants the package '%.100s'%s, and a bundle has one tree: build an image "
                                 "that has it", wanted.texts[0], wanted.n > 1 ? " and others" : "");
}

static int set_program(const struct bundle_opts *opts, const struct bundle_words *words, struct sandbox_spec *spec,
                       struct hutch_err *err)
{
    bool is_inside = opts->sandbox.entrypoint || words->rest[0];

    if (words->file && opts->sandbox.entrypoint)
        return hutch_err_set(err, 0, "option '--entrypoint' is for a program of the image, and '%s' is brought into it",
                             words->file);
    if (words->file)
        return hutch_program_set_file(spec, NULL, words->file, words->rest, err) < 0 ? -1 : refuse_packages(spec, err);
    if (!is_inside && has_own_program(spec, &is_inside, err) < 0)
        return -1;
    return is_inside ? hutch_run_inside_set(&opts->sandbox, words->rest, spec, err) : set_standard_input(spec, err);
}

/* In memory, so that its size and number of files are bounded by the kernel, and it has the container's owner. */
static int add_data(struct sandbox_spec *spec, struct hutch_err *err)
{
    struct sandbox_mount *data = hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, INSIDE_DATA_DIR, MOUNT_DATA, err);

    if (!data)
        return -1;
    data->size_bytes = spec->limits[LIMIT_DATA_SIZE];
    data->inodes = spec->limits[LIMIT_DATA_FILES] ? spec->limits[LIMIT_DATA_FILES] + 1 : 0; /* and its own directory */
    data->mode = 0755;
    return 0;
}

/* The policy's binds that may be missing, and are: a runtime would fail. */
static void drop_missing(struct sandbox_spec *spec)
{
    size_t n = 0;

    for (size_t i = 0; i < spec->n_mounts; i++) {
        struct sandbox_mount *m = &spec->mounts[i];

        if (m->kind == MOUNT_BIND && (m->flags & MOUNT_OPTIONAL) && access(m->source, F_OK) < 0) {
            free(m->source);
            free(m->target);
            continue;
        }
        spec->mounts[n++] = *m;
    }
    spec->n_mounts = n;
}

/* --- whose ids it has ------------------------------------------------------------------------------------------- */

/* The program's are the first of the range, which hutch lends to no sandbox: ids.h. */
static int choose_ids(struct oci_ids *ret, struct hutch_err *err)
{
    struct id_plan plan;
    struct id_range range;

    if (hutch_userns_plan(&plan, err) < 0)
        return -1;
    *ret = (struct oci_ids){ geteuid(), getegid(), plan.host_uid, plan.host_gid };
    if (plan.is_mapped_away)
        return 0;
    if (!hutch_userns_read_range(&range))
        return hutch_err_set(err, 0, "uid %u has no subordinate ids, and a bundle needs one for its program, beside "
                                     "the runtime's own: root gives some by usermod --add-subuids FIRST-LAST "
                                     "--add-subgids FIRST-LAST USER, ids that nobody has", geteuid());
    ret->uid = range.uid;
    ret->gid = range.gid;
    return 0;
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static void say_gap(void *ctx, const char *name, const char *what_is_lost)
{
    (void)ctx;
    hutch_say("not in config.json: %s: %s", name, what_is_lost);
}

static int build_spec(const struct bundle_opts *opts, const struct bundle_words *words, struct sandbox_spec *spec,
                      struct image_root *ret_image, struct hutch_err *err)
{
    auto_free char *home = NULL;
    struct profile profile;

    if (hutch_home_path(&home, err) < 0 || hutch_run_options_profile(&opts->sandbox, home, NULL, &profile, err) < 0 ||
        hutch_spec_init(spec, err) < 0 || hutch_profile_build(&profile, spec, err) < 0 ||
        hutch_profile_set_root(&profile, spec, ret_image, err) < 0)
        return -1;
    if (ret_image->n_layers > 0)
        return hutch_err_set(err, 0, "the image '%s' has layers over its tree, and a bundle has one tree: name the "
                                     "image that it extends", words->image);
    if (hutch_spec_find_changes(spec))
        return hutch_err_set(err, 0, "the policy has a directory for changes of the root (\"root_changes\"), which a "
                                     "bundle's configuration has no word for");
    drop_missing(spec);
    return add_data(spec, err) < 0 || set_program(opts, words, spec, err) < 0 ? -1 : 0;
}

static int make(const struct bundle_opts *opts, const struct bundle_words *words, struct hutch_err *err)
{
    struct sandbox_spec spec = { 0 };
    auto_free char *json = NULL;
    auto_image_root image = IMAGE_ROOT_INIT;
    struct oci_ids ids;
    int rc = -1;

    if (build_spec(opts, words, &spec, &image, err) == 0 && choose_ids(&ids, err) == 0 &&
        hutch_oci_config_make(&spec, &ids, opts->copy ? BUNDLE_ROOT_DIR : spec.rootfs_path, &json, err) == 0)
        rc = hutch_bundle_dir_make(words->dir, &spec, json, opts->copy, err);
    if (rc == 0)
        hutch_oci_gaps_each(&spec, say_gap, NULL);
    hutch_spec_done(&spec);
    return rc;
}

int hutch_cmd_bundle(int argc, char **argv, struct hutch_err *err)
{
    static const int ending[] = { SIGINT, SIGTERM, SIGHUP };
    struct bundle_words words = { .image = NULL };
    struct bundle_opts opts = { .copy = false };
    sigset_t set, before;
    int rc;

    if (parse(argc, argv, &opts, &words, err) < 0)
        return -1;
    if (opts.help) {
        print_help();
        return 0;
    }
    opts.sandbox.image = words.image;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
        sigaddset(&set, ending[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    rc = make(&opts, &words, err);
    sigprocmask(SIG_SETMASK, &before, NULL); /* here one that has come ends us, and nothing is half made */
    return rc;
}
