/* Packages of Debian, as words of a command line. */
#include "runtime/lang/debian_package.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_debian_packages packages = DEBIAN_PACKAGES_INIT, again = DEBIAN_PACKAGES_INIT;
    auto_free char *text = fuzz_string(data, size);
    struct hutch_err err = { .msg = "" };
    int rc = hutch_debian_packages_add(&packages, text, &err);

    fuzz_check_err(rc, &err);
    for (size_t i = 0; i < packages.n; i++) {
        const char *one = packages.texts[i];

        /* What apt takes for an option, a pattern, a file, another release, or for one that is to go. */
        fuzz_check(one[0] != '-');
        fuzz_check(!strpbrk(one, " \t\n/*?[]()^$,") && one[strcspn(one, "=") - 1] != '-');
        fuzz_check(hutch_debian_packages_add(&again, one, &err) == 0 && again.n == i + 1);
    }
    return 0;
}
