/* Words of a command line, each ended by a NUL. The first byte chooses the command. */
#include "runtime/cli/commands.h"

#include "tests/fuzz/fuzz.h"

#define MAX_WORDS 300 /* more than an option may be repeated */

_Static_assert(COMMAND_COUNT == 18, "a new command's struct belongs to the union below");

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct command *command = &hutch_commands[fuzz_byte(&data, &size) % COMMAND_COUNT];
    union {
        struct run_opts run;
        struct batch_opts batch;
        struct serve_opts serve;
        struct rootfs_opts rootfs;
        struct bundle_opts bundle;
        struct doctor_opts doctor;
        struct completion_opts completion;
        struct tools_opts tools;
    } opts;
    auto_free char *text = fuzz_string(data, size);
    char *argv[MAX_WORDS + 1], *at = text;
    struct hutch_err err = { .msg = "" };
    int argc = 0, i = 0, rc = 0;

    while (argc < MAX_WORDS && at < text + size) {
        argv[argc++] = at;
        at += strlen(at) + 1;
    }
    argv[argc] = NULL;
    memset(&opts, 0, sizeof(opts));
    while (i < argc && rc == 0) {
        int before = i;

        rc = hutch_option_take(command, &opts, argc, argv, &i, &err);
        fuzz_check_err(rc, &err);
        fuzz_check(rc < 0 || (i >= before && i <= argc));
        if (i == before)
            i++; /* a word that is none */
    }
    return 0;
}
