/* Pictures that hostile code has made: what is decoded is encoded, and that is decoded to the same. */
#include "runtime/term/png.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct png_image image = PNG_IMAGE_INIT, again = PNG_IMAGE_INIT;
    struct hutch_err err = { .msg = "" };
    unsigned char *png;
    size_t len, n;
    int rc = hutch_png_decode(data, size, &image, &err);

    fuzz_check_err(rc, &err);
    if (rc < 0) {
        fuzz_check(!image.pixels);
        return 0;
    }
    n = (size_t)4 * image.width * image.height;
    if (n < 1 << 16) {
        fuzz_check(hutch_png_encode(&image, &png, &len, &err) == 0);
        fuzz_check(hutch_png_decode(png, len, &again, &err) == 0);
        fuzz_check(again.width == image.width && again.height == image.height);
        fuzz_check(memcmp(again.pixels, image.pixels, n) == 0);
        hutch_png_image_done(&again);
        free(png);
    }
    hutch_png_image_done(&image);
    return 0;
}
