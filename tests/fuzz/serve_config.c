/* The file of `hutch serve --config`. What it says is printed as --check does, and compared as a reload does. */
#include "runtime/cli/serve_config.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct serve_setting setting = { .config = SERVE_CONFIG_INIT }, empty = { .config = SERVE_CONFIG_INIT };
    struct hutch_err err = { .msg = "" };
    auto_free char *text = NULL;
    char path[32], names[256];
    size_t len;
    int fd = fuzz_file(data, size, path), rc;
    FILE *to;

    setting.opts.config = path;
    rc = hutch_serve_config_read(&setting.config, &setting.opts, &err);
    fuzz_check_err(rc, &err);
    if (rc == 0) {
        to = open_memstream(&text, &len);
        fuzz_check(to);
        hutch_serve_config_print(to, &setting.config, &setting.opts);
        fuzz_check(fclose(to) == 0 && strlen(text) == len);
        hutch_serve_config_compare(&setting, &setting, names, sizeof(names));
        fuzz_check(names[0] == '\0'); /* nothing differs from itself */
        hutch_serve_config_compare(&empty, &setting, names, sizeof(names));
        fuzz_check(memchr(names, '\0', sizeof(names)));
    }
    hutch_serve_config_done(&setting.config);
    hutch_serve_config_done(&empty.config);
    close(fd);
    return 0;
}
