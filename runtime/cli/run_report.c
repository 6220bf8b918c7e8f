#include "runtime/cli/run_report.h"

#include "runtime/cli/exits.h"
#include "runtime/cli/missing_module.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/say.h"
#include "runtime/run/result.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hutch_run_exit_status(const struct hutch_result *result)
{
    if (result->verdict == HUTCH_TIMEOUT || result->verdict == HUTCH_CPU_TIME)
        return EXIT_TIMEOUT;
    if (result->signal)
        return EXIT_SIGNAL_BASE + result->signal;
    return result->exit_code >= 0 ? result->exit_code : EXIT_HUTCH;
}

static void print_enforcement(FILE *to, const struct hutch_result *result)
{
    struct hutch_layer_report layer = { .size = sizeof(layer) };
    struct hutch_limit_report limit = { .size = sizeof(limit) };

    if (result->level)
        fprintf(to, "hutch: level %s\n", result->level);
    for (unsigned i = 0; hutch_result_get_layer(result, i, &layer); i++)
        fprintf(to, "hutch: layer %-16s %s%s%s\n", layer.name, layer.is_active ? "active" : "absent",
                layer.detail[0] ? ": " : "", layer.detail);
    for (unsigned i = 0; hutch_result_get_limit(result, i, &limit); i++)
        if (limit.value)
            fprintf(to, "hutch: limit %-16s %" PRIu64 ", enforced by%s%s\n", limit.name, limit.value,
                    limit.enforcers[0] ? " " : "", limit.enforcers);
    if (result->internal->result->gpu)
        fprintf(to, "hutch: gpu %s\n", result->internal->result->gpu);
    fprintf(to, "hutch: prepared in %.1f ms, ran %.1f ms, %.1f ms in all\n", result->prepared_ms, result->run_ms,
            result->total_ms);
}

static void explain_missing_module(FILE *to, const struct run_opts *opts, const struct hutch_result *result)
{
    auto_free char *sentence = hutch_missing_module_explain(opts, result);

    if (sentence)
        fprintf(to, "hutch: %s\n", sentence);
}

/* Of a copy that is gone with the run. */
static void tell_project(FILE *to, const struct hutch_result *result)
{
    const struct run_result *r = result->internal->result;

    if (r->project.added.n || r->project.modified.n || r->project.deleted.n || r->project.truncated)
        fprintf(to, "hutch: the program has changed its copy of the project, which is not kept: %zu added, %zu "
                    "modified, %zu deleted%s (--json tells which)\n", r->project.added.n, r->project.modified.n,
                r->project.deleted.n, r->project.truncated ? ", and more" : "");
}

static void print_messages(FILE *to, const struct run_opts *opts, const struct hutch_result *result)
{
    if (opts->verbose)
        print_enforcement(to, result);
    if (result->message[0])
        fprintf(to, "hutch: %s\n", result->message);
    if (result->verdict == HUTCH_ERROR && !opts->quiet)
        explain_missing_module(to, opts, result);
    if (opts->writable && !opts->quiet)
        tell_project(to, result);
    if (!opts->quiet && !opts->data && result->directory)
        fprintf(to, "hutch: files written to " INSIDE_DATA_DIR " are in %s\n", result->directory);
}

int hutch_run_report_make(const struct run_opts *opts, const struct hutch_result *result, struct run_report *ret,
                          struct hutch_err *err)
{
    struct run_report report = { .status = hutch_run_exit_status(result) };
    FILE *to;

    if (opts->json) {
        report.json = hutch_result_to_json(result);
    } else {
        to = open_memstream(&report.messages, &report.messages_len);
        if (to) {
            print_messages(to, opts, result);
            if (fclose(to) != 0) {
                free(report.messages);
                report.messages = NULL;
            }
        }
    }
    if (!report.json && !report.messages)
        return hutch_err_set(err, ENOMEM, "describe the result");
    *ret = report;
    return 0;
}

int hutch_run_report_print(const struct run_report *report, int lost_output, struct hutch_err *err)
{
    if (report->json && hutch_say_json(report->json, err) < 0)
        return -1;
    if (report->messages)
        hutch_say_text(stderr, report->messages, report->messages_len);
    if (!lost_output)
        return report->status;
    hutch_say("pass on the program's output: %s", strerror(lost_output));
    return EXIT_HUTCH;
}

void hutch_run_report_print_failure(int status, const struct hutch_err *why)
{
    const struct run_opts opts = { .json = true };
    struct run_report report = RUN_REPORT_INIT;
    struct hutch_run_details details;
    struct run_result failed;
    struct hutch_result result;
    struct hutch_err ignored;

    hutch_result_init(&failed);
    failed.verdict = HUTCH_SETUP_FAILED;
    failed.exit_code = status;
    snprintf(failed.message, sizeof(failed.message), "%s", why->msg);
    hutch_result_publish(&failed, &details, &result);
    if (hutch_run_report_make(&opts, &result, &report, &ignored) == 0)
        hutch_run_report_print(&report, 0, &ignored); /* the sentence on standard error is left */
    hutch_run_report_done(&report);
    hutch_result_done(&failed);
}

void hutch_run_report_done(struct run_report *report)
{
    free(report->json);
    free(report->messages);
    *report = (struct run_report)RUN_REPORT_INIT;
}
