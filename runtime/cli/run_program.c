#include "runtime/cli/run_program.h"

#include "runtime/cli/run_options.h"
#include "runtime/hutch.h"
#include "sandbox/spec.h"

#include <string.h>

/* argv[0] says what kind of program it is, as decided by its name and first bytes. */
void hutch_run_program_describe(const struct run_opts *opts, const struct sandbox_spec *program, char *const *args,
                                struct hutch_request *to)
{
    to->args = (const char *const *)args;
    if (opts->code && (program->n_files == 0 || strcmp(program->argv[0], "python3") == 0)) {
        to->name = "-c";
        to->code = opts->code;
    } else if (program->n_files == 0) {
        to->name = "-";
    } else {
        const struct sandbox_file *file = &program->files[0];

        to->name = strrchr(file->target, '/') + 1;
        to->code = file->data;
        to->code_len = file->len;
        to->language = strcmp(program->argv[0], "python3") == 0 ? "python" : opts->language ? opts->language : "";
    }
}
