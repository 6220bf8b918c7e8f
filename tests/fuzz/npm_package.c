/* What a Node program says that it depends on: a package.json, words of a command line. */
#include "runtime/lang/npm_package.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_npm_packages packages = NPM_PACKAGES_INIT, again = NPM_PACKAGES_INIT, third = NPM_PACKAGES_INIT;
    uint8_t kind = fuzz_byte(&data, &size);
    auto_free char *text = fuzz_string(data, size);
    auto_free char *printed = NULL, *manifest = NULL, *other = NULL;
    struct hutch_err err = { .msg = "" };
    int rc = kind % 2 ? hutch_npm_packages_add(&packages, text, &err)
                      : hutch_npm_packages_add_manifest(&packages, text, size, &err);

    fuzz_check_err(rc, &err);
    for (size_t i = 0; i < packages.n; i++) {
        fuzz_check(!strpbrk(packages.items[i].range, ":/\\$@,\n") && packages.items[i].name[0] != '.');
        fuzz_check(i == 0 || strcmp(packages.items[i - 1].name, packages.items[i].name) < 0);
    }
    if (rc < 0 || packages.n == 0)
        return 0;
    /* What one process hands to another is the same there, in either form. */
    printed = hutch_npm_packages_print(&packages, &err);
    manifest = hutch_npm_packages_print_manifest(&packages, &err);
    fuzz_check(hutch_npm_packages_add(&again, printed, &err) == 0);
    fuzz_check(hutch_npm_packages_add_manifest(&third, manifest, strlen(manifest), &err) == 0);
    fuzz_check(again.n == packages.n && third.n == packages.n);
    other = hutch_npm_packages_print(&third, &err);
    fuzz_check(strcmp(printed, other) == 0);
    return 0;
}
