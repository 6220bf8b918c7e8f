/* An image's index, manifest and configuration, in a tar file: everything before a layer is unpacked. */
#include "rootfs/oci_image.h"
#include "rootfs/source.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct oci_choice choices[] = {
        { .select = NULL }, { .select = "1" }, { .select = "a:1", .platform = "linux/arm/v6" },
    };
    struct oci_image image = OCI_IMAGE_INIT;
    struct source source = SOURCE_INIT;
    struct hutch_err err = { .msg = "" };
    char path[32];
    auto_fd fd = fuzz_file(data, size, path), tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    fuzz_check(fd >= 0 && tmp >= 0);
    rc = hutch_source_open(path, tmp, 1 << 20, &source, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
        rc = hutch_oci_image_read(&source, &choices[i], &image, &err);
        fuzz_check_err(rc, &err);
        if (rc == 0) {
            fuzz_check(image.n_layers <= OCI_MAX_LAYERS);
            hutch_oci_image_done(&image);
        }
    }
    hutch_source_done(&source);
    return 0;
}
