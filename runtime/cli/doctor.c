#include "runtime/cli/doctor.h"

#include "runtime/cli/commands.h"
#include "runtime/doctor/doctor.h"
#include "sandbox/fd.h"
#include "runtime/text/nbjson.h"
#include "rootfs/stores.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JSON_VERSION 1

/* As runtime/cli/doctor.h promises. */
enum { EXIT_BOTH_RUN = 0, EXIT_DEFAULT_RUNS = 1, EXIT_NONE_RUNS = 2 };

static const char *const policies[] = { "default", "strict" };

/* What was found. */
struct report {
    struct doctor_host host;
    struct doctor_finding *findings; /* owned; one per check */
    struct doctor_trial trials[ARRAY_SIZE(policies)];
    struct store_image *images;      /* owned */
    size_t n_images;
};

static void report_done(struct report *r)
{
    for (size_t i = 0; i < r->n_images; i++)
        hutch_store_image_done(&r->images[i]);
    free(r->images);
    free(r->findings);
    hutch_doctor_host_done(&r->host);
}

static int collect_images(void *ctx, const struct store *store, struct hutch_err *err)
{
    struct report *r = ctx;
    struct store_image *images, *all;
    size_t n;

    if (hutch_store_list(store, &images, &n, err) < 0)
        return -1;
    all = reallocarray(r->images, r->n_images + n + 1, sizeof(*all));
    if (all) {
        r->images = all;
        memcpy(all + r->n_images, images, n * sizeof(*all));
        r->n_images += n;
    } else {
        for (size_t i = 0; i < n; i++)
            hutch_store_image_done(&images[i]);
    }
    free(images);
    return 0;
}

/* Makes no store: a report changes nothing on the host. What is wrong with one of them is a check's to tell. */
static void list_images(struct report *r)
{
    struct hutch_err ignored;
    auto_free char *path = NULL;
    struct store store;

    if (r->host.home && asprintf(&path, "%s/images", r->host.home) >= 0 && access(path, F_OK) == 0 &&
        hutch_store_open(r->host.home, &store, &ignored) == 0) {
        collect_images(r, &store, &ignored);
        hutch_store_done(&store);
    }
    hutch_stores_each_shared(collect_images, r, &ignored);
}

static int exit_status(const struct report *r)
{
    if (!r->trials[0].runs)
        return EXIT_NONE_RUNS;
    return r->trials[1].runs ? EXIT_BOTH_RUN : EXIT_DEFAULT_RUNS;
}

/* ---- for people ---- */

struct colours {
    const char *of[DOCTOR_STATUS_COUNT], *dim, *bold, *off;
};
static const struct colours plain = { { "", "", "", "" }, "", "", "" };
static const struct colours coloured = {
    { "\033[32m", "\033[33m", "\033[31m", "\033[2m" }, "\033[2m", "\033[1m", "\033[0m"
};

/* NO_COLOR asks for none, whatever its value is: no-color.org. */
static const struct colours *choose_colours(void)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");

    if (!isatty(STDOUT_FILENO) || (no_colour && no_colour[0]) || !term || strcmp(term, "dumb") == 0)
        return &plain;
    return &coloured;
}

/* @r's finding @i, with costs and fix when there is something to mend. */
static void print_finding(const struct colours *c, const struct report *r, size_t i)
{
    const struct doctor_check *check = &hutch_doctor_checks[i];
    const struct doctor_finding *f = &r->findings[i];

    printf("  %s%-10s%s %-18s %s\n", c->of[f->status],
           f->status == DOCTOR_NOT_NEEDED ? "not needed" : hutch_doctor_status_name(f->status), c->off, check->name,
           f->detail);
    if (f->status == DOCTOR_OK || f->status == DOCTOR_NOT_NEEDED || f->is_consequence)
        return;
    printf("             %scosts:%s %s\n", c->dim, c->off, f->costs);
    for (size_t before = 0; before < i; before++)
        if (!r->findings[before].is_consequence && strcmp(r->findings[before].fix, f->fix) == 0) {
            printf("             %sfix:%s   the same as for %s\n", c->dim, c->off, hutch_doctor_checks[before].name);
            return;
        }
    printf("             %sfix:%s   %s\n", c->dim, c->off, f->fix);
}

static void print_trials(const struct colours *c, const struct report *r)
{
    printf("\n%spolicies%s, tried with /usr/bin/true on --rootfs host\n", c->bold, c->off);
    for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
        const struct doctor_trial *t = &r->trials[i];

        enum doctor_status status = !t->runs ? DOCTOR_MISSING : t->weaker[0] ? DOCTOR_DEGRADED : DOCTOR_OK;
        const char *outcome = !t->runs ? "no" : t->weaker[0] ? "weaker" : "runs";
        const char *detail = !t->runs ? t->reason : t->weaker[0] ? "weaker than asked for: " : "as asked for";

        printf("  %s%-10s%s %-18s level %s: %s%s\n", c->of[status], outcome, c->off, policies[i], t->level, detail,
               t->weaker);
    }
}

static void print_summary(const struct report *r)
{
    unsigned counts[DOCTOR_STATUS_COUNT] = { 0 };

    for (size_t i = 0; i < hutch_doctor_n_checks; i++)
        counts[r->findings[i].status]++;
    printf("\n%u ok, %u degraded, %u missing, %u not needed. ", counts[DOCTOR_OK], counts[DOCTOR_DEGRADED],
           counts[DOCTOR_MISSING], counts[DOCTOR_NOT_NEEDED]);
    switch (exit_status(r)) {
    case EXIT_BOTH_RUN:
        puts("The policies default and strict both run here.");
        break;
    case EXIT_DEFAULT_RUNS:
        puts("The policy default runs here; strict does not.");
        break;
    default:
        puts("No sandbox runs here; the reasons stand above.");
    }
}

static void print_text(const struct report *r)
{
    const struct doctor_host *h = &r->host;
    const struct colours *c = choose_colours();
    const char *group = "";

    printf("hutch doctor: %s %s, %s, called by uid %u%s%s%s", h->uts.sysname, h->uts.release, h->uts.machine, h->uid,
           h->user[0] ? " (" : "", h->user, h->user[0] ? ")" : "");
    if (h->distribution[0])
        printf(", %s", h->distribution);
    if (h->facts.container[0])
        printf(", in a container (%s)", h->facts.container);
    putchar('\n');
    for (size_t i = 0; i < hutch_doctor_n_checks; i++) {
        if (strcmp(group, hutch_doctor_checks[i].group) != 0) {
            group = hutch_doctor_checks[i].group;
            printf("\n%s%s%s\n", c->bold, group, c->off);
        }
        print_finding(c, r, i);
    }
    print_trials(c, r);
    print_summary(r);
}

/* ---- for programs ---- */

/* A path can hold any byte, a cut message half a character; JSON cannot. */
static void add_text(cJSON *object, const char *key, const char *text)
{
    cJSON_AddItemToObject(object, key, text && text[0] ? hutch_nbjson_string(text, strlen(text)) : cJSON_CreateNull());
}

static void add_host(cJSON *root, const struct doctor_host *h)
{
    cJSON *host = cJSON_AddObjectToObject(root, "host");

    add_text(host, "kernel", h->uts.release);
    add_text(host, "arch", h->uts.machine);
    add_text(host, "distribution", h->distribution);
    cJSON_AddNumberToObject(host, "uid", h->uid);
    add_text(host, "user", h->user);
    add_text(host, "in_container", h->facts.container);
    add_text(host, "home", h->home);
    add_text(host, "policies", h->policy_dir);
    add_text(host, "cgroup", h->cgroup.path);
}

static void add_checks(cJSON *root, const struct report *r)
{
    cJSON *checks = cJSON_AddArrayToObject(root, "checks");

    for (size_t i = 0; i < hutch_doctor_n_checks; i++) {
        const struct doctor_finding *f = &r->findings[i];
        cJSON *check = cJSON_CreateObject();

        add_text(check, "name", hutch_doctor_checks[i].name);
        add_text(check, "group", hutch_doctor_checks[i].group);
        add_text(check, "status", hutch_doctor_status_name(f->status));
        add_text(check, "detail", f->detail);
        add_text(check, "costs", f->costs);
        add_text(check, "fix", f->fix);
        cJSON_AddItemToArray(checks, check);
    }
}

static void add_policies(cJSON *root, const struct report *r)
{
    cJSON *object = cJSON_AddObjectToObject(root, "policies");

    for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
        cJSON *policy = cJSON_AddObjectToObject(object, policies[i]);

        cJSON_AddBoolToObject(policy, "runs", r->trials[i].runs);
        add_text(policy, "level", r->trials[i].level);
        add_text(policy, "reason", r->trials[i].reason);
        add_text(policy, "weaker", r->trials[i].weaker);
    }
}

static void add_images(cJSON *root, const struct report *r)
{
    cJSON *images = cJSON_AddArrayToObject(root, "images");

    for (size_t i = 0; i < r->n_images; i++) {
        cJSON *image = cJSON_CreateObject();
        cJSON *names;

        add_text(image, "digest", r->images[i].digest);
        names = cJSON_AddArrayToObject(image, "names");
        for (size_t k = 0; k < r->images[i].n_names; k++)
            cJSON_AddItemToArray(names, hutch_nbjson_string(r->images[i].names[k], strlen(r->images[i].names[k])));
        cJSON_AddNumberToObject(image, "bytes", (double)r->images[i].bytes);
        cJSON_AddItemToArray(images, image);
    }
}

static int print_json(const struct report *r, struct hutch_err *err)
{
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;

    cJSON_AddNumberToObject(root, "version", JSON_VERSION);
    add_host(root, &r->host);
    add_checks(root, r);
    add_policies(root, r);
    add_images(root, r);
    text = root ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text)
        return hutch_err_set(err, ENOMEM, "print the report");
    puts(text);
    cJSON_free(text);
    return 0;
}

static void print_help(void)
{
    printf("usage: hutch doctor [--json]\n\n"
           "Tries what hutch needs of this host, and says what is missing, what that costs and how to mend it.\n"
           "Exit status: 0 when the policies default and strict both run, 1 when only default does, 2 when neither\n"
           "does, 125 when hutch failed.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_DOCTOR]);
}

static int make_report(struct report *r, struct hutch_err *err)
{
    if (hutch_doctor_look(&r->host, err) < 0)
        return -1;
    r->findings = calloc(hutch_doctor_n_checks, sizeof(*r->findings));
    if (!r->findings)
        return hutch_err_set(err, ENOMEM, "make the report");
    for (size_t i = 0; i < hutch_doctor_n_checks; i++)
        hutch_doctor_try(&r->host, &hutch_doctor_checks[i], DOCTOR_TIMEOUT_MS, &r->findings[i]);
    for (size_t i = 0; i < ARRAY_SIZE(policies); i++)
        hutch_doctor_try_policy(&r->host, policies[i], &r->trials[i]);
    list_images(r);
    return 0;
}

static int print_report(const struct report *r, bool as_json, struct hutch_err *err)
{
    if (as_json && print_json(r, err) < 0)
        return -1;
    if (!as_json)
        print_text(r);
    if (fflush(stdout) != 0 || ferror(stdout))
        return hutch_err_set(err, errno, "print the report");
    return 0;
}

int hutch_cmd_doctor(int argc, char **argv, struct hutch_err *err)
{
    struct report r = { 0 };
    struct doctor_opts opts = { 0 };
    int status = -1, i = 1;

    if (hutch_option_take(&hutch_commands[COMMAND_DOCTOR], &opts, argc, argv, &i, err) < 0)
        return -1;
    if (opts.help) {
        print_help();
        return 0;
    }
    if (i < argc)
        return hutch_err_set(err, 0, "there is no option '%s' (see: hutch doctor --help)", argv[i]);
    if (make_report(&r, err) == 0 && print_report(&r, opts.json, err) == 0)
        status = exit_status(&r);
    report_done(&r);
    return status;
}
