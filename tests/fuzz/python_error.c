/* The guest's own report of an exception. */
#include "runtime/lang/python_error.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error_report report = ERROR_REPORT_INIT;
    int rc = hutch_pyreport_parse((const char *)data, size, &report);

    fuzz_check(rc == 0 || rc == 1);
    fuzz_check((rc == 1) == (report.name && report.value && report.traceback));
    if (rc == 1) /* NULs became U+FFFD, which are longer */
        fuzz_check(strlen(report.name) + strlen(report.value) + strlen(report.traceback) >= size - PYREPORT_HEADER_LEN);
    hutch_error_report_done(&report);
    return 0;
}
